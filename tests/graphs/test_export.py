"""Graphs for other libraries, against their own results on the rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris, make_blobs
from sklearn.semi_supervised import LabelSpreading

from ssdml.graphs import adjacency, cleanlab_graph, knn_graph, spreading_kernel, umap_neighbors


def test_label_spreading_reaches_fixed_point():
    X, y = make_blobs(80, 3, centers=3, cluster_std=2.0, random_state=0)
    labels = np.where(np.arange(80) % 8 == 0, y, -1)
    graph = knn_graph(X, 6)
    model = LabelSpreading(kernel=spreading_kernel(graph), alpha=0.5, max_iter=500, tol=1e-12)
    model.fit(X, labels)
    W = adjacency(graph).toarray()
    roots = np.sqrt(W.sum(axis=1))
    H = (labels[:, None] == np.arange(3)).astype(float)
    F = 0.5 * np.linalg.solve(np.eye(80) - 0.5 * W / np.outer(roots, roots), H)
    F /= F.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.label_distributions_, F, atol=1e-8)


def test_the_kernel_refuses_other_rows():
    X, _ = load_iris(return_X_y=True)
    kernel = spreading_kernel(knn_graph(X, 5))
    with pytest.raises(ValueError, match="rows must be the 150 of the graph; got 150 and 3"):
        kernel(X, X[:3])


def test_weights_that_are_written_to_do_not_change_the_kernel(rng):
    X = rng.random((20, 3))
    kernel = spreading_kernel(knn_graph(X, 4))
    weights = kernel(X, X)
    expected = weights.toarray()
    weights.data /= 2
    np.testing.assert_array_equal(kernel(X, X).toarray(), expected)


def test_a_row_is_its_own_first_neighbor(rng):
    X = rng.standard_normal((40, 3)).astype(np.float32)
    indices, distances = umap_neighbors(knn_graph(X, 4))
    full = np.linalg.norm(X[:, None].astype(float) - X, axis=2)
    np.testing.assert_array_equal(indices, np.argsort(full, axis=1, kind="stable")[:, :5])
    np.testing.assert_allclose(distances, np.sort(full, axis=1)[:, :5], atol=1e-5)
    assert distances.dtype == np.float32


@pytest.mark.filterwarnings("ignore:.*not an NNDescent object:UserWarning")  # no transform then
def test_umap_takes_them(rng):
    umap = pytest.importorskip("umap")
    X, y = make_blobs(90, 5, centers=3, random_state=0)
    model = umap.UMAP(7, precomputed_knn=(*umap_neighbors(knn_graph(X, 6)), None))
    Z = model.fit_transform(X)
    means = np.stack([Z[y == c].mean(axis=0) for c in range(3)])
    nearest = np.linalg.norm(Z[:, None] - means, axis=2).argmin(axis=1)
    assert (nearest == y).mean() > 0.95


def test_entries_are_sorted_by_distance(rng):
    X = np.repeat(rng.standard_normal((20, 3)), 2, axis=0)  # each row twice: zeros are stored
    graph = knn_graph(X, 4)
    distances = cleanlab_graph(graph)
    np.testing.assert_array_equal(distances.indices.reshape(40, 4), graph.indices)
    np.testing.assert_array_equal(distances.data.reshape(40, 4), graph.distances)
    np.testing.assert_array_equal(distances.toarray(), graph.to_csr().toarray())
    assert not distances.data[::4].any()


def test_cleanlab_gives_same_issues():
    valuation = pytest.importorskip("cleanlab.data_valuation")
    X, y = make_blobs(90, 5, centers=3, cluster_std=3.0, random_state=0)
    by_graph = valuation.data_shapley_knn(y, knn_graph=cleanlab_graph(knn_graph(X, 6)), k=6)
    by_rows = valuation.data_shapley_knn(y, features=X, k=6, metric="euclidean")
    np.testing.assert_allclose(by_graph, by_rows, atol=1e-12)


def test_spreading_kernel_takes_sparse_rows(rng):
    X = rng.random((30, 3))
    y = np.where(np.arange(30) < 4, np.arange(30) % 2, -1)
    kernel = spreading_kernel(knn_graph(X, 4))
    dense, by_sparse = (LabelSpreading(kernel=kernel).fit(Z, y) for Z in (X, sparse.csr_array(X)))
    np.testing.assert_array_equal(by_sparse.transduction_, dense.transduction_)
