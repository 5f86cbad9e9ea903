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
    distinct, places = np.unique(first, return_inverse=True)
    if len(distinct) in (1, len(rows)):
        return knn_graph(rows, n_neighbors, **search)
    graph = knn_graph(rows[distinct], min(n_neighbors, len(distinct) - 1), **search)
    indices, distances = distinct[graph.indices][places], graph.distances[places]
    copies = first != np.arange(len(rows))
    indices[copies, 1:], distances[copies, 1:] = indices[copies, :-1], distances[copies, :-1]
    indices[copies, 0], distances[copies, 0] = first[copies], 0.0
    return KNNGraph(indices, distances, graph.metric, graph.recall_)


def first_at_no_distance(graph: KNNGraph) -> Ints:
    """Number of the first row at distance 0 from each row, in a graph of distinct rows.

    Examples
    --------
    >>> rows = np.array([[0.0], [0.0], [0.0], [4.0], [5.0]])
    >>> first_at_no_distance(graph_of_distinct(rows, 2, first_equal_rows(rows))).tolist()
    [0, 0, 0, 3, 4]
    """
    own = np.arange(graph.n_samples)
    return np.where(graph.distances[:, 0] == 0, np.minimum(graph.indices[:, 0], own), own)
