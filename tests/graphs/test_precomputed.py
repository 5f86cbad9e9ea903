"""Graphs computed elsewhere: scikit-learn's and UMAP's interchange."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.neighbors import KNeighborsTransformer

from ssdml.graphs import knn_graph


@pytest.fixture
def points(rng):
    return rng.standard_normal((200, 5))


def test_scikit_learns_distances_give_the_same_graph(points):
    transformer = KNeighborsTransformer(mode="distance", n_neighbors=8)
    graph = knn_graph(transformer.fit_transform(points), 6, method="precomputed")
    expected = knn_graph(points, 6)
    np.testing.assert_array_equal(graph.indices, expected.indices)
    np.testing.assert_allclose(graph.distances, expected.distances, atol=1e-12)


def test_umaps_pair_gives_the_same_graph(points):
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
        (np.zeros((3, 3)), TypeError, "sparse matrix of distances.*got ndarray"),
        (sparse.csr_array((3, 4)), ValueError, r"X must be square; got shape \(3, 4\)"),
        (sparse.csr_array([[0, 1.0], [0, 0]]), ValueError, "row 1 has 0. Compute it with more"),
        (sparse.csr_array([[0, -1.0], [1, 0]]), ValueError, "at least 0; got -1.0 from row 0"),
        (([[1], [0]], [[np.nan], [1]]), ValueError, "finite distances of at least 0; got nan"),
        (([[1], [0]], [[1.0]]), ValueError, r"share one shape \(n, k\); got \(2, 1\) and"),
        (([[1.0], [0]], [[1], [1]]), TypeError, "indices must be integers; got dtype float64"),
        (([[5], [0]], [[1], [1]]), ValueError, "rows below n = 2; got 5"),
        (([[1, 1], [0, 0]], [[1, 1], [1, 1]]), ValueError, "neighbour of a row once"),
    ],
)
def test_what_cannot_be_a_graph_is_refused(X, error, message):
    with pytest.raises(error, match=message):
        knn_graph(X, 1, method="precomputed")
