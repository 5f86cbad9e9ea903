"""The coarse correction against dense algebra, and its effect on conjugate gradients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.csgraph import shortest_path

from ssdml.graphs import adjacency, knn_graph
from ssdml.graphs.laplacian import symmetric_normalized
from ssdml.graphs.propagation import coarsening
from ssdml.graphs.propagation.coarsening import CoarseCorrection, cluster_basis, nearest_seeds
from ssdml.graphs.propagation.solvers import conjugate_gradient
from ssdml.utils.parallel import SERIAL, ParallelMatrix, row_blocks, threads


@pytest.fixture
def weights(rng):
    """Two components, and a row without edges."""
    X = np.r_[rng.standard_normal((250, 3)), rng.standard_normal((50, 3)) + 100]
    return sparse.block_diag([adjacency(knn_graph(X, 6)), sparse.csr_array((1, 1))], format="csr")


def profile_of(weights):
    return np.sqrt(weights.sum(axis=1))


def test_rows_join_nearest_seed(weights):
    clusters = nearest_seeds(weights, 12)
    steps = shortest_path(weights, unweighted=True)
    seeds = np.sort(np.random.default_rng(0).choice(301, 12, replace=False))
    np.testing.assert_array_equal(clusters[seeds], np.arange(12))
    nearest = steps[:, seeds].min(axis=1)
    reached = np.isfinite(nearest)
    np.testing.assert_array_equal(clusters >= 0, reached)
    own = steps[np.flatnonzero(reached), seeds[clusters[reached]]]
    np.testing.assert_array_equal(own, nearest[reached])


def test_basis_is_orthonormal_and_spans_profile(weights):
    clusters = nearest_seeds(weights, 12)
    profile = profile_of(weights)
    Z = cluster_basis(clusters, profile).toarray()
    kept = Z.any(axis=0)  # all but a row without edges
    np.testing.assert_allclose(Z.T @ Z, np.diag(kept.astype(float)), atol=1e-14)
    np.testing.assert_allclose(Z @ (Z.T @ profile), np.where(clusters >= 0, profile, 0), atol=1e-13)


@pytest.mark.parametrize("n_clusters", [1, 12, 301])
def test_correction_matches_dense_algebra(weights, rng, monkeypatch, n_clusters):
    monkeypatch.setattr(coarsening, "BLOCK_ROWS", 100)
    monkeypatch.setattr(coarsening, "CLUSTERS_PER_ROOT", (n_clusters + 0.5) / 301**0.5)
    similarity, profile = symmetric_normalized(weights), profile_of(weights)
    correction = CoarseCorrection(similarity, 0.9, profile)
    block, blocks = rng.standard_normal((301, 3)), row_blocks(301, 100)
    solved = correction.solve(sum(correction.restrict(rows, block[rows]) for rows in blocks))
    found = np.concatenate([correction.prolong(rows, solved) for rows in blocks])
    Z = cluster_basis(nearest_seeds(similarity, n_clusters), profile).toarray()
    small = Z.T @ Z - 0.9 * Z.T @ similarity @ Z
    np.testing.assert_allclose(found, Z @ np.linalg.pinv(small) @ Z.T @ block, atol=1e-11)


class TestConjugateGradient:
    @pytest.fixture
    def clustered(self, rng):
        centers = 4 * rng.standard_normal((20, 5))
        X = np.repeat(centers, 100, axis=0) + rng.standard_normal((2000, 5))
        return adjacency(knn_graph(X, 8))

    @pytest.mark.parametrize("decay", [0.5, 0.99])
    def test_comes_to_the_same_solution(self, weights, rng, decay):
        similarity = symmetric_normalized(weights)
        B = rng.standard_normal((301, 3))
        coarse = CoarseCorrection(similarity, decay, profile_of(weights))
        result = conjugate_gradient(
            ParallelMatrix(similarity, SERIAL), decay, B, tol=1e-12, coarse=coarse
        )
        expected = np.linalg.solve(np.eye(301) - decay * similarity.toarray(), B)
        assert result.converged
        np.testing.assert_allclose(result.values, expected, atol=1e-9)

    def test_correction_saves_steps(self, clustered):
        similarity = symmetric_normalized(clustered)
        B = np.eye(2000)[:, ::100]
        coarse = CoarseCorrection(similarity, 0.99, profile_of(clustered))
        shared = ParallelMatrix(similarity, SERIAL)
        plain = conjugate_gradient(shared, 0.99, B, tol=1e-6)
        result = conjugate_gradient(shared, 0.99, B, tol=1e-6, coarse=coarse)
        assert result.n_iter < 0.7 * plain.n_iter
        residual = B - (result.values - 0.99 * similarity @ result.values)
        true = np.linalg.norm(residual, axis=0).max()
        np.testing.assert_allclose(result.residual, true, rtol=1e-6)
        assert true <= 1e-6

    def test_a_start_is_corrected_too(self, clustered, rng):
        similarity = symmetric_normalized(clustered)
        B, start = np.eye(2000)[:, :2], rng.random((2000, 2))
        coarse = CoarseCorrection(similarity, 0.99, profile_of(clustered))
        result = conjugate_gradient(
            ParallelMatrix(similarity, SERIAL), 0.99, B, tol=1e-10, start=start, coarse=coarse
        )
        expected = conjugate_gradient(ParallelMatrix(similarity, SERIAL), 0.99, B, tol=1e-10)
        np.testing.assert_allclose(result.values, expected.values, atol=1e-8)

    def test_component_without_labels_stays_zero(self, weights):
        similarity = symmetric_normalized(weights)
        coarse = CoarseCorrection(similarity, 0.99, profile_of(weights))
        B = np.eye(301)[:, :2]  # both in the first group
        result = conjugate_gradient(
            ParallelMatrix(similarity, SERIAL), 0.99, B, tol=1e-6, coarse=coarse
        )
        assert result.values[:250].any(axis=1).all()
        assert not result.values[250:].any()

    def test_threads_do_not_change_a_bit(self, rng):
        n = 40_000  # three blocks of rows
        ring = sparse.csr_array(sparse.diags_array(np.ones(n - 1), offsets=1))
        jumps = sparse.random_array((n, n), density=2 / n, rng=rng)
        similarity = symmetric_normalized(sparse.csr_array(ring + ring.T + jumps + jumps.T))
        B = rng.random((n, 2))
        coarse = CoarseCorrection(similarity, 0.9, np.ones(n))
        results = []
        for n_threads in (1, 3):
            with threads(n_threads) as pool:
                results.append(
                    conjugate_gradient(
                        ParallelMatrix(similarity, pool), 0.9, B, tol=1e-6, coarse=coarse
                    )
                )
        np.testing.assert_array_equal(results[0].values, results[1].values)
