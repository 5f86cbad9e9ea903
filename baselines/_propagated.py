"""A metric near a prior, under which rows of high propagated affinity are near each other."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy import sparse

from ssdml.graphs._blocks import count_threads
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.masses import class_codes, one_hot, transition_matrix
from ssdml.graphs.neighbors import KNNGraph
from ssdml.graphs.solvers import krylov_propagator
from ssdml.linalg import Matrix, symmetrize

TOL = 1e-9  # of the entries that are propagated, relative to the largest
HALVINGS = 30
DEFINITE = 1e-8  # least eigenvalue, relative to the mean, of what is inverted


class Near(NamedTuple):
    """The metric, and the weight of the graph that was used."""

    M: Matrix
    graph_weight: float


def propagated_scatter(
    X: Matrix,
    labels: np.ndarray[tuple[int], np.dtype[np.int64]],
    graph: KNNGraph,
    *,
    decay: float,
    n_jobs: int | None = None,
) -> Matrix:
    r"""``Z^T (diag(W 1) - W) Z / n`` of the one-sided propagated affinities W, not formed.

    .. math:: W = \operatorname{sym}(P W_0), \quad P = (1 - \gamma)(I - \gamma Q)^{-1}

    W_0 holds 1 for a row with itself and for labelled rows of one class, -1 for two classes. So
    ``Z^T W Z`` needs P on the d columns of ``W_0 Z``, and ``W 1`` two columns more.

    Parameters
    ----------
    X : array of shape (n, d)
    labels : array of shape (n,), int
        -1 where unlabelled.
    graph : KNNGraph
    decay : float
        γ.
    n_jobs : int or None

    Returns
    -------
    scatter : ndarray of shape (d, d)
        Symmetric, perhaps indefinite.

    Notes
    -----
    O(i k n d) for i steps of the solver, some 50 at decay 0.99.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> X = np.array([[0.0], [1.0]])
    >>> propagated_scatter(X, np.array([0, 1]), knn_graph(X, 1), decay=0.5).round(6)
    array([[-0.166667]])
    """
    transition = transition_matrix(graph)
    threads = count_threads(n_jobs)

    def spread(walk: sparse.csr_array, columns: Matrix) -> Matrix:
        """P, or its transpose, times columns."""
        scale = max(float(np.abs(columns).max()), np.finfo(np.float64).tiny)
        solve = krylov_propagator(walk, decay, tol=TOL, n_threads=threads)
        return np.asarray(scale * solve(columns / scale), dtype=np.float64)

    ones = np.ones((len(X), 1))
    rows = X - X.mean(axis=0)
    known = spread(transition, with_labels(np.hstack([rows, ones]), labels))
    back = with_labels(spread(sparse.csr_array(transition.T), ones), labels)
    degrees = (known[:, -1:] + back) / 2
    return symmetrize(rows.T @ (degrees * rows - known[:, :-1])) / len(X)


def with_labels(columns: Matrix, labels: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Matrix:
    """W_0 times columns (n, m).

    Examples
    --------
    >>> with_labels(np.array([[1.0], [2.0], [5.0]]), np.array([0, 1, -1])).ravel()
    array([-1.,  1.,  5.])
    """
    codes, _ = class_codes(labels)
    known = codes != UNLABELED
    sums = one_hot(labels).T @ columns  # of each class
    result = columns.copy()
    result[known] = 2 * sums[codes[known]] - sums.sum(axis=0)
    return result


def near_prior(prior: Matrix, scatter: Matrix, graph_weight: float | None, who: str) -> Near:
    r"""Minimiser of ``D(M, M_0) + η tr(M K)``, D the divergence of log-determinants.

    .. math:: M = (M_0^{-1} + \eta K)^{-1}

    Parameters
    ----------
    prior : array of shape (d, d)
        M_0, positive definite.
    scatter : array of shape (d, d)
        K, symmetric.
    graph_weight : float or None
        η, halved until what is inverted is positive definite, with a warning; None: 1, without.
    who : str
        Beginning of the warning.

    Examples
    --------
    >>> near_prior(np.eye(2), np.diag([1.0, 0.0]), 1.0, "APIT").M
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    base = symmetrize(np.linalg.inv(prior))
    weight = 1.0 if graph_weight is None else graph_weight
    for _ in range(HALVINGS):
        inverse = symmetrize(base + weight * scatter)
        values, vectors = np.linalg.eigh(inverse)
        if values[0] > DEFINITE * np.trace(base) / len(base):
            break
        weight /= 2
    else:
        inverse, weight = base, 0.0
        values, vectors = np.linalg.eigh(symmetrize(base))
    if graph_weight is not None and weight < graph_weight:
        warnings.warn(
            f"{who}: graph_weight must leave the system positive definite; got {graph_weight}. "
            f"Takes {weight:.3g}.",
            stacklevel=5,
        )
    return Near((vectors / values) @ vectors.T, weight)
