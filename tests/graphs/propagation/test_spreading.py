"""Label propagation with reordered rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from ssdml.graphs import adjacency, knn_graph, propagate_labels
from ssdml.graphs.propagation import coarsening
from ssdml.graphs.propagation.coarsening import index_type, leaf_places, near_order, reordered

DECAY = 0.9


@pytest.fixture
def problem(rng):
    """Rows of three clusters in random order, and labels for a few."""
    truth = rng.integers(3, size=150)
    X = 3.0 * np.eye(3)[truth] + rng.standard_normal((150, 3))
    return knn_graph(X, 6), np.where(np.arange(150) < 30, truth, -1)


@pytest.fixture
def in_near_order(monkeypatch):
    reorder(monkeypatch)


def reorder(monkeypatch):
    monkeypatch.setattr(coarsening, "CACHED_ENTRIES", 0)
    monkeypatch.setattr(coarsening, "CLUSTER_ROWS", 10)  # with 100, one cluster: no new order


def closed_form(graph, labels):
    W = adjacency(graph).toarray()
    roots = np.sqrt(W.sum(axis=1))
    system = np.eye(len(W)) - DECAY * W / roots / roots[:, None]
    return (1 - DECAY) * np.linalg.solve(system, np.eye(3)[labels] * (labels >= 0)[:, None])


def test_reordered_scores_match_closed_form(problem, in_near_order):
    graph, labels = problem
    _, solution = propagate_labels(graph, labels, decay=DECAY, return_solution=True, tol=1e-12)
    np.testing.assert_allclose(solution.values, closed_form(graph, labels), atol=1e-12)


def test_distributions_do_not_depend_on_the_order(problem, monkeypatch):
    given = propagate_labels(*problem, tol=1e-12)
    reorder(monkeypatch)
    np.testing.assert_allclose(propagate_labels(*problem, tol=1e-12), given, atol=1e-9)


def test_start_is_reordered(problem, in_near_order):
    _, cold = propagate_labels(*problem, return_solution=True)
    _, warm = propagate_labels(*problem, start=cold.values, return_solution=True)
    assert warm.n_iter == 0 < cold.n_iter


@pytest.mark.parametrize("size", [1e6, 1e30])
def test_start_beyond_float32_is_solved_in_double(problem, size):
    start = np.full((150, 3), size)
    result = propagate_labels(*problem, start=start)
    np.testing.assert_allclose(result, propagate_labels(*problem), atol=1e-4)


@pytest.mark.parametrize("decay", [1 - 1e-5, 1 - 1e-7])
def test_decay_beyond_float32_is_solved_in_double(problem, decay):
    graph, labels = problem
    _, solution = propagate_labels(graph, labels, decay=decay, return_solution=True)
    assert solution.converged


def test_threads_change_nothing_after_reordering(problem, in_near_order):
    one, two = (propagate_labels(*problem, n_jobs=n_jobs) for n_jobs in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_near_order_brings_neighbors_together(rng):
    n = 3000
    places = rng.permutation(n)  # a path in random order
    ends = (np.r_[places[:-1], places[1:]], np.r_[places[1:], places[:-1]])
    path = sparse.csr_array((rng.random(2 * n - 2), ends))
    order = near_order(sparse.csr_array(path + path.T))
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    moved = reordered(path, order)
    rows, columns = moved.nonzero()
    assert np.abs(rows - columns).mean() < n / 30  # n / 3 at random
    np.testing.assert_array_equal(moved.toarray(), path.toarray()[np.ix_(order, order)])
    assert moved.indices.dtype == np.int32


def test_near_order_puts_unreached_rows_last():
    pairs = sparse.kron(sparse.eye_array(250), np.ones((2, 2)), format="csr")  # 5 of 250 are met
    order = near_order(pairs)
    np.testing.assert_array_equal(np.sort(order), np.arange(500))
    np.testing.assert_array_equal(order[10:], np.sort(order[10:]))


def test_leaf_places_of_clusters_in_pairs(rng):
    # The two clusters of a pair share entries with no other: their distance is 0, or -2e-16 by
    # rounding, which SciPy refuses.
    pairs = [np.array([[0.3, w], [w, 0.7]]) for w in rng.random(100)]
    places = leaf_places(sparse.block_diag(pairs).toarray())
    np.testing.assert_array_equal(np.sort(places), np.arange(200))
    assert (np.abs(np.diff(places.reshape(100, 2), axis=1)) == 1).all()


def test_labels_spread_in_many_separate_clusters(rng, in_near_order, monkeypatch):
    monkeypatch.setattr(coarsening, "CLUSTER_ROWS", 5)  # some two seeds per cluster
    y = np.repeat(np.arange(60), 12)
    X = rng.standard_normal((60, 16))[y] + 0.05 * rng.standard_normal((720, 16))
    labels = np.where(np.arange(720) % 12 == 0, y, -1)
    np.testing.assert_array_equal(propagate_labels(knn_graph(X, 10), labels).argmax(axis=1), y)


@pytest.mark.parametrize("n", [1, 2, 99, 250])
def test_near_order_without_edges(n):
    order = near_order(sparse.csr_array((n, n)))
    np.testing.assert_array_equal(np.sort(order), np.arange(n))


def test_indices_are_int32_if_possible():
    for nnz, dtype in ((2**31 - 1, np.int32), (2**31, np.int64)):
        assert index_type(SimpleNamespace(nnz=nnz, shape=(9, 9))) == dtype
