"""Rows that occur more than once, in whose graph copies would only be neighbors of each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph
from ssdml.utils.linalg import float64_blocks
from ssdml.utils.typing import Array, Ints


def first_equal_rows(X: Array) -> Ints:
    """Number of the first row that equals each row, (n,). O(n d).

    Examples
    --------
    >>> first_equal_rows(np.array([[1.0], [0.0], [1.0], [-0.0]])).tolist()
    [0, 1, 0, 1]
    """
    blocks = (block + 0.0 for _, block in float64_blocks(X))  # -0.0 becomes 0.0
    hashes = np.fromiter((hash(row.tobytes()) for block in blocks for row in block), np.int64)
    _, first, places = np.unique(hashes, return_index=True, return_inverse=True)
    numbers: Ints = first[places]
    return numbers


def first_among(first: Ints, rows: Ints) -> Ints:
    """Number of the first row that equals each of some rows, among these.

    Examples
    --------
    >>> first_among(np.array([0, 1, 0, 1, 0]), np.array([1, 2, 4])).tolist()
    [0, 1, 1]
    """
    _, earliest, places = np.unique(first[rows], return_index=True, return_inverse=True)
    numbers: Ints = earliest[places]
    return numbers


def graph_of_distinct(rows: Array, n_neighbors: int, first: Ints, **search: Any) -> KNNGraph:
    """Find the nearest distinct rows of each row; copies of a row are linked through the first.

    Parameters
    ----------
    rows : array of shape (n, d)
    n_neighbors : int
        At most this many: with fewer other distinct rows, all of them.
    first : array of shape (n,), int
        From :func:`first_equal_rows`.
    **search
        Passed to :func:`ssdml.graphs.neighbors.knn.knn_graph`.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.0], [0.0], [4.0], [5.0]])
    >>> graph_of_distinct(rows, 2, first_equal_rows(rows)).indices
    array([[3, 4],
           [0, 3],
           [0, 3],
           [4, 0],
           [3, 0]])
    """
    distinct = np.unique(first)
    if len(distinct) in (1, len(rows)):
        return knn_graph(rows, n_neighbors, **search)
    graph = knn_graph(rows[distinct], min(n_neighbors, len(distinct) - 1), **search)
    return _with_copies(graph, first)


def extend_distinct(
    graph: KNNGraph, rows: Array, first: Ints, n_jobs: int | None = None
) -> KNNGraph:
    """Add rows to a graph of distinct rows, as if :func:`graph_of_distinct` had searched all.

    Parameters
    ----------
    graph : KNNGraph
        If copies are neighbors in it, as of rows that are all equal, it is made anew.
    rows : array of shape (n + n_new, d)
        The n rows of the graph, and then the new ones.
    first : array of shape (n + n_new,), int
        From :func:`first_equal_rows`.
    n_jobs : int or None

    Examples
    --------
    >>> rows = np.array([[0.0], [0.0], [4.0], [5.0], [0.0], [3.0]])
    >>> first = first_equal_rows(rows)
    >>> extend_distinct(graph_of_distinct(rows[:4], 2, first[:4]), rows, first).indices
    array([[5, 2],
           [0, 5],
           [3, 5],
           [2, 5],
           [0, 5],
           [2, 3]])
    """
    n, distinct = graph.n_samples, np.unique(first)
    if len(distinct) == len(rows):
        return graph.extend(rows[n:], X=rows[:n], n_jobs=n_jobs)
    old, new = np.split(distinct, [np.searchsorted(distinct, n)])
    if not np.isin(graph.indices[old], old).all():
        return graph_of_distinct(rows, graph.n_neighbors, first, n_jobs=n_jobs)
    whole = graph_among(graph, old)
    if len(new):
        whole = whole.extend(rows[new], X=rows[old], n_jobs=n_jobs)
    return _with_copies(whole, first)


def graph_among(graph: KNNGraph, distinct: Ints) -> KNNGraph:
    """Graph of the distinct rows alone, which are numbered anew.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.0], [4.0], [5.0]])
    >>> graph = graph_of_distinct(rows, 2, first_equal_rows(rows))
    >>> graph_among(graph, np.array([0, 2, 3])).indices
    array([[1, 2],
           [2, 0],
           [1, 0]])
    """
    numbers = np.searchsorted(distinct, graph.indices[distinct])
    return KNNGraph(numbers, graph.distances[distinct], graph.metric, graph.recall_)


def _with_copies(graph: KNNGraph, first: Ints) -> KNNGraph:
    """Link the copies of the rows of a graph, all distinct, through the first."""
    distinct, places = np.unique(first, return_inverse=True)
    indices, distances = distinct[graph.indices][places], graph.distances[places]
    copies = first != np.arange(len(first))
    indices[copies, 1:], distances[copies, 1:] = indices[copies, :-1], distances[copies, :-1]
    indices[copies, 0], distances[copies, 0] = first[copies], 0.0
    return KNNGraph(indices, distances, graph.metric, graph.recall_)


def first_at_no_distance(graph: KNNGraph) -> Ints:
    """Number of the first row that each row is a copy of, or its own, in a graph of distinct rows.

    Copies are at distance 0 from the first, and neighbors of none. Other rows at distance 0, as
    multiples of each other have the same direction, are neighbors.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.0], [0.0], [4.0], [5.0]])
    >>> first_at_no_distance(graph_of_distinct(rows, 2, first_equal_rows(rows))).tolist()
    [0, 0, 0, 3, 4]
    """
    own, nearest = np.arange(graph.n_samples), graph.indices[:, 0]
    are_copies = (graph.distances[:, 0] == 0) & (nearest < own)
    are_copies[graph.indices] = False
    return np.where(are_copies, nearest, own)
