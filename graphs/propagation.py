"""Labels and affinities carried along the edges of a neighbour graph."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ssdml.graphs._checks import (
    UNLABELED,
    Floats,
    Integers,
    check_inside,
    check_labelled,
    check_labels,
    check_positive,
    choose,
)
from ssdml.graphs.affinities import (
    one_sided_columns,
    symmetric_edges,
    symmetrize_everywhere,
    symmetrize_on_edges,
)
from ssdml.graphs.laplacian import symmetric_normalized, symmetric_weights
from ssdml.graphs.masses import ClassMasses, class_masses, one_hot, transition_matrix
from ssdml.graphs.neighbors import KNNGraph, check_graph
from ssdml.graphs.solvers import SOLVERS, conjugate_gradient

__all__ = ["ClassMasses", "class_masses", "propagate_affinities", "propagate_labels"]

MASS_TOL = 1e-6  # a sign hangs on small differences of masses, and C solves are cheap
AUTO_DENSE_ROWS = 12_000  # "auto" factorises up to here: 1.2 GB, under a minute on two cores
MAX_DENSE_ROWS = 20_000  # an n x n array of float64 takes 3.2 GB here


def propagate_labels(
    graph: Any,
    y: Any,
    *,
    decay: float = 0.99,
    class_prior: Any = None,
    tol: float = 1e-6,
) -> Floats:
    r"""Distribution of the classes at each row, spread from the labelled rows.

    .. math:: F = (1 - \gamma) (I - \gamma D^{-1/2} W D^{-1/2})^{-1} H

    Columns are then scaled so that the mass of each class over all rows follows ``class_prior``,
    and rows to sum to 1.

    Parameters
    ----------
    graph : KNNGraph or sparse array of shape (n_samples, n_samples)
        A sparse array holds symmetric weights of at least 0. A KNNGraph takes the weights of
        :func:`adjacency`: "cosine" for a graph of cosine distances, "heat" otherwise.
    y : array of shape (n_samples,), int
        -1 where unlabelled.
    decay : float
        γ, between 0 and 1: the closer to 1, the farther labels reach.
    class_prior : array of shape (n_classes,), or None
        Share of each class among all rows; None: its share among the labelled rows.
    tol : float
        2-norm of the solver's residual, relative to the right-hand side, for each class.

    Returns
    -------
    distributions : ndarray of shape (n_samples, n_classes)
        Columns in the order of ``np.unique(y[y != -1])``.

    Warns
    -----
    RuntimeWarning
        Where no label reaches some rows (they get ``class_prior``), or the solver stops early.

    Notes
    -----
    Differs from [1]_ in three ways: (a) classes are rescaled to their prior masses, after [2]_;
    (b) the linear system is solved by conjugate gradients; (c) one more step of the fixed point
    follows, so that rows whose mass is below the tolerance take the proportions of their
    neighbours. Labelled rows are not clamped: one among many of another class can be outvoted.

    References
    ----------
    .. [1] Zhou et al., "Learning with local and global consistency", NeurIPS 2003.
    .. [2] Zhu, Ghahramani, Lafferty, "Semi-supervised learning using Gaussian fields and harmonic
       functions", ICML 2003, Eq. (9).

    Examples
    --------
    >>> path = sparse.csr_array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> propagate_labels(path, [0, -1, 1], decay=0.5).round(3)
    array([[0.875, 0.125],
           [0.5  , 0.5  ],
           [0.125, 0.875]])
    """
    decay = check_inside(decay, 0, 1, "decay", "propagate_labels")
    tol = check_positive(tol, "tol", "propagate_labels")
    weights = symmetric_weights(graph, "propagate_labels")
    labels = check_labels(y, weights.shape[0], "propagate_labels")
    check_labelled(labels, "propagate_labels", "Label some rows.")
    seeds = one_hot(labels)
    prior = _class_prior(class_prior, seeds)
    similarity = symmetric_normalized(weights)
    result = conjugate_gradient(similarity, decay, (1 - decay) * seeds, tol=tol)
    if not result.converged:
        warnings.warn(
            f"propagate_labels: stopped after {result.n_iter} steps with residual "
            f"{result.residual:.1e} > tol={tol:.1e}; raise tol.",
            RuntimeWarning,
            stacklevel=2,
        )
    # True scores are not negative. One step of the fixed point keeps them so, and gives rows
    # beyond the reach of the tolerance the proportions of their neighbours.
    scores = decay * (similarity @ np.maximum(result.values, 0)) + (1 - decay) * seeds
    return _to_simplex(scores * (prior / scores.sum(axis=0)), prior)


def _to_simplex(scores: Floats, prior: Floats) -> Floats:
    """Rows scaled to sum to 1; rows of zeros get the prior, and one warning counts them."""
    reached: npt.NDArray[np.bool_] = np.asarray(scores.any(axis=1))
    if not reached.all():
        warnings.warn(
            f"propagate_labels: no label reaches {len(reached) - reached.sum()} of "
            f"{len(reached)} rows; they get the class prior. Label a row in each part of the "
            "graph, or raise n_neighbors.",
            RuntimeWarning,
            stacklevel=3,
        )
        scores = np.where(reached[:, None], scores, prior)
    distributions: Floats = scores / scores.sum(axis=1, keepdims=True)
    return distributions


def _class_prior(class_prior: Any, seeds: Floats) -> Floats:
    if class_prior is None:
        counts = seeds.sum(axis=0)
        return counts / counts.sum()
    prior = np.asarray(class_prior, dtype=np.float64)
    n_classes = seeds.shape[1]
    if prior.shape != (n_classes,) or not (np.isfinite(prior) & (prior > 0)).all():
        raise ValueError(
            f"propagate_labels: class_prior must hold {n_classes} positive numbers, one for each "
            f"class in y; got {class_prior!r}."
        )
    return prior / prior.sum()


def propagate_affinities(
    graph: KNNGraph,
    y: Any,
    *,
    decay: float = 0.99,
    sides: str = "one",
    pairs: str = "edges",
    solver: str = "auto",
    tol: float = 1e-2,
) -> sparse.csr_array | Floats:
    r"""Affinities between rows, spread from the labelled pairs along the graph.

    .. math:: W^* = P W_0 \;\text{(one side)}, \qquad W^* = P W_0 P^\top \;\text{(two sides)},
        \qquad P = (1 - \gamma) (I - \gamma Q)^{-1}

    with :math:`Q_{ij} = 1/k` for neighbours j of i. :math:`W_0` is 1 for labelled pairs of one
    class (a row with itself included), -1 for labelled pairs of two classes, and 0 elsewhere; on
    one side the diagonal is 1 for unlabelled rows as well. Returned is
    :math:`(W^*_{ij} + W^*_{ji}) / 2`.

    Parameters
    ----------
    graph : KNNGraph
    y : array of shape (n_samples,), int
        -1 where unlabelled.
    decay : float
        γ, between 0 and 1.
    sides : {"one", "two"}
    pairs : {"edges", "all"}
        Edges of the graph and their reverses, or all pairs: O(n²) memory.
    solver : {"auto", "dense", "krylov"}
        "dense" factorises an n x n array; "krylov" solves for a block of columns at a time.
    tol : float
        Largest error of an affinity, in units of ``1 - decay``.

    Returns
    -------
    affinities : csr_array of shape (n_samples, n_samples), or ndarray for ``pairs="all"``
        Symmetric. The sparse array has zero diagonal and stores every edge, zeros as well.

    Notes
    -----
    One side is [1]_ as [2]_ quotes it. There the block of unlabelled pairs is P itself: labels
    reach only pairs with a labelled row, and the rest is plain diffusion, never negative. Without
    labels W* is P. It takes a solve for each unlabelled row.

    Two sides carry labels to every pair. In terms of the class masses F of
    :func:`class_masses`, :math:`W^*_{ij} = 2 F_i \cdot F_j - (F_i 1)(F_j 1)`: as many solves as
    classes. Unlabelled rows have no 1 on the diagonal of :math:`W_0` here: it would add
    :math:`(P_U P_U^\top)_{ij} \ge 0`, diffusion without labels, which outweighs the labelled
    masses near the diagonal and hides their sign. This side is ours, not the paper's.

    References
    ----------
    .. [1] Liu, Ma, Tao, Liu, Liu, "Semi-supervised sparse metric learning using alternating
       linearization optimization", KDD 2010.
    .. [2] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021.

    Examples
    --------
    >>> graph = KNNGraph(np.array([[2], [3], [0], [1]]), np.ones((4, 1)))
    >>> propagate_affinities(graph, [0, 1, -1, -1], decay=0.5, pairs="all").round(3)
    array([[ 0.667, -0.667,  0.333, -0.167],
           [-0.667,  0.667, -0.167,  0.333],
           [ 0.333, -0.167,  0.667,  0.   ],
           [-0.167,  0.333,  0.   ,  0.667]])
    """
    decay = check_inside(decay, 0, 1, "decay", "propagate_affinities")
    tol = check_positive(tol, "tol", "propagate_affinities")
    labels = check_labels(
        y, check_graph(graph, "propagate_affinities").n_samples, "propagate_affinities"
    )
    spread = choose({"one": _one_sided, "two": _two_sided}, sides, "propagate_affinities: sides")
    choose({"edges": None, "all": None}, pairs, "propagate_affinities: pairs")
    choose({"auto": None, **SOLVERS}, solver, "propagate_affinities: solver")
    if graph.n_samples > MAX_DENSE_ROWS and (solver == "dense" or pairs == "all"):
        raise ValueError(
            f"propagate_affinities: n must be at most {MAX_DENSE_ROWS} for solver='dense' or "
            f"pairs='all', which fill n x n arrays; got {graph.n_samples}. "
            "Use pairs='edges' with solver='krylov', or class_masses."
        )
    return spread(graph, labels, decay, pairs, solver, tol * (1 - decay))


def _one_sided(
    graph: KNNGraph, labels: Integers, decay: float, pairs: str, solver: str, error: float
) -> sparse.csr_array | Floats:
    if solver == "auto":
        solver = "dense" if graph.n_samples <= AUTO_DENSE_ROWS else "krylov"
    transition = transition_matrix(graph)
    propagate = SOLVERS[solver](transition, decay, tol=error)
    propagate_masses = propagate
    if solver != "dense":
        propagate_masses = SOLVERS[solver](transition, decay, tol=_mass_error(labels, decay, error))
    columns = one_sided_columns(labels, propagate, propagate_masses)
    if pairs == "all":
        return symmetrize_everywhere(graph.n_samples, columns)
    return symmetrize_on_edges(symmetric_edges(graph), columns)


def _two_sided(
    graph: KNNGraph, labels: Integers, decay: float, pairs: str, solver: str, error: float
) -> sparse.csr_array | Floats:
    check_labelled(labels, "propagate_affinities(sides='two')", "Label some rows, or use 'one'.")
    mass_error = _mass_error(labels, decay, error) / (1 - decay)
    masses = class_masses(graph, labels, decay=decay, solver=solver, tol=mass_error)
    if pairs == "all":
        totals = masses.masses.sum(axis=1)
        full: Floats = 2 * masses.masses @ masses.masses.T - np.outer(totals, totals)
        return full
    edges = symmetric_edges(graph)
    rows = np.repeat(np.arange(graph.n_samples), np.diff(edges.indptr))
    edges.data = masses.affinities(rows, edges.indices)
    return edges


def _mass_error(labels: Integers, decay: float, error: float) -> float:
    """Error of a mass that keeps every affinity within ``error``, and small masses right."""
    # |δ(2 F_i·F_j - F_i1 F_j1)| <= |δ_i|₁ + |δ_j|₁ <= 2 C max|δ|, since masses sum to 1 at most.
    n_classes = np.unique(labels[labels != UNLABELED]).size
    return min(MASS_TOL * (1 - decay), error / (2 * max(n_classes, 1)))
