"""Triplets mined from a neighbor graph and affinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ssdml.graphs._validation import check_real, check_sound
from ssdml.graphs.neighbors.knn import KNNGraph, check_graph
from ssdml.graphs.propagation.class_masses import ClassMasses
from ssdml.utils.labels import confidences
from ssdml.utils.parallel import row_blocks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import as_array, as_generator, check_count, choose, warn

BLOCK_ANCHORS = 2**16  # anchors mined at a time
BLOCK_ROWS = 2**12  # rows whose neighbors are gathered at a time
N_TRIES = 8  # random pairs per anchor, where no class says where to look


class Triplets(NamedTuple):
    """Rows of anchors, positives (to be near) and negatives (to be far), with weights."""

    anchor: Ints  # (n_triplets,)
    positive: Ints
    negative: Ints
    weight: Array  # from 0 to 1

    def among(self, rows: Ints) -> Triplets:
        """Renumber triplets of a part of the data, given the rows of the part.

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
    """Mine weighted triplets of an anchor, a positive and a negative.

    Parameters
    ----------
    graph : KNNGraph
    affinities : ClassMasses, sparse array or ndarray of shape (n_samples, n_samples)
        From :func:`class_masses` or :func:`propagate_affinities`. A sparse array knows its stored
        pairs only.
    strategy : {"neighborhood", "propagated"}
        See Notes.
    anchors : array of int, or None
        Rows to use as anchors; None: all. :func:`graph_modes` gives the modes of the graph, the
        alternative in [1]_.
    n_triplets : int or None
        Maximum number of triplets. None: ``n_neighbors // 2`` per anchor, and for "propagated" at
        least one.
    random_state : int, Generator, RandomState or None
        Not used by "neighborhood" without ``n_triplets``.

    Returns
    -------
    triplets : Triplets
        Sorted by anchor. Empty, with a warning, if there is nothing to mine.

    Notes
    -----
    "neighborhood" is [1]_: each row's neighbors are sorted by affinity (high to low), then by
    rank in the graph; with m = k // 2, the i-th of the first m is a positive and the i-th of the
    last m its negative. An odd k leaves the middle neighbor out; weights are 1.

    "propagated" is ours. Each anchor is taken equally often. Positives are rows of positive
    affinity anywhere (with class masses: drawn from the anchor's likeliest class by confidence),
    or else neighbors. Negatives are rows of negative affinity: neighbors of the anchor, or else
    neighbors of the positive, or else rows anywhere (with class masses: drawn from the classes
    that the anchor is most easily mistaken for). Anchors that lack either are left out. The
    weight is the geometric mean of the two affinities' magnitudes, relative to the largest.

    With class masses the weight is the product over the three ends of (1 - entropy / log C)²,
    which is small if masses are spread over the classes: normalize by the sum. If two rows share
    their likeliest class but 2 F_i · F_j < (F_i 1)(F_j 1), as happens to unsure rows among many
    classes, their affinity is measured against chance, F_i · F_j > (F_i 1)(F_j 1) / C. A sparse
    array cannot tell such doubt from difference; prefer class masses.

    O(n k) memory and O((m k + n_triplets) C) time, with m the number of anchors and positives.

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
    with np.errstate(under="ignore"):  # affinities of far rows are 0, whatever the caller has set
        triplets = found_triplets(
            graph,
            affinities,
            strategy=strategy,
            anchors=anchors,
            n_triplets=n_triplets,
            random_state=random_state,
        )
    if not triplets.anchor.size:
        warn(
            f"mine_triplets: strategy={strategy!r} found no anchor with a positive and a negative; "
            "returns no triplets. Labels of two classes must reach the graph; if they "
            "do, lower decay, so that not all rows lean to one class.",
            RuntimeWarning,
        )
    return triplets


def found_triplets(
    graph: KNNGraph,
    affinities: Any,
    *,
    strategy: str,
    anchors: Any = None,
    n_triplets: int | None = None,
    random_state: Any = None,
) -> Triplets:
    """Mine triplets as :func:`mine_triplets` does, without its warning if there are none."""
    check_graph(graph, "mine_triplets")
    mine = choose(STRATEGIES, strategy, "mine_triplets: strategy")
    lookup = affinity_lookup(affinities, graph.n_samples, "mine_triplets")
    if n_triplets is not None:
        check_count(n_triplets, "n_triplets", "mine_triplets")
    rows = _check_anchors(anchors, graph.n_samples)
    rng = as_generator(random_state, "random_state", "mine_triplets")
    return mine(graph, lookup, rows, n_triplets, rng)


def _check_anchors(anchors: Any, n_samples: int) -> Ints:
    if anchors is None:
        return np.arange(n_samples)
    rows = np.unique(as_array(anchors, "mine_triplets", "anchors"))
    if not rows.size or rows.dtype.kind not in "iu" or rows[0] < 0 or rows[-1] >= n_samples:
        found = f"{rows.dtype} from {rows[0]} to {rows[-1]}" if rows.size else "none"
        way_out = " Pass numpy.flatnonzero(anchors)." if rows.dtype == bool else ""
        raise ValueError(
            f"mine_triplets: anchors must be rows from 0 to {n_samples - 1}, one at least; "
            f"got {found}.{way_out}"
        )
    return rows.astype(np.int64)


def _fill_near(
    near: Array, graph: KNNGraph, values: Callable[[Ints, Ints], Array], rows: Ints
) -> None:
    """Write the affinities of the given rows to their neighbors into an array (n, k)."""
    for place in row_blocks(len(rows), BLOCK_ROWS):
        near[rows[place]] = values(rows[place, None], graph.indices[rows[place]])


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
            "mine_triplets: graph must have at least 2 neighbors per row for "
            f"strategy='neighborhood'; got n_neighbors={graph.n_neighbors}. Copies of a row are no "
            "neighbors of each other: add rows that differ, or choose 'propagated'."
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
    remainder = rng.choice(n, n_triplets % n, replace=False)
    anchors = rows[np.sort(np.concatenate([np.tile(np.arange(n), n_triplets // n), remainder]))]
    blocks = [anchors[place] for place in row_blocks(n_triplets, BLOCK_ANCHORS)]
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
    """Draw a row of positive affinity for each anchor; the affinity is 0 or less if none is."""
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
    """Draw negatives, and keep the triplets that have one."""
    negative, to_negative = _draw_neighbor(graph, near, near[anchor] < 0, anchor, rng)
    shared, from_positive = _draw_neighbor(graph, near, near[positive] < 0, positive, rng)
    to_shared = lookup.evidence(anchor, shared)
    # If nothing is known of the pair, what opposes the positive opposes the anchor.
    to_shared = np.where(to_shared == 0, from_positive, to_shared)
    drawn = lookup.draw_dissimilar(anchor, rng)
    for candidate, affinity in ((shared, to_shared), (drawn, lookup.evidence(anchor, drawn))):
        better = (to_negative >= 0) & (affinity < 0)
        negative = np.where(better, candidate, negative)
        to_negative = np.where(better, affinity, to_negative)
    weight = lookup.weights((anchor, positive, negative), (to_positive, to_negative))
    kept = (to_positive > 0) & (to_negative < 0) & (weight > 0)
    return Triplets(anchor[kept], positive[kept], negative[kept], weight[kept])


def _draw_neighbor(
    graph: KNNGraph,
    near: Array,
    eligible: npt.NDArray[np.bool_],
    rows: Ints,
    rng: np.random.Generator,
) -> tuple[Ints, Array]:
    """Draw an eligible neighbor of each row, and its affinity: 0 if none is eligible."""
    column = (rng.random(eligible.shape) * eligible).argmax(axis=1)
    affinity = np.where(eligible.any(axis=1), near[rows, column], 0.0)
    return graph.indices[rows, column], affinity


class ArrayLookup:
    """Affinities of an (n, n) array; rows are tried at random."""

    def __init__(self, affinities: Array) -> None:
        self.affinities = affinities
        self.largest = float(np.abs(affinities).max())

    def values(self, i: Ints, j: Ints) -> Array:
        """Return affinities of the pairs (i, j); 0 if unknown."""
        return self.affinities[i, j]

    def evidence(self, i: Ints, j: Ints) -> Array:
        """Return affinities whose sign decides."""
        return self.values(i, j)

    def draw_similar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        """Draw a row for each anchor, likely of high affinity."""
        tried, values = self._try(anchor, rng)
        return tried[np.arange(len(anchor)), values.argmax(axis=1)]

    def draw_dissimilar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        """Draw a row for each anchor, likely of negative affinity."""
        tried, values = self._try(anchor, rng)
        return tried[np.arange(len(anchor)), values.argmin(axis=1)]

    def weights(self, ends: tuple[Ints, ...], affinities: tuple[Array, ...]) -> Array:
        """Weight triplets by the geometric mean of the two magnitudes."""
        return np.sqrt(np.abs(affinities[0] * affinities[1])) / (self.largest or 1.0)

    def _try(self, anchor: Ints, rng: np.random.Generator) -> tuple[Ints, Array]:
        tried = self._candidates(anchor, rng)
        values = self.values(anchor[:, None], tried)
        return tried, np.where(tried == anchor[:, None], 0.0, values)

    def _candidates(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        return rng.integers(len(self.affinities), size=(len(anchor), N_TRIES))


class EdgeLookup(ArrayLookup):
    """Affinities on edges; the anchor's own edges are tried."""

    def __init__(self, affinities: sparse.csr_array) -> None:
        edges = sparse.csr_array(affinities, copy=True)
        edges.sum_duplicates()
        self.edges, self.n = edges, edges.shape[0]
        rows = np.repeat(np.arange(self.n), np.diff(edges.indptr))
        # A last key that no pair has, so that every search ends inside.
        self.keys = np.append(rows * self.n + edges.indices, self.n**2)
        self.data = np.append(edges.data, 0.0)
        self.largest = float(np.abs(self.data).max())

    def values(self, i: Ints, j: Ints) -> Array:
        """Return affinities of the pairs (i, j); 0 if unknown."""
        wanted = np.asarray(i, np.int64) * self.n + j  # pairs need 64 bits even if rows do not
        position = np.searchsorted(self.keys, wanted)
        return np.where(self.keys[position] == wanted, self.data[position], 0.0)

    def _candidates(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        starts, ends = self.edges.indptr[anchor], self.edges.indptr[anchor + 1]
        shares = rng.random((len(anchor), N_TRIES))
        position = starts[:, None] + (shares * (ends - starts)[:, None]).astype(np.int64)
        # A row without edges reads another row's; the pair's value is 0 then.
        return np.append(self.edges.indices, 0)[position]


class MassLookup:
    """Affinities of class masses; rows are drawn by class and confidence."""

    def __init__(self, masses: ClassMasses) -> None:
        self.masses = masses
        self.totals, self.n_classes = masses.masses.sum(axis=1), masses.masses.shape[1]
        even = np.full(masses.masses.shape, 1 / self.n_classes, masses.masses.dtype)
        totals = self.totals[:, None]
        self.distributions = np.divide(masses.masses, totals, out=even, where=totals > 0)
        self.confidences = confidences(self.distributions)
        self.likeliest = self.distributions.argmax(axis=1)
        # Rows in the order of their class: a class is a stretch of the running confidence.
        self.order = np.argsort(self.likeliest, kind="stable")
        self.running = np.concatenate([[0.0], np.cumsum(self.confidences[self.order])])
        classes = np.arange(self.n_classes + 1)
        self.starts = np.searchsorted(self.likeliest[self.order], classes)

    def values(self, i: Ints, j: Ints) -> Array:
        """Return affinities of the pairs (i, j)."""
        return self.masses.affinities(i, j)

    def evidence(self, i: Ints, j: Ints) -> Array:
        """Return affinities, against chance where two unsure rows lean to one class."""
        votes, alike = self.masses.affinities(i, j), self.likeliest[i] == self.likeliest[j]
        totals = self.totals[i] * self.totals[j]
        above_chance = np.maximum((votes + totals) / 2 - totals / self.n_classes, 0.0)
        return np.where(alike & (votes < 0), above_chance, votes)

    def draw_similar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        """Draw a row for each anchor from the anchor's likeliest class."""
        return self._draw_from(self.likeliest[anchor], rng)

    def draw_dissimilar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        """Draw a row for each anchor from other classes, in proportion to the anchor's masses."""
        others = self.distributions[anchor] + np.finfo(np.float64).tiny
        others[np.arange(len(anchor)), self.likeliest[anchor]] = 0
        running = others.cumsum(axis=1)
        threshold = rng.random((len(anchor), 1)) * running[:, -1:]
        return self._draw_from((running[:, :-1] <= threshold).sum(axis=1), rng)

    def weights(self, ends: tuple[Ints, ...], affinities: tuple[Array, ...]) -> Array:
        """Weight triplets by the product of their ends' confidences."""
        return np.prod([self.confidences[end] for end in ends], axis=0)

    def _draw_from(self, classes: Ints, rng: np.random.Generator) -> Ints:
        """Draw a row of each given likeliest class, in proportion to its confidence."""
        low, high = self.running[self.starts[classes]], self.running[self.starts[classes + 1]]
        level = low + rng.random(len(classes)) * (high - low)
        position = np.searchsorted(self.running, level, side="right") - 1
        return self.order[np.minimum(position, len(self.order) - 1)]


Lookup = ArrayLookup | MassLookup


def affinity_lookup(affinities: Any, n_samples: int, who: str) -> Lookup:
    """Return the lookup for affinities of any kind."""
    if isinstance(affinities, ClassMasses):
        masses = as_array(affinities.masses, who, "affinities")
        _check(masses, (n_samples, max(masses.shape[1:2], default=0) or 1), who)
        if masses.min() < 0:
            raise ValueError(
                f"{who}: affinities must have masses of at least 0; got {masses.min()}."
            )
        return MassLookup(ClassMasses(masses))
    entries = affinities
    if not sparse.issparse(affinities):
        entries = as_array(affinities, who, "affinities")
    _check(entries, (n_samples, n_samples), who)
    return EdgeLookup(entries) if sparse.issparse(entries) else ArrayLookup(entries)


def _check(entries: Any, shape: tuple[int, ...], who: str) -> None:
    """Raise unless an array, sparse or not, has this shape and holds finite numbers."""
    check_real(entries, who, "affinities")
    if entries.shape != shape:
        raise ValueError(
            f"{who}: affinities must have shape {shape}, a row for each row of the graph; "
            f"got {entries.shape}. Pass those of propagate_affinities(graph), or class "
            "probabilities of the same rows, (n, n_classes), as ClassMasses(probabilities)."
        )
    if sparse.issparse(entries):
        check_sound(entries, who, "affinities")
        entries = sparse.csr_array(entries).data
    if not np.isfinite(entries).all():
        raise ValueError(f"{who}: affinities must be finite; got NaN or infinite entries.")
