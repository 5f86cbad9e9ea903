"""Graphs extended by new rows."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

from ssdml.graphs import knn_graph, nearest_rows
from ssdml.graphs.neighbors.metrics import Euclidean

METRICS = ["euclidean", "cosine"]


def assert_same(graph, expected):
    np.testing.assert_array_equal(graph.indices, expected.indices)
    np.testing.assert_array_equal(graph.distances, expected.distances)
    assert graph.distances.dtype == expected.distances.dtype
    assert (graph.metric, graph.recall_) == (expected.metric, expected.recall_)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("n_new", [1, 3, 60, 400])
def test_extended_graph_equals_graph_of_all_rows(metric, dtype, n_new, rng):
    X = rng.standard_normal((150 + n_new, 5)).astype(dtype)
    graph = knn_graph(X[:150], 7, metric=metric).extend(X[150:])
    assert_same(graph, knn_graph(X, 7, metric=metric))


HEAPS = {
    "identical": np.ones((200, 3)),
    "one_hot": np.eye(7)[np.arange(210) % 7],
    "lattice": np.stack(np.meshgrid(np.arange(15), np.arange(15)), axis=-1).reshape(-1, 2),
    "bits": np.random.default_rng(1).integers(0, 2, (200, 6)),
    "copies": np.tile(np.random.default_rng(2).random((50, 4)), (4, 1)),
    "far": np.r_[np.random.default_rng(3).random((150, 4)), 1e6 * np.eye(4)],
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", HEAPS)
def test_tied_neighbors_are_nearest(name, metric):
    X = HEAPS[name].astype(np.float64)
    graph = knn_graph(X[:120], 10, metric=metric).extend(X[120:])
    whole = knn_graph(X, 10, metric=metric)
    np.testing.assert_allclose(graph.distances, whole.distances, rtol=1e-15, atol=1e-15)
    assert all(len(set(row)) == 10 for row in graph.indices.tolist())


def test_all_rows_may_be_neighbors(rng):
    X = rng.random((12, 2))
    assert_same(knn_graph(X[:8], 7).extend(X[8:]), knn_graph(X, 7))


@pytest.mark.parametrize("metric", METRICS)
def test_extending_row_by_row_gives_same_graph(metric, rng):
    X = rng.standard_normal((40, 3))
    graph = knn_graph(X[:30], 4, metric=metric)
    for i in range(30, 40):
        graph = graph.extend(X[i : i + 1])
    assert_same(graph, knn_graph(X, 4, metric=metric))


def test_threads_change_nothing(rng):
    X = rng.standard_normal((3000, 4)).astype(np.float32)
    graph = knn_graph(X[:2000], 5)
    assert_same(graph.extend(X[2000:], n_jobs=2), graph.extend(X[2000:]))


def test_old_rows_are_not_compared_with_each_other(rng, monkeypatch):
    scores = []
    original = Euclidean.scores

    def counted(self, left, right):
        scores.append(len(left) * len(right))
        return original(self, left, right)

    X = rng.standard_normal((2010, 8))
    graph = knn_graph(X[:2000], 5)
    monkeypatch.setattr(Euclidean, "scores", counted)
    graph.extend(X[2000:])
    assert sum(scores) == 10 * 2010 + 2000 * 10


def test_old_rows_and_graph_stay_as_they_are(rng):
    X = rng.random((30, 2))
    X.flags.writeable = False
    graph = knn_graph(X, 3)
    before = graph.indices.copy(), graph.distances.copy()
    graph.extend(X[:5])
    np.testing.assert_array_equal(graph.indices, before[0])
    np.testing.assert_array_equal(graph.distances, before[1])


def test_pickle_omits_rows(rng):
    X = rng.random((2000, 50))
    graph = knn_graph(X[:1990], 2)
    pickled = pickle.dumps(graph)
    assert len(pickled) < X.nbytes / 10
    again = pickle.loads(pickled)
    assert again.recall_ == 1
    with pytest.raises(ValueError, match=r"extend: X must be given .* Pass the rows of the graph"):
        again.extend(X[1990:])
    assert_same(again.extend(X[1990:], X=X[:1990]), knn_graph(X, 2))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_extended_as_well(rng, copied):
    X = rng.random((40, 3))
    again = copied(knn_graph(X[:30], 4))
    assert_same(again.extend(X[30:]), knn_graph(X, 4))


def test_precomputed_neighbors_are_extended_with_their_rows(rng):
    X = rng.random((40, 3))
    given = knn_graph(X[:30], 4)
    graph = knn_graph((given.indices, given.distances), 4, method="precomputed")
    extended = graph.extend(X[30:], X=X[:30])
    np.testing.assert_array_equal(extended.indices, knn_graph(X, 4).indices)
    assert extended.recall_ is None  # unknown for precomputed neighbors


def test_recall_is_unknown_after_approximate_search(rng):
    X = rng.random((3000, 8))
    graph = knn_graph(X[:2900], 5, method="ivf", random_state=0)
    assert graph.extend(X[2900:]).recall_ is None


def test_progress_rises_from_0_to_1(rng):
    told = []
    knn_graph(rng.random((3000, 2)), 3).extend(rng.random((9, 2)), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    assert len(told) > 4


@pytest.mark.parametrize(
    ("X_new", "arguments", "error", "message"),
    [
        (np.ones((2, 3)), {}, ValueError, "X_new must have as many columns.*, 2; got 3"),
        (np.ones((0, 2)), {}, ValueError, r"X_new must not be empty; got shape \(0, 2\)"),
        (np.full((1, 2), np.nan), {}, ValueError, "X_new must be finite; got nan at row 0"),
        (np.ones((1, 2), np.float32), {}, TypeError, r"float64; got float32. Use X_new.astype\('f"),
        (np.ones((1, 2)), {"X": np.ones((9, 2))}, ValueError, "X must be the 10 rows.*got 9 rows"),
    ],
)
def test_bad_new_rows_are_named(X_new, arguments, error, message, rng):
    graph = knn_graph(rng.random((10, 2)), 3)
    with pytest.raises(error, match=f"extend: .*{message}"):
        graph.extend(X_new, **arguments)


def test_columns_in_another_order_are_refused(rng):
    table = pd.DataFrame(rng.standard_normal((20, 3)), columns=list("abc"))
    graph, swapped = knn_graph(table, 2), table[["b", "a", "c"]]
    message = (
        "extend: X_new must have the columns of the rows of the graph, in their order; got 'b'"
    )
    for earlier in (graph, graph.extend(table + 1)):
        with pytest.raises(ValueError, match=message):
            earlier.extend(swapped)
    assert graph.extend(swapped.to_numpy()).n_samples == 40
    with pytest.raises(ValueError, match="nearest_rows: queries must have the columns of X, in"):
        nearest_rows(table, swapped, 1)
    assert (nearest_rows(table, table, 1)[1] == 0).all()
