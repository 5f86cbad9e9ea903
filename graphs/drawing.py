"""Graphs to look at: for networkx, and as the picture of a row among its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from ssdml.graphs._artists import draw_on
from ssdml.graphs._checks import check_labels
from ssdml.graphs._lookup import affinity_lookup
from ssdml.graphs._neighborhood import neighborhood
from ssdml.graphs.masses import ClassMasses
from ssdml.graphs.neighbors import KNNGraph, check_graph
from ssdml.graphs.triplets import Triplets
from ssdml.utils.typing import Ints

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes


def to_networkx(
    graph: KNNGraph,
    *,
    affinities: ClassMasses | sparse.csr_array | Any = None,
    y: Any = None,
    max_nodes: int = 100_000,
) -> networkx.Graph:
    """Undirected networkx graph of the edges, with distances, affinities and labels on it.

    Parameters
    ----------
    graph : KNNGraph
    affinities : ClassMasses, sparse array or ndarray of shape (n_samples, n_samples), or None
        Written on the edges as ``affinity``.
    y : array of shape (n_samples,), int, or None
        Written on the nodes as ``label``; -1 where unlabelled.
    max_nodes : int
        Larger graphs are refused: networkx takes some 0.4 kB an edge.

    Returns
    -------
    graph : networkx.Graph
        Nodes 0 to n - 1; edges carry ``distance``.

    Examples
    --------
    >>> graph = KNNGraph(np.array([[1], [0]]), np.array([[2.0], [2.0]]))
    >>> to_networkx(graph, y=[0, -1]).edges(data=True)
    EdgeDataView([(0, 1, {'distance': 2.0})])
    """
    import networkx

    n, k = check_graph(graph, "to_networkx").indices.shape
    if n > max_nodes:
        raise ValueError(
            f"to_networkx: graph must have at most max_nodes={max_nodes} nodes; got {n}. "
            "Pass a part of it, raise max_nodes, or use graph.to_csr() with scipy.sparse.csgraph."
        )
    rows, columns = np.repeat(np.arange(n), k), graph.indices.ravel()
    attributes = {"distance": graph.distances.ravel()}
    if affinities is not None:
        attributes["affinity"] = affinity_lookup(affinities, n, "to_networkx").values(rows, columns)
    drawn = networkx.Graph()
    drawn.add_nodes_from(range(n))
    names = list(attributes)
    values = zip(*(attributes[name].tolist() for name in names), strict=True)
    drawn.add_edges_from(
        (i, j, dict(zip(names, edge, strict=True)))
        for i, j, edge in zip(rows.tolist(), columns.tolist(), values, strict=True)
    )
    if y is not None:
        labels = check_labels(y, n, "to_networkx").tolist()
        networkx.set_node_attributes(drawn, dict(enumerate(labels)), "label")
    return drawn


def draw_neighborhood(
    graph: KNNGraph,
    anchor: int,
    *,
    affinities: ClassMasses | sparse.csr_array | Any = None,
    y: Any = None,
    triplets: Triplets | None = None,
    names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    max_nodes: int = 100,
    axes: Axes | None = None,
) -> Axes:
    """Picture of a row among its neighbours, and of the triplets that were mined for it.

    The anchor stands in the middle, its neighbours around it, and in the rings outside these the
    other rows of its triplets. In each ring the positives come first, then what is alike, against
    the clock; the same arguments give the same picture.

    Parameters
    ----------
    graph : KNNGraph
        Its edges among the rows shown are drawn.
    anchor : int
        A row of the graph.
    affinities : ClassMasses, sparse array or ndarray of shape (n_samples, n_samples), or None
        Drawn on the edges: the larger, the wider; blue and solid above 0, orange and dashed below.
        Edges of affinity 0 are thin and grey, and so are all without affinities. Class masses are
        read as :func:`mine_triplets` reads them, against chance where they are in doubt.
    y : array of shape (n_samples,), int, or None
        Colours of the rows, in turn from matplotlib's colour cycle; unlabelled ones (-1) are
        hollow.
    triplets : Triplets or None
        Those of the anchor are shown, the others ignored.
    names : sequence of n_samples str, or None
        Short texts that are written into the rows. None: their numbers.
    class_names : sequence of str, or None
        What the legend calls the labels 0, 1, ... None: the labels themselves.
    max_nodes : int
        More rows than this would be a blot and are refused.
    axes : matplotlib.axes.Axes or None
        Where to draw. None: on a new figure of pyplot.

    Returns
    -------
    axes : matplotlib.axes.Axes

    Raises
    ------
    ValueError
        Where there are more than ``max_nodes`` rows to show, or arguments do not fit the graph.

    Notes
    -----
    Only the neighbours of the rows shown are looked at: O(max_nodes k) time, and O(n C) more with
    class masses.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from ssdml.graphs import Triplets
    >>> graph = KNNGraph(np.array([[1, 2], [0, 2], [1, 0]]), np.ones((3, 2)))
    >>> mined = Triplets(np.array([0]), np.array([1]), np.array([2]), np.ones(1))
    >>> axes = draw_neighborhood(
    ...     graph, 0, y=[4, -1, -1], triplets=mined, axes=Figure().subplots())
    >>> axes.get_title()
    'Row 0 (labelled 4): 2 neighbours, 1 triplet'
    """
    n = check_graph(graph, "draw_neighborhood").n_samples
    _check_row(anchor, n)
    _check_ends(triplets, n)
    labels = None if y is None else check_labels(y, n, "draw_neighborhood")
    _check_names(names, class_names, labels, n)
    lookup = None
    if affinities is not None:
        lookup = affinity_lookup(affinities, n, "draw_neighborhood").evidence
    shown = neighborhood(
        int(anchor), graph.indices.__getitem__, affinity=lookup, y=labels, triplets=triplets
    )
    if len(shown.rows) > max_nodes:
        raise ValueError(
            f"draw_neighborhood: the neighbourhood of row {anchor} must have at most "
            f"max_nodes={max_nodes} rows; got {len(shown.rows)}. Pass fewer of its triplets, a "
            "graph of fewer neighbours, or raise max_nodes."
        )
    if axes is None:
        from matplotlib import pyplot

        axes = pyplot.subplots(figsize=(6.0, 7.6), layout="constrained")[1]
    texts = [str(row) if names is None else names[row] for row in shown.rows]
    draw_on(axes, shown, texts, class_names)
    return axes


def _check_row(anchor: Any, n: int) -> None:
    if isinstance(anchor, bool | np.bool_) or not isinstance(anchor, int | np.integer):
        raise TypeError(f"draw_neighborhood: anchor must be an integer; got {anchor!r}.")
    if not 0 <= anchor < n:
        raise ValueError(
            f"draw_neighborhood: anchor must be a row of the graph, from 0 to {n - 1}; "
            f"got {anchor}."
        )


def _check_ends(triplets: Triplets | None, n: int) -> None:
    if triplets is None:
        return
    lengths = [len(end) for end in triplets[:3]]
    if len(set(lengths)) > 1:
        raise ValueError(
            "draw_neighborhood: triplets must have as many anchors as positives and negatives; "
            f"got {lengths}."
        )
    ends = np.concatenate(triplets[:3])
    outside = ends[(ends < 0) | (ends >= n)]
    if outside.size:
        raise ValueError(
            f"draw_neighborhood: triplets must be of rows of the graph, from 0 to {n - 1}; "
            f"got row {outside[0]}."
        )


def _check_names(
    names: Sequence[str] | None,
    class_names: Sequence[str] | None,
    labels: Ints | None,
    n: int,
) -> None:
    if names is not None and len(names) != n:
        raise ValueError(
            f"draw_neighborhood: names must hold {n} texts, one a row; got {len(names)}."
        )
    largest = -1 if labels is None else int(labels.max())
    if class_names is not None and largest >= len(class_names):
        raise ValueError(
            f"draw_neighborhood: class_names must name the labels 0 to {largest}; "
            f"got {len(class_names)} names."
        )
