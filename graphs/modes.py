"""Modes of a graph: the rows that random walks come by more often than by any row beside them."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ssdml.graphs._checks import check_inside
from ssdml.graphs.masses import transition_matrix
from ssdml.graphs.neighbors import KNNGraph, check_graph
from ssdml.utils.typing import Array, Ints

VISITS_TOL = 1e-4  # mean error of the visits, whose mean is 1
VISITS_STEP = 1e-3  # visits that round to the same multiple count as equal


def graph_modes(graph: KNNGraph, *, decay: float = 0.99) -> Ints:
    """Rows with more visits than each of their neighbours; of equals the one of smaller index.

    Parameters
    ----------
    graph : KNNGraph
    decay : float
        Of the walks: each step is taken with this probability.

    Returns
    -------
    modes : ndarray of shape (n_modes,), int64
        In ascending order; at least one in each connected part.

    Notes
    -----
    Neighbours are those of the graph, in either direction. O(n k) memory, O(n k / (1 - decay))
    time at most. [1]_ takes the modes on the graph of mutual neighbours; we keep all edges, so
    that fewer rows are modes for want of edges.

    References
    ----------
    .. [1] Iscen, Tolias, Avrithis, Chum, "Mining on manifolds: metric learning without labels",
       CVPR 2018, Section 4.1.

    Examples
    --------
    >>> star = KNNGraph(np.array([[1, 2], [0, 2], [0, 1], [0, 1]]), np.ones((4, 2)))
    >>> graph_modes(star)
    array([0])
    """
    indices = check_graph(graph, "graph_modes").indices
    visits = walk_visits(graph, decay=check_inside(decay, 0, 1, "decay", "graph_modes"))
    n, k = indices.shape
    rank = np.empty(n, np.int64)
    rank[np.lexsort((-np.arange(n), np.round(visits / VISITS_STEP)))] = np.arange(n)
    rows, columns = np.repeat(np.arange(n), k), indices.ravel()
    beaten = np.zeros(n, bool)
    beaten[np.where(rank[rows] < rank[columns], rows, columns)] = True
    return np.flatnonzero(~beaten)


def walk_visits(graph: KNNGraph, *, decay: float = 0.99, tol: float = VISITS_TOL) -> Array:
    """How often a random walk that begins anywhere comes by each row; 1 on average.

    The fixed point of ``c = (1 - decay) 1 + decay Qᵀ c``: column sums of
    ``(1 - decay) (I - decay Q)^-1``, and PageRank times n. The mean error is at most ``tol``.

    Examples
    --------
    >>> walk_visits(KNNGraph(np.array([[1], [0]]), np.ones((2, 1))))
    array([1., 1.])
    """
    back = sparse.csr_array(transition_matrix(graph).T)
    visits = np.ones(graph.n_samples)
    while True:
        updated = (1 - decay) + decay * (back @ visits)
        # A step shrinks errors, in the mean, by the decay.
        error = np.abs(updated - visits).mean() * decay / (1 - decay)
        visits = updated
        if error <= tol:
            return visits
