"""Poisson learning: labels as sources and sinks of the Poisson equation on a neighbor graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs.laplacian import symmetric_normalized, symmetric_weights
from ssdml.graphs.propagation.coarsening import CoarseCorrection, in_cache_order
from ssdml.graphs.propagation.labels import class_shares, dtype_of
from ssdml.graphs.propagation.solvers import BLOCK_ENTRIES, Solution, conjugate_gradient
from ssdml.utils.labels import class_codes
from ssdml.utils.linalg import scale_exactly
from ssdml.utils.parallel import ParallelMatrix, Threads, count_threads, row_blocks, threads
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import (
    UNLABELED,
    check_labeled,
    check_labels,
    check_number,
    warn,
)

__all__ = ["poisson_learning"]

SINGLE = 5e-7  # least tolerance for single precision, which rounds the sources by 6e-8
MAX_BALANCED = 100_000  # rows that the offsets are found on
TEMPERATURES = 1.0, 0.1, 0.01  # in units of the median margin; the last decides the precision


def poisson_learning(
    graph: Any,
    y: Any,
    *,
    class_prior: Any = None,
    decay: float = 0.9999,
    tol: float = 1e-6,
    n_jobs: int | None = None,
) -> Array:
    r"""Compute class scores of all rows by the Poisson equation on the graph [1]_.

    .. math:: (D - \gamma W) U = B, \qquad
        B_i = y_i - \bar y \text{ on labeled rows, else } 0

    with one-hot labels :math:`y_i`, their mean :math:`\bar y`, and the degrees D of the weights W.
    A row belongs to the class with its largest score. Unlike label propagation, a source is not
    weakened by the degree of its row, and scores do not fade with the distance to the labels, which
    suits one or two labels per class.

    Parameters
    ----------
    graph : KNNGraph or sparse array of shape (n_samples, n_samples)
        As in :func:`propagate_labels`.
    y : array of shape (n_samples,), int
        -1 where unlabeled.
    class_prior : "labeled", "uniform", array of shape (n_classes,), or None
        Share of the rows that each class gets, exact up to 0.5% of the rows: an offset is added
        to its scores. None: no offsets. "labeled": its share among the labeled rows.
    decay : float
        γ, between 0 and 1. On a connected graph the limit of 1 is the Poisson equation. Parts of a
        graph whose labels are not in the proportions of :math:`\bar y` have no solution in the
        limit; below it, sources reach about 1 / (1 - γ) edges far.
    tol : float
        2-norm of the solver's residual per class, relative to the right-hand side.
    n_jobs : int or None
        Threads, as joblib counts them: None is 1, -1 all. Never changes the result.

    Returns
    -------
    scores : ndarray of shape (n_samples, n_classes)
        Columns in the order of ``np.unique(y[y != -1])``. Without ``class_prior`` rows sum to 0,
        and so do columns, weighted by the degrees. float32 if the distances or weights of the
        graph are.

    Warns
    -----
    RuntimeWarning
        If no label reaches some rows (their scores are equal), or the solver stops early.

    Notes
    -----
    Differs from [1]_ in two ways: (a) instead of a fixed number of steps of an iteration, the
    system is solved, with γ a little below 1; (b) the class prior is met by offsets, which
    maximize the sum of the scores of the assigned classes, where [1]_ multiplies scores by bounded
    weights in its volume-constrained Algorithm 2.

    U is also a difference of propagated labels: with :math:`V = (D - \gamma W)^{-1} Y` for the
    one-hot labels Y, zero on unlabeled rows, :math:`U = V - V 1 \bar y^\top`.

    O(n k C) time per step of the solver and O(n C) memory for C classes.

    References
    ----------
    .. [1] Calder, Cook, Thorpe, Slepčev, "Poisson learning: graph based semi-supervised learning
       at very low label rates", ICML 2020, Algorithm 1.

    Examples
    --------
    >>> from scipy import sparse
    >>> path = sparse.csr_array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> poisson_learning(path, [0, -1, 1], decay=0.5).round(3) + 0.0
    array([[ 0.5, -0.5],
           [ 0. ,  0. ],
           [-0.5,  0.5]])
    """
    decay = check_number(decay, "decay", "poisson_learning", above=0, below=1)
    tol = check_number(tol, "tol", "poisson_learning", above=0)
    weights = symmetric_weights(graph, "poisson_learning")
    labels = check_labels(y, weights.shape[0], "poisson_learning")
    check_labeled(labels, "poisson_learning", "Label some rows.")
    codes, n_classes = class_codes(labels)
    prior = None
    if class_prior is not None:
        prior = class_shares(class_prior, codes, n_classes, "poisson_learning")
    dtype = dtype_of(graph)
    with threads(count_threads(n_jobs, "poisson_learning")) as pool:
        solution = poisson_scores(weights, codes, n_classes, decay, tol, dtype, pool)
    if not solution.converged:
        warn(
            f"poisson_learning: stopped after {solution.n_iter} steps with residual "
            f"{solution.residual:.1e} > tol={tol:.1e}; raise tol, or lower decay.",
            RuntimeWarning,
        )
    scores = solution.values
    reached = _reached(weights, codes)
    if not reached.all():
        warn(
            f"poisson_learning: no label reaches {(~reached).sum()} of {len(codes)} rows; their "
            "scores are equal. Label a row in each part of the graph, or raise n_neighbors.",
            RuntimeWarning,
        )
    if prior is not None and n_classes > 1:
        scores += balancing_offsets(scores[reached], prior).astype(dtype)
    return scores


def poisson_scores(
    weights: sparse.csr_array,
    codes: Ints,
    n_classes: int,
    decay: float,
    tol: float,
    dtype: Any,
    pool: Threads,
) -> Solution:
    """Solve the equation, a block of classes at a time, in single precision where that suffices.

    Solved for ``D^1/2 U``, whose matrix is ``I - decay * D^-1/2 W D^-1/2``. Rows without edges
    count as of degree 1.
    """
    n, similarity = len(codes), symmetric_normalized(weights)
    degrees = weights.sum(axis=1)
    # Scaled, so that single precision holds the sources.
    roots, exponent = scale_exactly(np.sqrt(np.where(degrees > 0, degrees, 1)))
    order, similarity = in_cache_order(similarity, n_classes)
    ordered, roots = codes[order], roots[order]
    labeled = ordered != UNLABELED
    shares = np.bincount(ordered[labeled]) / labeled.sum()
    shared = ParallelMatrix(similarity, pool)
    coarse = CoarseCorrection(similarity, decay, roots)
    scores = np.empty((n, n_classes), dtype)

    def solve(block: slice, precision: type[np.floating[Any]]) -> Solution:
        sources = (ordered[:, None] == np.arange(n_classes)[block]).astype(precision)
        sources[labeled] -= shares[block]
        sources /= roots[:, None]
        return conjugate_gradient(shared, decay, sources, tol=tol, coarse=coarse)

    solved = []
    for block in row_blocks(n_classes, BLOCK_ENTRIES // n):
        found = solve(block, np.float32 if tol >= SINGLE else np.float64)
        if not found.converged and tol >= SINGLE:  # 1 - decay is too small for single precision
            found = solve(block, np.float64)
        scores[order, block] = np.ldexp(found.values / roots[:, None], -2 * exponent)
        solved.append(found[1:])
    n_iter, residual, converged = zip(*solved, strict=True)
    return Solution(scores, max(n_iter), max(residual), all(converged))


def balancing_offsets(scores: Array, prior: Array) -> Array:
    r"""Find offsets t with which each class is the largest in its share of the rows.

    Minimizes :math:`\frac1n \sum_i \max_c (u_{ic} + t_c) - p^\top t`, the dual of assigning the
    rows at the largest sum of scores, with a softened maximum whose temperature falls.

    Parameters
    ----------
    scores : array of shape (n, n_classes)
    prior : array of shape (n_classes,)
        Sums to 1.

    Examples
    --------
    >>> scores = np.array([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]])
    >>> (scores + balancing_offsets(scores, np.array([0.5, 0.5]))).argmax(axis=1)
    array([0, 0, 1, 1])
    """
    from scipy.optimize import minimize
    from scipy.special import logsumexp, softmax

    n, offsets = len(scores), np.zeros(len(prior))
    if n > MAX_BALANCED:
        scores = scores[np.random.default_rng(0).choice(n, MAX_BALANCED, replace=False)]
    best_two = np.partition(scores, -2, axis=1)[:, -2:].astype(np.float64)
    margins = best_two[:, 1] - best_two[:, 0]
    if not margins.any():
        return offsets
    margin = float(np.median(margins[margins > 0]))
    for temperature in TEMPERATURES:
        scaled = scores / (temperature * margin)

        def dual(t: Array, scaled: Array = scaled) -> tuple[float, Array]:
            moved = scaled + t
            value = logsumexp(moved, axis=1).mean() - prior @ t
            return value, softmax(moved, axis=1).mean(axis=0) - prior

        start = offsets / (temperature * margin)
        found = minimize(dual, start, jac=True, method="L-BFGS-B", options={"gtol": 1e-4})
        offsets = found.x * (temperature * margin)
    return offsets - offsets.mean()


def _reached(weights: sparse.csr_array, codes: Ints) -> Array:
    """Return which rows have a path to a labeled row."""
    from scipy.sparse.csgraph import connected_components

    _, part = connected_components(weights, directed=False)
    return np.isin(part, part[codes != UNLABELED])
