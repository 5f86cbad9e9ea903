"""LRML and ISDML: closed forms, known answers, and their common bound."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from ssdml.baselines import ISDML, LRML
from ssdml.baselines.base import largest_weight
from ssdml.baselines.isdml import barrier_objective, density_weights, descend, kernel_width
from ssdml.baselines.lrml import edge_scatter, least_trace
from ssdml.baselines.pairs import LabeledPairs, labeled_pairs
from ssdml.graphs import adjacency, knn_graph, laplacian, pair_scatter

DESCENDED = 1e-8  # of the closed form


def definite(rng, d=5):
    root = rng.standard_normal((d, d))
    return root @ root.T + 0.1 * np.eye(d)


@pytest.fixture
def line():
    """Rows 0, 1 and 3 on a line, with one neighbor each."""
    X = np.array([[0.0], [1.0], [3.0]])
    return X, knn_graph(X, 1)


class TestLeastTrace:
    def test_known_answer(self):
        M = least_trace(np.diag([1.0, 4.0]))
        np.testing.assert_allclose(M, np.diag([2.0, 0.5]))
        assert np.trace(M @ np.diag([1.0, 4.0])) == pytest.approx(4)

    def test_no_matrix_of_determinant_one_is_lower(self, rng):
        H = definite(rng)
        M = least_trace(H)
        assert np.linalg.det(M) == pytest.approx(1)
        for _ in range(300):
            change = rng.standard_normal(H.shape) * 0.1
            other = M + change + change.T
            if np.linalg.eigvalsh(other)[0] > 0:
                other /= np.linalg.det(other) ** (1 / len(H))
                assert np.trace(other @ H) >= np.trace(M @ H) * (1 - 1e-12)


class TestCombineScatters:
    def test_largest_weight_makes_h_singular(self, rng):
        attracted = definite(rng, 4)
        root = rng.standard_normal((4, 2))
        dissimilar = root @ root.T  # of rank 2
        most = largest_weight(attracted, dissimilar)
        assert np.linalg.eigvalsh(attracted - most * dissimilar)[0] == pytest.approx(0, abs=1e-10)
        assert np.linalg.eigvalsh(attracted - 0.9 * most * dissimilar)[0] > 0

    def test_too_large_weight_is_lowered_with_warning(self, rng):
        similar, dissimilar, R = (definite(rng) for _ in range(3))
        pairs = LabeledPairs(similar, dissimilar, 1, 1)
        auto = LRML()._combine(pairs, R)
        with pytest.warns(UserWarning, match=r"dissimilar_weight must be at most .* got 99.0"):
            lowered = LRML(dissimilar_weight=99.0)._combine(pairs, R)
        np.testing.assert_array_equal(lowered[0], auto[0])
        small = LRML(dissimilar_weight=auto[1] / 2)._combine(pairs, R)
        assert small[1] == auto[1] / 2

    def test_zero_scatters_give_the_identity(self):
        zero = np.zeros((2, 2))
        H, weight = LRML(ridge=1.0)._combine(LabeledPairs(zero, zero, 0, 0), zero)
        np.testing.assert_array_equal(H, np.eye(2))
        assert weight == 0


class TestLRML:
    def test_regularizer_is_the_laplacian_quadratic_form(self, rng):
        X = rng.standard_normal((30, 3))
        graph = knn_graph(X, 4)
        W = adjacency(graph, weights="uniform")
        M = definite(rng, 3)
        differences = X[:, None] - X[None]
        squares = np.einsum("ijk,kl,ijl->ij", differences, M, differences)
        expected = (W.toarray() * squares).sum() / W.sum()
        assert np.trace(M @ edge_scatter(X, graph)) == pytest.approx(expected, rel=1e-12)

    def test_normalized_laplacian_divides_by_root_degrees(self, rng):
        X = rng.standard_normal((30, 3))
        graph = knn_graph(X, 4)
        W = adjacency(graph, weights="uniform").toarray()
        roots = np.sqrt(W.sum(axis=1))
        scaled = (X - X.mean(axis=0)) / roots[:, None]
        differences = scaled[:, None] - scaled[None]
        total = np.einsum("ij,ijk,ijl->kl", W, differences, differences)
        expected = total / (W / np.outer(roots, roots)).sum()
        np.testing.assert_allclose(edge_scatter(X, graph, normalized=True), expected, atol=1e-12)
        moved = edge_scatter(X + 100, graph, normalized=True)  # whose last digits are 1e-14
        np.testing.assert_allclose(moved, expected, atol=1e-10)

    def test_fit_is_the_closed_form(self, rng):
        X, y = make_blobs(60, 3, centers=2, random_state=0)
        labels = np.where(np.arange(60) < 12, y, -1)
        model = LRML(dissimilar_weight=0.0, graph_weight=2.0).fit(X, labels)
        similar = [
            np.outer(X[i] - X[j], X[i] - X[j]) for i in range(12) for j in range(i) if y[i] == y[j]
        ]
        A = laplacian(adjacency(knn_graph(X, 6), weights="uniform")).toarray()
        n_edges = np.trace(A) / 2
        H = np.mean(similar, axis=0) + 2 * X.T @ A @ X / n_edges
        M = least_trace(H + 1e-3 * np.trace(H) / 3 * np.eye(3))
        np.testing.assert_allclose(
            model.get_mahalanobis_matrix(), 3 * M / np.trace(M), rtol=1e-12, atol=1e-12
        )


class TestISDML:
    def test_known_bandwidth_and_weights(self, line):
        X, graph = line
        assert kernel_width(X, graph, 10.0) == pytest.approx(1.2)
        W = density_weights(X, graph, 1.2).toarray()
        beta, s01, s21 = np.array([0.78513, 1.0, 0.30679]), 0.70665, 0.24935
        expected = np.zeros((3, 3))
        expected[0, 1] = (beta[0] + beta[1]) * s01  # both directions are edges
        expected[2, 1] = beta[2] * s21
        np.testing.assert_allclose(W, expected + expected.T, atol=2e-5)

    @pytest.mark.parametrize("tile", [2048, 16])
    def test_density_counts_all_rows_or_neighbors(self, rng, monkeypatch, tile):
        monkeypatch.setattr("ssdml.baselines.isdml.TILE", tile)  # all at once, or in parts
        X = rng.standard_normal((50, 3))
        graph = knn_graph(X, 5)
        squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
        similar = np.exp(-squares / 2)
        np.fill_diagonal(similar, 0)
        near = np.zeros((50, 50))
        np.put_along_axis(near, graph.indices, 1.0, axis=1)
        for density, counted in (("all", 1.0), ("neighbors", near)):
            sums = (counted * similar).sum(axis=1)
            directed = (sums / sums.max())[:, None] * near * similar
            found = density_weights(X, graph, 1.0, density=density).toarray()
            np.testing.assert_allclose(found, directed + directed.T, rtol=1e-12)

    def test_bandwidth_of_many_rows_is_approximate(self, rng, monkeypatch):
        for _ in range(20):
            X = rng.standard_normal((50, 3)) * rng.uniform(0.1, 3, size=3)
            graph = knn_graph(X, 5)
            exact = kernel_width(X, graph, 1.0)  # the largest distance itself
            monkeypatch.setattr("ssdml.baselines.isdml.MAX_DENSE_ROWS", 49)
            assert 0.85 * exact <= kernel_width(X, graph, 1.0) <= exact * (1 + 1e-12)
            monkeypatch.undo()

    def test_bandwidth_of_equal_rows(self):
        X = np.ones((4, 2))
        graph = knn_graph(X, 2)
        sigma = kernel_width(X, graph, 10.0)
        assert sigma > 0
        W = density_weights(X, graph, sigma)
        assert np.isfinite(W.data).all()

    def test_descent_reaches_the_inverse_monotonically(self, rng):
        H = definite(rng, 8)
        M, values, converged = descend(H, max_iter=500, tol=1e-8)
        assert converged
        np.testing.assert_allclose(M @ H, np.eye(8), atol=DESCENDED)
        assert (np.diff(values) <= 1e-12 * abs(values[-1])).all()
        assert barrier_objective(-np.eye(3), np.eye(3)) == np.inf

    def test_last_newton_step_squares_the_error(self, rng):
        H = definite(rng, 8)
        M, values, _ = descend(H, max_iter=500, tol=1e-3)
        assert np.abs(M @ H - np.eye(8)).max() < 1e-4  # (8 * 1e-3)²
        minimum = 8 + np.linalg.slogdet(H)[1]
        assert values[-1] - minimum < 1e-3 * (values[-2] - minimum)

    def test_wide_kernel_weights_edges_equally(self, rng):
        """Density and similarity all one: the multigraph of all directed edges."""
        X = rng.standard_normal((40, 3))
        graph = knn_graph(X, 4)
        directed = np.zeros((40, 40))
        np.put_along_axis(directed, graph.indices, 1.0, axis=1)
        W = density_weights(X, graph, 1e4).toarray()
        np.testing.assert_allclose(W, directed + directed.T, atol=1e-8)

    def test_minimum_is_equivariant_to_basis_change(self, rng):
        """With the weights fixed, Z -> Z A takes M to A^-1 M A^-T."""
        H, A = definite(rng, 4), rng.standard_normal((4, 4))
        M = descend(H, max_iter=500, tol=1e-9).M
        other = descend(A.T @ H @ A, max_iter=500, tol=1e-9).M
        inverse = np.linalg.inv(A)
        expected = inverse @ M @ inverse.T
        np.testing.assert_allclose(other, expected, atol=DESCENDED * np.abs(expected).max())

    @pytest.mark.parametrize("H", [np.eye(2), [[0.3]]])
    def test_start_at_the_minimum_stays(self, H):
        M, values, converged = descend(np.array(H), max_iter=10, tol=1e-6)
        np.testing.assert_allclose(M, np.linalg.inv(H))
        assert converged
        assert len(values) == 1

    def test_fit_is_the_inverse_of_h(self):
        X, y = make_blobs(60, 3, centers=2, random_state=0)
        labels = np.where(np.arange(60) < 12, y, -1)
        model = ISDML(tol=1e-9, similar_weight=2.0).fit(X, labels)
        rows = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0).sum())
        graph, pairs = knn_graph(rows, 10), labeled_pairs(rows, labels)
        W = density_weights(rows, graph, kernel_width(rows, graph, 10.0))
        R = pair_scatter(rows, W) / (W.sum() / 2)
        H, _ = ISDML(similar_weight=2.0)._combine(pairs, R)
        M = np.linalg.inv(H)
        np.testing.assert_allclose(
            model.get_mahalanobis_matrix(), 3 * M / np.trace(M), atol=DESCENDED
        )

    def test_vanishing_weights_warn(self, rng):
        X = rng.standard_normal((40, 3))
        with pytest.warns(UserWarning, match="bandwidth must keep most edge weights above 0"):
            density_weights(X, knn_graph(X, 4), 1e-3)

    def test_too_few_steps_warn(self):
        X, y = make_blobs(60, 3, centers=2, random_state=0)
        with pytest.warns(ConvergenceWarning, match=r"ISDML: max_iter=2 steps must come to tol"):
            ISDML(max_iter=2).fit(X, np.where(np.arange(60) < 12, y, -1))

    def test_objective_values_decrease(self):
        X, y = make_blobs(60, 3, centers=2, random_state=0)
        model = ISDML().fit(X, np.where(np.arange(60) < 12, y, -1))
        values = model.info_["values"]
        assert len(values) > 1
        assert (np.diff(values) <= 1e-9).all()
