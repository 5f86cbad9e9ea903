"""Scores of classes spread over a symmetric graph, and distributions made of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs._blocks import BLOCK_ROWS, SharedOut, Threads, row_blocks
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs._ordering import near_order, reordered
from ssdml.graphs.coarsening import CoarseCorrection
from ssdml.graphs.laplacian import symmetric_normalized
from ssdml.graphs.solvers import Solution, conjugate_gradient
from ssdml.utils.typing import Array, Ints

BLOCK_ENTRIES = 2**25  # entries of the columns that are solved for together
CACHED_ENTRIES = 2**22  # of scores; more, and products are 3 times as fast where neighbours meet
FAINT = 1000.0  # scores in units of the residual: far from all labels, errors of 8 were seen


def spread_scores(
    weights: sparse.csr_array,
    codes: Ints,
    n_classes: int,
    decay: float,
    tol: float,
    start: Array | None,
    dtype: Any,
    pool: Threads,
) -> Solution:
    """Scores of the classes, a few of them at a time: memory is that of the scores and a block.

    Many are computed in an order of the rows in which neighbours lie together. ``dtype`` is that in
    which they are returned, unless that is too narrow.
    """
    n, similarity = len(codes), symmetric_normalized(weights)
    profile = np.sqrt(weights.sum(axis=1))
    order: Ints = np.arange(n)
    if n * n_classes > CACHED_ENTRIES:
        order = near_order(similarity)
        similarity = reordered(similarity, order)
    shared, ordered = SharedOut(similarity, pool), codes[order]
    n_blocks = -(-n_classes // max(1, BLOCK_ENTRIES // n))

    def solve(precision: type[np.floating[Any]], coarse: CoarseCorrection | None) -> Solution:
        scores = np.empty((n, n_classes), np.promote_types(precision, dtype))

        def solve_block(block: slice) -> Solution:
            seeds = (ordered[:, None] == np.arange(n_classes)[block]).astype(precision)
            seeds *= 1 - decay
            begin = None if start is None else start[order, block]
            found = conjugate_gradient(shared, decay, seeds, tol=tol, start=begin, coarse=coarse)
            values = np.maximum(found.values, 0, out=found.values)

            def step_on(rows: slice) -> None:
                scores[order[rows], block] = decay * shared.part(rows, values) + seeds[rows]

            # True scores are not negative. One step of the fixed point keeps them so, and gives
            # rows beyond the reach of the tolerance the proportions of their neighbours.
            pool.map(step_on, n)
            return found._replace(values=scores)

        blocks = row_blocks(n_classes, -(-n_classes // n_blocks))
        _, n_iter, residual, converged = zip(*map(solve_block, blocks), strict=True)
        return Solution(scores, max(n_iter), max(residual), all(converged))

    coarse = CoarseCorrection(similarity, decay, profile[order])
    solution = solve(np.float32, coarse)
    if not solution.converged:  # 1 - decay, or the tolerance, is too small for single precision
        solution = solve(np.float64, coarse)
    norms = (1 - decay) * np.sqrt(np.bincount(codes[codes != UNLABELED]))
    if not has_faint_rows(solution.values, norms, profile, solution.residual):
        return solution
    # The correction leaves a residual that is as large there as elsewhere, and proportions that
    # mean nothing. Without it labels come one edge farther with each step, and proportions hold,
    # as long as no score is too small for its precision.
    del solution
    return solve(np.float64, None)


def has_faint_rows(scores: Array, norms: Array, profile: Array, residual: float) -> bool:
    """Whether rows are so far from all labels that their scores hardly stand out of the residual.

    ``norms`` are those of the right-hand sides, ``residual`` is relative to them; it is spread over
    the rows like the slowest mode, ``profile``, roughly.
    """
    level = FAINT * residual / (np.linalg.norm(profile) or 1.0)
    for rows in row_blocks(len(scores), BLOCK_ROWS):
        best = (scores[rows] / norms).max(axis=1)
        if ((best > 0) & (best < level * profile[rows])).any():
            return True
    return False


def to_simplex(scores: Array, prior: Array, dtype: Any) -> Array:
    """Rows scaled to sum to 1, their columns to the prior masses, and rows to sum to 1 again.

    Rows of zeros get the prior, and one warning counts them.
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
        warnings.warn(
            f"propagate_labels: no label reaches {unreached} of {len(scores)} rows; they get the "
            "class prior. Label a row in each part of the graph, or raise n_neighbors.",
            RuntimeWarning,
            stacklevel=3,
        )
    return distributions


def check_start(start: Any, shape: tuple[int, int]) -> None:
    """Raise unless scores to begin with are finite, and as many as the scores to be found."""
    if start is not None and np.shape(start) != shape:
        raise ValueError(
            f"propagate_labels: start must have shape {shape}, a row for each row of the graph "
            f"and a column for each class in y; got {np.shape(start)}."
        )
    if start is not None and not np.isfinite(start).all():
        raise ValueError(
            "propagate_labels: start must be finite; got NaN or infinite scores. Pass None to "
            "begin at 0."
        )


def class_shares(class_prior: Any, codes: Ints, n_classes: int) -> Array:
    """Share of each class among all rows: as given, or as among the labelled rows."""
    if class_prior is None:
        counts = np.bincount(codes[codes != UNLABELED])
        shares: Array = counts / counts.sum()
        return shares
    prior = np.asarray(class_prior, dtype=np.float64)
    if prior.shape != (n_classes,) or not (np.isfinite(prior) & (prior > 0)).all():
        raise ValueError(
            f"propagate_labels: class_prior must hold {n_classes} positive numbers, one for each "
            f"class in y; got {class_prior!r}."
        )
    return prior / prior.sum()
