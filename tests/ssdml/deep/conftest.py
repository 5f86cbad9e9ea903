"""Small images with a few labels, and a model that has learned them."""

from __future__ import annotations

import pytest
import torch

from tests.deep import small_images, small_model


@pytest.fixture(scope="package", autouse=True)
def one_thread():
    """Batches are small, and the machine may be busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def digits():
    X, y, labels = small_images()
    X.flags.writeable = labels.flags.writeable = False
    return X, y, labels


@pytest.fixture(scope="package")
def fitted(digits):
    X, _, labels = digits
    return small_model().fit(X, labels)
