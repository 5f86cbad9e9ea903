"""Neighborhoods of an anchor: rows, edges, positions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from ssdml.graphs import KNNGraph, Triplets, knn_graph
from ssdml.graphs.plotting import LEAST_GAP, curves, neighborhood, positions, rings


@pytest.fixture
def graph(rng):
    return knn_graph(rng.standard_normal((40, 3)), 6)


@pytest.fixture
def triplets(rng):
    ends = np.sort(rng.integers(40, size=(3, 300)), axis=1)
    return Triplets(*ends, rng.random(300))


def test_rows_are_anchor_neighbors_and_triplet_ends(graph, triplets):
    shown = neighborhood(5, graph.indices.__getitem__, triplets=triplets)
    mine = triplets.anchor == 5
    assert mine.sum() > 1
    assert shown.rows[: 1 + shown.n_neighbors].tolist() == [5, *graph.indices[5]]
    reached = {*triplets.positive[mine], *triplets.negative[mine]}
    assert set(shown.rows) == {5, *graph.indices[5], *reached}
    assert len(set(shown.rows)) == len(shown.rows)
    np.testing.assert_array_equal(shown.rows[shown.positives], triplets.positive[mine])
    np.testing.assert_array_equal(shown.rows[shown.negatives], triplets.negative[mine])


def test_edges_are_graph_edges_between_rows(graph, triplets):
    shown = neighborhood(5, graph.indices.__getitem__, triplets=triplets)
    matrix = graph.to_csr().toarray()[np.ix_(shown.rows, shown.rows)]
    expected = np.argwhere(np.triu(np.maximum(matrix, matrix.T)) > 0)
    np.testing.assert_array_equal(shown.edges, expected)


def test_affinities_and_labels_of_rows(graph, rng):
    W, y = rng.standard_normal((40, 40)), rng.integers(-1, 3, size=40)
    shown = neighborhood(5, graph.indices.__getitem__, affinity=lambda i, j: W[i, j], y=y)
    expected = [W[shown.rows[i], shown.rows[j]] for i, j in shown.edges]
    np.testing.assert_array_equal(shown.affinities, expected)
    np.testing.assert_array_equal(shown.labels, y[shown.rows])


def test_without_affinities_and_labels_nothing_is_known(graph):
    shown = neighborhood(5, graph.indices.__getitem__)
    assert not shown.affinities.any()
    assert shown.labels is None


def test_only_neighbors_of_shown_rows_are_requested(graph):
    asked = []

    def neighbors(rows):
        asked.extend(rows)
        return graph.indices[rows]

    shown = neighborhood(5, neighbors)
    assert set(asked) == set(shown.rows)


def test_neighbors_are_on_inner_rings(rng):
    graph = knn_graph(rng.standard_normal((40, 3)), 25)
    others = np.setdiff1d(np.arange(1, 40), graph.indices[0])
    mined = Triplets(np.zeros(14, int), others, others, np.ones(14))
    shown = neighborhood(0, graph.indices.__getitem__, triplets=mined)
    found = rings(shown)
    assert [len(ring) for ring in found] == [1, 10, 15, 14]
    assert sorted(found[1]) == list(range(1, 11))  # the ten nearest
    assert sorted(found[3]) == list(range(26, 40))


def test_order_of_rows_on_ring():
    others = [[j for j in range(5) if j != i] for i in range(5)]
    graph = KNNGraph(np.array(others), np.ones((5, 4)))
    W = np.zeros((5, 5))
    W[0] = [0, -0.5, 0.9, 0.1, 0.4]
    mined = Triplets(np.array([0]), np.array([1]), np.array([2]), np.ones(1))
    shown = neighborhood(
        0, graph.indices.__getitem__, affinity=lambda i, j: W[i, j], triplets=mined
    )
    assert rings(shown) == [[0], [1, 4, 3, 2]]


def test_rows_and_rings_do_not_touch():
    full = [[0], list(range(1, 11)), list(range(11, 31)), list(range(31, 61))]
    places = positions(full)
    assert not places[0].any()
    for radius, ring in enumerate(full):
        np.testing.assert_allclose(np.linalg.norm(places[ring], axis=1), radius, atol=1e-6)
    assert pdist(places).min() > LEAST_GAP


def test_lines_from_anchor_are_straight():
    places = positions([[0], list(range(1, 11))])
    i, j = np.triu_indices(11, 1)
    lines = curves(places[i], places[j])
    np.testing.assert_allclose(lines[:, 0], places[i], atol=1e-12)
    np.testing.assert_allclose(lines[:, -1], places[j], atol=1e-12)
    shares = np.linspace(0, 1, lines.shape[1])[None, :, None]
    straight = lines[i == 0]
    np.testing.assert_allclose(straight, shares * places[j[i == 0]][:, None], atol=1e-12)


def test_curves_avoid_anchor_and_rows():
    places = positions([[0], list(range(1, 11))])
    i, j = np.triu_indices(11, 1)
    bent = i > 0
    for start, end, line in zip(i[bent], j[bent], curves(places[i], places[j])[bent], strict=True):
        others = np.setdiff1d(np.arange(11), [start, end])
        gaps = np.linalg.norm(line[:, None] - places[others], axis=2)
        assert gaps.min() > 0.5 * LEAST_GAP / np.sqrt(2)  # the ring around the anchor
