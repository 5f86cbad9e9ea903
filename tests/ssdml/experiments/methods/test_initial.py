"""Features of an untrained or pretrained network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ssdml.experiments.methods.deep import InitialFeatures

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def rows(rng):
    """Two classes that no linear map separates."""
    X = rng.standard_normal((60, 2)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    return X, np.where(np.arange(60) < 40, y, -1)


@pytest.fixture
def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 16))


def test_initial_features_have_unit_length(rows, network):
    X, labels = rows
    standardized = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0))
    with torch.no_grad():
        expected = nn.functional.normalize(network(standardized), dim=1).numpy()
    found = InitialFeatures(network).fit(X, labels)
    np.testing.assert_allclose(found.transform(X), expected, atol=1e-5)
    assert not found.losses_


def test_pretraining_learns_the_labels(rows, network):
    X, labels = rows
    model = InitialFeatures(network, pretrain_epochs=200, random_state=0).fit(X, labels)
    assert len(model.losses_) == 200
    assert model.losses_[0] > 0.5 > 0.1 > model.losses_[-1]
    Z, known = model.transform(X), labels >= 0
    means = np.stack([Z[labels == c].mean(axis=0) for c in range(2)])
    assert ((Z @ means.T).argmax(axis=1)[known] == labels[known]).mean() > 0.95
    before = InitialFeatures(network).fit(X).transform(X)
    means = np.stack([before[labels == c].mean(axis=0) for c in range(2)])
    assert ((before @ means.T).argmax(axis=1)[known] == labels[known]).mean() < 0.9


def test_pretraining_without_labels_changes_nothing(rows, network):
    X, _ = rows
    plain = InitialFeatures(network).fit(X).transform(X)
    model = InitialFeatures(network, pretrain_epochs=5).fit(X, np.full(60, -1))
    assert not model.losses_
    np.testing.assert_array_equal(model.transform(X), plain)
