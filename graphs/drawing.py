"""Graphs for networkx: to look at a neighbourhood, not to compute with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from ssdml.graphs._checks import check_labels
from ssdml.graphs._lookup import affinity_lookup
from ssdml.graphs.masses import ClassMasses
from ssdml.graphs.neighbors import KNNGraph, check_graph

if TYPE_CHECKING:
    import networkx


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
