"""Data with a few labels, read-only, and fewer triplets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs


@pytest.fixture(scope="session")
def digits():
    """scikit-learn's digits with five labels per class, read-only."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    labels = np.full(len(y), -1)
    rng = np.random.default_rng(0)
    for c in range(10):
        labels[rng.choice(np.flatnonzero(y == c), 5, replace=False)] = c
    for array in (X, y, labels):
        array.flags.writeable = False
    return X, y, labels


@pytest.fixture(scope="session")
def blobs():
    """Three clusters in five dimensions, the first 20 rows labeled."""
    X, y = make_blobs(120, 5, centers=3, cluster_std=2.0, random_state=1)
    labels = np.where(np.arange(120) < 20, y, -1)
    X.flags.writeable = labels.flags.writeable = False
    return X, y, labels


@pytest.fixture(scope="session")
def overlapping():
    """600 rows of three clusters that overlap, 15 labeled here and there; and their classes."""
    X, y = make_blobs(600, 5, centers=3, cluster_std=2.5, random_state=0)
    labels = np.where(np.arange(600) % 40 == 7, y, -1)
    for array in (X, y, labels):
        array.flags.writeable = False
    return X, labels, y


@pytest.fixture(scope="module", autouse=True)
def few_triplets() -> Iterator[None]:
    """A tenth of the triplets per round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssdml.metric.alternation.N_TRIPLETS", 5000)
        patch.setattr("ssdml.metric.out_of_core.N_TRIPLETS", 5000)
        yield


@pytest.fixture(scope="module")
def short_maps() -> Iterator[None]:
    """A tenth of the steps of each map."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssdml.graphs.layout.EARLY_STEPS", 15)
        patch.setattr("ssdml.graphs.layout.STEPS", 25)
        yield


@pytest.fixture
def small_partitions(monkeypatch):
    """Partitions of a dask array have 200 rows."""
    monkeypatch.setattr("ssdml.metric.out_of_core.PARTITION_ROWS", 200)


@pytest.fixture
def harmful_metric(monkeypatch):
    """L is the direction in which classes differ least."""

    def last_discriminant(feature_map, *args):
        feature_map.L = np.linalg.svd(feature_map.L)[0][:, -1:]
        return {"n_triplets": 1}

    for module in ("alternation", "out_of_core"):
        monkeypatch.setattr(f"ssdml.metric.{module}.update_metric", last_discriminant)
