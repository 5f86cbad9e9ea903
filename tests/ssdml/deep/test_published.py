"""DeepSSDML.paper(): Algorithm 1 of Dutta et al. (2021), against a slow derivation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from ssdml import DeepSSDML
from ssdml.deep.published import PublishedTrainer
from ssdml.graphs import Triplets
from ssdml.metric.alternation import learn_metric
from ssdml.utils.linalg import nearest_orthonormal
from tests import reference
from tests.deep import small_network

RATE, DECAY, MOMENTUM = 0.05, 5e-4, 0.9
COUNT = 3  # batches that are recorded


@pytest.fixture(scope="module")
def followed(digits):
    """Stop a published fit after a few batches, and record them."""
    X, _, labels = digits
    seen = {"batches": [], "networks": []}
    loss, batches = PublishedTrainer._loss, PublishedTrainer._batches

    def few(run, *args):
        seen["rows"] = run.parts[0]
        seen["drawn"] = list(batches(run, *args))
        return iter(seen["drawn"][:COUNT])

    def spy(run, batch):
        seen["batches"].append(batch)
        seen["networks"].append(copy.deepcopy(run.network))
        return loss(run, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PublishedTrainer, "_batches", few)
        patch.setattr(PublishedTrainer, "_loss", spy)
        options = {"partition_size": 120, "epochs": 2, "epochs_per_partition": 2}
        model = DeepSSDML.paper(
            small_network(), 16, **options, learning_rate=RATE, random_state=0
        ).fit(X, labels)
    return model, seen


def test_triplets_come_from_features_before_the_metric(followed, digits):
    X, _, labels = digits
    model, seen = followed
    rows = seen["rows"]
    with torch.no_grad():
        samples = torch.from_numpy(X[rows])[:, None]
        features = seen["networks"][0].eval().features(samples).numpy()
    indices, _ = reference.knn(features, 10)
    affinities = reference.one_sided_affinities(indices, labels[rows], 0.99)
    expected = rows[np.array(reference.neighborhood_triplets(indices, affinities))]
    found = np.array(model.triplets_[:3]).T
    assert {tuple(t) for t in found.tolist()} == {tuple(t) for t in expected.tolist()}
    assert len(found) == len(expected) > 300


def test_epochs_have_full_batches_of_triplets(followed):
    model, seen = followed
    each = len(model.triplets_.anchor) // 100
    assert [batch.shape[1] for batch in seen["drawn"]] == [100] * (2 * each)
    all_of_them = {tuple(ends) for ends in np.array(model.triplets_[:3]).T.tolist()}
    first, second = (
        [tuple(ends) for batch in epoch for ends in batch.T.tolist()]
        for epoch in (seen["drawn"][:each], seen["drawn"][each:])
    )
    for epoch in (first, second):
        assert len(set(epoch)) == len(epoch)  # none comes twice
        assert set(epoch) <= all_of_them
    assert first != second
    assert first != sorted(first)


def test_each_batch_updates_metric_then_network(followed, digits):
    """Ten conjugate gradient steps on L, then one SGD step on the network."""
    X, _, _ = digits
    model, seen = followed
    network = copy.deepcopy(seen["networks"][0]).train()
    L = nearest_orthonormal(network.L)
    factor = 4 * np.tan(np.radians(40.0)) ** 2
    speed = [torch.zeros_like(p) for p in network.backbone.parameters()]
    for number, ends in enumerate(seen["batches"]):
        used, places = np.unique(ends, return_inverse=True)
        places = places.reshape(3, -1)
        features = network.features(torch.from_numpy(X[used])[:, None])
        triplets = Triplets(*places, np.ones(places.shape[1]))
        given = features.detach().numpy()
        L = learn_metric(given, triplets, L, angle=40.0, max_iter=10, rescale=False).point
        losses = []
        for a, p, n in places.T:
            near, far = features[a] - features[p], features[n] - (features[a] + features[p]) / 2
            near, far = (((side @ torch.from_numpy(L).float()) ** 2).sum() for side in (near, far))
            losses.append(torch.log1p(torch.exp(near - factor * far)))
        gradients = torch.autograd.grad(sum(losses) / len(losses), network.backbone.parameters())
        with torch.no_grad():
            for p, v, g in zip(network.backbone.parameters(), speed, gradients, strict=True):
                v.copy_(g + DECAY * p if not number else MOMENTUM * v + 0.1 * (g + DECAY * p))
                p.sub_(RATE * v)
    assert len(seen["batches"]) == COUNT
    np.testing.assert_allclose(model.components_, L.T, atol=2e-4)
    begun = seen["networks"][0].backbone.parameters()
    moved = []
    for found, expected, before in zip(
        model.network_.backbone.parameters(), network.backbone.parameters(), begun, strict=True
    ):
        np.testing.assert_allclose(found.detach(), expected.detach(), atol=1e-5)
        moved.append(float((found - before).detach().abs().max()))
    assert max(moved) > 1e-3


class HalfDead(nn.Module):
    """All-zero features of images with a bright left half."""

    def __init__(self):
        super().__init__()
        self.inner = small_network()

    def forward(self, samples):
        alive = samples[:, 0, :, :4].mean(dim=(1, 2)) < 0
        return self.inner(samples) * alive[:, None]


@pytest.mark.filterwarnings("ignore:the backbone.s features are all zero")
def test_samples_with_zero_features_have_no_triplets(digits):
    X, _, labels = digits
    options = {"partition_size": None, "epochs": 1, "epochs_per_partition": 1, "random_state": 0}
    model = DeepSSDML.paper(HalfDead(), 16, **options).fit(X, labels)
    standardized = torch.from_numpy((X - X.mean()) / X.std())[:, None]
    dead = np.flatnonzero((standardized[:, 0, :, :4].mean(dim=(1, 2)) >= 0).numpy())
    used = np.unique(model.triplets_[:3])
    assert 100 < len(dead) < 500
    assert not np.isin(used, dead).any()
    assert len(used) == len(X) - len(dead)


def test_small_partitions_have_complete_graphs(digits):
    X, _, labels = digits
    options = {"partition_size": 60, "epochs": 1, "epochs_per_partition": 1, "random_state": 0}
    model = DeepSSDML.paper(small_network(), 16, n_neighbors=150, **options).fit(X, labels)
    assert len(np.unique(model.triplets_[:3])) <= 60 + 50  # every label is in each partition


class OneAlive(nn.Module):
    """All-zero features of images without a very bright pixel."""

    def __init__(self):
        super().__init__()
        self.inner = small_network()

    def forward(self, samples):
        return self.inner(samples) * (samples.amax(dim=(1, 2, 3)) > 20)[:, None]


def test_rejects_a_single_nonzero_feature(digits):
    X, _, labels = digits
    X = X.copy()
    X[0, 4, 4] = 100
    options = {"partition_size": None, "epochs": 1, "epochs_per_partition": 1, "random_state": 0}
    with pytest.raises(
        FloatingPointError, match="two samples of a partition; got zeros for 399 of 400 samples"
    ):
        DeepSSDML.paper(OneAlive(), 16, **options).fit(X, labels)


@pytest.mark.parametrize(
    ("backbone", "columns", "epochs"), [("mnist", 64, 0), ("cifar", 32, 30), (nn.Flatten(), 64, 0)]
)
def test_each_published_network_has_its_protocol(backbone, columns, epochs):
    params = DeepSSDML.paper(backbone).get_params(deep=False)
    assert (params["n_components"], params["pretrain_epochs"]) == (columns, epochs)
    assert (params["n_neighbors"], params["decay"], params["angle"]) == (10, 0.99, 40.0)
    assert (params["epochs"], params["epochs_per_partition"]) == (50, 10)
    assert (params["partition_size"], params["learning_rate"]) == (9000, 1e-4)
    assert (params["dampening"], params["validation_fraction"]) == (0.9, 0.0)


@pytest.mark.parametrize("dampening", [0.0, 0.5])
def test_dampening_reaches_the_optimizer(digits, monkeypatch, dampening):
    X, _, labels = digits
    made = []
    init = PublishedTrainer.__init__

    def spy(run, *args):
        init(run, *args)
        made.append(run.stepper.optimizer.defaults)

    monkeypatch.setattr(PublishedTrainer, "__init__", spy)
    options = {"partition_size": 60, "epochs": 1, "epochs_per_partition": 1, "random_state": 0}
    DeepSSDML.paper(small_network(), 16, dampening=dampening, **options).fit(X, labels)
    assert (made[0]["momentum"], made[0]["dampening"]) == (0.9, dampening)


def test_a_free_metric_leaves_the_manifold_in_each_batch(digits):
    """Its singular values spread far; the network alone would move them by a few percent."""
    X, _, labels = digits
    options = {"partition_size": 120, "epochs": 2, "epochs_per_partition": 2, "random_state": 0}
    model = DeepSSDML.paper(small_network(), 16, orthogonal=False, **options).fit(X, labels)
    values = np.linalg.svd(model.components_, compute_uv=False)
    assert np.abs(values - 1).max() > 0.2
    assert "metric" not in dict(model.network_.named_parameters())


def test_explicit_parameters_override_the_protocol():
    model = DeepSSDML.paper("cifar", 7, pretrain_epochs=2, learning_rate=1e-3)
    assert (model.n_components, model.pretrain_epochs, model.learning_rate) == (7, 2, 1e-3)
    assert DeepSSDML.paper("cifar", None).n_components is None
