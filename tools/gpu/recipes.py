"""Whole fits: MNIST with 100 labels, CIFAR-10 with 1,000, and where the time of a fit goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np

from ssdml import DeepSSDML
from ssdml.evaluation import evaluate, few_label_accuracy
from tools.gpu.data import Images, data_set, enlarged_digits
from tools.gpu.rows import Row, Rows, tell

PARTS = {  # of a fit, and the functions that do them
    "input": "ssdml.deep.estimator.project_input",
    "input graph": "ssdml.deep.estimator.input_graph",
    "embedding": "ssdml.deep.trainer.embed_samples",
    "graph": "ssdml.deep.trainer.device_graph",
    "propagation": "ssdml.deep.trainer.propagate_labels",
    "mining": "ssdml.deep.alternation.mine",
    "metric": "ssdml.deep.alternation.learn_metric",
}
# Entries of a partition's history that a row keeps.
TOLD = ("loss", "changed", "propagation_accuracy", "seconds", "validation")
LARGE_BATCH = 512
EVALUATION = 18  # seconds that the input and scoring take, about
PREPARATION = 8  # of a partition's graph, labels and scores


def fitted_row(model: DeepSSDML, images: Images, seed: int, *, scored: bool = False) -> Row:
    """Seconds of a fit, shares of its parts, and scores of the test images.

    If it is scored, after each partition too, which nothing is chosen by.
    """
    held = (images.X_test, images.y_test) if scored else None
    start = time.perf_counter()
    model.fit(images.X, images.labels, validation=held)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    Z, few = model.transform(images.X_test), model.transform(images.X[images.labeled])
    predicted = model.predict(images.X_test)
    transformed = time.perf_counter() - start
    scores = evaluate(Z, images.y_test, random_state=seed)
    scores["accuracy"] = few_label_accuracy(few, images.labels[images.labeled], Z, images.y_test)
    scores["predicted"] = 100 * float(np.mean(predicted == images.y_test))
    right = model.transduction_ == images.y
    return {
        "n_train": len(images.X),
        "n_labeled": len(images.labeled),
        "seed": seed,
        "settings": changed_settings(model),
        "fit": round(seconds, 2),
        "transform": round(transformed, 2),
        "scores": {name: round(value, 2) for name, value in scores.items()},
        "transduction": round(100 * float(right.mean()), 2),
        "stages": {name: round(value, 2) for name, value in model.stage_seconds_.items()},
        **shares(model, images),
        "history": [{k: v for k, v in entry.items() if k in TOLD} for entry in model.history_],
    }


def changed_settings(model: DeepSSDML) -> Row:
    """Parameters that are not the defaults; devices and seeds left out."""
    defaults, own = DeepSSDML().get_params(), model.get_params()
    apart = ("device", "random_state", "n_jobs")
    return {k: v for k, v in own.items() if v != defaults[k] and k not in apart}


def shares(model: DeepSSDML, images: Images) -> Row:
    """Share of graph and metric of the partitions, and milliseconds of a step."""
    n_known = len(images.labeled)
    n_unknown = len(images.X) - n_known
    n_rows = n_known + min(model.partition_size or n_unknown, n_unknown)
    lengths = [len(entry["losses"]) for entry in model.history_]  # epochs of each partition
    n_steps = sum(-(-length * n_rows // model.batch_size) for length in lengths)
    seconds = [entry["seconds"] for entry in model.history_]
    added = sum(part["graph and metric"] for part in seconds)
    epochs = sum(part["epochs"] for part in seconds)
    whole = sum(model.stage_seconds_.values())
    return {
        "graph_and_metric": round(added, 2),
        "epochs": round(epochs, 2),
        "n_steps": n_steps,
        "step_ms": round(1000 * epochs / n_steps, 3),
        "graph_share_of_partitions": round(added / (added + epochs), 3),
        "all_but_epochs_share_of_fit": round(1 - epochs / whole, 3),
    }


def mnist_row(seed: int, device: str, *, toy: bool = False) -> Row:
    """The recipe of MNIST with 100 labels as it is; asked: 30 s, NMI 95, R@1 99.0."""
    images, options = mnist_images(seed, toy=toy)
    model = DeepSSDML("mnist", random_state=seed, device=device, n_jobs=-1, **options)
    return fitted_row(model, images, seed)


def mnist_images(seed: int, *, toy: bool) -> tuple[Images, dict[str, Any]]:
    """MNIST, and no other settings; or a toy and short ones."""
    if toy:
        short = {"epochs": 2, "epochs_per_partition": 1, "batch_size": 20, "metric_steps": 1}
        return enlarged_digits(120, (1, 28, 28), 5), short
    return data_set("mnist", 10, seed), {}


def mnist_parts(device: str, *, toy: bool) -> Row:
    """Seconds of each part of two partitions of MNIST, each of one epoch.

    A part within another counts in both: the input graph holds a search and two propagations.
    """
    images, short = mnist_images(0, toy=toy)
    options = short | {"epochs": 2, "epochs_per_partition": 1}
    model = DeepSSDML("mnist", random_state=0, device=device, n_jobs=-1, **options)
    seconds: dict[str, list[float]] = {}
    with ExitStack() as patches:
        for part, target in PARTS.items():
            spent = seconds.setdefault(part, [])
            patches.enter_context(patch(target, clocked(resolved(target), spent)))
        model.fit(images.X, images.labels)
    return {
        "n": len(images.X),
        "parts": {part: [round(s, 3) for s in spent] for part, spent in seconds.items()},
        **shares(model, images),
    }


def resolved(target: str) -> Callable[..., Any]:
    """The function of this dotted name."""
    module, _, name = target.rpartition(".")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def clocked(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """The function, which notes the seconds of each call."""

    def call(*args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **options)
        spent.append(time.perf_counter() - start)
        return result

    return call


def run_cifar10(rows: Rows, *, toy: bool) -> None:
    """CIFAR-10 with 1,000 labels by WRN-28-2: the recipe as it is, then for as long as there is."""
    images = enlarged_digits(40, (3, 32, 32), 2) if toy else data_set("cifar10", 100, 0)
    tell(f"{len(images.X)} images to learn from, {rows.left:.0f} s left")
    short: dict[str, Any] = {"n_components": 64, "device": rows.device, "n_jobs": -1}
    if toy:
        short |= {"batch_size": 4, "partition_size": 4, "input_edges": 0.0, "input_weight": 0.0}
        images = images._replace(X_test=images.X_test[:20], y_test=images.y_test[:20])
    recipe = {"epochs": 2, "epochs_per_partition": 1} if toy else {}

    def row(*, scored: bool = False, **options: Any) -> Row:
        model = DeepSSDML("wide-resnet", random_state=0, **(short | options))
        return fitted_row(model, images, 0, scored=scored)

    needs = 0 if toy else 110
    first = rows.measure("cifar10, default recipe", lambda: row(**recipe), needs=needs)
    if first is None or toy:
        return
    n_partitions = 3
    seconds = rows.left - EVALUATION - PREPARATION * n_partitions
    epochs = epochs_in(seconds, first["step_ms"], len(images.X), n_partitions)
    longer = {"epochs": epochs, "epochs_per_partition": epochs // n_partitions}
    longer |= {"partition_size": None, "batch_size": LARGE_BATCH}
    rows.measure("cifar10, all images, longer", lambda: row(**longer, scored=True), needs=60)


def epochs_in(seconds: float, step_ms: float, n_images: int, n_partitions: int) -> int:
    """Passes over all images that fit into so many seconds, in large batches.

    A step of a batch of 512 is taken to last half as long again as one of 160, which leaves a
    card waiting for the CPU.

    Examples
    --------
    >>> epochs_in(120, 20.0, 51_200, 1)
    40
    """
    epochs = int(1000 * seconds / (1.5 * step_ms) * LARGE_BATCH / n_images)
    return max(n_partitions, epochs // n_partitions * n_partitions)
