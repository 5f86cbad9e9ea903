"""Overhead of a step, of graph, mining and metric over the epochs, and the speed of bfloat16."""

from __future__ import annotations

import time
import timeit
from collections import defaultdict

import numpy as np
import pytest
import torch
from torch.nn import functional

from ssdml import DeepSSDML
from ssdml.datasets.splits import label_scarce_split
from ssdml.deep import alternation, estimator as deep
from ssdml.deep.alternation import AlternationTrainer
from ssdml.networks.backbones import named_backbone
from ssdml.networks.metric_network import MetricNetwork, lay_channels_last
from ssdml.networks.training import Stepper, mixed_precision
from ssdml.utils.torch_tools import one_thread
from tools.gpu.data import enlarged_digits
from tools.gpu.steps import SHAPES, WARM, bare_step


@pytest.fixture
def seconds(monkeypatch):
    """Seconds of each part of a fit; nested parts count in both."""
    spent = defaultdict(float)

    def timed(owner, name):
        part = getattr(owner, name)

        def run(*args, **options):
            begin = time.perf_counter()
            result = part(*args, **options)
            spent[name] += time.perf_counter() - begin
            return result

        monkeypatch.setattr(owner, name, run)

    timed(deep, "input_graph")
    for name in ("_prepare", "_train", "finish", "embed"):
        timed(AlternationTrainer, name)
    return spent


def test_graph_and_metric_add_at_most_30_percent(benchmark, mnist, seconds):
    """Graphs, propagation, mining and L against the training loop, in a whole fit of MNIST.

    Embedding all images is not counted.
    """
    split = label_scarce_split(mnist, 10, seed=0)
    images = mnist.X[split.train].reshape(-1, 28, 28)
    model = DeepSSDML("mnist", random_state=0, n_jobs=-1)
    benchmark.pedantic(model.fit, (images, split.partial_labels(mnist.y)), rounds=1)
    whole = seconds["input_graph"] + seconds["_prepare"] + seconds["finish"]
    added, epochs = whole - seconds["embed"], seconds["_train"]
    benchmark.extra_info |= dict(seconds) | {"added": added, "ratio": added / epochs}
    assert np.isfinite(model.history_[-1]["loss"])
    assert added / epochs <= 0.30


@pytest.mark.parametrize(("name", "size"), [("mnist", 160), ("wide-resnet", 16)])
def test_step_takes_at_most_15_percent_longer_than_a_bare_one(benchmark, monkeypatch, name, size):
    """Median CPU time on one thread, a step of each after the other.

    The bare step has the same network and images, without views, triplets and draws.
    """
    seconds, take_steps = defaultdict(list), AlternationTrainer._take_steps

    def interleaved(*args):
        steps, bare = take_steps(*args), bare_step(name, size, "cpu", mixed=False)
        while True:
            begin = time.thread_time()
            if (loss := next(steps, None)) is None:
                return
            middle = time.thread_time()
            bare()
            seconds["ours"].append(middle - begin)
            seconds["bare"].append(time.thread_time() - middle)
            yield loss

    monkeypatch.setattr(AlternationTrainer, "_take_steps", interleaved)
    images = enlarged_digits(400, SHAPES[name], 2)
    with one_thread():
        model = DeepSSDML(name, 32, epochs=80 * size // 400, batch_size=size, random_state=0)
        benchmark.pedantic(model.fit, (images.X, images.labels), rounds=1)
    milliseconds = {kind: 1000 * np.median(times[WARM:]) for kind, times in seconds.items()}
    ratio = milliseconds["ours"] / milliseconds["bare"]
    benchmark.extra_info |= milliseconds | {"ratio": ratio}
    assert ratio <= 1.15


class ExclusiveTimes:
    """CPU seconds of this thread in parts that call one another, each without its inner ones."""

    def __init__(self):
        self.restart()

    def restart(self):
        self.spent, self.running, self.since = defaultdict(float), ["draws"], time.thread_time()

    def of(self, part, function):
        """The function, timed as this part."""

        def timed(*args, **options):
            self.stop()
            self.running.append(part)
            try:
                return function(*args, **options)
            finally:
                self.stop()
                self.running.pop()

        return timed

    def stop(self):
        now = time.thread_time()
        self.spent[self.running[-1]] += now - self.since
        self.since = now


@pytest.mark.filterwarnings("ignore:the loss is hardly below chance")
@pytest.mark.parametrize("mixed", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "size"), [("mnist", 160), ("cifar", 160), ("wide-resnet", 16)])
def test_network_takes_80_percent_of_a_step(benchmark, monkeypatch, name, size, mixed):
    """CPU time of the parts of 40 steps, the second partition of a fit, on one thread."""
    times = ExclusiveTimes()
    for owner, function, part in (
        (AlternationTrainer, "_view", "views"),
        (AlternationTrainer, "_targets", "losses"),
        (AlternationTrainer, "_loss", "losses"),
        (alternation, "batch_angular_loss", "triplets"),
        (MetricNetwork, "forward", "forward"),
        (torch.Tensor, "backward", "backward"),
        (torch.optim.AdamW, "step", "optimizer"),
    ):
        monkeypatch.setattr(owner, function, times.of(part, getattr(owner, function)))
    train = AlternationTrainer._train

    def restarted(*args):
        times.restart()
        losses = train(*args)
        times.stop()
        return losses

    monkeypatch.setattr(AlternationTrainer, "_train", restarted)
    images = enlarged_digits(max(100, 5 * size // 2), SHAPES[name], 2)
    epochs = 40 * size // len(images.X)
    recipe = {"epochs": 2 * epochs, "epochs_per_partition": epochs, "batch_size": size}
    model = DeepSSDML(name, 32, mixed_precision=mixed, random_state=0, **recipe)
    with one_thread():
        benchmark.pedantic(model.fit, (images.X, images.labels), rounds=1)
    whole = sum(times.spent.values())
    percent = {part: 100 * spent / whole for part, spent in times.spent.items()}
    benchmark.extra_info |= percent | {"milliseconds": 1000 * whole / 40}
    assert percent["forward"] + percent["backward"] + percent["optimizer"] >= 80


@pytest.mark.parametrize(("name", "shape"), [("mnist", (1, 28, 28)), ("cifar", (3, 32, 32))])
def test_step_in_bfloat16_against_float32(benchmark, name, shape):
    """128 images, one thread; the ratio depends on the processor and is only reported."""
    backbone = named_backbone(name, shape)
    lay_channels_last(backbone, shape)
    network = MetricNetwork(backbone, torch.eye(backbone.n_features), 10)
    trainer = Stepper(network, weight_decay=0.0)
    images, classes = torch.rand(128, *shape), torch.arange(128) % 10

    def step():
        loss = functional.cross_entropy(network.logits(network(images)), classes)
        return float(trainer.step(loss, 0.0))

    with one_thread():
        exact, seconds = step(), min(timeit.repeat(step, number=1, repeat=20))
        with mixed_precision(network, True):
            rounded = benchmark.pedantic(step, rounds=20, warmup_rounds=3)
    benchmark.extra_info["ratio"] = benchmark.stats["min"] / seconds
    assert rounded == pytest.approx(exact, rel=0.01)
