"""Data sets and labels of the measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ssdml.datasets.base import Dataset
from ssdml.experiments.preprocessing import preprocess
from tools.robust.cells import Problem, balanced, cut, missing
from tools.robust.sets import FORMS, intents, place, read

MOST_TEST = 4000


class Given(NamedTuple):
    """A data set of the measurements.

    Attributes
    ----------
    form : str
        Of the features; "components" are 64 principal components of rows of unit length.
    n_train : int
        At most so many random training rows.
    """

    form: str
    n_train: int


SETS: Mapping[str, Given] = {
    "banking77": Given("raw", 10_000),
    "digits": Given("raw", 2000),
    "mnist": Given("components", 4000),
    "fashion_mnist": Given("components", 4000),
    "caltech101": Given("unit", 10_000),
    "wine": Given("standardized", 2000),
    "breast_cancer": Given("standardized", 2000),
}


def problem(name: str, labels: int, seed: int, *, some_missing: bool = False) -> Problem:
    """A data set with so many labels per class.

    With ``some_missing``, a quarter of the classes has none.
    """
    given = SETS[name]
    dataset: Dataset = cut(read(name), seed, given.n_train, MOST_TEST)
    form = FORMS["raw"] if given.form == "components" else FORMS[given.form]
    if given.form == "components":
        dataset = preprocess(dataset, "components")
    split = (missing if some_missing else balanced)(dataset, labels, seed)
    X, X_test = form(dataset.X[split.train], dataset.X[split.test])
    y, truth = split.partial_labels(dataset.y), dataset.y[split.train]
    return Problem(X, y, truth, X_test, dataset.y[split.test])


def other_intents(labels: int, seed: int, *, among: bool) -> tuple[Problem, np.ndarray]:
    """Fifty intents of Banking77, and test questions of its other 27.

    With ``among``, training questions of the other intents are among the unlabeled rows.
    """
    dataset = read("banking77_oos")
    if not among:
        dataset = dataset.of_rows(np.flatnonzero(dataset.y >= 0))
    split = balanced(dataset, labels, seed)
    y = split.partial_labels(dataset.y)
    found = Problem(
        dataset.X[split.train],
        y,
        dataset.y[split.train],
        dataset.X[split.test],
        dataset.y[split.test],
    )
    return found, intents("banking77_oos", "id_oos_test")[0].astype(np.float32)


def clutter(labels: int, seed: int) -> tuple[Problem, np.ndarray]:
    """Caltech-101, and its photographs of no class."""
    background = np.load(place("caltech101/background_X.npy")).astype(np.float32)
    found = problem("caltech101", labels, seed)
    return found, FORMS["unit"](background, background)[0]
