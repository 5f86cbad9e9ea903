"""APLLR and APIT: the propagated scatter against dense matrices, priors by their equations."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.baselines._pairs import LabelledPairs, labelled_pairs
from ssdml.baselines._propagated import near_prior, propagated_scatter, with_labels
from ssdml.baselines.apit import geometric_mean, itml
from ssdml.baselines.apllr import likelihood_ratio
from ssdml.graphs import knn_graph
from ssdml.linalg import shrink


def dense_start(labels):
    """W_0 by its definition."""
    known = labels >= 0
    both = known[:, None] & known
    return np.where(both, np.where(labels[:, None] == labels, 1.0, -1.0), np.eye(len(labels)))


@pytest.fixture
def rows(rng):
    return rng.standard_normal((120, 4)) + 50, rng.integers(-1, 3, size=120)


class TestPropagatedScatter:
    @pytest.mark.parametrize("decay", [0.5, 0.99])
    def test_it_is_that_of_the_dense_affinities(self, rows, decay):
        X, labels = rows
        graph = knn_graph(X, 5)
        Q = np.zeros((120, 120))
        np.put_along_axis(Q, graph.indices, 1 / 5, axis=1)
        W = (1 - decay) * np.linalg.solve(np.eye(120) - decay * Q, dense_start(labels))
        W = (W + W.T) / 2
        Z = X - X.mean(axis=0)
        expected = Z.T @ (np.diag(W.sum(axis=1)) - W) @ Z / 120
        found = propagated_scatter(X, labels, graph, decay=decay)
        np.testing.assert_allclose(found, expected, atol=1e-7)

    def test_labels_make_the_start(self, rng, rows):
        _, labels = rows
        columns = rng.standard_normal((120, 3))
        expected = dense_start(labels) @ columns
        np.testing.assert_allclose(with_labels(columns, labels), expected, atol=1e-12)

    def test_threads_change_nothing(self, rows):
        X, labels = rows
        graph = knn_graph(X, 5)
        one, two = (propagated_scatter(X, labels, graph, decay=0.99, n_jobs=n) for n in (1, 2))
        np.testing.assert_array_equal(one, two)


class TestNearPrior:
    def test_known_answer_and_limit(self, rng):
        found = near_prior(np.eye(2), np.diag([1.0, 0.0]), 1.0, "APIT").M
        np.testing.assert_allclose(found, np.diag([0.5, 1.0]))
        prior = shrink(np.cov(rng.standard_normal((4, 20))), 0.1)
        np.testing.assert_allclose(near_prior(prior, np.eye(4), 0.0, "APIT").M, prior)

    def test_the_gradient_is_zero_there(self, rng):
        prior, K = (shrink(np.cov(rng.standard_normal((4, 20))), 0.1) for _ in range(2))
        M = near_prior(prior, K, 0.7, "APIT").M
        gradient = np.linalg.inv(prior) - np.linalg.inv(M) + 0.7 * K
        np.testing.assert_allclose(gradient, 0, atol=1e-12)

    def test_an_indefinite_system_takes_half_the_weight_until_it_is_not(self):
        with pytest.warns(UserWarning, match=r"graph_weight must leave .* got 3.0. Takes 0.75"):
            M, used = near_prior(np.eye(2), np.diag([-1.0, 0.0]), 3.0, "APLLR")
        assert used == 0.75
        np.testing.assert_allclose(M, np.diag([4.0, 1.0]))


class TestPriors:
    def test_likelihood_ratio_by_its_equation(self, rows):
        X, labels = rows
        near = X + 8.0 * np.maximum(labels, 0)[:, None]
        pairs = labelled_pairs(near, labels)
        S, D = (shrink(part, 0.1) for part in pairs[:2])
        expected = np.linalg.inv(S) - np.linalg.inv(D)
        values, vectors = np.linalg.eigh(expected)
        floored = (vectors * np.maximum(values, 1e-6 * values[-1])) @ vectors.T
        np.testing.assert_allclose(likelihood_ratio(pairs, 0.1), floored, atol=1e-10)

    def test_likelihood_ratio_where_there_is_none(self):
        one, zero = np.eye(2), np.zeros((2, 2))
        assert likelihood_ratio(LabelledPairs(zero, one, 0, 3), 0.1) is None
        assert likelihood_ratio(LabelledPairs(one, one, 3, 3), 0.1) is None
        np.testing.assert_allclose(likelihood_ratio(LabelledPairs(one, zero, 3, 0), 0.1), one)

    def test_geometric_mean_solves_its_equation(self, rng):
        S, D = (np.cov(rng.standard_normal((5, 30))) for _ in range(2))
        M = geometric_mean(LabelledPairs(S, D, 1, 1), 1e-9)
        np.testing.assert_allclose(M @ S @ M, D, atol=1e-6)
        assert np.linalg.eigvalsh(M)[0] > 0


class TestITML:
    def test_bounds_that_can_be_met_are_met_at_last(self, rng):
        """Similar pairs vary along one direction, dissimilar ones along the others."""
        similar = rng.standard_normal((20, 3)) * [3, 0.01, 0.01]
        dissimilar = rng.standard_normal((20, 3)) * [0.01, 0.1, 0.1] + [0, 1, 1]
        M, n_iter = itml(similar, dissimilar, slack=1e4, max_iter=5000, tol=1e-9)
        squares = (np.vstack([similar, dissimilar]) ** 2).sum(axis=1)
        near, far = np.percentile(squares, [5, 95])
        assert n_iter > 1
        assert np.einsum("ij,jk,ik->i", similar, M, similar).max() <= 1.05 * near
        assert np.einsum("ij,jk,ik->i", dissimilar, M, dissimilar).min() >= 0.95 * far

    def test_the_divergence_is_least_among_those_that_meet_the_bounds(self):
        """One similar pair along one axis: M shrinks there, and nowhere else."""
        similar, dissimilar = np.array([[2.0, 0.0]]), np.array([[0.0, 1.0]])
        M, _ = itml(similar, dissimilar, slack=1e8, max_iter=1000, tol=1e-12)
        near, far = np.percentile([4.0, 1.0], [5, 95])
        np.testing.assert_allclose(M, np.diag([near / 4, far]), rtol=1e-6)

    def test_equal_rows_do_not_count(self):
        M, n_iter = itml(np.zeros((3, 2)), np.zeros((2, 2)), tol=1e-3)
        np.testing.assert_array_equal(M, np.eye(2))
        assert n_iter == 0
