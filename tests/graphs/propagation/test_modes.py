"""Modes against their definition, visits against the dense inverse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from ssdml.graphs import KNNGraph, graph_modes, knn_graph
from ssdml.graphs.propagation.class_masses import walk_visits
from tests import reference


@pytest.fixture
def graph(rng):
    centers = np.repeat(20 * rng.standard_normal((5, 3)), 30, axis=0)
    return knn_graph(centers + rng.standard_normal((150, 3)), 6)


@pytest.mark.parametrize("decay", [0.5, 0.99])
def test_visits_are_column_sums_of_diffusion(graph, decay):
    expected = reference.diffusion(graph.indices, decay).sum(axis=0)
    visits = walk_visits(graph, decay=decay)
    assert np.abs(visits - expected).mean() <= 1e-4
    assert visits.mean() == pytest.approx(1)


def test_no_neighbor_of_a_mode_is_visited_more(graph):
    visits = reference.diffusion(graph.indices, 0.99).sum(axis=0)
    modes = graph_modes(graph)
    for mode in modes:
        beside = np.r_[graph.indices[mode], np.flatnonzero((graph.indices == mode).any(axis=1))]
        assert visits[mode] > visits[beside].max() - 1e-2


def test_non_modes_have_neighbor_visited_as_often(graph):
    visits = reference.diffusion(graph.indices, 0.99).sum(axis=0)
    for row in np.setdiff1d(np.arange(150), graph_modes(graph)):
        beside = np.r_[graph.indices[row], np.flatnonzero((graph.indices == row).any(axis=1))]
        assert visits[beside].max() > visits[row] - 1e-2


def test_each_component_has_a_mode(graph):
    _, part = connected_components(graph.to_csr(), directed=False)
    assert set(part[graph_modes(graph)]) == set(part)


def test_ties_go_to_first_row():
    ring = KNNGraph(np.stack([np.roll(np.arange(8), s) for s in (1, -1)], axis=1), np.ones((8, 2)))
    np.testing.assert_array_equal(graph_modes(ring), [0])


def test_few_rows_are_modes(graph):
    assert len(graph_modes(graph)) < 150 / 6
