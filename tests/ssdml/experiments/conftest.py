"""A data set that takes no time, methods with known results, rows made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from ssdml.datasets import Dataset
from ssdml.experiments import METHODS
from ssdml.experiments.runs.details import MinedSample
from ssdml.experiments.runs.results import Row
from ssdml.graphs.plotting import Neighborhood


class Broken(BaseEstimator):
    """Fails while it learns, with a message that HTML has to escape."""

    def fit(self, X, y):
        raise RuntimeError("no <metric> & no luck")


@pytest.fixture
def blobs() -> Dataset:
    """Three classes that are easy to tell apart, with a name that HTML has to escape."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 40)
    X = (rng.normal(size=(120, 4)) + 4 * np.eye(4)[y]).astype(np.float32)
    X.setflags(write=False)
    return Dataset("<blobs> & co", X, y, ("a", "b", "<c>"))


@pytest.fixture
def broken_method(monkeypatch: pytest.MonkeyPatch) -> str:
    """A registered method whose fit raises."""
    monkeypatch.setitem(METHODS, "broken", lambda seed, n_jobs: Broken())
    return "broken"


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


@pytest.fixture
def make_row() -> Callable[..., Row]:
    """A row of a run that went well; keywords replace what it holds."""

    def make(**changes: Any) -> Row:
        scores = {name: 50.0 for name in ("F1", "R@2", "R@4", "R@8", "MAP@R")}
        scores |= {"NMI": 60.0, "R@1": 70.0, "accuracy": 80.0}
        row = {
            "dataset": "blobs",
            "method": "input",
            "seed": 0,
            "labels_per_class": 5,
            "n_train": 80,
            "n_labeled": 15,
            "n_test": 40,
            "scores": scores | changes.pop("scores", {}),
            "seconds": {"fit": 0.5, "transform": 0.1},
            "peak_rss_mb": 100.0,
            "versions": {"ssdml": "0.1.0"},
            "status": "ok",
            "error": None,
        } | changes
        key = (row["dataset"], row["method"], row["seed"], row["labels_per_class"])
        return {"config_hash": "-".join(map(str, key))} | row

    return make
