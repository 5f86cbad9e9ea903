r"""Entries of ``(1 - decay) (I - decay Q)^-1`` on given pairs, each with a bound of its error.

From row i a walk goes T steps forth, from row j T' steps back; between the two lies the inverse
itself:

.. math:: P_{ij} = (1 - \gamma) \sum_{t < T + T'} \gamma^t (Q^t)_{ij} + r_i^\top P s_j, \qquad
    r_i = \gamma^T (Q^\top)^T e_i, \quad s_j = \gamma^{T'} Q^{T'} e_j

The last term is taken on the slow modes. Its error is at most the product of what r_i and s_j have
outside them, over the gap (:mod:`ssdml.graphs.deflation`): rows for which that is too much walk on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ssdml.graphs._blocks import SharedOut, Threads, threads
from ssdml.graphs._checks import Floats, Integers
from ssdml.graphs._walk_rows import walk_rows, walk_squares
from ssdml.graphs.deflation import Deflation, deflate

N_MODES, LOOSE_MODES, LARGE_MODES = 96, 32, 128
LOOSE_TOL = 0.25  # in units of 1 - decay: beyond, fewer modes are faster
LARGE_ROWS = 50_000  # beyond, there are more clusters, and a mode for each
STEPS_BACK = 3
FIRST_STEPS = 4
BLOCK_SOURCES = 512  # rows that a thread takes at a time
FLOAT32_TOL = 1e-6  # errors below which single precision does not do


class PairEntries(NamedTuple):
    """Entries on the pairs of a pattern, in the order of its data."""

    values: Floats
    bounds: Floats  # of the absolute errors
    n_steps: int  # of the longest walk


class Ends(NamedTuple):
    """What walks of so many steps have left to do, as seen from either end."""

    on_modes: Floats  # (n, m)
    norms: Floats  # of all that is left, (n,)
    outside: Floats  # of its part outside the modes


def walk_entries(
    transition: sparse.csr_array,
    decay: float,
    pattern: sparse.csr_array,
    *,
    tol: float,
    n_threads: int = 1,
) -> PairEntries:
    """Entries of ``P`` on the pairs of a pattern, with errors of at most ``tol``.

    Parameters
    ----------
    transition : csr_array of shape (n, n)
        Rows are not negative and sum to at most 1.
    decay : float
    pattern : csr_array of shape (n, n)
        Its data are not read.
    tol : float
    n_threads : int
        The result does not depend on it.

    Returns
    -------
    entries : PairEntries

    Notes
    -----
    A walk of T steps costs as many products as there are edges about the rows it meets, whatever
    n is; the modes cost some fifty products of the transition with m columns. Memory: six arrays
    of n x m in single precision, and the transition's square.

    Examples
    --------
    >>> swap = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> walk_entries(swap, 0.5, swap, tol=1e-8).values.round(6)
    array([0.333333, 0.333333])
    """
    dtype = np.float32 if tol > FLOAT32_TOL else np.float64
    n_modes = _count_modes(transition.shape[0], tol / (1 - decay))
    # Walks stay among rows that lie together in memory: three times as fast at 10^6 rows.
    order = reverse_cuthill_mckee(sparse.csr_array(transition + transition.T), symmetric_mode=True)
    positions = (np.arange(pattern.nnz), pattern.indices, pattern.indptr)
    wanted = _reordered(sparse.csr_array(positions, shape=pattern.shape), order)
    with threads(n_threads) as pool:
        moved = _reordered(transition, order)
        parts = deflate(moved, decay, n_modes, tol=1e-3 * tol, threads=pool, dtype=dtype)
        step = (decay * moved).astype(dtype)
        met, ends = _walk_back(step, decay, parts, pool)
        found = _walk_forth(step, decay, wanted, parts, met, ends, tol, pool)
    values, bounds = np.empty(pattern.nnz), np.empty(pattern.nnz)
    values[wanted.data], bounds[wanted.data] = found.values, found.bounds
    return PairEntries(values, bounds, found.n_steps)


def _count_modes(n_rows: int, tol: float) -> int:
    wanted = LARGE_MODES if n_rows > LARGE_ROWS else LOOSE_MODES if tol > LOOSE_TOL else N_MODES
    return min(wanted, max(1, n_rows // 20))


def _reordered(matrix: sparse.csr_array, order: Integers) -> sparse.csr_array:
    moved = sparse.csr_array(matrix[order][:, order])
    moved.sort_indices()
    return moved


def _walk_back(
    step: sparse.csr_array, decay: float, parts: Deflation, pool: Threads
) -> tuple[sparse.csr_array, Ends]:
    """What the walks back have met, a row each, and where they end."""
    back = sparse.csr_array(step.T)
    met = reached = sparse.eye_array(*step.shape, dtype=step.dtype, format="csr")
    for _ in range(STEPS_BACK - 1):
        reached = sparse.csr_array(reached @ back)
        met = met + reached
    met.data *= 1 - decay
    squares = np.empty(step.shape[0])
    walk = partial(
        walk_squares, n_steps=STEPS_BACK, step=_csr(back), weights=parts.weights, squares=squares
    )
    everything = np.arange(step.shape[0])
    pool.map(partial(_on_block, walk, everything), len(everything), BLOCK_SOURCES)
    shared, scale = SharedOut(back, pool), np.sqrt(parts.weights)
    inside = _inside(_steps(shared, _scaled(parts.modes, scale), STEPS_BACK))
    left = _steps(shared, _scaled(parts.left, scale), STEPS_BACK)
    ends = Ends(left, np.sqrt(squares), _outside(squares, inside))
    return met, ends


def _walk_forth(
    step: sparse.csr_array,
    decay: float,
    pattern: sparse.csr_array,
    parts: Deflation,
    met: sparse.csr_array,
    ends: Ends,
    tol: float,
    pool: Threads,
) -> PairEntries:
    """Walk on from every row until its bounds are met."""
    shared, scale = SharedOut(step, pool), 1 / np.sqrt(parts.weights)
    right, modes = _scaled(parts.right, scale), _scaled(parts.modes, scale)
    values, bounds = np.empty(pattern.nnz), np.empty(pattern.nnz)
    worst = np.empty(step.shape[0])
    walk = partial(
        walk_rows,
        share=1 - decay,
        step=_csr(step),
        pattern=_csr(pattern)[:2],
        met=_csr(met),
        back=tuple(ends),
        constants=(1 / parts.weights, parts.gap, parts.slack, _rounding(step.dtype)),
        out=(values, bounds, worst),
    )
    late, n_steps, n_more = np.arange(step.shape[0]), 0, FIRST_STEPS
    # Bounds shrink with every step, by the root of the decay at least: this comes to an end.
    while len(late):
        n_steps += n_more
        right, modes = _steps(shared, right, n_more), _steps(shared, modes, n_more)
        walk_on = partial(walk, n_steps=n_steps, forth=(right, _inside(modes)))
        pool.map(partial(_on_block, walk_on, late), len(late), BLOCK_SOURCES)
        late = late[worst[late] > tol]
        n_more = max(1, n_steps // 4)
    return PairEntries(values, bounds, n_steps)


def _on_block(walk: Callable[[Integers], None], sources: Integers, block: slice) -> None:
    walk(sources[block])


def _steps(walk: SharedOut, block: Floats, count: int) -> Floats:
    for _ in range(count):
        block = walk @ block
    return block


def _scaled(block: Floats, scale: Floats) -> Floats:
    scaled: Floats = block * scale[:, None].astype(block.dtype)
    return scaled


def _inside(modes: Floats) -> Floats:
    squares: Floats = np.einsum("nm,nm->n", modes, modes)
    return squares


def _outside(squares: Floats, inside: Floats) -> Floats:
    """Norms outside the modes: what is left of the squares, and what rounding may hide."""
    hidden: Floats = _rounding(inside.dtype) * squares
    outside: Floats = np.sqrt(np.maximum(squares - inside, 0) + hidden)
    return outside


def _rounding(dtype: np.dtype[Any]) -> float:
    """Relative error that a sum of squares may have."""
    return 16 * float(np.finfo(dtype).eps)


def _csr(matrix: sparse.csr_array) -> tuple[Any, ...]:
    """Arrays of a sparse matrix, of the same integer types whatever its size."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data
