"""Custom losses of DeepSSDML: their input, parameters and checkpoints."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import CrossBatchMemory
from torch import nn

from ssdml.deep import alternation as deep_run
from ssdml.deep.trainer import PartitionTrainer
from ssdml.losses import (
    BinomialDevianceLoss,
    ContrastiveLoss,
    DensityAdaptivity,
    GraphConsistency,
    ProxyGMLLoss,
)
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.training import Stepper
from tests.deep import assert_same_weights, small_images, small_model, small_network


class Recorder(nn.Module):
    """A loss with one parameter that records its calls."""

    calls: list = []  # noqa: RUF012  # of all copies

    def __init__(self, takes_halves=False):
        super().__init__()
        self.takes_halves = takes_halves
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, embeddings, labels, *others):
        Recorder.calls.append((embeddings.detach(), labels))
        return self.scale.square() * embeddings.square().mean()


def test_losses_see_unit_embeddings_and_propagated_classes(digits):
    Recorder.calls = []
    X, _, labels = digits
    given = Recorder()
    small_model(epochs=2, losses=given).fit(X, labels)
    assert len(Recorder.calls) == 13  # 2 * 250 samples, 40 at a time
    for embedding, classes in Recorder.calls:
        torch.testing.assert_close(embedding.norm(dim=1), torch.ones(40))
        assert classes.bincount(minlength=10).tolist() == [4] * 10
    assert given.scale.item() == 1  # a copy was learned


def test_weight_zero_changes_nothing(digits):
    X, _, labels = digits
    usual = small_model(epochs=2).fit(X, labels)
    zero = small_model(epochs=2, losses=[(0.0, BinomialDevianceLoss())]).fit(X, labels)
    assert_same_weights(usual, zero)
    some = small_model(epochs=2, losses=[BinomialDevianceLoss()]).fit(X, labels)
    assert (some.transform(X) != usual.transform(X)).any()


def test_halves_of_batches_are_aligned_on_demand(digits):
    Recorder.calls = []
    X, _, labels = digits
    losses = [Recorder(), (0.01, GraphConsistency())]
    small_model(epochs=2, losses=losses).fit(X, labels)
    assert len(Recorder.calls) == 13  # 2 * 250 samples, 40 at a time
    for _, classes in Recorder.calls:
        first, second = classes.reshape(2, -1)
        assert torch.equal(first, second)


@pytest.mark.parametrize(("n_classes", "world_size", "size"), [(7, 1, 28), (7, 4, 28), (3, 8, 24)])
def test_halves_may_be_smaller_than_a_batch(n_classes, world_size, size, monkeypatch):
    """Their size is a multiple of classes, halves and ranks."""
    monkeypatch.setattr(deep_run, "world_size", lambda: world_size)
    X, y, labels = small_images()
    few = y < n_classes
    Recorder.calls = []
    losses = [Recorder(), (0.01, GraphConsistency())]
    small_model(epochs=1, losses=losses).fit(X[few], labels[few])
    assert {len(classes) for _, classes in Recorder.calls} == {size}


def test_parameter_groups_keep_their_own_rate():
    network = MetricNetwork(small_network(), torch.eye(32, 8), 3)
    losses = 1.0 * ProxyGMLLoss(3, 8, ratio=1.0, learning_rate=0.5)
    trainer = Stepper(network, weight_decay=0.0, losses=losses)
    before = [p.detach().clone() for p in losses.parameters()]
    embedding = network(torch.rand(6, 1, 8, 8))
    trainer.step(losses(embedding, torch.tensor([0, 0, 1, 1, 2, 2])), 1e-3)
    assert [group["lr"] for group in trainer.optimizer.param_groups] == [1e-3, 0.5]
    moved = [(p - b).abs().max().item() for p, b in zip(losses.parameters(), before, strict=True)]
    assert max(moved) == pytest.approx(0.5, rel=0.2)  # a step of Adam is as long as its rate


def test_losses_resume_to_the_same_bits(digits, tmp_path, monkeypatch):
    X, _, labels = digits
    with torch.random.fork_rng():
        torch.manual_seed(0)
        losses = [(0.5, ProxyGMLLoss(10, 16, ratio=0.5))]
    short = {"epochs": 3, "epochs_per_partition": 1, "losses": losses}
    at_once = small_model(**short).fit(X, labels)
    model = small_model(**short, checkpoint_dir=tmp_path)
    interrupt(monkeypatch, model, X, labels)
    assert_same_weights(at_once, model.fit(X, labels))


class Counting(nn.Module):
    """A network that counts its steps in a plain number."""

    def __init__(self):
        super().__init__()
        self.inner, self.n_steps = small_network(), 0

    def forward(self, x):
        self.n_steps += self.training
        return self.inner(x) * (1 + self.n_steps % 10 / 10) + self.n_steps / 100


@pytest.mark.parametrize("backbone", [True, False], ids=["backbone", "loss"])
def test_counters_of_modules_are_in_checkpoints(digits, tmp_path, monkeypatch, backbone):
    """CrossBatchMemory keeps its place in the queue in a number, which is in no state dict."""
    X, _, labels = digits
    queue = CrossBatchMemory(ContrastiveLoss(), 16, memory_size=300)
    changes = {"backbone": Counting()} if backbone else {"losses": queue}
    short = {"epochs": 3, "epochs_per_partition": 1} | changes
    at_once = small_model(**short).fit(X, labels)
    interrupt(monkeypatch, small_model(**short, checkpoint_dir=tmp_path), X, labels)
    resumed = small_model(**short, checkpoint_dir=tmp_path).fit(X, labels)
    assert_same_weights(at_once, resumed)
    np.testing.assert_array_equal(resumed.transform(X), at_once.transform(X))


def interrupt(monkeypatch, model, X, labels):
    """Interrupt a fit after two partitions."""
    partition = PartitionTrainer.partition

    def stop(run, progress):
        if len(run.history) == 2:
            raise KeyboardInterrupt
        return partition(run, progress)

    with monkeypatch.context() as patched:
        patched.setattr(PartitionTrainer, "partition", stop)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, labels)


def test_rejects_batches_too_small_for_halves(digits):
    X, _, labels = digits
    model = small_model(losses=GraphConsistency(), batch_size=1)
    with pytest.raises(ValueError, match="batch_size must be at least 2 with losses of two halves"):
        model.fit(X, labels)


def test_losses_of_any_precision_are_those_in_float32(digits):
    X, _, labels = digits
    loss = ProxyGMLLoss(10, 16, n_proxies=2, ratio=1.0)
    plain, double = (
        small_model(epochs=2, losses=one).fit(X, labels)
        for one in (loss, copy.deepcopy(loss).double())
    )
    assert_same_weights(plain, double)


def test_rejects_losses_without_weights(digits):
    X, _, labels = digits
    with torch.device("meta"):
        loss = DensityAdaptivity(10)
    with pytest.raises(ValueError, match=r"losses must have weights; .* is on the meta device"):
        small_model(losses=loss).fit(X, labels)


def test_rejects_what_is_no_loss(digits):
    X, _, labels = digits
    message = r"losses must be a loss, or a list .* pairs \(weight, loss\); .* be modules; got str"
    with pytest.raises(TypeError, match=message):
        small_model(losses=["triplet"]).fit(X, labels)


def test_aligned_halves_need_two_labels_of_a_class(digits):
    X, y, _ = digits
    labels = np.full(len(X), -1)
    labels[[int(np.flatnonzero(y == c)[0]) for c in range(10)]] = np.arange(10)
    for options in ({"learn_from": "labeled"}, {"input_edges": 0}):
        message = "y must have two labels of a class .*; got one label of each of 10 classes"
        with pytest.raises(ValueError, match=message):
            small_model(losses=GraphConsistency(), **options).fit(X, labels)
