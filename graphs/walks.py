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

from ssdml.graphs._blocks import SharedOut, Threads, row_blocks, threads
from ssdml.graphs._checks import Floats, Integers
from ssdml.graphs._ordering import near_order, reordered
from ssdml.graphs._walk_rows import STEPS_BACK, walk_rows, walk_squares
from ssdml.graphs.deflation import N_MODES, Deflation, deflate

LOOSE_TOL, LOOSE_MODES = 0.25, 40  # in units of 1 - decay: beyond, fewer modes are faster
LARGE_ROWS = 50_000  # beyond, there are more clusters, and they want a mode each
FIRST_STEPS = 4
BLOCK_SOURCES = 512  # rows that a thread takes at a time
WALKED_COLUMNS = 32  # columns of n rows that are copied at a time
FLOAT32_TOL = 2e-5  # errors below which modes in single precision are too coarse a help


class PairEntries(NamedTuple):
    """Entries on the pairs of a pattern, in the order of its data."""

    values: Floats
    bounds: Floats  # of the absolute errors
    n_steps: int  # of the longest walk


class Steps(NamedTuple):
    """``decay * Q`` and its transpose."""

    forth: sparse.csr_array
    back: sparse.csr_array


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
        Where rounding in double precision allows no less, the bounds say how much it is. Below
        2e-5 the modes are double as well: twice the memory.
    n_threads : int
        The result does not depend on it.

    Returns
    -------
    entries : PairEntries

    Notes
    -----
    A walk of T steps costs as many products as there are edges about the rows it meets, whatever
    n is; the modes cost some fifty products of the transition with m columns. Memory: four arrays
    of n x m in single precision, a dozen of 2^25 entries beside them, and some copies of the edges.

    Examples
    --------
    >>> swap = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> walk_entries(swap, 0.5, swap, tol=1e-8).values.round(6)
    array([0.333333, 0.333333])
    """
    dtype = np.float32 if tol > FLOAT32_TOL else np.float64
    n_modes = _count_modes(transition.shape[0], tol / (1 - decay))
    # Walks stay among rows that lie together in memory: three times as fast at 10^6 rows.
    order = near_order(sparse.csr_array(transition + transition.T))
    moved = reordered(transition, order)
    places = (np.arange(pattern.nnz), pattern.indices, pattern.indptr)
    wanted = reordered(sparse.csr_array(places, shape=pattern.shape), order)
    steps = Steps(decay * moved, sparse.csr_array(decay * moved.T))
    with threads(n_threads) as pool:
        parts = deflate(moved, decay, n_modes, tol=1e-3 * tol, threads=pool, dtype=dtype)
        ends = _walk_back(steps.back, parts, pool)
        return _walk_forth(steps, decay, wanted, parts, ends, tol, pool)


def _count_modes(n_rows: int, tol: float) -> int:
    wanted = LOOSE_MODES if tol > LOOSE_TOL and n_rows <= LARGE_ROWS else N_MODES
    return min(wanted, max(1, n_rows // 20))


def _walk_back(back: sparse.csr_array, parts: Deflation, pool: Threads) -> Ends:
    """Where the walks back end; ``parts.left`` goes along with them, in place."""
    squares = np.empty(back.shape[0])
    walk = partial(
        walk_squares, n_steps=STEPS_BACK, step=_csr(back), weights=parts.weights, squares=squares
    )
    everything = np.arange(back.shape[0])
    pool.map(partial(_on_block, walk, everything), len(everything), BLOCK_SOURCES)
    left, modes = parts.left, parts.modes.copy()
    shared, scale = SharedOut(back.astype(modes.dtype), pool), np.sqrt(parts.weights)
    for block in (left, modes):
        _scale(block, scale)
        _walk_on(shared, block, STEPS_BACK)
    rounding = _rounding(modes.dtype, STEPS_BACK)
    outside = np.sqrt(np.maximum(squares - _inside(modes), 0) + rounding * squares)
    return Ends(left, np.sqrt(squares), outside)


def _walk_forth(
    steps: Steps,
    decay: float,
    pattern: sparse.csr_array,
    parts: Deflation,
    ends: Ends,
    tol: float,
    pool: Threads,
) -> PairEntries:
    """Walk on from every row until its bounds are met, or rounding alone is beyond them.

    Masses walk in double precision, ``parts`` go along in theirs, in place. The data of
    the pattern are the places of its pairs in the result.
    """
    right, modes = parts.right, parts.modes
    shared, scale = SharedOut(steps.forth.astype(modes.dtype), pool), 1 / np.sqrt(parts.weights)
    _scale(right, scale)
    _scale(modes, scale)
    n = steps.forth.shape[0]
    values, bounds, worst, floors = *np.empty((2, pattern.nnz)), *np.empty((2, n))
    walk = partial(
        walk_rows,
        share=1 - decay,
        forth=_csr(steps.forth),
        back=_csr(steps.back),
        pattern=_csr(pattern),
        back_ends=tuple(ends),
        out=(values, bounds, worst, floors),
    )
    late, n_steps, n_more = np.arange(n), 0, FIRST_STEPS
    most_met = 1 + int(np.diff(steps.back.indptr).max())  # masses that are added up in a row
    # Bounds shrink with every step, by the root of the decay at least, and their floors grow.
    while len(late):
        n_steps += n_more
        _walk_on(shared, right, n_more)
        _walk_on(shared, modes, n_more)
        rounding = _rounding(modes.dtype, n_steps)
        slack = parts.slack + rounding * parts.gain
        of_masses = _rounding(np.dtype(np.float64), n_steps * most_met)
        walk_on = partial(
            walk,
            n_steps=n_steps,
            forth_ends=(right, _inside(modes)),
            constants=(1 / parts.weights, parts.gap, slack, rounding, of_masses),
        )
        pool.map(partial(_on_block, walk_on, late), len(late), BLOCK_SOURCES)
        late = late[(worst[late] > tol) & (floors[late] <= tol)]
        n_more = max(1, n_steps // 4)
    return PairEntries(values, bounds, n_steps)


def _on_block(walk: Callable[[Integers], None], sources: Integers, block: slice) -> None:
    walk(sources[block])


def _walk_on(walk: SharedOut, block: Floats, count: int) -> None:
    """So many products in place, on some columns at a time: only these are ever held twice."""
    for columns in row_blocks(block.shape[1], WALKED_COLUMNS):
        part = np.ascontiguousarray(block[:, columns])
        for _ in range(count):
            part = walk @ part
        block[:, columns] = part


def _scale(block: Floats, scale: Floats) -> None:
    block *= scale[:, None].astype(block.dtype)


def _inside(modes: Floats) -> Floats:
    squares: Floats = np.einsum("nm,nm->n", modes, modes, dtype=np.float64)
    return squares


def _rounding(dtype: np.dtype[Any], n_steps: int) -> float:
    """Relative error of what has walked so many steps.

    It is multiplied by γ Q in each of them, whose rounding goes the same way every time.
    """
    return (16 + n_steps) * float(np.finfo(dtype).eps)


def _csr(matrix: sparse.csr_array) -> tuple[Any, ...]:
    """Pointers, columns and data of a sparse matrix, of the same types whatever its size.

    Compiled loops look for negative indices unless these are unsigned: a quarter of their time.
    """
    columns = matrix.indices.astype(np.int32, copy=False).view(np.uint32)
    return matrix.indptr.astype(np.uint64), columns, matrix.data
