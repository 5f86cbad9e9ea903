"""How ``(I - decay * transition)`` is inverted: the door between propagation and linear algebra.

The kernels sum in a fixed order, without BLAS: their results do not depend on its threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from ssdml.graphs._checks import Floats

MAX_ITER = 1000


class Solution(NamedTuple):
    """What an iterative kernel returns; the caller warns."""

    solution: Floats  # (n, r)
    n_iter: int
    residual: float  # largest over the columns, in the kernel's own measure
    converged: bool


def _column_dots(left: Floats, right: Floats) -> Floats:
    return np.einsum("nr,nr->r", left, right)


def _divide(numerators: Floats, denominators: Floats) -> Floats:
    """Quotients, 0 where a column has come to rest."""
    safe = np.where(denominators != 0, denominators, 1)
    return np.where(denominators != 0, numerators / safe, 0.0)


def conjugate_gradient(
    similarity: Any, decay: float, right_hand_sides: Floats, *, tol: float, max_iter: int = MAX_ITER
) -> Solution:
    """Solve ``(I - decay * similarity) F = right_hand_sides`` for symmetric ``similarity``.

    All columns share one sparse product an iteration and keep their own step lengths. Stops when
    the 2-norm of every column's residual is at most ``tol`` times that of its right-hand side.
    """
    solution = np.zeros_like(right_hand_sides)
    residual = right_hand_sides.copy()
    direction = residual.copy()
    squares = _column_dots(residual, residual)
    scales = np.where(squares > 0, squares, 1.0)
    n_iter = 0
    while (squares / scales).max() > tol**2 and n_iter < max_iter:
        image = direction - decay * (similarity @ direction)
        step = _divide(squares, _column_dots(direction, image))
        solution += step * direction
        residual -= step * image
        updated = _column_dots(residual, residual)
        direction = residual + _divide(updated, squares) * direction
        squares = updated
        n_iter += 1
    worst = float(np.sqrt((squares / scales).max()))
    return Solution(solution, n_iter, worst, worst <= tol)


class Propagator(Protocol):
    """Applies ``P = (1 - decay) (I - decay * transition)^-1`` to right-hand sides."""

    def __call__(self, right_hand_sides: Floats) -> Floats:
        """``P @ right_hand_sides``, of shape (n, r)."""


def dense_propagator(transition: sparse.csr_array, decay: float, *, tol: float) -> Propagator:
    """One LU factorisation of an n x n array, exact to rounding whatever ``tol``; O(n²) memory."""
    from scipy.linalg import lu_factor, lu_solve

    system = np.asfortranarray((-decay * transition).toarray())
    system[np.diag_indices_from(system)] += 1
    factors = lu_factor(system, overwrite_a=True, check_finite=False)

    def propagate(right_hand_sides: Floats) -> Floats:
        solved: Floats = lu_solve(factors, (1 - decay) * right_hand_sides, check_finite=False)
        return solved

    return propagate


def krylov_propagator(transition: sparse.csr_array, decay: float, *, tol: float) -> Propagator:
    """BiCGSTAB on all columns at once; no entry of the result is off by more than ``tol``."""

    def propagate(right_hand_sides: Floats) -> Floats:
        # ‖(I - decay Q)^-1‖∞ <= 1 / (1 - decay) for row-stochastic Q: residual bounds error.
        scaled = (1 - decay) * right_hand_sides
        result = stabilized_biconjugate_gradient(transition, decay, scaled, tol=(1 - decay) * tol)
        return iterate_fixed_point(
            transition, decay, scaled, result.solution, tol=(1 - decay) * tol
        ).solution

    return propagate


SOLVERS = {"dense": dense_propagator, "krylov": krylov_propagator}


def stabilized_biconjugate_gradient(
    transition: Any, decay: float, right_hand_sides: Floats, *, tol: float, max_iter: int = MAX_ITER
) -> Solution:
    """Solve ``(I - decay * transition) F = right_hand_sides`` by BiCGSTAB, a column a system.

    Stops when no entry of the residual exceeds ``tol``, or when a step no longer helps.
    """

    def apply(block: Floats) -> Floats:
        return block - decay * (transition @ block)

    solution = np.zeros_like(right_hand_sides)
    residual = right_hand_sides.copy()
    shadow = residual.copy()
    direction = residual.copy()
    alignment = _column_dots(shadow, residual)
    n_iter = 0
    while (worst := float(np.abs(residual).max())) > tol and n_iter < max_iter:
        image = apply(direction)
        step = _divide(alignment, _column_dots(shadow, image))
        halfway = residual - step * image
        turned = apply(halfway)
        damping = _divide(_column_dots(turned, halfway), _column_dots(turned, turned))
        solution += step * direction + damping * halfway
        residual = halfway - damping * turned
        updated = _column_dots(shadow, residual)
        factor = _divide(updated, alignment) * _divide(step, damping)
        direction = residual + factor * (direction - damping * image)
        alignment = updated
        n_iter += 1
    return Solution(solution, n_iter, worst, worst <= tol)


def iterate_fixed_point(
    transition: Any, decay: float, right_hand_sides: Floats, start: Floats, *, tol: float
) -> Solution:
    """Repeat ``F = decay * transition @ F + right_hand_sides`` until no entry moves by ``tol``."""
    solution, n_iter = start, 0
    while True:
        updated = decay * (transition @ solution) + right_hand_sides
        residual = float(np.abs(updated - solution).max())
        if residual <= tol:
            return Solution(solution, n_iter, residual, True)
        solution = updated
        n_iter += 1
