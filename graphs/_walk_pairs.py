"""The walk from one row after another, compiled: all that is not array algebra in walks.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FORGOTTEN = 1e-30  # masses below go no further: far below rounding, and slow to multiply


@njit(nogil=True, cache=True)
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
    """Write values and bounds of all pairs of the sources, and the largest bound of each.

    From a source one walks far, along γ Q or back; from the other end of a pair one looks, the
    other way, at the rows a few steps away.

    Parameters
    ----------
    sources : array, int
    n_far, n_near : int
        Steps.
    share : float
        1 - γ.
    far, near, pattern : tuple of arrays
        Pointers, columns and data of γ Q and of its transpose, or the other way round, and of the
        pairs by sources, whose data are their places in ``out``.
    far_ends, near_ends : tuple of arrays
        What the walks have on the slow modes when they end, and the squares of it (far) or the
        norms of all and of what is outside the modes (near).
    constants : tuple
        Weights of squares of masses that walk far, the gap, the slack for unit vectors, and the
        relative rounding of modes and of masses after all steps.
    out : tuple of arrays
        Values and bounds of the pairs; the largest bound of each source, and what of it no walk
        ends.
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


@njit(nogil=True, cache=True)
def walk_squares(sources: Any, n_steps: int, step: Any, weights: Any, squares: Any) -> None:
    """Write the weighted sum of squares of what a walk of so many steps has left, by source."""
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


@njit(nogil=True, cache=True)
def _buffers(step: Any) -> Any:
    """Masses before and after a step, the rows that hold them, and the step that met a row last."""
    n, dtype = len(step[0]) - 1, step[2].dtype
    rows = np.empty(n, np.uint32), np.empty(n, np.uint32)
    return np.zeros(n, dtype), np.zeros(n, dtype), rows[0], rows[1], np.zeros(n, np.int64)


@njit(nogil=True, cache=True)
def _move_on(
    step: Any, here: Any, there: Any, seen: Any, n_seen: int, found: Any, stamps: Any, stamp: int
) -> int:
    """Move all masses along the edges, from here to there; returns how many rows hold some."""
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


@njit(nogil=True, cache=True)
def _mass_met(step: Any, masses: Any, row: int, n_steps: int) -> float:
    """Mass that a walk of so many steps from a row meets, the last one not counted."""
    pointers, columns, moves = step
    total = np.float64(masses[row])
    if n_steps == 2:  # most calls end here
        for edge in range(pointers[row], pointers[row + 1]):
            total += moves[edge] * masses[columns[edge]]
    elif n_steps > 2:
        for edge in range(pointers[row], pointers[row + 1]):
            total += moves[edge] * _mass_met(step, masses, columns[edge], n_steps - 1)
    return total


@njit(nogil=True, cache=True)
def _weighted_square(masses: Any, seen: Any, n_seen: int, weights: Any) -> float:
    total = 0.0
    for position in range(n_seen):
        row = seen[position]
        total += np.float64(masses[row]) ** 2 * weights[row]
    return total
