"""t-SNE on a graph: forces against sums over all pairs, and maps against scikit-learn's."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from ssdml.graphs import knn_graph, neighbor_embedding
from ssdml.graphs.layout import attraction, grid_repulsion


def all_pairs(points):
    gaps = points[:, :, None] - points[:, None, :]
    q = 1 / (1 + (gaps**2).sum(axis=0))
    return (q**2 * gaps).sum(axis=2), q.sum() - len(q)


@pytest.mark.parametrize("spread", [2.0, 30.0])
def test_repulsion_converges_to_all_pairs(rng, spread):
    points = (rng.standard_normal((2, 300)) * spread).astype(np.float32)
    wanted, total = all_pairs(points.astype(float))
    errors = []
    for cell in (0.4, 0.2, 0.1):
        found = grid_repulsion(points, cell=cell)
        errors.append(np.linalg.norm(found.forces - wanted) / np.linalg.norm(wanted))
    assert errors[2] < 0.03
    assert errors[2] < errors[1] / 2.5 < errors[0] / 6  # second order in the cell
    np.testing.assert_allclose(found.total, total, rtol=0.02)


def test_a_point_does_not_repel_itself():
    points = np.array([[0.3, 90.3], [0.2, -70.4]], np.float32)
    assert np.abs(grid_repulsion(points).forces).max() < 1e-4


def test_repulsion_is_the_same_with_several_threads(rng):
    points = rng.standard_normal((2, 100)).astype(np.float32)
    one, three = (grid_repulsion(points, n_threads=count) for count in (1, 3))
    np.testing.assert_array_equal(one.forces, three.forces)


def test_attraction_agrees_with_the_sum(rng):
    points = rng.standard_normal((2, 9)).astype(np.float32)
    W = np.triu(rng.random((9, 9)) * (rng.random((9, 9)) < 0.5), 1)
    W = (W + W.T).astype(np.float32)
    gaps = points[:, :, None] - points[:, None, :]
    wanted = (W / (1 + (gaps**2).sum(axis=0)) * gaps).sum(axis=2)
    edges = sparse.csr_array(W)
    found = attraction(points, edges.indptr, edges.indices, edges.data)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_digits_keep_neighbors_as_in_scikit_learn():
    X, y = load_digits(return_X_y=True)
    graph = knn_graph(X, 10)
    nearest = knn_graph(neighbor_embedding(graph, PCA(2).fit_transform(X)), 10).indices
    kept = np.mean([np.isin(a, b).mean() for a, b in zip(nearest, graph.indices, strict=True)])
    assert kept > 0.56  # TSNE(init="pca"): 0.585
    assert (y[nearest] == y[:, None]).mean() > 0.97


def test_the_map_of_renumbered_rows_is_the_same(rng):
    X = rng.standard_normal((60, 4)) + 6 * np.repeat(np.eye(3, 4), 20, axis=0)
    order = rng.permutation(60)
    first = neighbor_embedding(knn_graph(X, 5), X[:, :2])
    second = neighbor_embedding(knn_graph(X[order], 5), X[order, :2])
    near = [knn_graph(points, 5).indices for points in (first[order], second)]
    assert np.mean([np.isin(a, b).mean() for a, b in zip(*near, strict=True)]) > 0.8


def test_the_mean_of_the_init_does_not_matter(rng):
    X = rng.standard_normal((60, 2))
    X -= X.mean(axis=0)
    graph, far = knn_graph(X, 5), X + np.array([2.0**30, -(2.0**30)])
    near = [knn_graph(neighbor_embedding(graph, init), 5).indices for init in (X, far)]
    assert np.mean([np.isin(a, b).mean() for a, b in zip(*near, strict=True)]) > 0.8


def test_equal_rows_stay_together():
    points = neighbor_embedding(knn_graph(np.ones((6, 2)), 3), np.ones((6, 2)))
    np.testing.assert_array_equal(points, np.zeros((6, 2)))


def test_the_grid_of_far_points_stays_small():
    found = grid_repulsion(np.array([[0.0, 1e6], [0.0, 1e6]], np.float32))
    assert np.abs(found.forces).max() < 1e-3


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_maps_of_few_rows_do_not_diverge(rng, n):
    X = rng.standard_normal((n, 2))
    assert np.abs(neighbor_embedding(knn_graph(X, min(3, n - 1)), X)).max() < 100


@pytest.mark.parametrize(
    ("exponent", "dtype"),
    [(-700, np.float64), (700, np.float64), (-100, np.float32), (100, np.float32)],
)
def test_the_scale_of_the_init_does_not_matter(rng, exponent, dtype):
    X = rng.standard_normal((60, 2)).astype(dtype)
    graph = knn_graph(X, 5)
    scaled = neighbor_embedding(graph, np.ldexp(X, exponent))
    np.testing.assert_array_equal(scaled, neighbor_embedding(graph, X))


def test_the_wider_coordinate_of_the_init_sets_its_scale(rng):
    """Scaled by a narrow first coordinate, the map began and stayed 1e6 times too wide."""
    X = rng.standard_normal((60, 2)) * [1e-6, 1.0]
    points = neighbor_embedding(knn_graph(X, 5), X)
    assert np.ptp(points, axis=0).max() < 500


def test_a_bad_init_is_refused():
    graph = knn_graph(np.arange(6.0)[:, None], 2)
    with pytest.raises(ValueError, match=r"init must have shape \(6, 2\).* got \(6, 1\)"):
        neighbor_embedding(graph, np.zeros((6, 1)))
    with pytest.raises(ValueError, match="exaggeration must be above 0; got 0"):
        neighbor_embedding(graph, np.zeros((6, 2)), exaggeration=0)
