"""Three blobs of 30 rows, the first 24 rows labeled."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from ssdml import SSDML


def blobs():
    X, y = make_blobs(90, 4, centers=3, cluster_std=1.5, random_state=0)
    X.flags.writeable = False
    return X, y


@pytest.fixture
def X():
    return blobs()[0]


@pytest.fixture
def y():
    """The class of the first 24 rows, -1 for the rest."""
    return np.where(np.arange(90) < 24, blobs()[1], -1)


@pytest.fixture(scope="module")
def plain():
    """The default, fitted; tests do not change it."""
    X, y = blobs()
    return SSDML(random_state=0).fit(X, np.where(np.arange(90) < 24, y, -1))
