"""Solvers of ``(I - decay * transition) F = right_hand_sides``.

The Krylov solvers sum in a fixed order with one thread per block: results do not depend on the
number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ssdml.graphs.propagation.coarsening import CoarseCorrection
from ssdml.utils.parallel import SERIAL, ParallelMatrix, Threads, row_blocks, threads
from ssdml.utils.typing import Array

MAX_ITER = 1000
BLOCK_ENTRIES = 2**25  # of the columns that conjugate gradients solve for at a time
COLUMNS = 128  # columns that BiCGSTAB solves for at a time
NEAR = 10.0  # times the tolerance: closer, an update need not halve the residual
BREAKDOWN = 1e-13  # of the product of residual and shadow, relative to their largest entries

# Computes ``P @ right_hand_sides`` with ``P = (1 - decay) (I - decay * transition)^-1``.
Propagator = Callable[[Array], Array]
# The same, with the largest error in each column.
Certified = Callable[[Array], tuple[Array, Array]]


class Solution(NamedTuple):
    """Result of an iterative solver, converged or not."""

    values: Array  # (n, r)
    n_iter: int
    residual: float  # the largest over the columns, in the solver's own measure
    converged: bool


def dense_propagator(
    transition: sparse.csr_array, decay: float, *, tol: float, n_threads: int = 1
) -> Propagator:
    """Factorize by LU, exact to rounding; O(n³) time, O(n²) memory, threads of BLAS."""
    del tol, n_threads
    from scipy.linalg import lu_factor, lu_solve

    system = (-decay * transition).toarray(order="F")
    system[np.diag_indices_from(system)] += 1
    factors = lu_factor(system, overwrite_a=True, check_finite=False)

    def propagate(right_hand_sides: Array) -> Array:
        return lu_solve(factors, (1 - decay) * right_hand_sides, check_finite=False)

    return propagate


def krylov_propagator(
    transition: sparse.csr_array, decay: float, *, tol: float, n_threads: int = 1
) -> Propagator:
    """Solve by BiCGSTAB; the fixed-point iteration finishes what does not converge."""
    # |(I - decay Q)^-1| <= 1 / (1 - decay) in the maximum norm, for rows of Q that sum to 1: a
    # residual of (1 - decay) tol means an error of at most tol.
    largest_residual = (1 - decay) * tol

    def propagate(right_hand_sides: Array) -> Array:
        values = np.empty(right_hand_sides.shape, np.result_type(right_hand_sides, 1.0))
        with threads(n_threads) as pool:
            shared = ParallelMatrix(transition, pool)
            for columns in row_blocks(right_hand_sides.shape[1], COLUMNS):
                scaled = (1 - decay) * right_hand_sides[:, columns]
                found = stabilized_biconjugate_gradient(
                    shared, decay, scaled, tol=largest_residual, threads=pool
                )
                if not found.converged:
                    found = iterate_fixed_point(
                        shared, decay, scaled, found.values, tol=largest_residual
                    )
                values[:, columns] = found.values
        return values

    return propagate


def certified(propagate: Propagator, transition: sparse.csr_array, decay: float) -> Certified:
    """Add error bounds to a propagator, computed from the residuals."""

    def propagate_and_bound(right_hand_sides: Array) -> tuple[Array, Array]:
        values = propagate(right_hand_sides)
        residual = (1 - decay) * right_hand_sides - values + decay * (transition @ values)
        # Rounding of the residual itself, in which large terms cancel.
        rounding = 8 * np.finfo(values.dtype).eps * np.abs(values).max(axis=0)
        return values, np.abs(residual).max(axis=0) / (1 - decay) + rounding / (1 - decay)

    return propagate_and_bound


# For ``(transition, decay, tol=, n_threads=)``, rows of the transition summing to 1: errors are at
# most tol for right-hand sides with entries between -1 and 1.
SOLVERS: dict[str, Callable[..., Propagator]] = {
    "dense": dense_propagator,
    "krylov": krylov_propagator,
}


def conjugate_gradient(
    similarity: ParallelMatrix,
    decay: float,
    right_hand_sides: Array,
    *,
    tol: float,
    start: Array | None = None,
    coarse: CoarseCorrection | None = None,
    max_iter: int = MAX_ITER,
) -> Solution:
    """Solve ``(I - decay * similarity) F = right_hand_sides`` for symmetric ``similarity``.

    All columns share one sparse product per iteration and keep their own step lengths. Stops when
    the 2-norm of every column's residual is at most ``tol`` times that of its right-hand side, or
    when rounding prevents progress. ``coarse`` is the preconditioner.

    Steps are taken in the precision of the right-hand sides. When rounding requires it, they are
    added up in double and restarted from the true residual [1]_, so that single precision reaches
    the same tolerance. ``values`` are double, ``residual`` is the true one.

    References
    ----------
    .. [1] Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, ch. 12.
    """
    n, dtype, threads = len(right_hand_sides), right_hand_sides.dtype, similarity.threads
    rounded, root = similarity.astype(dtype), float(np.finfo(dtype).eps) ** 0.5
    values = np.zeros(right_hand_sides.shape) if start is None else start.astype(np.float64)
    moved, direction = np.zeros_like(right_hand_sides), np.zeros_like(right_hand_sides)
    residual, image = right_hand_sides.copy(), np.empty_like(right_hand_sides)

    def measure(rows: slice) -> Array:
        """Compute squares of the residual and, below them, its restriction to the clusters."""
        squares = _column_dots(residual[rows], residual[rows])[None]
        if coarse is None:
            return squares
        return np.concatenate([squares, coarse.restrict(rows, residual[rows])])

    def aim(rows: slice, factor: Array, solved: Array) -> None:
        direction[rows] *= factor
        direction[rows] += residual[rows]
        if coarse is not None:
            direction[rows] += coarse.prolong(rows, solved)

    def turn(rows: slice) -> Array:
        image[rows] = direction[rows] - decay * rounded.part(rows, direction)
        return _column_dots(direction[rows], image[rows])

    def move(rows: slice, step: Array) -> Array:
        moved[rows] += step * direction[rows]
        residual[rows] -= step * image[rows]
        return measure(rows)

    def add(rows: slice) -> None:
        values[rows] += moved[rows]
        moved[rows] = 0

    def update(rows: slice) -> Array:
        left = decay * similarity.part(rows, values) - values[rows]
        residual[rows] = left + right_hand_sides[rows]
        return measure(rows)

    def largest(sums: Array) -> float:
        return float(np.sqrt((sums[0] / scales).max()))

    scales = _column_dots(right_hand_sides, right_hand_sides)
    scales[scales == 0] = 1.0
    sums = threads.sum(measure if start is None else update, n)
    before, n_iter, updated = np.zeros_like(scales), 0, largest(sums)
    while updated > tol and n_iter < max_iter:
        solved = sums[1:] if coarse is None else coarse.solve(sums[1:])
        # Inner products of the residual and the preconditioned residual.
        products = sums[0] + _column_dots(sums[1:], solved)
        factor, solved = _divide(products, before).astype(dtype), solved.astype(dtype)
        threads.map(partial(aim, factor=factor, solved=solved), n)
        step = _divide(products, threads.sum(turn, n)).astype(dtype)
        sums, before = threads.sum(partial(move, step=step), n), products
        n_iter += 1
        if not max(tol, root * updated) < largest(sums) < updated / root or n_iter == max_iter:
            threads.map(add, n)
            sums, earlier = threads.sum(update, n), updated
            # Restart: beside a residual that jumped, the old direction would weigh too much.
            updated, before = largest(sums), np.zeros_like(scales)
            if not updated <= max(earlier / 2, NEAR * tol):
                break
    return Solution(values, n_iter, updated, updated <= tol)


def stabilized_biconjugate_gradient(
    transition: Any,
    decay: float,
    right_hand_sides: Array,
    *,
    tol: float,
    threads: Threads = SERIAL,
    max_iter: int = MAX_ITER,
) -> Solution:
    """Solve ``(I - decay * transition) F = right_hand_sides``; each column is its own BiCGSTAB.

    A column is finished when no entry of its residual exceeds ``tol``. One whose shadow is
    orthogonal to the residual, to rounding, restarts from the residual: it would stop, or grow
    until it overflows. ``transition`` is anything with ``@``.

    References
    ----------
    .. [1] van der Vorst, "Bi-CGSTAB", SIAM J. Sci. Stat. Comput. 13(2), 1992.
    """
    n = len(right_hand_sides)

    def apply(block: Array) -> Array:
        image: Array = transition @ block

        def subtract(rows: slice) -> None:
            image[rows] *= -decay
            image[rows] += block[rows]

        threads.map(subtract, n)
        return image

    def dots(left: Array, right: Array) -> Array:
        return threads.sum(lambda rows: _column_dots(left[rows], right[rows]), n)

    def half_step(rows: slice, image: Array, step: Array) -> None:
        residual[rows] -= step * image[rows]

    def whole_step(rows: slice, turned: Array, step: Array, damping: Array) -> Array:
        values[rows] += step * direction[rows] + damping * residual[rows]
        residual[rows] -= damping * turned[rows]
        return np.abs(residual[rows]).max(axis=0)

    def aim(rows: slice, image: Array, damping: Array, factor: Array) -> None:
        direction[rows] -= damping * image[rows]
        direction[rows] *= factor
        direction[rows] += residual[rows]

    values = np.zeros_like(right_hand_sides)
    residual = right_hand_sides.copy()
    shadow, direction = residual.copy(), residual.copy()
    alignment, shadow_sizes = dots(shadow, residual), np.abs(shadow).max(axis=0)
    n_iter = 0
    while alignment.any() and n_iter < max_iter:
        image = apply(direction)
        step = _divide(alignment, dots(shadow, image))
        threads.map(partial(half_step, image=image, step=step), n)
        turned = apply(residual)
        damping = _divide(dots(turned, residual), dots(turned, turned))
        moved = partial(whole_step, turned=turned, step=step, damping=damping)
        sizes = np.max(threads.map(moved, n), axis=0)
        residual[:, sizes <= tol] = 0  # finished
        updated = dots(shadow, residual)
        factor = _divide(updated, alignment) * _divide(step, damping)
        broken = (sizes > tol) & (np.abs(updated) <= BREAKDOWN * sizes * shadow_sizes)
        if broken.any():
            shadow[:, broken], factor[broken] = residual[:, broken], 0
            updated[broken], shadow_sizes[broken] = dots(shadow, residual)[broken], sizes[broken]
        threads.map(partial(aim, image=image, damping=damping, factor=factor), n)
        alignment = updated
        n_iter += 1
    # The recurrence drifts away from the true residual, which decides.
    worst = float(np.abs(right_hand_sides - apply(values)).max())
    return Solution(values, n_iter, worst, worst <= tol)


def iterate_fixed_point(
    transition: Any, decay: float, right_hand_sides: Array, start: Array, *, tol: float
) -> Solution:
    """Iterate ``F = decay * transition @ F + right_hand_sides`` until no entry moves by ``tol``.

    The residual shrinks by ``decay`` per step, until rounding stops it.
    """
    values = start
    residual, n_iter = np.inf, 0
    while residual > tol:
        updated = decay * (transition @ values) + right_hand_sides
        moved = float(np.abs(updated - values).max())
        if moved >= residual:
            break
        values, residual, n_iter = updated, moved, n_iter + 1
    return Solution(values, n_iter, residual, residual <= tol)


def _column_dots(left: Array, right: Array) -> Array:
    return np.einsum("nr,nr->r", left, right, dtype=np.float64)


def _divide(numerators: Array, denominators: Array) -> Array:
    """Divide; 0 for a finished column, whose denominator is 0."""
    out = np.zeros_like(numerators)
    return np.divide(numerators, denominators, out=out, where=denominators != 0)
