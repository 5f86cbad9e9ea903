"""The experiments of Calder et al. (2020) at few labels: protocol and published accuracies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ssdml.experiments.methods.base import with_parameters
from ssdml.experiments.methods.registry import METHODS
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

N_CODES = {"mnist": 20, "fashion_mnist": 30}  # of the autoencoder
COMPARED = ("logistic", "knn", "poisson", "ssdml")

# Accuracy of Poisson learning in percent, mean and standard deviation over 100 draws of labels, by
# labels per class. Calder, Cook, Thorpe, Slepčev, "Poisson learning: graph based semi-supervised
# learning at very low label rates", ICML 2020; recomputed from the authors' trials,
# github.com/jwcalder/GraphLearning, ResultsFromPaper/{MNIST,FashionMNIST}*_vae_k10_poisson_accuracy
PUBLISHED: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "mnist": {1: (90.2, 4.0), 2: (93.6, 1.6), 5: (95.3, 0.7), 10: (95.9, 0.4)},
    "fashion_mnist": {1: (60.8, 4.6), 2: (66.1, 3.9), 5: (72.4, 2.3), 10: (75.2, 1.5)},
}
BUDGETS = (1, 2, 5, 10)

Trial = dict[str, Any]


def draw_labels(y: Ints, n_labels: int, trial: int) -> Ints:
    """Keep the labels of so many random rows per class; -1 elsewhere.

    Labels of a trial contain those of the same trial with fewer labels.

    Examples
    --------
    >>> draw_labels(np.array([0, 1, 0, 1, 1]), 1, 0).tolist()
    [0, -1, -1, -1, 1]
    """
    rng, labels = np.random.default_rng(trial), np.full(len(y), UNLABELED)
    for c in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == c))[:n_labels]
        labels[rows] = c
    return labels


def transductive_accuracy(method: str, X: Array, y: Ints, n_labels: int, trial: int) -> float:
    """Fit a method on all rows and compute its accuracy on the unlabeled ones, in percent.

    Classes are ``transduction_``, or those of ``predict`` for methods without a graph.

    Examples
    --------
    >>> X = np.repeat([[0.0], [1.0]], 10, axis=0) + np.linspace(0, 0.1, 20)[:, None]
    >>> transductive_accuracy("knn", X, np.repeat([0, 1], 10), 1, 0)
    100.0
    """
    labels = draw_labels(y, n_labels, trial)
    model: Any = with_parameters(method, METHODS)(trial, -1)
    model.fit(X, labels)
    unlabeled = labels == UNLABELED
    found = getattr(model, "transduction_", None)
    classes = model.predict(X[unlabeled]) if found is None else found[unlabeled]
    return 100 * float(np.mean(classes == y[unlabeled]))


def scores_by_method(trials: Iterable[Trial]) -> dict[str, dict[int, tuple[float, float]]]:
    """Mean and standard deviation of the accuracies of each method, by labels per class.

    Examples
    --------
    >>> scores_by_method({"method": "knn", "labels": 1, "accuracy": a} for a in (60.0, 62.0))
    {'knn': {1: (61.0, 1.0)}}
    """
    found: dict[str, dict[int, list[float]]] = {}
    for trial in trials:
        by_labels = found.setdefault(trial["method"], {})
        by_labels.setdefault(trial["labels"], []).append(trial["accuracy"])
    return {
        method: {n: (float(np.mean(v)), float(np.std(v))) for n, v in by_labels.items()}
        for method, by_labels in found.items()
    }


def table_lines(dataset: str, trials: Iterable[Trial]) -> Iterator[str]:
    """Lines of text: mean and standard deviation of each method by labels per class.

    Examples
    --------
    >>> trials = [{"method": "knn", "labels": 1, "accuracy": value} for value in (60.0, 62.0)]
    >>> for line in table_lines("mnist", trials):
    ...     print(line)
    labels per class                 1
    knn                     61.0 (1.0)
    poisson, published      90.2 (4.0)
    """
    found = scores_by_method(trials)
    budgets = sorted({n for scores in found.values() for n in scores})
    yield f"{'labels per class':20}{''.join(f'{n:14}' for n in budgets)}"
    for method, scores in found.items():
        yield _line(method, scores, budgets)
    if dataset in PUBLISHED:
        yield _line("poisson, published", PUBLISHED[dataset], budgets)


def _line(name: str, scores: Mapping[int, tuple[float, float]], budgets: Sequence[int]) -> str:
    cells = ("{:.1f} ({:.1f})".format(*scores[n]) if n in scores else "" for n in budgets)
    return f"{name:20}{''.join(f'{cell:>14}' for cell in cells)}".rstrip()
