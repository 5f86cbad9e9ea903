"""Triplets mined from a neighbour graph and the affinities on it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.graphs._checks import as_generator, choose
from ssdml.graphs._lookup import Lookup, affinity_lookup
from ssdml.graphs.neighbors import KNNGraph, check_graph
from ssdml.utils.typing import Array, Ints

BLOCK_ANCHORS = 2**16  # anchors mined at a time
BLOCK_ROWS = 2**12  # rows whose neighbours are looked at together


class Triplets(NamedTuple):
    """Rows of an anchor, of one it should be near to, and of one it should be far from."""

    anchor: Ints  # (n_triplets,)
    positive: Ints
    negative: Ints
    weight: Array  # from 0 to 1

    def among(self, rows: Ints) -> Triplets:
        """The same triplets of a part as rows of the whole; ``rows`` are the part's.

        Examples
        --------
        >>> one = np.array([0])
        >>> Triplets(one, one + 1, one + 2, np.ones(1)).among(np.array([4, 7, 9])).negative
        array([9])
        """
        return Triplets(rows[self.anchor], rows[self.positive], rows[self.negative], self.weight)


def mine_triplets(
    graph: KNNGraph,
    affinities: Any,
    *,
    strategy: str = "propagated",
    anchors: Any = None,
    n_triplets: int | None = None,
    random_state: Any = None,
) -> Triplets:
    """Triplets of an anchor, a positive and a negative, with weights.

    Parameters
    ----------
    graph : KNNGraph
    affinities : ClassMasses, sparse array or ndarray of shape (n_samples, n_samples)
        From :func:`class_masses` or :func:`propagate_affinities`. A sparse array knows its stored
        pairs only.
    strategy : {"neighborhood", "propagated"}
        See Notes.
    anchors : array of int, or None
        Rows that triplets start from; None: all. :func:`graph_modes` gives the modes of the graph,
        which seed 003 allows as well.
    n_triplets : int or None
        At most so many. None: as many as "neighborhood" makes, ``n_neighbors // 2`` an anchor, and
        at least one an anchor for "propagated".
    random_state : int, Generator, RandomState or None
        Not used by "neighborhood" unless ``n_triplets`` asks for a part.

    Returns
    -------
    triplets : Triplets
        Sorted by anchor. Empty, with a warning, if there is nothing to mine.

    Notes
    -----
    "neighborhood" is [1]_: each row's neighbours are sorted by affinity (high to low), then by
    rank in the graph; with m = k // 2, the i-th of the first m is a positive and the i-th of the
    last m the negative that goes with it. An odd k leaves the middle neighbour out; weights are 1.

    "propagated" is ours. Each anchor is taken equally often. Positives are rows of positive
    affinity anywhere (with class masses: drawn from the anchor's likeliest class by confidence),
    or else among the neighbours. Negatives are rows of negative affinity: neighbours of the anchor
    if there are such, or else neighbours of the positive, or else rows anywhere (with class
    masses: drawn from the classes that the anchor is most easily mistaken for). An anchor that
    lacks either is left out. The weight is the geometric mean of the two affinities' magnitudes,
    relative to the largest.

    With class masses the weight is the product over the three ends of (1 - entropy / log C)²,
    which is small where masses are spread over the classes: normalise by the sum. And where two
    rows share their likeliest class but the vote 2 F_i · F_j < (F_i 1)(F_j 1) calls them
    different, as happens to unsure rows among many classes, affinity is measured against chance,
    F_i · F_j > (F_i 1)(F_j 1) / C. A sparse array cannot tell such doubt from difference; prefer
    class masses.

    O(n k) memory and O((m k + n_triplets) C) time, where m is the number of anchors and positives.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, section "Triplet mining using affinity propagation".

    Examples
    --------
    >>> graph = KNNGraph(np.array([[1, 2], [0, 2], [1, 0]]), np.ones((3, 2)))
    >>> W = np.array([[1.0, -0.5, 0.5], [-0.5, 1.0, 0.2], [0.5, 0.2, 1.0]])
    >>> mine_triplets(graph, W, strategy="neighborhood").positive
    array([2, 2, 0])
    """
    check_graph(graph, "mine_triplets")
    mine = choose(STRATEGIES, strategy, "mine_triplets: strategy")
    lookup = affinity_lookup(affinities, graph.n_samples, "mine_triplets")
    _check_n_triplets(n_triplets)
    rows = _check_anchors(anchors, graph.n_samples)
    triplets = mine(graph, lookup, rows, n_triplets, as_generator(random_state))
    if not triplets.anchor.size:
        warnings.warn(
            f"mine_triplets: strategy={strategy!r} found no anchor with a positive and a negative; "
            "returns no triplets. Labels of two classes must reach the graph.",
            RuntimeWarning,
            stacklevel=2,
        )
    return triplets


def _check_n_triplets(n_triplets: Any) -> None:
    if n_triplets is None:
        return
    if isinstance(n_triplets, bool | np.bool_) or not isinstance(n_triplets, int | np.integer):
        raise TypeError(
            f"mine_triplets: n_triplets must be an integer or None; got {n_triplets!r}."
        )
    if n_triplets < 1:
        raise ValueError(f"mine_triplets: n_triplets must be at least 1; got {n_triplets}.")


def _check_anchors(anchors: Any, n_samples: int) -> Ints:
    if anchors is None:
        return np.arange(n_samples)
    rows = np.unique(anchors)
    if not rows.size or rows.dtype.kind not in "iu" or rows[0] < 0 or rows[-1] >= n_samples:
        raise ValueError(
            f"mine_triplets: anchors must be rows from 0 to {n_samples - 1}, one at least; "
            f"got {anchors!r}."
        )
    return rows.astype(np.int64)


def _fill_near(
    near: Array,
    graph: KNNGraph,
    values: Callable[[Ints, Ints], Array],
    rows: Ints,
) -> None:
    """Write the affinities of the given rows to their neighbours into an array (n, k)."""
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        near[block] = values(block[:, None], graph.indices[block])


def _mine_neighborhood(
    graph: KNNGraph,
    lookup: Lookup,
    rows: Ints,
    n_triplets: int | None,
    rng: np.random.Generator,
) -> Triplets:
    half = graph.n_neighbors // 2
    if half < 1:
        raise ValueError(
            "mine_triplets: graph must have at least 2 neighbours a row for "
            f"strategy='neighborhood'; got n_neighbors={graph.n_neighbors}."
        )
    near = np.empty(graph.indices.shape)
    _fill_near(near, graph, lookup.values, rows)
    order = np.argsort(-near[rows], axis=1, kind="stable")
    ranked = np.take_along_axis(graph.indices[rows], order, axis=1)
    anchor = np.repeat(rows, half)
    positive, negative = ranked[:, :half].ravel(), ranked[:, -half:].ravel()
    if n_triplets is not None and n_triplets < anchor.size:
        chosen = np.sort(rng.choice(anchor.size, n_triplets, replace=False))
        anchor, positive, negative = anchor[chosen], positive[chosen], negative[chosen]
    return Triplets(anchor, positive, negative, np.ones(anchor.size))


def _mine_propagated(
    graph: KNNGraph,
    lookup: Lookup,
    rows: Ints,
    n_triplets: int | None,
    rng: np.random.Generator,
) -> Triplets:
    n = len(rows)
    if n_triplets is None:
        n_triplets = n * max(1, graph.n_neighbors // 2)
    left_over = rng.choice(n, n_triplets % n, replace=False)
    anchors = rows[np.sort(np.concatenate([np.tile(np.arange(n), n_triplets // n), left_over]))]
    blocks = [anchors[i : i + BLOCK_ANCHORS] for i in range(0, n_triplets, BLOCK_ANCHORS)]
    near = np.empty(graph.indices.shape)
    _fill_near(near, graph, lookup.evidence, np.unique(anchors))
    positives = [_draw_positive(graph, lookup, near, block, rng) for block in blocks]
    drawn = np.unique(np.concatenate([rows for rows, _ in positives]))
    _fill_near(near, graph, lookup.evidence, np.setdiff1d(drawn, anchors))
    parts = [
        _with_negatives(graph, lookup, near, anchor, *positive, rng)
        for anchor, positive in zip(blocks, positives, strict=True)
    ]
    return Triplets(*(np.concatenate(part) for part in zip(*parts, strict=True)))


STRATEGIES = {"neighborhood": _mine_neighborhood, "propagated": _mine_propagated}


def _draw_positive(
    graph: KNNGraph, lookup: Lookup, near: Array, anchor: Ints, rng: np.random.Generator
) -> tuple[Ints, Array]:
    """A row of positive affinity for each anchor, and that affinity; not positive if none is."""
    positive = lookup.draw_similar(anchor, rng)
    affinity = lookup.evidence(anchor, positive)
    found = (affinity > 0) & (positive != anchor)
    neighbor, to_neighbor = _draw_neighbor(graph, near, near[anchor] > 0, anchor, rng)
    return np.where(found, positive, neighbor), np.where(found, affinity, to_neighbor)


def _with_negatives(
    graph: KNNGraph,
    lookup: Lookup,
    near: Array,
    anchor: Ints,
    positive: Ints,
    to_positive: Array,
    rng: np.random.Generator,
) -> Triplets:
    """Triplets of anchors and positives for which there is a negative."""
    negative, to_negative = _draw_neighbor(graph, near, near[anchor] < 0, anchor, rng)
    shared, from_positive = _draw_neighbor(graph, near, near[positive] < 0, positive, rng)
    to_shared = lookup.evidence(anchor, shared)
    # What opposes the positive opposes the anchor, where nothing is known of the pair itself.
    to_shared = np.where(to_shared == 0, from_positive, to_shared)
    drawn = lookup.draw_dissimilar(anchor, rng)
    for candidate, affinity in ((shared, to_shared), (drawn, lookup.evidence(anchor, drawn))):
        better = (to_negative >= 0) & (affinity < 0)
        negative = np.where(better, candidate, negative)
        to_negative = np.where(better, affinity, to_negative)

    ends = (anchor, positive, negative)
    weight = lookup.weights(ends, (to_positive, to_negative))
    kept = (to_positive > 0) & (to_negative < 0) & (weight > 0)
    return Triplets(anchor[kept], positive[kept], negative[kept], weight[kept])


def _draw_neighbor(
    graph: KNNGraph,
    near: Array,
    eligible: npt.NDArray[np.bool_],
    rows: Ints,
    rng: np.random.Generator,
) -> tuple[Ints, Array]:
    """An eligible neighbour of each row, drawn evenly, and its affinity: 0 if there is none."""
    column = (rng.random(eligible.shape) * eligible).argmax(axis=1)
    affinity = np.where(eligible.any(axis=1), near[rows, column], 0.0)
    return graph.indices[rows, column], affinity
