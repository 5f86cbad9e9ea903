"""Small images with few labels, and a model fitted to them."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from ssdml.utils.torch_tools import one_thread
from tests.deep import N_TRIPLETS, small_images, small_model


@contextmanager
def few():
    """Learn L from fewer triplets, and on smaller partitions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.deep.PARTITION_SIZE", 200)
        patch.setattr("ssdml.deep.alternation.N_TRIPLETS", N_TRIPLETS)
        yield


@pytest.fixture(scope="module", autouse=True)
def small_fits(one_thread):
    """Use one thread, few triplets and small partitions in all tests of the folder."""
    with few():
        yield


@pytest.fixture(scope="package")
def digits():
    X, y, labels = small_images(n=400)
    X.flags.writeable = labels.flags.writeable = False
    return X, y, labels


@pytest.fixture(scope="package")
def fitted(digits):
    X, _, labels = digits
    with one_thread(), few():  # made before the module's fixture holds
        return small_model().fit(X, labels)
