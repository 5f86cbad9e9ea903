"""Walks against the dense inverse, with their error bounds."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from ssdml.graphs import KNNGraph, knn_graph
from ssdml.graphs.propagation import coarsening as _ordering, deflation, walks
from ssdml.graphs.propagation.affinities import symmetric_edges
from ssdml.graphs.propagation.class_masses import transition_matrix
from ssdml.graphs.propagation.deflation import N_MODES
from ssdml.graphs.propagation.walks import walk_entries


def random_graph(rng):
    return knn_graph(rng.standard_normal((120, 5)), 7)


def clustered_graph(rng):
    centers = 6 * rng.standard_normal((9, 4))
    return knn_graph(np.repeat(centers, 30, axis=0) + rng.standard_normal((270, 4)), 8)


def chain(rng):
    return knn_graph(np.arange(100.0)[:, None], 2)


def star(rng):
    """Each leaf has edges to the center and the next leaf; the center has edges to two leaves."""
    n = 75
    indices = np.stack([np.zeros(n, int), np.roll(np.arange(n), -1)], axis=1)
    indices[0] = [1, 2]
    indices[-1] = [0, 1]
    return KNNGraph(indices, np.ones((n, 2)))


def disconnected(rng):
    apart = np.repeat(100 * np.arange(4.0), 20)[:, None] * np.ones(3)
    return knn_graph(apart + rng.standard_normal((80, 3)), 5)


def duplicates(rng):
    """Cliques of duplicates and other rows."""
    return knn_graph(np.r_[np.zeros((30, 2)), np.ones((15, 2)), rng.standard_normal((30, 2))], 6)


GRAPHS = [random_graph, clustered_graph, chain, star, disconnected, duplicates]


def dense_entries(graph, decay, pattern):
    Q = transition_matrix(graph).toarray()
    P = (1 - decay) * np.linalg.inv(np.eye(len(Q)) - decay * Q)
    return P[pattern.nonzero()]


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
class TestEveryGraph:
    @pytest.mark.parametrize("decay", [0.5, 0.99])
    @pytest.mark.parametrize("tol", [1e-2, 1e-4])
    def test_errors_are_within_bounds_and_tolerance(self, rng, make, decay, tol):
        graph = make(rng)
        pattern = symmetric_edges(graph)
        result = walk_entries(
            transition_matrix(graph), decay, pattern, tol=tol * (1 - decay), n_threads=1
        )
        errors = np.abs(result.values - dense_entries(graph, decay, pattern))
        assert (errors <= result.bounds).all()
        assert (result.bounds <= tol * (1 - decay)).all()

    def test_unreachable_tolerance_is_not_claimed(self, rng, make):
        graph = make(rng)
        pattern = symmetric_edges(graph)
        result = walk_entries(transition_matrix(graph), 0.9, pattern, tol=1e-18)
        errors = np.abs(result.values - dense_entries(graph, 0.9, pattern))
        assert (errors <= result.bounds).all()
        assert result.bounds.max() > 1e-18

    def test_double_precision_reaches_small_tolerances(self, rng, make):
        graph = make(rng)
        pattern = symmetric_edges(graph)
        result = walk_entries(transition_matrix(graph), 0.9, pattern, tol=1e-9)
        np.testing.assert_allclose(
            result.values, dense_entries(graph, 0.9, pattern), rtol=0, atol=1e-9
        )

    def test_threads_do_not_change_a_bit(self, rng, make):
        graph = make(rng)
        pattern = symmetric_edges(graph)
        one, three = (
            walk_entries(transition_matrix(graph), 0.99, pattern, tol=1e-4, n_threads=n)
            for n in (1, 3)
        )
        np.testing.assert_array_equal(one.values, three.values)
        np.testing.assert_array_equal(one.bounds, three.bounds)


@pytest.mark.parametrize("make", [random_graph, clustered_graph, duplicates])
@pytest.mark.parametrize(
    ("decay", "tol"), [(0.99, 1e-5), (0.99, 1e-4), (0.999, 1e-4), (0.9999, 1e-4)]
)
def test_float32_bounds_hold_in_any_row_order(rng, make, monkeypatch, decay, tol):
    """In float32, 1 - decay is a small difference, and each step rounds."""
    monkeypatch.setattr(walks, "near_order", lambda Q: rng.permutation(Q.shape[0]))
    monkeypatch.setattr(walks, "FLOAT32_TOL", 0)
    graph = make(rng)
    pattern = symmetric_edges(graph)
    result = walk_entries(transition_matrix(graph), decay, pattern, tol=tol)
    errors = np.abs(result.values - dense_entries(graph, decay, pattern))
    assert (errors <= result.bounds).all()
    assert (result.bounds <= tol).all()


def test_large_hub_is_summed_without_loss():
    """A row with edges to n others, which all lead to one row: it receives n equal masses."""
    n = 20_000
    Q = sparse.lil_array((n + 2, n + 2))
    Q[0, 1:-1] = 1 / n
    Q[1:-1, -1] = 1
    pattern = sparse.csr_array(([1.0], ([0], [n + 1])), shape=Q.shape)
    result = walk_entries(sparse.csr_array(Q), 0.9, pattern, tol=1e-4)
    assert abs(result.values[0] - 0.1 * 0.9**2) <= result.bounds[0] <= 1e-4


@pytest.mark.parametrize("large", [0, 10**6])
@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
def test_rows_or_columns_may_walk(rng, monkeypatch, make, large):
    """In a large graph, pairs look a step farther if many walks are unfinished."""
    monkeypatch.setattr(walks, "LARGE_ROWS", large)
    monkeypatch.setattr(walks, "LOOKED_UP", 1)
    graph = make(rng)
    pattern = symmetric_edges(graph)
    result = walk_entries(transition_matrix(graph), 0.99, pattern, tol=1e-5)
    errors = np.abs(result.values - dense_entries(graph, 0.99, pattern))
    assert (errors <= result.bounds).all()
    assert (result.bounds <= 1e-5).all()


def test_only_hubs_walk_far_in_a_large_graph(rng, monkeypatch):
    """Columns of hubs converge last."""
    counts = []
    share_out = walks.share_out

    def counted(walk, sources, pool):
        counts.append(len(sources))
        share_out(walk, sources, pool)

    monkeypatch.setattr(walks, "share_out", counted)
    monkeypatch.setattr(walks, "LARGE_ROWS", 0)
    n = 2000
    indices = (np.arange(n)[:, None] + np.arange(1, 6) * rng.integers(1, n // 5, (n, 1))) % n
    indices[~(indices == 0).any(axis=1) & (np.arange(n) > 0), 0] = 0
    graph = KNNGraph(indices, np.ones(indices.shape))
    pattern = symmetric_edges(graph)
    result = walk_entries(transition_matrix(graph), 0.99, pattern, tol=1e-4)
    assert (result.bounds <= 1e-4).all()
    everything, *further = counts[1:]  # the first time norms are measured
    assert everything == n
    assert 0 < max(further) < n / 100


def test_bounds_are_not_idle(rng):
    """The median bound is at most a hundred times the error: a loose bound costs steps."""
    graph = clustered_graph(rng)
    pattern = symmetric_edges(graph)
    result = walk_entries(transition_matrix(graph), 0.99, pattern, tol=1e-3)
    errors = np.abs(result.values - dense_entries(graph, 0.99, pattern))
    assert np.median(result.bounds) < 100 * np.median(errors)


def test_any_pattern_is_served(rng):
    graph = random_graph(rng)
    pattern = sparse.csr_array(rng.random((120, 120)) < 0.02)
    result = walk_entries(transition_matrix(graph), 0.9, pattern, tol=1e-8)
    np.testing.assert_allclose(result.values, dense_entries(graph, 0.9, pattern), atol=1e-8)


def test_walks_stop_at_max_products():
    """Rows that sum to less than 1, and one without edges."""
    Q = np.array([[0.0, 0.5, 0.0], [0.25, 0.0, 0.75], [0.0, 0.0, 0.0]])
    pattern = sparse.csr_array(np.ones((3, 3)))
    result = walk_entries(sparse.csr_array(Q), 0.8, pattern, tol=1e-10)
    expected = 0.2 * np.linalg.inv(np.eye(3) - 0.8 * Q)
    np.testing.assert_allclose(result.values.reshape(3, 3), expected, atol=1e-10)


def test_looser_tolerance_takes_fewer_steps(rng):
    graph, steps = clustered_graph(rng), []
    for tol in (1e-2, 1e-4, 1e-6):
        result = walk_entries(transition_matrix(graph), 0.99, symmetric_edges(graph), tol=tol)
        steps.append(result.n_steps)
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]


def test_nothing_is_written_to(rng):
    graph = random_graph(rng)
    transition, pattern = transition_matrix(graph), symmetric_edges(graph)
    for matrix in (transition, pattern):
        for part in (matrix.data, matrix.indices, matrix.indptr):
            part.flags.writeable = False
    walk_entries(transition, 0.99, pattern, tol=1e-4)


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(walks, "WALKED_COLUMNS", 5), (_ordering, "index_type", lambda matrix: np.int64)],
)
def test_blocks_and_wide_indices_change_no_bit(rng, monkeypatch, module, name, value):
    graph = clustered_graph(rng)
    given = transition_matrix(graph), 0.99, symmetric_edges(graph)
    expected = walk_entries(*given, tol=1e-4)
    monkeypatch.setattr(module, name, value)
    result = walk_entries(*given, tol=1e-4)
    np.testing.assert_array_equal(result.values, expected.values)
    np.testing.assert_array_equal(result.bounds, expected.bounds)


def test_memory_of_walks_is_bounded(rng, monkeypatch):
    """At most six arrays of all rows and modes, with few edges and small blocks."""
    n = 4500
    indices = np.arange(n)[:, None] + 1500 * np.arange(3) + rng.integers(1, 1500, (n, 3))
    graph = KNNGraph(indices % n, np.ones((n, 3)))
    transition, pattern = transition_matrix(graph), symmetric_edges(graph)
    monkeypatch.setattr(deflation, "SOLVED_ENTRIES", 8 * n)
    tracemalloc.start()
    try:
        walk_entries(transition, 0.9, pattern, tol=1e-2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 6 * n * N_MODES * np.dtype(np.float32).itemsize
