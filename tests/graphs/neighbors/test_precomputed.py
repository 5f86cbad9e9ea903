"""Precomputed neighbors from scikit-learn and UMAP."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsTransformer, kneighbors_graph

from ssdml.graphs import knn_graph


@pytest.fixture
def points(rng):
    return rng.standard_normal((200, 5))


def test_scikit_learn_distances_give_same_graph(points):
    transformer = KNeighborsTransformer(mode="distance", n_neighbors=8)
    graph = knn_graph(transformer.fit_transform(points), 6, method="precomputed")
    expected = knn_graph(points, 6)
    np.testing.assert_array_equal(graph.indices, expected.indices)
    np.testing.assert_allclose(graph.distances, expected.distances, atol=1e-12)


def test_umap_pair_gives_same_graph(points):
    expected = knn_graph(points, 6)
    indices = np.c_[np.arange(200), expected.indices, np.full(200, -1)].astype(np.int32)
    distances = np.c_[np.zeros(200), expected.distances, np.full(200, np.inf)]
    graph = knn_graph((indices, distances), 5, method="precomputed", metric="cosine")
    np.testing.assert_array_equal(graph.indices, expected.indices[:, :5])
    np.testing.assert_array_equal(graph.distances, expected.distances[:, :5])
    assert graph.metric == "cosine"


def test_its_own_csr_comes_back(points):
    graph = knn_graph(points, 6)
    again = knn_graph(graph.to_csr(), 6, method="precomputed")
    np.testing.assert_array_equal(again.indices, graph.indices)
    np.testing.assert_array_equal(again.distances, graph.distances)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.zeros((3, 3)), TypeError, "got ndarray. Of all distances, pass KNeighborsTra"),
        (sparse.csr_array((3, 4)), ValueError, r"X must be square; got shape \(3, 4\)"),
        (sparse.csr_array([[0, 1.0], [0, 0]]), ValueError, "row 1 has 0. Compute it with more"),
        (sparse.csr_array([[0, -1.0], [1, 0]]), ValueError, "at least 0; got -1.0 from row 0"),
        (
            ([[1], [0]], [[np.nan], [1]]),
            ValueError,
            "distances must be finite and at least 0; got nan",
        ),
        (([[1], [0]], [[1.0]]), ValueError, r"share one shape \(n, k\); got \(2, 1\) and"),
        (([[1.0], [0]], [[1], [1]]), TypeError, "got dtype float64. Pass .indices, dist"),
        (([[5], [0]], [[1], [1]]), ValueError, "rows from 0 to n - 1 = 1; got 5 in row 0. Number"),
        (([[1, 1], [0, 0]], [[1, 1], [1, 1]]), ValueError, "neighbor of a row once"),
    ],
)
def test_bad_precomputed_input_is_refused(X, error, message):
    with pytest.raises(error, match=message):
        knn_graph(X, 1, method="precomputed")


N = 8
POINTS = np.random.default_rng(0).standard_normal((N, 3))
GRAPH, WIDER = knn_graph(POINTS, 3), knn_graph(POINTS, 5)
CSR = WIDER.to_csr()


def pair_with(name, value, dtype=None):
    """Neighbors of eight rows, with another entry in row 5."""
    arrays = {"indices": GRAPH.indices.copy(), "distances": GRAPH.distances.copy()}
    arrays[name] = arrays[name].astype(dtype or arrays[name].dtype)
    arrays[name][5, 1] = value
    return arrays["indices"], arrays["distances"]


def matrix_with(name, value):
    """Distances between eight rows, with another entry in row 5."""
    matrix = CSR.copy()
    getattr(matrix, name)[matrix.indptr[5]] = value
    return matrix


def doubled():
    edges = CSR.tocoo()
    ends = [np.append(end, end[7]) for end in (edges.row, edges.col)]
    return sparse.coo_array((np.append(edges.data, 1.0), ends), shape=CSR.shape)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (
            pair_with("indices", -2),
            ValueError,
            "rows from 0 to n - 1 = 7; got -2 in row 5. Number",
        ),
        (pair_with("indices", 8), ValueError, "got 8 in row 5. Number .* -1 as a missing"),
        (pair_with("indices", 2**63, dtype=np.uint64), ValueError, "; got -9223372036854775"),
        (pair_with("indices", -1), ValueError, "n_neighbors=3 .*; row 5 has 2. Compute it"),
        (pair_with("distances", "a", dtype=str), TypeError, "distances must be real numbers"),
        (doubled(), ValueError, "once; got . twice in row 1. Keep the nearer"),
        (matrix_with("data", np.nan), ValueError, "at least 0; got nan from row 5 to row .. Drop"),
        (
            matrix_with("data", -1.0),
            ValueError,
            r"at least 0; got -1.0 from row 5 .*maximum\(distances",
        ),
        (matrix_with("indices", 8), ValueError, "sound sparse array; .*indices must be < 8"),
        (matrix_with("indices", -1), ValueError, "sound sparse array; .*indices must be >= 0"),
        (CSR * 1j, TypeError, "X must hold real numbers; got dtype complex128"),
        (sparse.coo_array(np.ones(N)), ValueError, r"X must be square; got shape \(8,\)"),
        (sparse.csr_array((0, 0)), ValueError, r"X must not be empty; got shape \(0, 0\)"),
    ],
)
def test_bad_precomputed_edges_are_named(X, error, message):
    with pytest.raises(error, match=rf"^knn_graph\(method='precomputed'\): .*{message}"):
        knn_graph(X, 3, method="precomputed")


def test_edges_are_sorted_and_loops_ignored():
    edges = CSR.tocoo()
    loops = sparse.coo_array((np.full(N, np.inf), (range(N), range(N))))
    backwards = sparse.coo_array((edges.data[::-1], (edges.row[::-1], edges.col[::-1])))
    mixed = np.c_[WIDER.indices[:, ::-1], np.arange(N), np.full(N, -1)]
    lengths = np.c_[WIDER.distances[:, ::-1], np.full((N, 2), np.nan)]
    forms = [CSR.asformat(name) for name in ("csr", "csc", "lil", "dok")]
    for X in (*forms, backwards, sparse.coo_array(backwards + loops), (mixed, lengths)):
        graph = knn_graph(X, 3, method="precomputed")
        np.testing.assert_array_equal(graph.indices, GRAPH.indices)
        np.testing.assert_array_equal(graph.distances, GRAPH.distances)
        assert graph.distances.dtype == np.float64
    whole = sparse.csr_array(np.array([[0, 2, 1], [2, 0, 3], [1, 3, 0]]))
    assert knn_graph(whole, 1, method="precomputed").distances.dtype == np.float64


def test_neighbors_without_distances_are_doubted(points):
    with pytest.warns(
        UserWarning, match=r"X must hold distances; got 1 .* mode='distance'"
    ) as told:
        knn_graph(kneighbors_graph(points, 5), 5, method="precomputed")
    assert told[0].filename == __file__


@pytest.mark.parametrize("name", ["points", "digits"])
def test_squared_distances_are_doubted(points, name):
    graph = knn_graph(points if name == "points" else load_digits().data, 8)
    squares = graph.distances**2
    with pytest.warns(UserWarning, match=r"triangle inequality\. Take the square roots") as told:
        found = knn_graph((graph.indices, squares), 8, method="precomputed")
    assert told[0].filename == __file__
    np.testing.assert_array_equal(found.distances, squares)
    knn_graph((graph.indices, squares), 8, method="precomputed", metric="cosine")
    half = graph.distances.astype(np.float16).astype(np.float32)
    knn_graph((graph.indices, half), 8, method="precomputed")
