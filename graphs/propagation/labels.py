"""Label propagation on a neighbor graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ssdml.graphs._validation import check_real
from ssdml.graphs.laplacian import symmetric_normalized, symmetric_weights
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.propagation.class_prior import estimate_prior, shrunken_shares
from ssdml.graphs.propagation.coarsening import CoarseCorrection, in_cache_order
from ssdml.graphs.propagation.solvers import BLOCK_ENTRIES, Solution, conjugate_gradient
from ssdml.utils.labels import class_codes
from ssdml.utils.parallel import (
    BLOCK_ROWS,
    ParallelMatrix,
    Threads,
    count_threads,
    row_blocks,
    threads,
)
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import (
    UNLABELED as UNLABELED,
    as_array,
    check_labeled,
    check_labels,
    check_number,
    warn,
    working_dtype,
)

__all__ = ["propagate_labels"]

HEAVIEST = 1e10  # weight of the evidence of a row
FAINT = 1000.0  # in units of the residual: far from all labels, errors of 8 units were seen


def propagate_labels(
    graph: Any,
    y: Any,
    *,
    decay: float = 0.99,
    evidence: Any = None,
    evidence_weight: float = 1.0,
    class_prior: Any = None,
    tol: float = 1e-6,
    start: Array | None = None,
    return_solution: bool = False,
    n_jobs: int | None = None,
) -> Any:
    r"""Propagate labels over the graph to class probabilities of all rows.

    .. math:: F = (1 - \gamma) (I - \gamma D^{-1/2} W D^{-1/2})^{-1} (H + \mu Q)

    with the labels H, and the evidence Q of a classifier on the unlabeled rows. Rows are scaled to
    sum to 1, columns so that the mass of each class over all rows follows ``class_prior``, and rows
    to sum to 1 again.

    Parameters
    ----------
    graph : KNNGraph or sparse array of shape (n_samples, n_samples)
        A sparse array holds symmetric weights of at least 0; duplicate entries are summed. The
        weights of a KNNGraph are those of :func:`adjacency`: "cosine" for cosine distances, else
        "heat".
    y : array of shape (n_samples,), int
        -1 where unlabeled.
    decay : float
        γ, between 0 and 1: the closer to 1, the farther labels reach.
    evidence : array of shape (n_samples, n_classes), or None
        Q: class probabilities of the rows by a classifier, preferably calibrated.
        Those of labeled rows are ignored.
    evidence_weight : float
        μ, positive: the evidence of a row counts as much as this share of a label.
    class_prior : "labeled", "uniform", "estimate", array of shape (n_classes,), or None
        Share of each class among all rows. "labeled", or None: its share among the labeled rows.
        "estimate": from the evidence on the unlabeled rows, see
        :func:`ssdml.graphs.propagation.class_prior.estimate_prior`.
    tol : float
        2-norm of the solver's residual per class, relative to the right-hand side.
    start : array of shape (n_samples, n_classes), or None
        Warm start: the scores F of an earlier call on a similar graph.
    return_solution : bool
        Whether to return the solver's solution as well.
    n_jobs : int or None
        Threads, as joblib counts them: None is 1, -1 all. Never changes the result.

    Returns
    -------
    distributions : ndarray of shape (n_samples, n_classes)
        Columns in the order of ``np.unique(y[y != -1])``; float32 if the distances or weights of
        the graph are.
    solution : Solution
        Scores F as ``values``, ``n_iter`` and ``residual``; only with ``return_solution``.

    Warns
    -----
    RuntimeWarning
        If no label reaches some rows (they get ``class_prior``), or the solver stops early.

    Notes
    -----
    Differs from [1]_ in three ways: (a) classes are rescaled to their prior masses, after [2]_;
    (b) the linear system is solved by preconditioned conjugate gradients in single precision, with
    residuals in double; (c) fixed-point steps follow, so that rows whose mass is below the
    tolerance take the proportions of their neighbors. Labeled rows are not clamped: neighbors of
    another class can outvote a label.

    F minimizes :math:`\sum_c \tfrac12 F_c^\top (I - \gamma S) F_c - (1 - \gamma) F_c^\top
    (H + \mu Q)_c`: smooth along edges, and close to labels and evidence. With μ = 0 it is [1]_.
    As γ goes to 0, every row keeps its own label or evidence, so γ and μ weigh the graph against
    the classifier. The evidence is ours; Dutta et al. (2021) have none.

    References
    ----------
    .. [1] Zhou et al., "Learning with local and global consistency", NeurIPS 2003.
    .. [2] Zhu, Ghahramani, Lafferty, "Semi-supervised learning using Gaussian fields and harmonic
       functions", ICML 2003, Eq. (9).

    Examples
    --------
    >>> from scipy import sparse
    >>> path = sparse.csr_array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> propagate_labels(path, [0, -1, 1], decay=0.5).round(3)
    array([[0.875, 0.125],
           [0.5  , 0.5  ],
           [0.125, 0.875]])
    """
    decay = check_number(decay, "decay", "propagate_labels", above=0, below=1)
    tol = check_number(tol, "tol", "propagate_labels", above=0)
    weights = symmetric_weights(graph, "propagate_labels")
    labels = check_labels(y, weights.shape[0], "propagate_labels")
    check_labeled(labels, "propagate_labels", "Label some rows.")
    codes, n_classes = class_codes(labels)
    weight = check_number(
        evidence_weight, "evidence_weight", "propagate_labels", above=0, most=HEAVIEST
    )
    sources = None
    if evidence is not None:
        sources = _check_evidence(evidence, codes, n_classes)
    if isinstance(class_prior, str) and class_prior == "estimate":
        prior = estimated_shares(codes, sources)
    else:
        prior = class_shares(class_prior, codes, n_classes)
    if sources is not None:
        sources *= weight
    if start is not None:
        start = _check_start(start, (len(labels), n_classes))
    dtype = dtype_of(graph)
    with threads(count_threads(n_jobs, "propagate_labels")) as pool:
        solution = spread_scores(
            weights, codes, n_classes, decay, tol, start, dtype, pool, evidence=sources
        )
    fill_rows_of_zeros(solution.values, weights, decay)
    if not solution.converged:
        warn(
            f"propagate_labels: stopped after {solution.n_iter} steps with residual "
            f"{solution.residual:.1e} > tol={tol:.1e}; raise tol.",
            RuntimeWarning,
        )
    distributions = to_simplex(solution.values, prior, dtype)
    return (distributions, solution) if return_solution else distributions


def spread_scores(
    weights: sparse.csr_array,
    codes: Ints,
    n_classes: int,
    decay: float,
    tol: float,
    start: Array | None,
    dtype: Any,
    pool: Threads,
    *,
    evidence: Array | None = None,
) -> Solution:
    """Compute the scores F, a block of classes at a time; in ``dtype``, unless it is too narrow.

    ``evidence`` is weighted already, and 0 on labeled rows.

    If there are many, rows are reordered so that neighbors lie together in memory.
    """
    n, similarity = len(codes), symmetric_normalized(weights)
    profile = np.sqrt(weights.sum(axis=1))
    order, similarity = in_cache_order(similarity, n_classes)
    shared, ordered = ParallelMatrix(similarity, pool), codes[order]
    n_blocks = -(-n_classes // max(1, BLOCK_ENTRIES // n))

    def solve(precision: type[np.floating[Any]], coarse: CoarseCorrection | None) -> Solution:
        scores = np.empty((n, n_classes), np.promote_types(precision, dtype))

        def solve_block(block: slice) -> Solution:
            seeds = (ordered[:, None] == np.arange(n_classes)[block]).astype(precision)
            if evidence is not None:
                seeds += evidence[order, block]
            seeds *= 1 - decay
            begin = None if start is None else start[order, block]
            found = conjugate_gradient(shared, decay, seeds, tol=tol, start=begin, coarse=coarse)
            values = np.maximum(found.values, 0, out=found.values)

            def step_on(rows: slice) -> None:
                scores[order[rows], block] = decay * shared.part(rows, values) + seeds[rows]

            # True scores are not negative. The fixed-point step keeps them so, and gives rows
            # below the tolerance the proportions of their neighbors.
            pool.map(step_on, n)
            return found._replace(values=scores)

        blocks = row_blocks(n_classes, -(-n_classes // n_blocks))
        _, n_iter, residual, converged = zip(*map(solve_block, blocks), strict=True)
        return Solution(scores, max(n_iter), max(residual), all(converged))

    coarse = CoarseCorrection(similarity, decay, profile[order])
    solution = solve(np.float32, coarse)
    if not solution.converged:  # 1 - decay, or the tolerance, is too small for single precision
        solution = solve(np.float64, coarse)
    if evidence is not None and (evidence.any(axis=1) | (codes != UNLABELED)).all():
        return solution  # no row is far from a source
    norms = (1 - decay) * np.sqrt(np.bincount(codes[codes != UNLABELED]))
    if not has_faint_rows(solution.values, norms, profile, solution.residual):
        return solution
    # The correction leaves a residual as large in faint rows as elsewhere, and meaningless
    # proportions. Without it, labels advance by one edge per step, and proportions hold as long as
    # no score underflows.
    del solution
    return solve(np.float64, None)


def has_faint_rows(scores: Array, norms: Array, profile: Array, residual: float) -> bool:
    """Return whether the residual may spoil the scores of rows that are far from all labels.

    ``residual`` is relative to the ``norms`` of the right-hand sides, and spread over the rows
    roughly like the slowest mode, ``profile``.
    """
    level = FAINT * residual / (np.linalg.norm(profile) or 1.0)
    for rows in row_blocks(len(scores), BLOCK_ROWS):
        best = (scores[rows] / norms).max(axis=1)
        if ((best > 0) & (best < level * profile[rows])).any():
            return True
    return False


def fill_rows_of_zeros(scores: Array, weights: sparse.csr_array, decay: float) -> None:
    """Carry scores along edges, in place, to rows beyond the last step of the solver.

    It takes fewer steps than labels are edges away if the tolerance is loose or the decay small.
    """
    zeros = np.flatnonzero(~scores.any(axis=1))
    if not len(zeros):
        return
    steps, n_before = decay * symmetric_normalized(weights)[zeros], len(scores)
    while len(zeros) and len(zeros) < n_before:
        n_before = len(zeros)
        scores[zeros] = steps @ scores
        left = ~scores[zeros].any(axis=1)
        zeros, steps = zeros[left], steps[left]


def to_simplex(scores: Array, prior: Array, dtype: Any) -> Array:
    """Scale rows to sum to 1, columns to the prior masses, and rows to sum to 1 again.

    Rows of zeros get the prior, with a warning.
    """
    blocks, masses, unreached = row_blocks(len(scores), BLOCK_ROWS), np.zeros(len(prior)), 0
    distributions = np.empty(scores.shape, dtype)
    for rows in blocks:
        part = scores[rows].astype(np.float64)
        totals = part.sum(axis=1, keepdims=True)
        unreached += int((totals == 0).sum())
        np.divide(part, totals, out=part, where=totals > 0)
        masses += part.sum(axis=0)
        distributions[rows] = part
    for rows in blocks:
        part = distributions[rows] * (prior / masses)
        part[~part.any(axis=1)] = prior
        distributions[rows] = part / part.sum(axis=1, keepdims=True)
    if unreached:
        warn(
            f"propagate_labels: no label reaches {unreached} of {len(scores)} rows; they get the "
            "class prior. Label a row in each part of the graph, or raise n_neighbors.",
            RuntimeWarning,
        )
    return distributions


def _check_evidence(evidence: Any, codes: Ints, n_classes: int) -> Array:
    """Return the evidence with zeros on the labeled rows, if the other rows are distributions."""
    given = as_array(evidence, "propagate_labels", "evidence")
    check_real(given, "propagate_labels", "evidence")
    evidence = given.astype(np.result_type(given, np.float32))
    shape = (len(codes), n_classes)
    if evidence.shape != shape:
        raise ValueError(
            f"propagate_labels: evidence must have shape {shape}, a row for each row of the graph "
            f"and a column for each class in y; got {evidence.shape}."
        )
    evidence[codes != UNLABELED] = 0
    unlabeled = np.flatnonzero(codes == UNLABELED)
    rows = evidence[unlabeled]
    wrong = ~((rows >= 0).all(axis=1) & (np.abs(rows.sum(axis=1) - 1) < 1e-3))  # NaN is wrong
    if wrong.any():
        place = unlabeled[wrong.argmax()]
        raise ValueError(
            "propagate_labels: evidence must hold probabilities that sum to 1 in each row; got "
            f"{np.array2string(evidence[place], threshold=5, precision=3)} in row {place}. Pass "
            "the predict_proba of a classifier."
        )
    return evidence


def _check_start(start: Any, shape: tuple[int, int]) -> Array:
    start = as_array(start, "propagate_labels", "start")
    check_real(start, "propagate_labels", "start")
    if start.shape != shape:
        raise ValueError(
            f"propagate_labels: start must have shape {shape}, a row for each row of the graph "
            f"and a column for each class in y; got {start.shape}."
        )
    if not np.isfinite(start).all():
        raise ValueError(
            "propagate_labels: start must be finite; got NaN or infinite scores. Pass None to "
            "start at 0."
        )
    return start


def estimated_shares(codes: Ints, evidence: Array | None) -> Array:
    """Estimate the prior of each class from the labels and the evidence on unlabeled rows."""
    if evidence is None:
        raise ValueError(
            "propagate_labels: evidence must be given with class_prior='estimate'; got None. Pass "
            "the predict_proba of a classifier, or class_prior='labeled'."
        )
    counts, unlabeled = np.bincount(codes[codes != UNLABELED]), codes == UNLABELED
    shares = shrunken_shares(counts)
    if not unlabeled.any():
        return shares
    return estimate_prior(evidence[unlabeled], shares, counts.mean()).shares


def dtype_of(graph: Any) -> npt.DTypeLike:
    """The precision of the scores: that of the distances or weights of the graph."""
    return working_dtype(graph.distances.dtype if isinstance(graph, KNNGraph) else graph.dtype)


def class_shares(
    class_prior: Any, codes: Ints, n_classes: int, who: str = "propagate_labels"
) -> Array:
    """Return the prior of each class: as given, even, or its share among the labeled rows."""
    if isinstance(class_prior, str) and class_prior == "uniform":
        return np.full(n_classes, 1 / n_classes)
    if class_prior is None or (isinstance(class_prior, str) and class_prior == "labeled"):
        counts = np.bincount(codes[codes != UNLABELED])
        return counts / counts.sum()
    if isinstance(class_prior, str):
        names = "'labeled', 'uniform'" + ", 'estimate'" * (who == "propagate_labels")
        raise ValueError(f"{who}: class_prior must be {names} or an array; got {class_prior!r}.")
    given = as_array(class_prior, who, "class_prior")
    check_real(given, who, "class_prior")
    prior = given.astype(np.float64)
    if prior.shape != (n_classes,) or not (np.isfinite(prior) & (prior > 0)).all():
        raise ValueError(
            f"{who}: class_prior must hold {n_classes} positive numbers, one per class in y; got "
            f"{class_prior!r}."
        )
    if abs(prior.sum() - 1) > 1e-6:
        raise ValueError(
            f"{who}: class_prior must sum to 1; got {class_prior!r}, with sum {prior.sum():.6g}. "
            "Divide it by its sum."
        )
    return prior
