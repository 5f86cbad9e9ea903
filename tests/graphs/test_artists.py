"""Pictures of a neighborhood: rows, edges, marks, legend, title."""

from __future__ import annotations

import io

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scipy import sparse
from scipy.spatial.distance import pdist

from ssdml.graphs import (
    ClassMasses,
    KNNGraph,
    Triplets,
    class_masses,
    draw_neighborhood,
    knn_graph,
    propagate_affinities,
)
from ssdml.graphs.plotting import ALIKE, UNLIKE

ANCHOR = 7


@pytest.fixture
def graph(rng):
    return knn_graph(rng.standard_normal((20, 2)), 3)


@pytest.fixture
def drawn(graph, rng):
    """Axes with a neighborhood, and its arguments."""
    W = rng.standard_normal((20, 20))
    W = W + W.T
    y = np.r_[np.full(8, 3), np.full(2, 5), np.full(10, -1)]
    mined = Triplets(
        np.array([ANCHOR, ANCHOR, ANCHOR, 2]),
        np.array([0, 0, graph.indices[ANCHOR, 0], 1]),
        np.array([15, 16, 15, 19]),
        np.ones(4),
    )
    for array in (W, y, *mined, graph.indices, graph.distances):
        array.setflags(write=False)
    axes = Figure(layout="constrained").subplots()
    draw_neighborhood(graph, ANCHOR, affinities=W, y=y, triplets=mined, axes=axes)
    return axes, W, y, mined


def places(axes) -> dict[str, tuple[float, float]]:
    """Positions of the texts, and so of the rows."""
    return {text.get_text(): text.get_position() for text in axes.texts}


def collections(axes) -> dict:
    return {found.get_label(): found for found in axes.collections}


def rows_at(axes, offsets) -> set[int]:
    """Rows whose texts are at these positions."""
    names = {position: int(text) for text, position in places(axes).items()}
    return {names[tuple(offset)] for offset in np.asarray(offsets)}


def edges_of(axes, lines) -> list[tuple[int, int]]:
    """Rows at the ends of each line of a collection."""
    names, corners = zip(*places(axes).items(), strict=True)
    return [
        tuple(
            int(names[np.linalg.norm(np.array(corners) - line[end], axis=1).argmin()])
            for end in (0, -1)
        )
        for line in lines.get_segments()
    ]


def test_rows_are_circles_with_texts(drawn, graph):
    axes, _, _, mined = drawn
    mine = mined.anchor == ANCHOR
    rows = {ANCHOR, *graph.indices[ANCHOR], *mined.positive[mine], *mined.negative[mine]}
    assert places(axes).keys() == {str(row) for row in rows}
    assert places(axes)[str(ANCHOR)] == (0, 0)
    circles = [found for label, found in collections(axes).items() if "labeled" in label]
    assert rows_at(axes, np.concatenate([c.get_offsets() for c in circles])) == rows
    assert sum(len(c.get_offsets()) for c in circles) == len(rows)


def test_rows_are_colored_by_label(drawn):
    axes, _, y, _ = drawn
    for label, color in ((3, "C3"), (5, "C5"), (-1, "white")):
        name = "unlabeled" if label == -1 else f"labeled {label}"
        if found := collections(axes).get(name):
            assert (y[list(rows_at(axes, found.get_offsets()))] == label).all()
            np.testing.assert_array_equal(found.get_facecolors(), [to_rgba(color)])
    assert {"labeled 3", "unlabeled"} <= collections(axes).keys()


def test_positives_and_negatives_are_marked(drawn, graph):
    axes, *_ = drawn
    marks = {
        "anchor": {ANCHOR},
        "positive of a triplet": {0, int(graph.indices[ANCHOR, 0])},
        "negative of a triplet": {15, 16},
    }
    for label, rows in marks.items():
        assert rows_at(axes, collections(axes)[label].get_offsets()) == rows
    legend = {text.get_text() for text in axes.get_legend().get_texts()}
    assert legend == collections(axes).keys()
    _, dashes = collections(axes)["negative of a triplet"].get_linestyle()[0]
    assert dashes is not None


def test_edge_style_follows_sign(drawn, graph):
    axes, W, *_ = drawn
    lines = {label: c for label, c in collections(axes).items() if "like" in label}
    assert len(lines) == 2
    seen = set()
    for label, found in lines.items():
        alike = label.startswith("alike")
        edges = edges_of(axes, found)
        seen |= {frozenset(edge) for edge in edges}
        assert all((W[edge] > 0) == alike for edge in edges)
        np.testing.assert_array_equal(found.get_colors(), [to_rgba(ALIKE if alike else UNLIKE)])
        assert all((dashes is None) == alike for _, dashes in found.get_linestyle())
    rows = {int(text) for text in places(axes)}
    expected = {frozenset((i, j)) for i in rows for j in graph.indices[i].tolist() if j in rows}
    assert seen == expected


def test_edge_width_follows_affinity(drawn):
    axes, W, *_ = drawn
    widths = {
        abs(W[edge]): width
        for label, found in collections(axes).items()
        if "like" in label
        for edge, width in zip(edges_of(axes, found), found.get_linewidths(), strict=True)
    }
    assert len(widths) > 3
    ordered = [widths[size] for size in sorted(widths)]
    assert (np.diff(ordered) > 0).all()


def test_legend_shows_largest_affinities(drawn):
    axes, W, *_ = drawn
    lines = [c for label, c in collections(axes).items() if "like" in label]
    values = np.array([W[edge] for found in lines for edge in edges_of(axes, found)])
    assert f"alike, up to {values.max():+.2g}" in collections(axes)
    assert f"unlike, down to {values.min():+.2g}" in collections(axes)


def test_affinities_of_every_kind_draw_the_same_edges(graph):
    y = np.r_[4, 7, np.full(18, -1)]
    dense = propagate_affinities(graph, y, sides="two", tol=1e-8).toarray()
    kinds = (dense, sparse.csr_array(dense), class_masses(graph, y, tol=1e-8))
    widths = []
    for affinities in kinds:
        axes = draw_neighborhood(graph, 0, affinities=affinities, axes=Figure().subplots())
        pairs = [
            (label[:5], *sorted(edge), round(width, 3))
            for label, found in collections(axes).items()
            if "like" in label
            for edge, width in zip(edges_of(axes, found), found.get_linewidths(), strict=True)
        ]
        widths.append(sorted(pairs))
    assert widths[0]
    assert widths[0] == widths[1] == widths[2]


def test_masses_are_read_as_by_miner():
    """Two rows lean to one class of four, but their affinity 2 · 0.3 - 1 is negative."""
    graph = KNNGraph(np.array([[1], [0]]), np.ones((2, 1)))
    masses = ClassMasses(np.array([[0.4, 0.2, 0.2, 0.2]] * 2))
    assert masses.affinities(0, 1) < 0
    axes = draw_neighborhood(graph, 0, affinities=masses, axes=Figure().subplots())
    assert "alike, up to +0.03" in collections(axes)  # 0.28 - 1 / 4


def test_picture_without_affinities_and_labels(graph):
    axes = draw_neighborhood(graph, ANCHOR, axes=Figure().subplots())
    assert collections(axes).keys() == {"edge without affinity", "row", "anchor"}
    assert axes.get_title() == "Row 7: 3 neighbors, no triplets"
    np.testing.assert_array_equal(collections(axes)["row"].get_facecolors(), [to_rgba("white")])


def test_title_describes_picture(drawn, graph):
    axes, _, y, mined = drawn
    assert axes.get_title() == "Row 7 (labeled 3): 3 neighbors, 3 triplets"
    names = [f"class {c}" for c in range(6)]
    other = Figure().subplots()
    axes = draw_neighborhood(graph, 2, y=y, triplets=mined, class_names=names, axes=other)
    assert axes.get_title() == "Row 2 (labeled class 3): 3 neighbors, 1 triplet"
    axes = draw_neighborhood(graph, 12, y=y, axes=Figure().subplots())
    assert axes.get_title() == "Row 12 (unlabeled): 3 neighbors, no triplets"


def test_row_can_have_both_marks(graph):
    mined = Triplets(*np.array([[0, 0], [1, 2], [2, 1]]), np.ones(2))
    axes = draw_neighborhood(graph, 0, triplets=mined, axes=Figure().subplots())
    for label in ("positive of a triplet", "negative of a triplet"):
        assert rows_at(axes, collections(axes)[label].get_offsets()) == {1, 2}


@pytest.mark.parametrize("size", [(5, 5), (6.4, 4.8), (9, 9)])
@pytest.mark.parametrize("n_neighbors", [1, 10, 95])
def test_rows_and_marks_do_not_overlap(rng, size, n_neighbors):
    graph = knn_graph(rng.standard_normal((100, 2)), n_neighbors)
    figure = Figure(size, layout="constrained")
    mined = Triplets(np.zeros(5, int), np.arange(1, 6), np.arange(94, 99), np.ones(5))
    axes = draw_neighborhood(graph, 0, triplets=mined, axes=figure.subplots())
    figure.draw_without_rendering()
    points = axes.transData.transform(list(places(axes).values())) * 72 / figure.dpi
    (area,) = collections(axes)["negative of a triplet"].get_sizes()
    diagonal = np.sqrt(2 * area)
    assert pdist(points).min() > diagonal
    corner = axes.get_window_extent().get_points() * 72 / figure.dpi
    assert (points - diagonal / 2 > corner[0]).all()
    assert (points + diagonal / 2 < corner[1]).all()
    legend = axes.get_legend().get_window_extent().y1 * 72 / figure.dpi
    assert (points[:, 1] - diagonal / 2 > legend).all()


def test_title_and_legend_are_inside_figure(drawn):
    axes, *_ = drawn
    axes.figure.draw_without_rendering()
    for artist in (axes.title, axes.get_legend()):
        x0, y0, x1, y1 = artist.get_window_extent().extents
        assert min(x0, y0) >= 0
        assert x1 <= axes.figure.bbox.x1
        assert y1 <= axes.figure.bbox.y1


def test_same_arguments_draw_same_picture(graph):
    def svg():
        figure = Figure()
        draw_neighborhood(graph, 3, y=np.arange(20) % 3, axes=figure.subplots())
        file = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": "same"}):
            figure.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()

    assert svg() == svg()


def test_names_are_readable_in_rows(graph):
    names = [f"n{i}" for i in range(20)]
    with matplotlib.rc_context({"axes.prop_cycle": matplotlib.cycler(color=["black", "yellow"])}):
        axes = draw_neighborhood(
            graph, ANCHOR, y=np.arange(20) % 2, names=names, axes=Figure().subplots()
        )
    inks = {text.get_text(): text.get_color() for text in axes.texts}
    assert inks.keys() == {names[row] for row in (ANCHOR, *graph.indices[ANCHOR])}
    assert all(ink == ("#ffffff" if int(n[1:]) % 2 == 0 else "#000000") for n, ink in inks.items())
