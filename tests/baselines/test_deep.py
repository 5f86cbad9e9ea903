"""Baselines end to end: their losses on batches, and the alternation over each of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ssdml.baselines import DeepBaseline
from ssdml.baselines._batch_losses import kinds_of_pairs
from ssdml.baselines._deep_run import draw_batch
from ssdml.baselines._estimator import factor
from ssdml.baselines.deep import METHODS
from ssdml.baselines.seraph import Model, Terms, objective
from ssdml.graphs import knn_graph
from tests.deep import small_images, small_network

every_method = pytest.mark.parametrize("name", sorted(METHODS))


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def posed(rng):
    """Rows, labels, and what a method makes of them."""
    X = rng.standard_normal((60, 4))
    labels = np.where(np.arange(60) < 20, np.arange(60) % 3, -1)

    def pose(name):
        method = METHODS[name]()
        problem = method._pose(X, labels, np.random.default_rng(0))
        M, info = method._learn(problem)
        return method, problem, M, info

    return pose


def loss_of_all(method, problem, M, info):
    """The loss of a batch that holds every row."""
    L = torch.from_numpy(factor(M, 4, scaled=False).T)
    Z = torch.from_numpy(problem.X) @ L
    squares = (Z[:, None] - Z).square().sum(dim=2)
    loss = method._batch_loss(problem, info)
    weights = torch.from_numpy(loss.weights_of(np.arange(len(Z))))
    return loss(squares, torch.from_numpy(problem.labels), weights).item()


class TestLossOfAllRows:
    """It is what the metric was learned by, at the same rows and the same metric."""

    @pytest.mark.parametrize("name", ["lrml", "isdml"])
    def test_of_the_laplacian_methods(self, posed, name):
        method, problem, M, info = posed(name)
        pairs, weight = problem.pairs, info["dissimilar_weight"]
        H = pairs.similar - weight * pairs.dissimilar
        loss = method._batch_loss(problem, info)
        W = loss.weights_of(np.arange(60))
        differences = problem.X[:, None] - problem.X
        H = H + np.einsum("ij,ijk,ijl->kl", W, differences, differences) / W.sum()
        assert loss_of_all(method, problem, M, info) == pytest.approx(np.trace(M @ H))

    def test_of_seraph(self, posed):
        method, problem, M, info = posed("seraph")
        first, second = np.triu_indices(60, k=1)
        labels = problem.labels
        known = (labels[first] >= 0) & (labels[second] >= 0)
        kinds = np.where(known, np.where(labels[first] == labels[second], 1, -1), 0)
        ends = np.stack([first, second], axis=1)
        terms = Terms(problem.X, ends, kinds, np.ones(len(kinds)), info["entropy_weight"])
        value = objective(M, terms, Model(method.threshold, 0.0)).value
        assert loss_of_all(method, problem, M, info) == pytest.approx(-value / known.sum())

    @pytest.mark.parametrize("name", ["apllr", "apit"])
    def test_affinities_are_those_of_the_dense_matrix_where_they_are_known(self, posed, name):
        method, problem, _, info = posed(name)
        labels, graph = problem.labels, problem.graph
        Q = np.zeros((60, 60))
        np.put_along_axis(Q, graph.indices, 1 / graph.n_neighbors, axis=1)
        P = 0.01 * np.linalg.inv(np.eye(60) - 0.99 * Q)
        known = labels >= 0
        both = known[:, None] & known
        W0 = np.where(both, np.where(labels[:, None] == labels, 1.0, -1.0), np.eye(60))
        W = (P @ W0 + (P @ W0).T) / 2
        np.fill_diagonal(W, 0)
        found = method._batch_loss(problem, info).weights_of(np.arange(60))
        edge = (Q + Q.T) > 0
        np.testing.assert_allclose(found[edge], W[edge], atol=2e-4)
        np.testing.assert_allclose(found[both], W[both], atol=2e-4)
        # With one end labelled, what the other sends back is left out.
        one = (known[:, None] ^ known) & ~edge
        sent_back = np.where(known[:, None], P, P.T)
        np.testing.assert_allclose(found[one], (W - sent_back / 2)[one], atol=2e-4)
        assert not found[~edge & ~known[:, None] & ~known].any()


@every_method
def test_a_batch_without_a_labelled_pair_or_an_edge_has_a_finite_loss(posed, name):
    method, problem, _, info = posed(name)
    loss = method._batch_loss(problem, info)
    squares = torch.ones(3, 3, requires_grad=True)
    value = loss(squares, torch.tensor([0, -1, -1]), torch.zeros(3, 3))
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(squares.grad).all()


def test_every_pair_is_of_one_kind():
    labels = torch.tensor([0, 1, 0, -1, 2])
    total = sum(mask.int() for mask in kinds_of_pairs(labels))
    assert torch.equal(total, torch.ones(5, 5).triu(1).int())


def test_a_batch_holds_labelled_rows_and_neighbours(rng):
    graph = knn_graph(rng.standard_normal((200, 3)), 5)
    known = np.arange(40)
    batch = draw_batch(known, graph, 60, rng)
    assert len(batch) == 60
    assert set(batch[:20]) <= set(known)
    rows, neighbors = batch[20:40], batch[40:]
    assert all(b in graph.indices[a] for a, b in zip(rows, neighbors, strict=True))
    assert len(draw_batch(np.arange(2), graph, 60, rng)) == 60


def model(name, **options):
    recipe = {
        "backbone": small_network(),
        "n_components": 16,
        "partition_size": 150,
        "epochs": 4,
        "epochs_per_partition": 2,
        "batch_size": 30,
        "random_state": 0,
        "device": "cpu",
    }
    return DeepBaseline(name, **(recipe | options))


@pytest.fixture(scope="module")
def digits():
    return small_images()


class TestAlternation:
    @every_method
    def test_the_metric_is_learned_and_the_network_too(self, digits, name):
        X, y, labels = digits
        fitted = model(name).fit(X, labels)
        assert fitted.transform(X).shape == (len(X), 16)
        assert (fitted.transduction_ == y).mean() > 0.6
        before = small_network().state_dict()
        after = fitted.network_.backbone.backbone.state_dict()
        assert all(not torch.equal(before[key], after[key]) for key in before)
        assert [len(entry["losses"]) for entry in fitted.history_] == [2, 2]

    def test_steps_go_down_the_loss(self, digits):
        X, _, labels = digits
        options = {"epochs": 12, "epochs_per_partition": 12, "learning_rate": 1e-3}
        losses = model("lrml", **options).fit(X, labels).history_[0]["losses"]
        assert losses[-1] < losses[0]

    def test_parameters_of_the_method_arrive(self, digits):
        X, _, labels = digits
        plain, other = (
            model("lrml", epochs=2, method_params=params).fit(X, labels)
            for params in (None, {"graph_weight": 5.0})
        )
        assert np.abs(plain.components_ - other.components_).max() > 1e-3
        with pytest.raises(ValueError, match="Invalid parameter 'weight' for estimator LRML"):
            model("lrml", method_params={"weight": 1}).fit(X, labels)
        with pytest.raises(ValueError, match="The 'graph_weight' parameter of LRML must be"):
            model("lrml", method_params={"graph_weight": -1.0}).fit(X, labels)

    def test_a_method_that_is_not_there(self, digits):
        X, _, labels = digits
        with pytest.raises(ValueError, match="The 'method' parameter of DeepBaseline must be"):
            model("lmnn").fit(X, labels)
