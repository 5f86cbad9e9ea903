"""A small skewed data set that takes the place of "wine" in the suite."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.datasets import Dataset
from tools.robust import cells, sets

SIZES = (120, 60, 31, 25, 25, 25, 14, 7)  # rows per class


@pytest.fixture
def skewed(rng) -> Dataset:
    """Eight classes of unequal sizes, a third of each for the test, and rows of no class."""
    y = np.repeat([*range(len(SIZES)), -1], [*SIZES, 20])
    X = rng.normal(3, 2, (len(y), 4)) * [1, 10, 100, 0] + y[:, None]
    test = (np.arange(len(y)) % 3 == 0) & (y >= 0)
    names = tuple(f"class {c}" for c in range(len(SIZES)))
    return Dataset("skewed", X.astype(np.float32), y, names, test)


@pytest.fixture
def as_wine(monkeypatch):
    """A function that puts a data set into the suite as "wine"."""

    def put(dataset: Dataset) -> None:
        source = sets.SOURCES["wine"]._replace(read=lambda: dataset)
        monkeypatch.setattr(sets, "SOURCES", sets.SOURCES | {"wine": source})
        monkeypatch.setattr(cells, "SOURCES", sets.SOURCES)
        sets.read.cache_clear()
        cells.problem.cache_clear()

    yield put
    sets.read.cache_clear()
    cells.problem.cache_clear()
