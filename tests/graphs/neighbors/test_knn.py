"""Nearest neighbors against the slow twin, and difficult inputs."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from ssdml.graphs import KNNGraph, knn_graph, nearest_rows
from ssdml.graphs.neighbors import exact as _search, knn as neighbors_module
from ssdml.utils.validation import check_rows
from tests import reference

METRICS = ["euclidean", "cosine"]


def frozen(X):
    X = np.asarray(X)
    X.flags.writeable = False
    return X


@pytest.fixture
def points(rng):
    return frozen(rng.standard_normal((200, 5)))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exact_search_matches_slow_twin(points, metric, dtype):
    X = points.astype(dtype)
    graph = knn_graph(X, 7, metric=metric, method="exact")
    indices, distances = reference.knn(X, 7, metric)
    np.testing.assert_array_equal(graph.indices, indices)
    np.testing.assert_allclose(graph.distances, distances, atol=10 * np.finfo(dtype).eps)
    assert graph.distances.dtype == dtype
    assert graph.indices.dtype == np.int64
    assert graph.metric == metric


HEAPS = {
    "identical": np.ones((100, 3)),
    "one_hot": np.eye(7)[np.arange(105) % 7],
    "lattice": np.stack(np.meshgrid(np.arange(11), np.arange(11)), axis=-1).reshape(-1, 2),
    "bits": np.random.default_rng(1).integers(0, 2, (120, 6)),
    "half_duplicates": np.r_[np.zeros((50, 2)), np.random.default_rng(2).random((50, 2))],
}


def assert_nearest(graph, X):
    """The distances are the smallest, and those of the neighbors; ties fall anywhere."""
    away = reference.distance_matrix(np.asarray(X, np.float64), graph.metric)
    np.fill_diagonal(away, np.inf)
    atol = 10 * np.finfo(graph.distances.dtype).eps
    nearest = np.sort(away, axis=1)[:, : graph.n_neighbors]
    np.testing.assert_allclose(graph.distances, nearest, atol=atol)
    found = np.take_along_axis(away, graph.indices, axis=1)
    np.testing.assert_allclose(graph.distances, found, atol=atol)
    assert all(len(set(row)) == graph.n_neighbors for row in graph.indices.tolist())


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", HEAPS)
def test_tied_neighbors_are_nearest(name, dtype, metric):
    X = frozen(HEAPS[name].astype(dtype))
    graph, again = (knn_graph(X, 10, metric=metric) for _ in range(2))
    assert_nearest(graph, X)
    np.testing.assert_array_equal(graph.indices, again.indices)


@pytest.mark.parametrize("metric", METRICS)
def test_hundred_ties_in_single_precision(metric, rng):
    X = (rng.random((1500, 50)) < 0.05).astype(np.float32)
    graph = knn_graph(X, 5, metric=metric)
    products = X.astype(np.float64) @ X.T
    sizes = np.diag(products)
    if metric == "euclidean":
        expected = np.sqrt(sizes[:, None] + sizes - 2 * products)
    else:
        lengths = np.sqrt(np.maximum(sizes, 1))
        expected = 1 - products / lengths[:, None] / lengths
    np.fill_diagonal(expected, np.inf)
    np.testing.assert_allclose(graph.distances, np.sort(expected, axis=1)[:, :5], atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", HEAPS)
def test_ties_across_blocks_of_rows(name, metric, monkeypatch):
    monkeypatch.setattr(_search, "SCORE_ENTRIES", 100 * 30)
    monkeypatch.setattr(_search, "SLACK", 0)
    assert_nearest(knn_graph(HEAPS[name], 10, metric=metric), HEAPS[name])


def test_one_distant_row_costs_no_digits(points, monkeypatch):
    searched, original = [], _search.Searcher._find_in_double

    def counted(self, queries, width):
        searched.append(len(queries))
        return original(self, queries, width)

    monkeypatch.setattr(_search.Searcher, "_find_in_double", counted)
    graph = knn_graph(np.r_[points, np.full((1, 5), 1e7)], 6)
    np.testing.assert_array_equal(graph.indices[:200], reference.knn(points, 6)[0])
    assert sum(searched) <= 1  # float32 is enough for all others


@pytest.mark.parametrize("method", ["exact", "ivf", "hnsw"])
def test_no_row_is_its_own_neighbor(method, rng):
    X = rng.integers(0, 3, (600, 2)).astype(np.float32)
    graph = knn_graph(X, 5, method=method, random_state=0)
    assert not (graph.indices == np.arange(600)[:, None]).any()
    assert all(len(set(row)) == 5 for row in graph.indices.tolist())


TIED = {
    "texts": lambda rng: (rng.random((500, 1000)) < 0.003) * rng.random(1000),
    "one_hot": lambda rng: np.eye(1000),
    "identical": lambda rng: np.ones((3000, 64)),
    "pixels": lambda rng: rng.integers(0, 256, (1000, 400)).astype(np.uint8),
}


@pytest.mark.parametrize("name", TIED)
def test_ties_cost_no_more_than_brute_force(name, rng):
    X = TIED[name](rng)
    rows = X.astype(np.float64)
    brute = NearestNeighbors(n_neighbors=11, algorithm="brute")
    knn_graph(X[:20], 3)  # imports
    seconds = []
    for search in (lambda: knn_graph(X, 10), lambda: brute.fit(rows).kneighbors(rows)):
        start = time.process_time()
        search()
        seconds.append(time.process_time() - start)
    assert seconds[0] < 10 * seconds[1] + 0.5  # 3 times if nothing else runs


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
def test_offset_does_not_change_neighbors(points, offset):
    # 2^-8 steps: adding the offset rounds nothing away.
    X = np.round(points * 256) / 256
    graph, moved = knn_graph(X, 6), knn_graph(X + offset, 6)
    np.testing.assert_array_equal(moved.indices, graph.indices)
    np.testing.assert_array_equal(moved.distances, graph.distances)


@pytest.mark.parametrize("distance", [1e2, 1e3, 1e4, 1e6])
def test_two_distant_clusters_keep_their_inner_order(points, distance):
    # Far from the center, float32 hardly distinguishes the rows of a cluster.
    X = np.r_[points[:100] + distance, points[100:] - distance]
    np.testing.assert_array_equal(knn_graph(X, 6).indices, reference.knn(X, 6)[0])


@pytest.mark.parametrize("distance", [30.0, 100.0, 300.0, 1e3])
def test_scores_without_digits_are_not_trusted(rng, distance):
    # |x|² + |y|² - 2 x·y cancels far from the center.
    X = rng.standard_normal((2000, 256))
    X[:1000] += distance
    graph = knn_graph(X, 6)
    for i in range(0, 2000, 40):
        distances = np.sqrt(((X - X[i]) ** 2).sum(axis=1))
        nearest = np.argsort(distances, kind="stable")
        np.testing.assert_array_equal(graph.indices[i], nearest[nearest != i][:6])


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_tiny_and_huge_values_keep_their_distances(points, scale):
    graph = knn_graph(points * scale, 6)
    np.testing.assert_array_equal(graph.indices, knn_graph(points, 6).indices)
    np.testing.assert_allclose(graph.distances / scale, knn_graph(points, 6).distances, rtol=1e-12)
    by_angle = knn_graph(points * scale, 6, metric="cosine").indices
    np.testing.assert_array_equal(by_angle, knn_graph(points, 6, metric="cosine").indices)


def test_rotation_and_row_order_do_not_matter(points, rng):
    rotation, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    order = rng.permutation(200)
    graph, turned = knn_graph(points, 6), knn_graph((points @ rotation)[order], 6)
    np.testing.assert_array_equal(order[turned.indices], graph.indices[order])


def test_cosine_with_zero_row_is_zero():
    X = [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [2.0, 0.1]]
    graph = knn_graph(X, 3, metric="cosine")
    np.testing.assert_array_equal(graph.indices[0], [1, 2, 3])
    np.testing.assert_array_equal(graph.distances[0], [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(graph.indices[1], [3, 0, 2])
    np.testing.assert_allclose(graph.distances[1], [1 - 2 / np.sqrt(4.01), 1.0, 2.0], atol=1e-15)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("method", ["exact", "ivf", "hnsw"])
def test_number_of_threads_changes_no_bit(metric, method, rng):
    X = rng.standard_normal((4000, 8)).astype(np.float32)
    one = knn_graph(X, 5, metric=metric, method=method, n_jobs=1, random_state=0)
    two = knn_graph(X, 5, metric=metric, method=method, n_jobs=2, random_state=0)
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_array_equal(one.distances, two.distances)


def test_faiss_keeps_its_number_of_threads(points):
    import faiss

    before = faiss.omp_get_max_threads()
    knn_graph(points, 3, method="ivf", n_jobs=2, random_state=0)
    assert faiss.omp_get_max_threads() == before


@pytest.mark.parametrize("method", ["exact", "ivf", "hnsw", "torch"])
def test_progress_rises_from_0_to_1(method, rng):
    told = []
    knn_graph(rng.standard_normal((3000, 4)), 3, method=method, progress=told.append)
    assert told == sorted(told)
    assert told[0] < 0.9
    assert told[-1] == 1
    assert len(told) > 4


def test_precomputed_graph_reports_progress_once():
    told = []
    pair = np.array([[1], [0]]), np.ones((2, 1))
    graph = knn_graph(pair, 1, method="precomputed", progress=told.append)
    assert told == [1]
    assert graph.recall_ is None


def test_row_starts_beyond_int32():
    starts = neighbors_module._row_starts(3, 2**30)
    assert starts.dtype == np.int64
    np.testing.assert_array_equal(starts, [0, 2**30, 2**31, 3 * 2**30])


def test_to_csr_keeps_duplicates_as_explicit_zeros():
    graph = knn_graph([[0.0], [0.0], [3.0]], 1)
    matrix = graph.to_csr()
    assert matrix.nnz == 3
    np.testing.assert_array_equal(matrix.toarray(), [[0, 0, 0], [0, 0, 0], [3, 0, 0]])


@pytest.mark.parametrize("metric", METRICS)
def test_nearest_rows_matches_slow_twin(points, metric):
    indices, distances = nearest_rows(points[:150], points[150:], 4, metric=metric)
    expected = reference.distance_matrix(points, metric)[150:, :150]
    np.testing.assert_array_equal(indices, np.argsort(expected, axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(distances, np.sort(expected, axis=1)[:, :4], atol=1e-14)


def test_nearest_rows_finds_query_among_rows(points):
    indices, distances = nearest_rows(points, points[:3], 200)
    np.testing.assert_array_equal(indices[:, 0], [0, 1, 2])
    assert not distances[:, 0].any()
    np.testing.assert_array_equal(np.sort(indices, axis=1), np.tile(np.arange(200), (3, 1)))


def test_nearest_rows_with_one_row():
    indices, distances = nearest_rows([[1.0]], [[1e30], [1.0]], 1)
    np.testing.assert_array_equal(indices, [[0], [0]])
    np.testing.assert_allclose(distances, [[1e30], [0.0]])


def test_integers_lists_and_half_precision_are_accepted(points):
    X = np.round(points * 10)
    expected = knn_graph(X, 3).indices
    for same in (X.astype(np.int32), X.tolist(), X.astype(np.float16), X.astype(object)):
        np.testing.assert_array_equal(knn_graph(same, 3).indices, expected)


def with_entry(value):
    X = np.ones((4, 3))
    X[2, 1] = value
    return X


@pytest.mark.parametrize(
    ("X", "n_neighbors", "error", "message"),
    [
        (np.ones((10, 2)), 10, ValueError, "n_neighbors must be at most n - 1 = 9; got 10"),
        (np.ones((10, 2)), 0, ValueError, "n_neighbors must be at least 1; got 0"),
        (np.ones((10, 2)), 2.0, TypeError, "n_neighbors must be a whole number; got 2.0"),
        (np.ones((10, 2)), True, TypeError, "n_neighbors must be a whole number; got True"),
        (np.ones((1, 2)), 1, ValueError, "n_neighbors must be at most n - 1 = 0; got 1"),
        (with_entry(np.nan), 2, ValueError, "X must be finite; got nan at row 2, column 1"),
        (with_entry(-np.inf), 2, ValueError, "X must be finite; got -inf at row 2, column 1"),
        (np.ones(10), 2, ValueError, r"two dimensions.*got shape \(10,\)"),
        (np.ones((0, 3)), 2, ValueError, r"X must not be empty; got shape \(0, 3\)"),
        (np.ones((3, 0)), 2, ValueError, r"X must not be empty; got shape \(3, 0\)"),
        (
            np.array([["a"], ["b"]]),
            1,
            ValueError,
            "X must hold numbers; it holds text",
        ),
        (np.array([["a"], [None]], object), 1, ValueError, "X must hold numbers; it holds text"),
        (np.ones((4, 2), complex), 1, ValueError, "X must hold real numbers; got dtype complex128"),
        (sparse.csr_array(np.eye(4)), 1, TypeError, "X must be dense; got a sparse csr_array"),
    ],
)
def test_bad_input_is_named(X, n_neighbors, error, message):
    with pytest.raises(error, match=f"knn_graph: .*{message}"):
        knn_graph(X, n_neighbors)


def test_large_finite_values_are_accepted():
    check_rows(np.full((2, 1), 1.5e308), "here")  # their sum overflows
    graph = knn_graph([[1e300], [1.5e300], [-1e299]], 1)
    np.testing.assert_array_equal(graph.indices.ravel(), [1, 0, 0])


def test_unknown_names_suggest_nearest():
    with pytest.raises(ValueError, match=r"metric must be one of 'euclidean', 'cosine'; got 'cos'"):
        knn_graph(np.ones((3, 2)), 1, metric="cos")
    with pytest.raises(ValueError, match=r"got 'hnws'. Did you mean 'hnsw'\?"):
        knn_graph(np.ones((3, 2)), 1, method="hnws")


def test_nearest_rows_names_bad_queries():
    with pytest.raises(ValueError, match="queries must have as many columns as X, 2; got 3"):
        nearest_rows(np.ones((4, 2)), np.ones((1, 3)), 1)
    with pytest.raises(ValueError, match="nearest_rows: n_neighbors must be at most n = 4; got 5"):
        nearest_rows(np.ones((4, 2)), np.ones((1, 2)), 5)


def test_graph_shape_properties():
    graph = KNNGraph(np.array([[1, 2], [0, 2], [0, 1], [0, 1]]), np.zeros((4, 2)))
    assert (graph.n_samples, graph.n_neighbors, graph.metric) == (4, 2, "euclidean")
