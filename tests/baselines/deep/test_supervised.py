"""DeepSupervised: networks learned from labeled triplets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from ssdml.baselines import DeepSupervised
from ssdml.baselines.deep.supervised import TripletTrainer, labeled_triplets
from ssdml.graphs.triplets import Triplets
from ssdml.networks.data import as_samples
from ssdml.networks.metric_network import new_network
from tests.deep import small_images, small_network

LABELS = np.array([0, -1, 0, 4, 4, -1, 4])  # 2 · 1 · 3 triplets of class 0, 3 · 2 · 2 of class 4


class TestTriplets:
    def test_triplets_are_drawn_uniformly(self, rng):
        drawn = np.concatenate(
            [np.stack(labeled_triplets(LABELS, 100, rng)[:3]) for _ in range(500)], axis=1
        )
        assert drawn.shape == (3, 500 * 18)  # as many as there are
        anchor, positive, negative = LABELS[drawn]
        assert (anchor == positive).all()
        assert (anchor != negative).all()
        assert (drawn[0] != drawn[1]).all()
        assert not np.isin(drawn, [1, 5]).any()
        kinds, counts = np.unique(drawn, axis=1, return_counts=True)
        assert kinds.shape[1] == 18
        assert np.abs(counts - 500).max() < 110  # five standard errors

    def test_n_triplets_is_a_maximum(self, rng):
        assert len(labeled_triplets(LABELS, 5, rng).anchor) == 5

    @pytest.mark.parametrize("labels", [[0, 0, 0, -1], [0, 1, 2, -1]])
    def test_labels_without_triplets_raise(self, rng, labels):
        with pytest.raises(ValueError, match=r"two samples of one class and one of another; got 3"):
            labeled_triplets(np.array(labels), 5, rng)


@pytest.fixture
def run():
    X, _, labels = small_images(n=200)
    items = as_samples(X, "test")
    network = new_network(small_network(), items, 16, 10, 0, "cpu")
    model = DeepSupervised("triplet", small_network(), 16, margin=0.3)
    run = model._new_trainer(items, labels, network, 0, "cpu")
    assert isinstance(run, TripletTrainer)
    return run


def test_triplet_loss_matches_torch(run):
    generator = torch.Generator().manual_seed(0)
    ends = torch.rand(3, 20, 4, generator=generator)
    expected = functional.triplet_margin_with_distance_loss(
        *ends,
        distance_function=lambda a, b: (a - b).square().sum(dim=1),
        margin=0.3,
        reduction="none",
    )
    assert 0 < (expected == 0).sum() < 20
    torch.testing.assert_close(run._losses(*ends), expected)


def test_batch_lowers_the_loss_with_orthonormal_l(run, rng):
    features = rng.standard_normal((30, 32)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    ends = rng.permuted(np.tile(np.arange(30), (40, 1)), axis=1)[:, :3].T
    rows = torch.from_numpy(features)

    def value():
        return run._losses(*(rows[end] @ run.network.metric for end in ends)).mean()

    before = value()
    run._learn_metric(features, Triplets(*ends, np.ones(40)))
    assert value() < 0.8 * before
    L = run.network.L
    np.testing.assert_allclose(L.T @ L, np.eye(16), atol=1e-6)


@pytest.mark.parametrize("loss", ["triplet", "angular"])
def test_loss_falls_and_ignores_unlabeled_items(loss):
    X, y, labels = small_images(n=300)
    options = {"n_triplets": 500, "learning_rate": 1e-2, "dampening": 0.0, "random_state": 0}
    model = DeepSupervised(loss, small_network(), 16, epochs=4, epochs_per_partition=4, **options)
    model.fit(X, labels)
    assert (labels[np.concatenate(model.triplets_[:3])] != -1).all()
    losses = model.history_[0]["losses"]
    assert losses[-1] < 0.5 * losses[0]
    assert (model.transduction_ == y).mean() > 0.75


@pytest.mark.parametrize("loss", ["triplet", "angular"])
def test_l_leaves_the_manifold_without_orthogonality(loss):
    X, _, labels = small_images(n=200)
    options = {"epochs": 1, "n_triplets": 300, "random_state": 0}
    model = DeepSupervised(loss, small_network(), 16, orthogonal=False, **options)
    L = model.fit(X, labels).components_
    assert np.abs(np.linalg.svd(L, compute_uv=False) - 1).max() > 0.2


@pytest.mark.parametrize(("name", "value"), [("loss", "n-pair"), ("margin", 0.0), ("angle", 90)])
def test_parameters_out_of_range_raise(name, value):
    X, _, labels = small_images(n=200)
    model = DeepSupervised("triplet", small_network(), 16).set_params(**{name: value})
    with pytest.raises(ValueError, match=f"The '{name}' parameter of DeepSupervised must be"):
        model.fit(X, labels)
