"""Graphs for networkx, and arguments of draw_neighborhood."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from ssdml.graphs import (
    Triplets,
    class_masses,
    draw_neighborhood,
    knn_graph,
    propagate_affinities,
    to_networkx,
)


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


def test_labels_and_affinities_are_attributes(graph):
    y = np.r_[4, 7, np.full(18, -1)]
    W = propagate_affinities(graph, y, sides="two", pairs="all", tol=1e-8)
    on_edges = propagate_affinities(graph, y, sides="two", tol=1e-8)
    for affinities in (W, on_edges, class_masses(graph, y, tol=1e-8)):
        drawn = to_networkx(graph, affinities=affinities, y=y)
        assert [drawn.nodes[i]["label"] for i in range(20)] == y.tolist()
        for i, j, affinity in drawn.edges(data="affinity"):
            assert affinity == pytest.approx(W[i, j], abs=1e-9)


def test_attributes_are_plain_numbers(graph):
    drawn = to_networkx(graph, y=np.full(20, -1))
    assert {type(value) for _, _, value in drawn.edges(data="distance")} == {float}
    assert {type(value) for _, value in drawn.nodes(data="label")} == {int}


def test_too_large_graph_is_refused(graph):
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


def test_pyplot_figure_is_made_without_axes(graph):
    from matplotlib import pyplot

    axes = draw_neighborhood(graph, 7)
    assert pyplot.gcf() is axes.figure
    pyplot.close(axes.figure)


def test_matplotlib_and_networkx_load_when_used():
    code = (
        "import sys, ssdml.graphs.plotting; print({'matplotlib', 'networkx'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_too_large_neighborhood_is_refused(graph):
    with pytest.raises(
        ValueError,
        match=r"the neighborhood of row 7 must have at most max_nodes=3 rows; got 4\. Pass fewer",
    ):
        draw_neighborhood(graph, 7, max_nodes=3, axes=Figure().subplots())
    axes = draw_neighborhood(graph, 7, max_nodes=4, axes=Figure().subplots())
    assert len(axes.texts) == 4


def test_names_in_pandas_are_read_in_order(graph):
    """By the index, names of other rows were written."""
    names = pd.Series(np.arange(20) + 100, index=np.arange(20)[::-1])
    axes = draw_neighborhood(graph, 7, names=names, axes=Figure().subplots())
    assert axes.texts[0].get_text() == "107"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"anchor": 20}, ValueError, "anchor must be a row of the graph, from 0 to 19; got 20"),
        ({"anchor": -1}, ValueError, "anchor must be a row of the graph, from 0 to 19; got -1"),
        ({"anchor": 1.5}, TypeError, "anchor must be an integer; got 1.5"),
        ({"y": [0]}, ValueError, r"y must have shape \(20,\)"),
        ({"affinities": np.eye(3)}, ValueError, r"affinities must have shape \(20, 20\)"),
        ({"names": ["a"]}, ValueError, "names must hold 20 texts, one per row; got 1"),
        ({"y": [2] * 20, "class_names": ["a"]}, ValueError, "got 1 names and the label 2"),
        ({"y": [-2] * 20, "class_names": "ab"}, TypeError, "class_names must be a sequence"),
        ({"y": [0] * 20, "class_names": {"ab"}}, TypeError, "class_names must be a sequence"),
        ({"names": {*map(str, range(20))}}, TypeError, "names must be a sequence"),
        ({"y": [-2] * 20, "class_names": [*"ab"]}, ValueError, "got 2 names and the label -2"),
        (
            {"triplets": Triplets(*np.array([[7], [1], [20]]), np.ones(1))},
            ValueError,
            "triplets must be of rows of the graph, from 0 to 19; got row 20",
        ),
        (
            {"triplets": Triplets(*np.array([[7.0], [1.0], [2.0]]), np.ones(1))},
            TypeError,
            "triplets must hold rows, integers; got dtype float64",
        ),
        ({"triplets": ([7], [1])}, TypeError, "triplets must be Triplets or None"),
        ({"graph": np.eye(20)}, TypeError, "graph must be a KNNGraph"),
    ],
)
def test_bad_argument_of_picture_is_named(graph, changes, error, message):
    arguments = {"graph": graph, "anchor": 7, "axes": Figure().subplots()} | changes
    with pytest.raises(error, match=f"draw_neighborhood: .*{message}"):
        draw_neighborhood(**arguments)
