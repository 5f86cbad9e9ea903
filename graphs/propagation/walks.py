r"""Entries of ``(1 - decay) (I - decay Q)^-1`` on given pairs, each with a bound of its error.

A walk takes T steps forward from row i, and one T' steps back from column j; between the two is the
inverse itself:

.. math:: P_{ij} = (1 - \gamma) \sum_{t < T + T'} \gamma^t (Q^t)_{ij} + r_i^\top P s_j, \qquad
    r_i = \gamma^T (Q^\top)^T e_i, \quad s_j = \gamma^{T'} Q^{T'} e_j

The last term is computed on the slow modes. Its error is at most the product of the norms of r_i
and s_j outside them, over the gap (:mod:`ssdml.graphs.propagation.deflation`). If that is too much,
walks continue.

All pairs of a row share its forward walk, and each looks back a few steps; or all pairs of a column
share its backward walk, and look forward. Columns of hubs converge last, and every row has a hub
for a neighbor. So all rows have to walk equally far, which is faster in a small graph; in a large
one, columns walk back, and only those of hubs far.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from ssdml.graphs.propagation.coarsening import near_order, reordered
from ssdml.graphs.propagation.deflation import N_MODES, Deflation, deflate
from ssdml.utils.parallel import ParallelMatrix, Threads, row_blocks, threads
from ssdml.utils.typing import Array, Ints

LOOSE_TOL, LOOSE_MODES = 0.25, 40  # in units of 1 - decay: beyond, fewer modes are faster
LARGE_ROWS = 50_000  # beyond, each cluster needs a mode, and no walk meets all rows soon
LOOKED_UP = 200  # mean number of rows that a pair looks at; more for the hubs of large graphs
MANY = 64  # look a step farther if more than one of so many rows are unfinished
MAX_WALKS, MIN_BLOCKS = 512, 64  # walks per thread at a time, and blocks for an even load
WALKED_COLUMNS = 32  # columns of n rows copied at a time
SOLVED = 1e-4  # residual of the modes, relative to the tolerance
FLOAT32_TOL = 2e-5  # tolerance below which modes are in double precision
FORGOTTEN = 1e-30  # smaller masses are dropped: below rounding, and slow to multiply


class PairEntries(NamedTuple):
    """Entries on the pairs of a pattern, in the order of its data."""

    values: Array
    bounds: Array  # of the absolute errors
    n_steps: int  # of the longest walk, there and back together


class Walks:
    """Walks from every row, and their projections on the slow modes.

    ``weights`` are those of squares of masses; ``on_modes`` and ``modes`` are changed in place.
    """

    def __init__(
        self,
        step: sparse.csr_array,
        on_modes: Array,
        modes: Array,
        weights: Array,
        pool: Threads,
    ) -> None:
        self.step, self.weights, self.n_steps = _csr(step), weights, 0
        self.on_modes, self.modes = on_modes, modes  # (n, m)
        for block in (self.on_modes, self.modes):
            block *= np.sqrt(weights)[:, None].astype(block.dtype)
        self._shared, self._pool = ParallelMatrix(step.astype(modes.dtype), pool), pool

    def go(self, count: int) -> None:
        """Take ``count`` steps, in place and some columns at a time."""
        self.n_steps += count
        for block in (self.on_modes, self.modes):
            for columns in row_blocks(block.shape[1], WALKED_COLUMNS):
                part = np.ascontiguousarray(block[:, columns])
                for _ in range(count):
                    part = self._shared @ part
                block[:, columns] = part

    @property
    def inside(self) -> Array:
        """Squared norms of the walks on the modes, (n,)."""
        return np.einsum("nm,nm->n", self.modes, self.modes, dtype=np.float64)

    @property
    def rounding(self) -> float:
        """Relative rounding error of the walks."""
        return _rounding(self.modes.dtype, self.n_steps)

    def norms(self) -> tuple[Array, Array]:
        """Compute the norms of all walks, and of their parts outside the modes."""
        everything = np.arange(len(self.weights))
        squares = np.empty(len(everything))
        measure = partial(
            walk_squares,
            n_steps=self.n_steps,
            step=self.step,
            weights=self.weights,
            squares=squares,
        )
        share_out(measure, everything, self._pool)
        outside = np.maximum(squares - self.inside, 0) + self.rounding * squares
        return np.sqrt(squares), np.sqrt(outside)


def walk_entries(
    transition: sparse.csr_array,
    decay: float,
    pattern: sparse.csr_array,
    *,
    tol: float,
    n_threads: int = 1,
    max_products: float = np.inf,
) -> PairEntries | None:
    """Compute entries of ``P`` on the pairs of a pattern, with errors of at most ``tol``.

    Parameters
    ----------
    transition : csr_array of shape (n, n)
        Rows are not negative and sum to at most 1.
    decay : float
    pattern : csr_array of shape (n, n)
        Its data are not read.
    tol : float
        If rounding prevents it, the bounds are larger. Below 2e-5 the modes are double as well:
        twice the memory.
    n_threads : int
        Never changes the result.
    max_products : float
        Give up if half of the walks are expected to need more, by how fast their bounds shrink.

    Returns
    -------
    entries : PairEntries or None
        None if it would take more products.

    Notes
    -----
    A walk of T steps costs as many products as the rows it meets have edges, whatever n is; the
    modes cost some fifty products of the transition with m columns. Memory: four arrays of n x m in
    single precision, a dozen of 2^25 entries, and some copies of the edges.
    """
    dtype = np.float32 if tol > FLOAT32_TOL else np.float64
    n_modes = _count_modes(transition.shape[0], tol / (1 - decay))
    # Walks stay among rows close in memory: three times as fast at 10^6 rows.
    order = near_order(sparse.csr_array(transition + transition.T))
    moved = reordered(transition, order)
    places = (np.arange(pattern.nnz), pattern.indices, pattern.indptr)
    wanted = reordered(sparse.csr_array(places, shape=pattern.shape), order)
    steps = decay * moved, sparse.csr_array(decay * moved.T)
    with threads(n_threads) as pool:
        parts = deflate(moved, decay, n_modes, tol=SOLVED * tol, threads=pool, dtype=dtype)
        forth = Walks(steps[0], parts.right, parts.modes.copy(), 1 / parts.weights, pool)
        back = Walks(steps[1], parts.left, parts.modes, parts.weights, pool)
        if len(order) > LARGE_ROWS:
            forth, back, wanted = back, forth, sparse.csr_array(wanted.T)
        return walk_on(forth, back, wanted, decay, parts, tol, pool, max_products)


def _count_modes(n_rows: int, tol: float) -> int:
    wanted = LOOSE_MODES if tol > LOOSE_TOL and n_rows <= LARGE_ROWS else N_MODES
    return min(wanted, max(1, n_rows // 20))


def walk_on(
    far: Walks,
    near: Walks,
    pattern: sparse.csr_array,
    decay: float,
    parts: Deflation,
    tol: float,
    pool: Threads,
    max_products: float,
) -> PairEntries | None:
    """Walk until all bounds are at most ``tol``, or rounding prevents it.

    Masses are in double precision, ``parts`` in theirs. Far walks start at the rows of the pattern,
    whose data are the places of its pairs in the result.
    """
    n = pattern.shape[0]
    values, bounds, worst, floors = *np.empty((2, pattern.nnz)), *np.empty((2, n))
    walk = partial(
        walk_pairs,
        share=1 - decay,
        far=far.step,
        near=near.step,
        pattern=_csr(pattern),
        out=(values, bounds, worst, floors),
    )
    most_met = 1 + int(np.diff(near.step[0].astype(np.int64)).max())  # terms of a sum
    branching = len(near.step[1]) / n
    first = more = 1 + int(np.log(LOOKED_UP) / np.log(max(branching, 3)))
    far.go(first + (n <= LARGE_ROWS))  # most of many columns finish a step earlier
    late, n_walked, moves = np.arange(n), 0, len(far.step[1])
    # Bounds shrink by at least the root of the decay per step, and their floors grow.
    while len(late):
        if more:
            near.go(more)
            near_ends = (near.on_modes, *near.norms())
        slack = parts.slack + (far.rounding + near.rounding) * parts.gain
        n_steps = far.n_steps + near.n_steps
        of_masses = _rounding(np.dtype(np.float64), n_steps * most_met)
        settle = partial(
            walk,
            n_far=far.n_steps,
            n_near=near.n_steps,
            far_ends=(far.on_modes, far.inside),
            near_ends=near_ends,
            constants=(far.weights, parts.gap, slack, far.rounding, of_masses),
        )
        before = worst[late]
        share_out(settle, late, pool)
        pace = (n_steps - n_walked, n_steps)
        if n_walked and products_ahead(before, worst[late], *pace, tol, moves) > max_products:
            return None
        n_walked = n_steps
        late = late[(worst[late] > tol) & (floors[late] <= tol)]
        # Looking a step farther costs as much as a walk from all rows: only for hubs of a large
        # graph.
        widens = far.n_steps == first + 1 and branching ** (far.n_steps + 1) < n
        more = int(near.n_steps == first and widens and MANY * len(late) > n)
        if len(late) and not more:
            far.go(max(1, far.n_steps // 4))
    return PairEntries(values, bounds, n_steps)


def products_ahead(
    before: Array, now: Array, n_more: int, n_steps: int, tol: float, n_edges: int
) -> float:
    """Estimate the products that half of the walks still need, at least.

    Parameters
    ----------
    before, now : arrays of shape (m,)
        Bounds of each walk's errors, before and after the last steps.
    n_more, n_steps : int
        Number of the last steps, and of all.
    tol : float
    n_edges : int
        Products of a step from all rows.

    Examples
    --------
    >>> products_ahead(np.full(8, 0.4), np.full(8, 0.2), 1, 3, 0.1, 100)  # one step more: four
    1600.0
    """
    if np.median(now) <= tol:
        return 0.0
    shrunk = np.log(np.median(before) / np.median(now)) / n_more
    if shrunk <= 0:
        return float("inf")
    return float(len(now) / 2 * n_edges * (n_steps + np.log(np.median(now) / tol) / shrunk))


def share_out(walk: Callable[[Ints], None], sources: Ints, pool: Threads) -> None:
    """Walk from all sources in threads."""
    size = min(MAX_WALKS, len(sources) // MIN_BLOCKS)
    pool.map(lambda block: walk(sources[block]), len(sources), size)


def _rounding(dtype: np.dtype[Any], n_steps: int) -> float:
    """Bound the relative rounding error of ``n_steps`` products with the same matrix."""
    return (16 + n_steps) * float(np.finfo(dtype).eps)


def _csr(matrix: sparse.csr_array) -> tuple[Any, ...]:
    """Return pointers, columns and data of a sparse matrix, of the same dtypes for any size.

    Unsigned indices save compiled loops the check for negative ones, a quarter of their time.
    """
    columns = matrix.indices.astype(np.int32, copy=False).view(np.uint32)
    return matrix.indptr.astype(np.uint64), columns, matrix.data


@njit(nogil=True)
def walk_pairs(
    sources: Any,
    n_far: int,
    n_near: int,
    share: float,
    far: Any,
    near: Any,
    pattern: Any,
    far_ends: Any,
    near_ends: Any,
    constants: Any,
    out: Any,
) -> None:
    """Write values and bounds of all pairs of the sources, and the largest bound per source.

    The far walk starts at a source, the near walk at the other end of a pair, in the opposite
    direction.

    Parameters
    ----------
    sources : array, int
    n_far, n_near : int
        Steps.
    share : float
        1 - γ.
    far, near, pattern : tuple of arrays
        Pointers, columns and data of γ Q and its transpose (or the reverse), and of the pairs by
        source, whose data are their places in ``out``.
    far_ends, near_ends : tuple of arrays
        Projections of the walks on the slow modes, with their squared norms (far) or the norms of
        the walks and of their parts outside the modes (near).
    constants : tuple
        Weights of squares of far masses, the gap, the slack for unit vectors, and the relative
        rounding errors of modes and masses.
    out : tuple of arrays
        Values and bounds of the pairs; the largest bound per source, and its part due to rounding.
    """
    pair_pointers, others, places = pattern
    from_source, inside = far_ends
    from_other, norms, outsides = near_ends
    weights, gap, slack, of_modes, of_masses = constants
    values, bounds, worst, floors = out
    here, there, seen, found, stamps = _buffers(far)
    stamp = 0
    for source in sources:
        pairs = range(pair_pointers[source], pair_pointers[source + 1])
        for pair in pairs:
            values[places[pair]] = 0.0
        here[source], seen[0], n_seen = 1, source, 1
        for _ in range(n_far):
            for pair in pairs:
                values[places[pair]] += share * here[others[pair]]
            stamp += 1
            n_seen = _move_on(far, here, there, seen, n_seen, found, stamps, stamp)
            here, there, seen, found = there, here, found, seen

        square = _weighted_square(here, seen, n_seen, weights)
        norm = np.sqrt(square)
        outside = np.sqrt(max(square - inside[source], 0.0) + of_modes * square)
        worst[source] = floors[source] = 0.0
        for pair in pairs:
            other, place = others[pair], places[pair]
            slow = 0.0
            for mode in range(from_source.shape[1]):
                slow += from_source[source, mode] * from_other[other, mode]
            walked = values[place] + share * _mass_met(near, here, other, n_near)
            values[place] = walked + share * slow
            bound = outside * outsides[other] / gap + slack * norm * norms[other]
            floor = of_masses * (walked + share)
            bounds[place] = share * bound + floor
            floors[source] = max(floors[source], floor)
            worst[source] = max(worst[source], bounds[place])
        for position in range(n_seen):
            here[seen[position]] = 0


@njit(nogil=True)
def walk_squares(sources: Any, n_steps: int, step: Any, weights: Any, squares: Any) -> None:
    """Write the weighted sum of squares of each source's masses after ``n_steps``."""
    here, there, seen, found, stamps = _buffers(step)
    stamp = 0
    for source in sources:
        here[source], seen[0], n_seen = 1, source, 1
        for _ in range(n_steps):
            stamp += 1
            n_seen = _move_on(step, here, there, seen, n_seen, found, stamps, stamp)
            here, there, seen, found = there, here, found, seen
        squares[source] = _weighted_square(here, seen, n_seen, weights)
        for position in range(n_seen):
            here[seen[position]] = 0


@njit(nogil=True)
def _buffers(step: Any) -> Any:
    """Allocate masses before and after a step, their rows, and the last step to meet each row."""
    n, dtype = len(step[0]) - 1, step[2].dtype
    rows = np.empty(n, np.uint32), np.empty(n, np.uint32)
    return np.zeros(n, dtype), np.zeros(n, dtype), rows[0], rows[1], np.zeros(n, np.int64)


@njit(nogil=True)
def _move_on(
    step: Any, here: Any, there: Any, seen: Any, n_seen: int, found: Any, stamps: Any, stamp: int
) -> int:
    """Move all masses along the edges from here to there; return how many rows hold some."""
    pointers, neighbors, moves = step
    n_found = 0
    for position in range(n_seen):
        row = seen[position]
        mass = here[row]
        here[row] = 0
        if mass < FORGOTTEN:
            continue
        for edge in range(pointers[row], pointers[row + 1]):
            column = neighbors[edge]
            if stamps[column] != stamp:
                stamps[column] = stamp
                found[n_found] = column
                n_found += 1
            there[column] += mass * moves[edge]
    return n_found


@njit(nogil=True)
def _mass_met(step: Any, masses: Any, row: int, n_steps: int) -> float:
    """Sum the masses that a walk from a row meets in fewer than ``n_steps`` steps."""
    pointers, columns, moves = step
    total = np.float64(masses[row])
    if n_steps == 2:  # the most frequent case
        for edge in range(pointers[row], pointers[row + 1]):
            total += moves[edge] * masses[columns[edge]]
    elif n_steps > 2:
        for edge in range(pointers[row], pointers[row + 1]):
            total += moves[edge] * _mass_met(step, masses, columns[edge], n_steps - 1)
    return total


@njit(nogil=True)
def _weighted_square(masses: Any, seen: Any, n_seen: int, weights: Any) -> float:
    total = 0.0
    for position in range(n_seen):
        row = seen[position]
        total += np.float64(masses[row]) ** 2 * weights[row]
    return total
