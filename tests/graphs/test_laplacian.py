"""Adjacency, Laplacians and pair scatter against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from ssdml.graphs import (
    KNNGraph,
    adjacency,
    class_masses,
    knn_graph,
    laplacian,
    mine_triplets,
    pair_scatter,
)
from tests import reference


@pytest.fixture
def graph(rng):
    return knn_graph(rng.standard_normal((60, 4)), 6)


def signed_weights(rng, n=12):
    A = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.4)
    return np.triu(A, 1) + np.triu(A, 1).T


class TestAdjacency:
    def test_heat_is_the_self_tuning_kernel(self, graph):
        expected = reference.heat_weights(graph.indices, graph.distances)
        np.testing.assert_allclose(adjacency(graph).toarray(), expected, atol=1e-15)

    @pytest.mark.parametrize("weights", ["heat", "cosine", "uniform"])
    def test_is_symmetric_to_the_bit_with_zero_diagonal(self, rng, weights):
        graph = knn_graph(rng.standard_normal((60, 4)), 6, metric="cosine")
        W = adjacency(graph, weights=weights)
        assert (W != W.T).nnz == 0
        assert not W.diagonal().any()
        assert (W.data > 0).all()

    def test_heat_is_scale_invariant(self, graph):
        longer = KNNGraph(graph.indices, 1000 * graph.distances)
        np.testing.assert_allclose(adjacency(longer).data, adjacency(graph).data, rtol=1e-12)

    def test_cosine_is_the_cube_of_the_similarity(self, rng):
        X = rng.standard_normal((40, 3))
        X[:2] = [[0, 0, 0], [0, 0, 1]]
        W = adjacency(knn_graph(X, 5, metric="cosine"), weights="cosine").toarray()
        expected = np.maximum(1 - reference.distance_matrix(X, "cosine"), 0) ** 3
        np.testing.assert_allclose(W[W > 0], expected[W > 0], rtol=1e-12)
        assert not W[0].any()  # a row of zeros is similar to none

    def test_heat_on_cosine_distances_measures_chords(self, rng):
        X = rng.standard_normal((40, 3))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        on_cosine = adjacency(knn_graph(X, 5, metric="cosine"))
        np.testing.assert_allclose(
            on_cosine.toarray(), adjacency(knn_graph(X, 5)).toarray(), atol=1e-12
        )

    def test_uniform_is_the_union_of_both_directions(self):
        W = adjacency(knn_graph([[0.0], [1.0], [3.0]], 1), weights="uniform")
        np.testing.assert_array_equal(W.toarray(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])

    def test_duplicates_have_weight_one(self):
        W = adjacency(knn_graph(np.zeros((4, 2)), 2)).toarray()
        assert W[0, 1] == W[0, 2] == W[3, 0] == 1

    def test_duplicates_stay_connected(self):
        # Rows 0 to 3 have scale 0; row 4, at distance 1, counts them as its neighbors.
        X = np.array([[0.0], [0], [0], [0], [1], [2], [3], [4]])
        W = adjacency(knn_graph(X, 3)).toarray()
        assert W[4, 0] > 1e-9

    def test_an_outlier_keeps_its_edges(self):
        X = np.r_[np.linspace(0, 1, 50), 1e6].reshape(-1, 1)
        assert adjacency(knn_graph(X, 3)).toarray()[50].max() == 1e-10

    def test_cosine_weights_need_cosine_distances(self, graph):
        with pytest.raises(ValueError, match=r"metric 'cosine'; got 'euclidean'. Build it with"):
            adjacency(graph, weights="cosine")

    def test_unknown_weights_are_named(self, graph):
        with pytest.raises(ValueError, match=r"weights must be one of 'heat'.*mean 'uniform'\?"):
            adjacency(graph, weights="uniforme")


class TestLaplacian:
    @pytest.mark.parametrize(("normalization", "normed"), [(None, False), ("symmetric", True)])
    def test_agrees_with_scipy(self, graph, normalization, normed):
        W = adjacency(graph)
        expected = csgraph.laplacian(W, normed=normed).toarray()
        result = laplacian(W, normalization=normalization)
        np.testing.assert_allclose(result.toarray(), expected, atol=1e-14)

    def test_random_walk_rows_sum_to_zero(self, graph):
        L = laplacian(adjacency(graph), normalization="random_walk").toarray()
        np.testing.assert_allclose(L.sum(axis=1), 0, atol=1e-14)
        np.testing.assert_allclose(np.diag(L), 1)

    def test_gives_half_the_weighted_sum_of_squared_differences(self, rng):
        W, f = signed_weights(rng), rng.standard_normal(12)
        energy = (W * (f[:, None] - f[None, :]) ** 2).sum() / 2
        np.testing.assert_allclose(f @ laplacian(W).toarray() @ f, energy)

    @pytest.mark.parametrize("normalization", [None, "symmetric", "random_walk"])
    def test_a_row_without_edges_is_zero(self, normalization):
        W = np.zeros((3, 3))
        W[0, 1] = W[1, 0] = 2.0
        L = laplacian(W, normalization=normalization).toarray()
        assert not L[2].any()
        assert not L[:, 2].any()

    def test_of_signed_weights_may_be_indefinite(self):
        W = np.array([[0.0, -1.0], [-1.0, 0.0]])
        np.testing.assert_allclose(np.linalg.eigvalsh(laplacian(W).toarray()), [-2, 0], atol=1e-15)
        with pytest.raises(ValueError, match=r"normalization must be None.*row 0 sums to -1"):
            laplacian(W, normalization="symmetric")

    def test_bad_input_is_named(self):
        with pytest.raises(ValueError, match=r"adjacency must be square; got shape \(2, 3\)"):
            laplacian(np.ones((2, 3)))
        with pytest.raises(ValueError, match="adjacency must be finite"):
            laplacian(np.array([[0, np.nan], [np.nan, 0]]))
        with pytest.raises(ValueError, match=r"normalization must be one of .*'symmetric'\?"):
            laplacian(np.eye(2), normalization="symetric")


class TestPairScatter:
    def test_agrees_with_the_sum_over_pairs(self, rng):
        Z, W = rng.standard_normal((12, 3)), signed_weights(rng)
        expected = reference.pair_scatter(Z, W)
        for weights in (W, sparse.csr_array(W), sparse.coo_array(W + np.diag(rng.random(12)))):
            np.testing.assert_allclose(pair_scatter(Z, weights), expected, atol=1e-12)

    def test_does_not_see_an_offset(self, rng):
        Z, W = np.round(rng.standard_normal((12, 3)) * 256) / 256, signed_weights(rng)
        moved = pair_scatter(Z + 2.0**40, W)
        np.testing.assert_allclose(moved, pair_scatter(Z, W), rtol=1e-10, atol=1e-10)

    def test_turns_with_the_embedding(self, rng):
        Z, W = rng.standard_normal((12, 3)), signed_weights(rng)
        R, _ = np.linalg.qr(rng.standard_normal((3, 3)))
        np.testing.assert_allclose(pair_scatter(Z @ R, W), R.T @ pair_scatter(Z, W) @ R)

    def test_is_symmetric_and_positive_for_positive_weights(self, rng):
        scatter = pair_scatter(rng.standard_normal((12, 3)), np.abs(signed_weights(rng)))
        np.testing.assert_array_equal(scatter, scatter.T)
        assert np.linalg.eigvalsh(scatter).min() > 0

    def test_shapes_must_agree(self):
        with pytest.raises(ValueError, match=r"weights must have shape \(3, 3\).*got \(2, 2\)"):
            pair_scatter(np.ones((3, 2)), np.eye(2))


def test_no_function_raises_where_underflow_does(rng):
    classes = np.arange(400) % 10
    rows = rng.standard_normal((400, 8)) + 20 * rng.standard_normal((10, 8))[classes]
    rows[7] *= 1e4
    labels = np.where(np.arange(400) < 40, classes, -1)
    with np.errstate(under="raise"):
        graph = knn_graph(rows, 6)
        adjacency(graph)
        masses = class_masses(graph, labels)
        assert len(mine_triplets(graph, masses, random_state=0).anchor)
