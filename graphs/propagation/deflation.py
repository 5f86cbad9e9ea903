r"""Deflation of the slow modes of a random walk.

With weights c > 0 for which :math:`\gamma Q^\top c \le c`, the scaled walk
:math:`B = \gamma C^{1/2} Q C^{-1/2}` has 2-norm at most :math:`\sqrt\gamma`. Let U be an
orthonormal basis, A = I - B, and θ the largest eigenvalue of (B + Bᵀ)/2 on the complement of U.
Block elimination gives

.. math:: A^{-1} = R S^{-1} L^\top + E, \qquad
    |\hat r^\top E \hat s| \le \frac{|\hat r_\perp| \, |\hat s_\perp|}{1 - \theta}

where ⊥ is the part outside U: on the complement the symmetric part of A is at least 1 - θ, so its
inverse has norm at most 1 / (1 - θ). R and L are U with a correction in the complement, where
linear systems are well conditioned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import sparse

from ssdml.graphs.propagation.solvers import stabilized_biconjugate_gradient
from ssdml.utils.parallel import ParallelMatrix, Threads, row_blocks
from ssdml.utils.typing import Array

N_MODES = 128  # modes split off for walks
FILTER_ROUNDS, FILTER_DEGREE = 2, 10
LANCZOS_STEPS = 128
FAILURE = 1e-6  # probability that a random start hides the slowest direction left
SOLVED_ENTRIES = 2**25  # entries of a block of right-hand sides
ROUNDING = 64  # units of rounding error in products


class Deflation(NamedTuple):
    """``(I - B)^-1`` as ``right @ left.T`` and a remainder that is small outside ``modes``."""

    weights: Array  # c, (n,)
    modes: Array  # U, (n, m), orthonormal
    right: Array  # R, (n, m)
    left: Array  # L S^-T, (n, m)
    gap: float  # 1 - θ, or less
    slack: float  # what inexact solves add to a bound, for unit vectors
    gain: float  # amplification of a relative error of such a vector


def deflate(
    transition: sparse.csr_array,
    decay: float,
    n_modes: int,
    *,
    tol: float,
    threads: Threads,
    dtype: type[np.floating] = np.float64,
) -> Deflation:
    """Split off the slow modes of a walk whose rows sum to at most 1.

    ``tol`` is the residual of the corrections, which ``slack`` accounts for. The gap holds with
    probability 1 - 10⁻⁶ over a random start that does not depend on the data.
    """
    weights = walk_weights(transition, decay)
    scale = np.sqrt(weights)
    exact = sparse.csr_array(
        decay * transition.multiply(scale[:, None]).multiply(1 / scale[None, :])
    )
    walk = exact.astype(dtype)
    turned = sparse.csr_array(walk.T)
    forth, back = ParallelMatrix(walk, threads), ParallelMatrix(turned, threads)
    symmetric = ParallelMatrix(sparse.csr_array(((walk + turned) / 2).astype(dtype)), threads)
    del walk, turned
    rng = np.random.default_rng(0)
    modes = slow_subspace(symmetric, n_modes, threads, rng)
    gap = 1 - min(slowest_outside(symmetric, modes, threads, rng), decay**0.5)
    del symmetric
    right, missed_right = corrected(forth, modes, tol, threads)
    left, missed_left = corrected(back, modes, tol, threads)
    del forth, back
    schur = schur_complement(ParallelMatrix(exact, threads), right, left, threads)
    norms = _norm(right, threads), _norm(left, threads)
    missed = (max(missed_right, missed_left) + ROUNDING * float(np.finfo(dtype).eps)) / gap
    inverse = 1 / (1 - decay**0.5)
    slack = _slack(*norms, missed, gap, inverse)
    left = threads.product(left, np.linalg.inv(schur).T)
    return Deflation(weights, modes, right, left, gap, slack, inverse * norms[0] * norms[1])


def walk_weights(transition: sparse.csr_array, decay: float) -> Array:
    """Compute weights c > 0 with ``decay * transition.T @ c <= c``.

    The fixed point of ``c = (1 - decay) 1 + decay Qᵀ c`` is one, and the iteration stops well
    before it.
    """
    back = sparse.csr_array(transition.T)
    weights = np.ones(transition.shape[0])
    while True:
        image = decay * (back @ weights)
        if (image <= weights).all():
            return weights
        weights = image + (1 - decay)


def slow_subspace(
    symmetric: ParallelMatrix, count: int, threads: Threads, rng: np.random.Generator
) -> Array:
    """Approximate the leading eigenvectors by an orthonormal basis.

    Subspace iteration with Chebyshev polynomials that are small below a cut; the cut follows the
    Ritz values [1]_.

    References
    ----------
    .. [1] Zhou, Saad, Tiago, Chelikowsky, "Self-consistent-field calculations using
       Chebyshev-filtered subspace iteration", J. Comput. Phys. 219, 2006.
    """
    start = rng.standard_normal(symmetric.shape[0]).astype(symmetric.dtype)
    low, high = lanczos_ends(symmetric.__matmul__, start, 16)
    basis: Array = rng.standard_normal((symmetric.shape[0], count)).astype(symmetric.dtype)
    cut = (low + high) / 2
    for _ in range(FILTER_ROUNDS):
        basis = orthonormalized(_filtered(symmetric, basis, low, cut, threads), threads)
        ritz = np.linalg.eigvalsh(threads.gram(basis, symmetric @ basis))
        cut = float(np.clip(ritz[0], low + 0.3 * (high - low), low + 0.98 * (high - low)))
    return basis


def _filtered(
    symmetric: ParallelMatrix, block: Array, low: float, cut: float, threads: Threads
) -> Array:
    """Apply a Chebyshev polynomial of the matrix, at most 1 on [low, cut] and large above."""
    center, half = block.dtype.type((low + cut) / 2), block.dtype.type((cut - low) / 2)
    before, current = block, np.empty_like(block)

    def begin(rows: slice) -> None:
        current[rows] = (symmetric.part(rows, before) - center * before[rows]) / half

    def go_on(rows: slice, before: Array, current: Array) -> None:
        image = symmetric.part(rows, current) - center * current[rows]
        before[rows] = image * (2 / half) - before[rows]

    threads.map(begin, len(block))
    for _ in range(FILTER_DEGREE - 1):
        threads.map(partial(go_on, before=before, current=current), len(block))
        before, current = current, before
    return current


def orthonormalized(block: Array, threads: Threads) -> Array:
    """Orthonormalize the columns, leaving out those lost in rounding."""
    for _ in range(2):
        block /= np.abs(block).max()
        values, vectors = np.linalg.eigh(threads.gram(block, block))
        kept = values > 100 * np.finfo(block.dtype).eps * values[-1]
        block = threads.product(block, vectors[:, kept] / np.sqrt(values[kept]))
    return block


def slowest_outside(
    symmetric: ParallelMatrix, basis: Array, threads: Threads, rng: np.random.Generator
) -> float:
    """Bound the eigenvalues on the complement of an orthonormal basis from above.

    The bound of Lanczos is a lower one; the margin added here suffices with probability 1 - 10⁻⁶
    over the random start [1]_.

    References
    ----------
    .. [1] Kuczyński, Woźniakowski, "Estimating the largest eigenvalue by the power and Lanczos
       algorithms with a random start", SIAM J. Matrix Anal. Appl. 13(4), 1992, Theorem 4.2.
    """

    def outside(vector: Array) -> Array:
        column = vector[:, None]
        threads.subtract_product(column, basis, threads.gram(basis, column))
        return vector

    n = symmetric.shape[0]
    start = outside(rng.standard_normal(n).astype(symmetric.dtype))
    low, high = lanczos_ends(lambda vector: outside(symmetric @ vector), start, LANCZOS_STEPS)
    share = (np.log(1.648 * np.sqrt(n) / FAILURE) / (2 * LANCZOS_STEPS - 1)) ** 2
    return max(0.0, high + share / (1 - 2 * share) * (high - low))


def lanczos_ends(
    apply: Callable[[Array], Array], start: Array, n_steps: int
) -> tuple[float, float]:
    """Compute the smallest and largest Ritz value of a symmetric map after ``n_steps``."""
    from scipy.linalg import eigvalsh_tridiagonal

    vector = start / (np.linalg.norm(start) or 1.0)
    before, offset = np.zeros_like(vector), 0.0
    diagonal: list[float] = []
    offsets: list[float] = []
    for _ in range(min(n_steps, len(start))):
        image = apply(vector) - offset * before
        diagonal.append(float(image @ vector))
        image -= diagonal[-1] * vector
        before, offset = vector, float(np.linalg.norm(image))
        if offset < 100 * np.finfo(vector.dtype).eps:
            break
        offsets.append(offset)
        vector = image / offset
    ritz = eigvalsh_tridiagonal(diagonal, offsets[: len(diagonal) - 1])
    return float(ritz[0]), float(ritz[-1])


def corrected(
    walk: ParallelMatrix, modes: Array, tol: float, threads: Threads
) -> tuple[Array, float]:
    """Eliminate the complement from the modes; return them and the norm of the residuals.

    Solves ``Π (I - B) Π X = Π (I - B) U`` and returns ``U - X``, with Π the projection onto the
    complement.
    """

    class Outside:
        def __matmul__(self, block: Array) -> Array:
            image = walk @ block
            threads.subtract_product(image, modes, threads.gram(modes, image))
            return image

    outside, missed = Outside(), 0.0
    result = modes.copy()
    for columns in row_blocks(modes.shape[1], SOLVED_ENTRIES // len(modes)):
        target = -(outside @ np.ascontiguousarray(modes[:, columns]))
        solved = stabilized_biconjugate_gradient(
            outside, 1.0, target, tol=tol, threads=threads
        ).values
        missed += float(np.linalg.norm(target - solved + outside @ solved) ** 2)
        result[:, columns] -= solved
    return result, missed**0.5


def schur_complement(walk: ParallelMatrix, right: Array, left: Array, threads: Threads) -> Array:
    """Compute ``Lᵀ (I - B) R`` in double precision: its entries of slow modes are tiny, 1 - γ."""
    schur = np.empty((left.shape[1], right.shape[1]))
    for columns in row_blocks(right.shape[1], SOLVED_ENTRIES // len(right) // 2):
        block = right[:, columns].astype(np.float64)
        image = walk @ block
        image -= block
        schur[:, columns] = -threads.gram(left, image)
    return schur


def _norm(block: Array, threads: Threads) -> float:
    """Compute the spectral norm of a tall array."""
    return float(np.sqrt(np.linalg.eigvalsh(threads.gram(block, block))[-1]))


def _slack(right: float, left: float, missed: float, gap: float, inverse: float) -> float:
    """Bound what residuals of norm ``missed * gap`` change in R S^-1 Lᵀ, for unit vectors.

    ``right`` and ``left`` are norms of R and L, ``inverse`` bounds that of S^-1.
    """
    # S moves by the product of the two residuals over the gap, and by rounding in double precision.
    moved = inverse * (gap * missed**2 + ROUNDING * float(np.finfo(np.float64).eps) * right * left)
    if moved >= 1:
        return np.inf
    inverse = inverse / (1 - moved)
    ends = (right + missed) * (left + missed)
    return inverse * (ends * moved + missed * (right + left) + missed**2)
