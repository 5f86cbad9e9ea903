"""The rows around an anchor, and where they stand in its picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ssdml.graphs.triplets import Triplets
from ssdml.utils.typing import Array, Ints

RING_ROWS = 10  # rows on the first ring, twice as many on the second, and so on
LEAST_GAP = 0.6  # between rows, where rings are 1 apart: 2 sin(π / 10) is 0.62
CURVE_POINTS = 21


class Neighborhood(NamedTuple):
    """An anchor and the rows around it; ends of edges and triplets are positions in ``rows``."""

    rows: Ints  # (m,): the anchor, its neighbours from near to far, other rows of its triplets
    n_neighbors: int
    edges: Ints  # (n_edges, 2), smaller position first: the edges of the graph between the rows
    affinities: Array  # (n_edges,), 0 where nothing is known
    labels: Ints | None  # (m,), -1 where unlabelled
    positives: Ints  # (n_triplets,)
    negatives: Ints  # (n_triplets,)


def neighborhood(
    anchor: int,
    neighbors: Callable[[Ints], Ints],
    *,
    affinity: Callable[[Ints, Ints], Array] | None = None,
    y: Ints | None = None,
    triplets: Triplets | None = None,
) -> Neighborhood:
    """Rows around an anchor, from the neighbours of those rows alone.

    ``neighbors`` gives the neighbours of rows as (m, k) rows, and ``affinity`` what the pairs
    (i, j) have, so that the graph of all rows need not be there.
    """
    near = neighbors(np.array([anchor]))[0].tolist()
    positives, negatives = ([], []) if triplets is None else _ends(triplets, anchor)
    place = {row: i for i, row in enumerate(dict.fromkeys([anchor, *near, *positives, *negatives]))}
    rows = np.array(list(place))
    pairs = {
        (min(i, place[j]), max(i, place[j]))
        for i, others in enumerate(neighbors(rows).tolist())
        for j in others
        if j in place
    }
    edges = np.array(sorted(pairs))
    return Neighborhood(
        rows,
        len(near),
        edges,
        np.zeros(len(edges)) if affinity is None else affinity(*rows[edges.T]),
        None if y is None else y[rows],
        np.array([place[row] for row in positives], dtype=np.int64),
        np.array([place[row] for row in negatives], dtype=np.int64),
    )


def _ends(triplets: Triplets, anchor: int) -> tuple[list[int], list[int]]:
    """Positives and negatives of the anchor's triplets."""
    anchors, positives, negatives = map(np.asarray, triplets[:3])
    mine = anchors == anchor
    return positives[mine].tolist(), negatives[mine].tolist()


def rings(shown: Neighborhood) -> list[list[int]]:
    """The anchor, its neighbours on as many rings as they need, the other rows on further ones.

    On each ring the positives come first and the negatives last; in between, and among equals,
    what is most like the anchor.
    """
    role, likeness = np.zeros((2, len(shown.rows)))
    role[shown.positives] += 1
    role[shown.negatives] -= 1
    at_anchor = shown.edges[:, 0] == 0
    likeness[shown.edges[at_anchor, 1]] = shown.affinities[at_anchor]
    last = shown.n_neighbors + 1
    found = [[0]]
    for left in (list(range(1, last)), list(range(last, len(shown.rows)))):
        while left:
            room = RING_ROWS * len(found)
            ring, left = left[:room], left[room:]
            found.append(sorted(ring, key=lambda i: (-role[i], -likeness[i])))
    return found


def positions(rings: list[list[int]]) -> Array:
    """Where each row stands, (m, 2): the anchor at the origin, the rings 1 apart."""
    import networkx

    n_rows = sum(map(len, rings))
    # Half a step of a full second ring, so that its rows look through the gaps of the first.
    rotate = np.pi / (2 * RING_ROWS)
    layout = networkx.shell_layout(
        networkx.empty_graph(n_rows), rings, rotate=rotate, scale=len(rings)
    )
    return np.array([layout[i] for i in range(n_rows)], dtype=np.float64)


def curves(starts: Array, ends: Array) -> Array:
    """A line for each edge, (n_edges, 21, 2): straight from the anchor, bent between the others.

    The middle of a bent one keeps clear of the anchor, which a line across a ring would seem to
    end at, and of the row that stands between two others of a ring.
    """
    middles = (starts + ends) / 2
    radii = np.linalg.norm(middles, axis=1)
    outer = np.maximum(np.linalg.norm(starts, axis=1), np.linalg.norm(ends, axis=1))
    aside = (ends - starts)[:, ::-1] * [-1, 1]
    # Rows that face each other have their middle at the origin, to the precision of networkx.
    directions = np.where(radii[:, None] > 1e-6, middles, aside)
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    wanted = np.clip(radii, 0.45, outer - 0.35)[:, None] * directions
    is_straight = ~starts.any(axis=1, keepdims=True)
    controls = np.where(is_straight, middles, 2 * wanted - middles)  # of a quadratic Bézier curve
    t = np.linspace(0, 1, CURVE_POINTS)[:, None]
    lines: Array = (
        (1 - t) ** 2 * starts[:, None] + 2 * t * (1 - t) * controls[:, None] + t**2 * ends[:, None]
    )
    return lines
