"""APLLR and APIT: propagated scatter and priors against their equations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.datasets import make_blobs

from ssdml.baselines import APIT, APLLR
from ssdml.baselines.apit import geometric_mean, itml
from ssdml.baselines.apllr import likelihood_ratio
from ssdml.baselines.pairs import LabeledPairs, labeled_pairs
from ssdml.baselines.propagated import near_prior, propagated_scatter, with_labels
from ssdml.graphs import knn_graph
from ssdml.utils.linalg import shrink


def dense_start(labels):
    """Compute W_0 by definition."""
    known = labels >= 0
    both = known[:, None] & known
    return np.where(both, np.where(labels[:, None] == labels, 1.0, -1.0), np.eye(len(labels)))


@pytest.fixture
def rows(rng):
    return rng.standard_normal((120, 4)) + 50, rng.integers(-1, 3, size=120)


class TestPropagatedScatter:
    @pytest.mark.parametrize("decay", [0.5, 0.99])
    def test_scatter_equals_that_of_dense_affinities(self, rows, decay):
        X, labels = rows
        graph = knn_graph(X, 5)
        Q = np.zeros((120, 120))
        np.put_along_axis(Q, graph.indices, 1 / 5, axis=1)
        W = (1 - decay) * np.linalg.solve(np.eye(120) - decay * Q, dense_start(labels))
        W = (W + W.T) / 2
        Z = X - X.mean(axis=0)
        expected = Z.T @ (np.diag(W.sum(axis=1)) - W) @ Z / 120
        found = propagated_scatter(X, labels, graph, decay=decay)
        np.testing.assert_allclose(found, expected, atol=1e-8)

    def test_labels_define_initial_affinities(self, rng, rows):
        _, labels = rows
        columns = rng.standard_normal((120, 3))
        expected = dense_start(labels) @ columns
        np.testing.assert_allclose(with_labels(columns, labels), expected, atol=1e-12)

    def test_scatter_with_a_hub(self, rng):
        """The hub is a neighbor of all: columns of Q sum to much more than its rows."""
        X = np.vstack([np.zeros((1, 3)), 1 + 0.01 * rng.standard_normal((3, 3)), np.eye(3)])
        X = np.vstack([X, -np.eye(3), 5 * ortho_group.rvs(3, random_state=0)])
        labels = np.where(np.arange(len(X)) % 3 == 0, np.arange(len(X)) % 2, -1)
        graph = knn_graph(X, 2)
        assert np.bincount(graph.indices.ravel(), minlength=len(X)).max() >= 6
        n, Z = len(X), X - X.mean(axis=0)
        Q = np.zeros((n, n))
        np.put_along_axis(Q, graph.indices, 1 / 2, axis=1)
        W = 0.01 * np.linalg.solve(np.eye(n) - 0.99 * Q, dense_start(labels))
        W = (W + W.T) / 2
        expected = Z.T @ (np.diag(W.sum(axis=1)) - W) @ Z / n
        found = propagated_scatter(X, labels, graph, decay=0.99)
        np.testing.assert_allclose(found, expected, atol=1e-8)


class TestNearPrior:
    def test_known_answers(self, rng):
        found = near_prior(np.eye(2), np.diag([1.0, 0.0]), 1.0, "APIT").M
        np.testing.assert_allclose(found, np.diag([0.5, 1.0]))
        prior = shrink(np.cov(rng.standard_normal((4, 20))), 0.1)
        np.testing.assert_allclose(near_prior(prior, np.eye(4), 0.0, "APIT").M, prior)

    def test_gradient_is_zero_at_the_minimum(self, rng):
        prior, K = (shrink(np.cov(rng.standard_normal((4, 20))), 0.1) for _ in range(2))
        M = near_prior(prior, K, 0.7, "APIT").M
        gradient = np.linalg.inv(prior) - np.linalg.inv(M) + 0.7 * K
        np.testing.assert_allclose(gradient, 0, atol=1e-12)

    def test_indefinite_weight_is_lowered(self):
        with pytest.warns(UserWarning, match=r"graph_weight must be at most 0.9 .* got 3.0"):
            M, used = near_prior(np.eye(2), np.diag([-1.0, 0.0]), 3.0, "APLLR")
        assert used == pytest.approx(0.9)
        np.testing.assert_allclose(M, np.diag([10.0, 1.0]))
        assert near_prior(np.eye(2), np.diag([-0.1, 0.0]), None, "APLLR").graph_weight == 1
        assert near_prior(np.eye(2), np.diag([-9.0, 0.0]), None, "APLLR").graph_weight == (
            pytest.approx(0.1)
        )


class TestPriors:
    @pytest.mark.parametrize(("gap", "raised"), [(8.0, False), (0.0, True)])
    def test_likelihood_ratio_follows_its_equation(self, rows, gap, raised):
        """Where classes do not lie apart, dissimilar pairs are the nearer in some directions."""
        X, labels = rows
        X = X + gap * np.maximum(labels, 0)[:, None]
        pairs = labeled_pairs(X, labels)
        S, D = (shrink(part, 0.1) for part in pairs[:2])
        expected = np.linalg.inv(S) - np.linalg.inv(D)
        values, vectors = np.linalg.eigh(expected)
        floored = (vectors * np.maximum(values, 1e-6 * values[-1])) @ vectors.T
        found = likelihood_ratio(pairs, 0.1)
        np.testing.assert_allclose(found.M, floored, atol=1e-10)
        assert found.raised == (values < 1e-6 * values[-1]).sum()
        assert bool(found.raised) == raised

    def test_likelihood_ratio_without_pairs(self):
        one, zero = np.eye(2), np.zeros((2, 2))
        assert likelihood_ratio(LabeledPairs(zero, one, 0, 3), 0.1) is None
        assert likelihood_ratio(LabeledPairs(one, one, 3, 3), 0.1) is None
        alone = likelihood_ratio(LabeledPairs(one, zero, 3, 0), 0.1)
        np.testing.assert_allclose(alone.M, one)
        assert alone.raised == 0

    def test_geometric_mean_solves_its_equation(self, rng):
        S, D = (np.cov(rng.standard_normal((5, 30))) for _ in range(2))
        M = geometric_mean(LabeledPairs(S, D, 1, 1), 0.1)
        np.testing.assert_allclose(M @ shrink(S, 0.1) @ M, shrink(D, 0.1), atol=1e-12)
        assert np.linalg.eigvalsh(M)[0] > 0


class TestITML:
    def test_feasible_bounds_are_met(self, rng):
        """Similar pairs vary along one direction, dissimilar ones along the others."""
        similar = rng.standard_normal((20, 3)) * [3, 0.01, 0.01]
        dissimilar = rng.standard_normal((20, 3)) * [0.01, 0.1, 0.1] + [0, 1, 1]
        M, n_iter, _ = itml(similar, dissimilar, slack=1e4, max_iter=5000, tol=1e-9)
        squares = (np.vstack([similar, dissimilar]) ** 2).sum(axis=1)
        near, far = np.percentile(squares, [5, 95])
        assert n_iter > 1
        assert np.einsum("ij,jk,ik->i", similar, M, similar).max() <= 1.05 * near
        assert np.einsum("ij,jk,ik->i", dissimilar, M, dissimilar).min() >= 0.95 * far

    def test_divergence_is_minimal_under_the_bounds(self):
        """One similar pair along one axis: M shrinks there, and nowhere else."""
        similar, dissimilar = np.array([[2.0, 0.0]]), np.array([[0.0, 1.0]])
        M = itml(similar, dissimilar, slack=1e8, max_iter=1000, tol=1e-12).M
        near, far = np.percentile([4.0, 1.0], [5, 95])
        np.testing.assert_allclose(M, np.diag([near / 4, far]), rtol=1e-6)

    @pytest.mark.parametrize("slack", [0.1, 1.0, 7.0])
    def test_slack_splits_the_change(self, slack):
        """Of one similar pair of square s with bound u, m = (1 + γ) / (1 + γ s / u)."""
        similar, dissimilar = np.array([[2.0, 0.0]]), np.array([[0.0, 1.0]])
        near, far = np.percentile([4.0, 1.0], [5, 95])
        M = itml(similar, dissimilar, slack=slack, max_iter=1000, tol=1e-12).M
        expected = (1 + slack) / (1 + slack * np.array([4 / near, 1 / far]))
        np.testing.assert_allclose(M, np.diag(expected), rtol=1e-8)

    def test_equal_rows_are_ignored(self):
        M, n_iter, _ = itml(np.zeros((3, 2)), np.zeros((2, 2)), tol=1e-3)
        np.testing.assert_array_equal(M, np.eye(2))
        assert n_iter == 0


@pytest.mark.parametrize("kind", [APLLR, APIT])
def test_fit_is_the_closed_form(kind):
    X, y = make_blobs(80, 3, centers=2, cluster_std=2.0, random_state=0)
    labels = np.where(np.arange(80) < 20, y, -1)
    given = {"decay": 0.9, "n_neighbors": 7, "shrinkage": 0.2, "graph_weight": 0.02}
    model = kind(**given, **({"prior": "gmml"} if kind is APIT else {})).fit(X, labels)
    rows = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).sum())
    pairs = labeled_pairs(rows, labels)
    prior = likelihood_ratio(pairs, 0.2).M if kind is APLLR else geometric_mean(pairs, 0.2)
    K = propagated_scatter(rows, labels, knn_graph(rows, 7), decay=0.9)
    M = np.linalg.inv(np.linalg.inv(prior) + 0.02 * K)
    np.testing.assert_allclose(
        model.get_mahalanobis_matrix(), 3 * M / np.trace(M), rtol=1e-12, atol=1e-12
    )
