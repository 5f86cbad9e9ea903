"""A small data set, and a method that fails."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from ssdml.datasets import Dataset
from ssdml.experiments import METHODS


class Broken(BaseEstimator):
    """Fail in fit, with a message that HTML must escape."""

    def fit(self, X, y):
        raise RuntimeError("no <metric> & no luck")


@pytest.fixture(scope="module", autouse=True)
def short_maps_everywhere(short_maps) -> None:
    """Draw maps in few steps."""


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
