"""The cells of the suite: which rows of a data set are labeled, and how."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ssdml.datasets.base import Dataset
from ssdml.datasets.budgets import Budget
from ssdml.datasets.splits import LabelScarceSplit, label_scarce_split
from ssdml.utils.typing import Ints
from tools.robust.sets import FORMS, SOURCES, Array, read

MOST_TRAIN, MOST_TEST = 10_000, 4_000
WRONG = 0.2  # of the labels
PUBLISHED_SEED = 0  # of the one published draw


class Cell(NamedTuple):
    """A data set, the form of its features, and its labels."""

    set: str
    features: str
    scheme: str
    labels: int  # per class
    seed: int
    full: bool = False


class Problem(NamedTuple):
    """What a method learns from, and what it is scored on."""

    X: Array  # (n, d)
    y: Ints  # (n,), -1 where unlabeled
    truth: Ints  # (n,), -1 for rows of no class
    X_test: Array
    y_test: Ints


def plan(
    sets: Sequence[str],
    schemes: Sequence[str],
    labels: Sequence[int],
    n_seeds: int,
    *,
    features: Sequence[str] = (),
    full: bool = False,
) -> Iterator[Cell]:
    """Cells seed by seed.

    Without ``features``, balanced labels are given with all forms of the features of a set, other
    schemes with the first one. With them, all schemes are.
    """
    for seed in range(n_seeds):
        for name in sets:
            source = SOURCES[name]
            for form in source.features:
                for scheme in schemes:
                    usual = scheme == "balanced" or form == source.features[0]
                    drawn = source.labeled is None
                    fixed = scheme == "balanced" and seed == PUBLISHED_SEED
                    if (form in features if features else usual) and (drawn or fixed):
                        for n in source.budgets:
                            if n in labels:
                                yield Cell(name, form, scheme, n, seed, full)


def balanced(dataset: Dataset, labels: int, seed: int) -> LabelScarceSplit:
    """Equally many labels per class, however skewed the classes are."""
    return label_scarce_split(dataset, labels, seed=seed)


def random(dataset: Dataset, labels: int, seed: int) -> LabelScarceSplit:
    """As many labels in total, drawn from all rows: some classes get few, or none."""
    total = labels * len(dataset.class_names)
    return label_scarce_split(dataset, Budget(total, "natural"), seed=seed)


def noisy(dataset: Dataset, labels: int, seed: int) -> LabelScarceSplit:
    """Balanced labels, a fifth of which are wrong."""
    return label_scarce_split(dataset, Budget(labels, noise=WRONG), seed=seed)


def missing(dataset: Dataset, labels: int, seed: int) -> LabelScarceSplit:
    """Balanced labels for three quarters of the classes; the others, at least one, get none."""
    split = balanced(dataset, labels, seed)
    n_classes = len(dataset.class_names)
    order = np.random.default_rng([seed, 4]).permutation(n_classes)
    gone = np.isin(dataset.y[split.labeled], order[: max(1, n_classes // 4)])
    return replace(split, labeled=split.labeled[~gone])


SCHEMES: Mapping[str, Callable[[Dataset, int, int], LabelScarceSplit]] = {
    "balanced": balanced,
    "random": random,
    "noisy": noisy,
    "missing": missing,
}


def cut(dataset: Dataset, seed: int, n_train: int, n_test: int) -> Dataset:
    """At most so many random training and test rows, which become the standard split."""
    split = label_scarce_split(dataset, 1, seed=seed)
    rng = np.random.default_rng([seed, 3])
    sizes = ((split.train, n_train), (split.test, n_test))
    train, test = (np.sort(rng.permutation(rows)[:most]) for rows, most in sizes)
    part = dataset.of_rows(np.concatenate([train, test]))
    return replace(part, test=np.arange(len(part.y)) >= len(train))


def draw(cell: Cell) -> tuple[Dataset, LabelScarceSplit]:
    """The rows of a cell, before they take their form, and which of them are labeled."""
    source, dataset = SOURCES[cell.set], read(cell.set)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="label_scarce_split: every class should have")
        warnings.filterwarnings("ignore", message="label_scarce_split: .* training rows for")
        if source.labeled is not None:
            split = label_scarce_split(dataset, cell.labels, seed=cell.seed)
            return dataset, replace(split, labeled=source.labeled(cell.labels))
        if not cell.full:
            dataset = cut(dataset, cell.seed, MOST_TRAIN, MOST_TEST)
        return dataset, SCHEMES[cell.scheme](dataset, cell.labels, cell.seed)


@lru_cache(maxsize=1)
def problem(cell: Cell) -> Problem:
    """The rows of a cell in their form; what the form needs is learned from training rows."""
    dataset, split = draw(cell)
    X, X_test = FORMS[cell.features](dataset.X[split.train], dataset.X[split.test])
    y, truth = split.partial_labels(dataset.y), dataset.y[split.train]
    return Problem(X, y, truth, X_test, dataset.y[split.test])
