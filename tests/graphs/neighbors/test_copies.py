"""Graphs of rows that occur more than once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from ssdml.graphs import knn_graph
from ssdml.graphs.neighbors.copies import (
    extend_distinct,
    first_at_no_distance,
    first_equal_rows,
    graph_of_distinct,
)


@pytest.fixture
def rows(rng):
    """60 rows, 40 of them distinct, in random order."""
    distinct = rng.standard_normal((40, 5)).astype(np.float32)
    return distinct[rng.permutation(np.concatenate([np.arange(40), rng.integers(0, 40, 20)]))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_first_equal_rows_are_those_of_a_search_by_pairs(rows, dtype, order):
    X = np.array(rows, dtype, order=order)
    expected = (X[:, None] == X[None]).all(axis=2).argmax(axis=1)
    np.testing.assert_array_equal(first_equal_rows(X), expected)
    X[expected != np.arange(60)] *= -1  # copies, and zeros of either sign
    X[:, :] = np.where(np.abs(X) < 2, 0 * X, X)
    expected = (X[:, None] == X[None]).all(axis=2).argmax(axis=1)
    np.testing.assert_array_equal(first_equal_rows(X), expected)


@pytest.mark.parametrize("k", [1, 7, 39, 50])
def test_neighbors_are_the_nearest_distinct_rows(rows, k):
    first = first_equal_rows(rows)
    graph = graph_of_distinct(rows, k, first)
    assert graph.indices.shape == (60, min(k, 39))
    assert (graph.indices != np.arange(60)[:, None]).all()
    gaps = cdist(rows.astype(np.float64), rows[np.unique(first)].astype(np.float64))
    for row, nearest in enumerate(np.sort(gaps, axis=1)):
        if first[row] == row:
            expected = nearest[1 : k + 1]
        else:
            expected = nearest[: min(k, 39)]  # itself, as the first of its copies
            assert graph.indices[row, 0] == first[row]
        np.testing.assert_allclose(graph.distances[row], expected, atol=1e-6)
    np.testing.assert_array_equal(first_at_no_distance(graph), first)


@pytest.mark.parametrize("n", [20, 45, 59])
@pytest.mark.parametrize("case", ["any", "equal before", "new are copies"])
def test_extended_graph_is_that_of_all_rows(rows, n, case):
    if case == "equal before":
        rows[:n] = rows[0]
    if case == "new are copies":
        rows[n:] = rows[: 60 - n]
    first = first_equal_rows(rows)
    graph = graph_of_distinct(rows[:n], 5, first[:n])
    expected = graph_of_distinct(rows, graph.n_neighbors, first)
    found = extend_distinct(graph, rows, first)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.distances, expected.distances)


def test_graph_of_rows_that_differ_is_the_usual_one(rng):
    rows = rng.standard_normal((30, 4))
    ours, usual = graph_of_distinct(rows, 5, first_equal_rows(rows)), knn_graph(rows, 5)
    np.testing.assert_array_equal(ours.indices, usual.indices)
    np.testing.assert_array_equal(ours.distances, usual.distances)
    np.testing.assert_array_equal(first_at_no_distance(ours), np.arange(30))


@pytest.mark.parametrize("distinct", [1, 2])
def test_few_distinct_rows_have_a_graph(distinct):
    rows = np.arange(12.0)[:, None] % distinct
    graph = graph_of_distinct(rows, 4, first_equal_rows(rows))
    assert graph.n_neighbors == (4 if distinct == 1 else 1)
    np.testing.assert_array_equal(first_at_no_distance(graph)[2:] % distinct, rows[2:, 0])


@pytest.mark.parametrize("n_equal", [3, 40])
def test_rows_that_are_equal_but_for_their_lengths_are_no_copies(rng, n_equal):
    X = np.outer(2.0 ** np.arange(n_equal), rng.standard_normal(3))
    X = np.vstack([X, rng.standard_normal((20, 3)), X[:2], X[:2]])
    directions = X / np.linalg.norm(X, axis=1, keepdims=True)
    graph = graph_of_distinct(directions, 5, first_equal_rows(X))
    first = first_at_no_distance(graph)
    np.testing.assert_array_equal(first[first], first)
    np.testing.assert_array_equal(first[-4:], [0, 1, 0, 1])
    if n_equal == 3:  # all of them are neighbors of some
        np.testing.assert_array_equal(first, first_equal_rows(X))
