"""A small data set, methods with known results, a neighborhood made by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from ssdml.datasets import Dataset
from ssdml.experiments import METHODS
from ssdml.experiments.runs.details import MinedSample
from ssdml.graphs.plotting import Neighborhood


class Broken(BaseEstimator):
    """Fail in fit, with a message that HTML must escape."""

    def fit(self, X, y):
        raise RuntimeError("no <metric> & no luck")


@pytest.fixture(scope="session")
def blobs() -> Dataset:
    """Three separated classes, with a name that HTML must escape."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 40)
    X = (rng.normal(size=(120, 4)) + 4 * np.eye(4)[y]).astype(np.float32)
    X.setflags(write=False)
    return Dataset("<blobs> & co", X, y, ("a", "b", "<c>"))


@pytest.fixture(scope="module")
def broken_method() -> Iterator[str]:
    """A registered method whose fit raises."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "broken", lambda seed, n_jobs: Broken())
        yield "broken"


@pytest.fixture
def mined() -> MinedSample:
    """An anchor of class 1 with three neighbors, one of its class, and two triplets of seven."""
    around = Neighborhood(
        rows=np.array([40, 3, 9, 7, 21, 30]),
        n_neighbors=3,
        edges=np.array([[0, 1], [0, 2], [0, 3], [1, 2]]),
        affinities=np.array([1.0, -0.5, 0.2, -0.1]),
        labels=np.array([1, -1, 0, -1, -1, -1]),
        positives=np.array([1, 4]),
        negatives=np.array([2, 5]),
    )
    return MinedSample(around, np.array([1, 1, 0, 2, 2, 0]), 7)
