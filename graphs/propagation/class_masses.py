"""Class masses of random walks, and the modes of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs.laplacian import row_normalized, symmetric_weights
from ssdml.graphs.neighbors.knn import KNNGraph, check_graph, directed_csr
from ssdml.graphs.propagation.solvers import SOLVERS, krylov_propagator
from ssdml.utils.labels import one_hot
from ssdml.utils.parallel import count_threads
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import check_labeled, check_labels, check_number, choose

VISITS_TOL = 1e-4  # mean error of the visits, whose mean is 1
VISITS_STEP = 1e-3  # visits that round to the same multiple count as equal


@dataclass(frozen=True, eq=False)
class ClassMasses:
    r"""Two-sided affinities of all pairs, factored by class.

    Row i of ``masses`` holds :math:`F_{ic} = \sum_{l \in c} P_{il}` over the labeled rows of
    class c. Class probabilities, as :func:`propagate_labels` returns, serve as masses too.

    Parameters
    ----------
    masses : ndarray of shape (n_samples, n_classes)
        Not negative; rows sum to at most 1.

    Examples
    --------
    >>> masses = ClassMasses(np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 0.5]]))
    >>> masses.affinities(np.array([0, 0]), np.array([1, 2]))
    array([ 0.25, -0.25])
    """

    masses: Array

    def affinities(self, i: Any, j: Any) -> Array:
        """Compute affinities ``2 F_i · F_j - (F_i 1)(F_j 1)`` of the pairs (i, j)."""
        left, right = self.masses[i], self.masses[j]
        totals = left.sum(axis=-1) * right.sum(axis=-1)
        return 2 * np.einsum("...c,...c->...", left, right) - totals


def class_masses(
    graph: Any,
    y: Any,
    *,
    decay: float = 0.99,
    solver: str = "auto",
    tol: float = 1e-6,
    n_jobs: int | None = None,
) -> ClassMasses:
    r"""Compute the mass that a random walk from each row has on the labeled rows of each class.

    .. math:: F = (1 - \gamma) (I - \gamma Q)^{-1} H, \qquad Q_{ij} = 1/k \text{ for } j \in N_k(i)

    with H the one-hot labels, zero on unlabeled rows.

    Parameters
    ----------
    graph : KNNGraph or sparse array of shape (n_samples, n_samples)
        A sparse array holds symmetric weights of at least 0, as :func:`adjacency` returns, in
        proportion to which the walk moves. Duplicate entries are summed.
    y : array of shape (n_samples,), int
        -1 where unlabeled.
    decay : float
        γ, between 0 and 1.
    solver : {"auto", "dense", "krylov"}
        "auto" is "krylov".
    tol : float
        Largest error of a mass, in units of ``1 - decay``.
    n_jobs : int or None
        Threads, as joblib counts them: None is 1, -1 all. Never changes the result.

    Returns
    -------
    masses : ClassMasses
        Columns in the order of ``np.unique(y[y != -1])``; zero if no label can be reached.

    Examples
    --------
    >>> graph = KNNGraph(np.array([[1], [0]]), np.ones((2, 1)))
    >>> class_masses(graph, [0, -1], decay=0.5).masses.round(6)
    array([[0.666667],
           [0.333333]])
    """
    decay = check_number(decay, "decay", "class_masses", above=0, below=1)
    tol = check_number(tol, "tol", "class_masses", above=0)
    transition = transition_matrix(graph)
    labels = check_labels(y, transition.shape[0], "class_masses")
    check_labeled(labels, "class_masses", "Label some rows.")
    n_threads = count_threads(n_jobs, "class_masses")
    make = choose({"auto": krylov_propagator, **SOLVERS}, solver, "class_masses: solver")
    propagate = make(transition, decay, tol=tol * (1 - decay), n_threads=n_threads)
    # The true masses are not negative; an approximate one may be, by at most tol.
    return ClassMasses(np.maximum(propagate(one_hot(labels)), 0))


def transition_matrix(graph: Any) -> sparse.csr_array:
    """Return the random walk's transition; rows sum to 1, or to 0 without edges."""
    if isinstance(graph, KNNGraph):
        return directed_csr(graph, np.full(graph.indices.shape, 1 / graph.n_neighbors))
    return row_normalized(symmetric_weights(graph, "class_masses"))


def graph_modes(graph: KNNGraph, *, decay: float = 0.99) -> Ints:
    """Find the rows that random walks visit more often than any of their neighbors.

    Parameters
    ----------
    graph : KNNGraph
    decay : float
        Probability that a walk takes another step.

    Returns
    -------
    modes : ndarray of shape (n_modes,), int64
        In ascending order; at least one in each connected component.

    Notes
    -----
    Ties go to the smaller index. O(n k) memory, O(n k / (1 - decay)) time at most. [1]_ takes the
    modes of the graph of mutual neighbors; we use all edges in either direction, so that fewer
    rows are modes only because they have few edges.

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
    from scipy.stats import rankdata

    indices = check_graph(graph, "graph_modes").indices
    visits = walk_visits(graph, decay=check_number(decay, "decay", "graph_modes", above=0, below=1))
    n, k = indices.shape
    rank = rankdata(np.round(visits / VISITS_STEP)[::-1], "ordinal")[::-1]
    rows, columns = np.repeat(np.arange(n), k), indices.ravel()
    beaten = np.zeros(n, bool)
    beaten[np.where(rank[rows] < rank[columns], rows, columns)] = True
    return np.flatnonzero(~beaten)


def walk_visits(graph: KNNGraph, *, decay: float = 0.99, tol: float = VISITS_TOL) -> Array:
    """Compute how often random walks from all rows visit each row; 1 on average.

    PageRank times n: the fixed point of ``c = (1 - decay) 1 + decay Qᵀ c``. The mean error is at
    most ``tol``.
    """
    back = sparse.csr_array(transition_matrix(graph).T)
    visits = np.ones(graph.n_samples)
    while True:
        updated = (1 - decay) + decay * (back @ visits)
        # A step shrinks the mean error by the decay.
        error = np.abs(updated - visits).mean() * decay / (1 - decay)
        visits = updated
        if error <= tol:
            return visits
