"""Graphs handed to networkx, and the guard on their size."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.graphs import class_masses, knn_graph, propagate_affinities, to_networkx


@pytest.fixture
def graph(rng):
    return knn_graph(rng.standard_normal((20, 2)), 3)


def test_edges_are_the_union_with_their_distances(graph):
    drawn = to_networkx(graph)
    matrix = graph.to_csr().toarray()
    expected = {(i, j) for i, j in np.argwhere(np.maximum(matrix, matrix.T) > 0) if i < j}
    assert {tuple(sorted(edge)) for edge in drawn.edges} == expected
    assert list(drawn) == list(range(20))
    for i, j, distance in drawn.edges(data="distance"):
        assert distance == max(matrix[i, j], matrix[j, i])


def test_labels_and_affinities_of_every_kind_are_written_on(graph):
    y = np.r_[4, 7, np.full(18, -1)]
    W = propagate_affinities(graph, y, sides="two", pairs="all", tol=1e-8)
    on_edges = propagate_affinities(graph, y, sides="two", tol=1e-8)
    for affinities in (W, on_edges, class_masses(graph, y, tol=1e-8)):
        drawn = to_networkx(graph, affinities=affinities, y=y)
        assert [drawn.nodes[i]["label"] for i in range(20)] == y.tolist()
        for i, j, affinity in drawn.edges(data="affinity"):
            assert affinity == pytest.approx(W[i, j], abs=1e-9)


def test_values_are_plain_numbers_that_any_format_can_write(graph):
    drawn = to_networkx(graph, y=np.full(20, -1))
    assert {type(value) for _, _, value in drawn.edges(data="distance")} == {float}
    assert {type(value) for _, value in drawn.nodes(data="label")} == {int}


def test_a_graph_beyond_the_limit_is_refused(graph):
    with pytest.raises(ValueError, match=r"at most max_nodes=19 nodes; got 20. Pass a part of it"):
        to_networkx(graph, max_nodes=19)
    assert len(to_networkx(graph, max_nodes=20)) == 20


def test_bad_input_is_named(graph, rng):
    with pytest.raises(ValueError, match=r"to_networkx: y must have shape \(20,\)"):
        to_networkx(graph, y=[0, 1])
    with pytest.raises(ValueError, match=r"to_networkx: affinities must have shape \(20, 20\)"):
        to_networkx(graph, affinities=np.eye(3))
    with pytest.raises(TypeError, match="to_networkx: graph must be a KNNGraph"):
        to_networkx(rng.random((4, 4)))
