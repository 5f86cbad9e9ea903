"""Affinities of three kinds behind one door: factored, dense, and sparse on edges."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from scipy import sparse

from ssdml.graphs._well_formed import check_real, check_sound
from ssdml.graphs.masses import ClassMasses
from ssdml.utils.typing import Array, Ints

BLOCK_ROWS = 2**14  # rows whose entropies are taken together
N_TRIES = 8  # pairs tried for each anchor, where no class says where to look


class Lookup(Protocol):
    """What a miner asks of affinities."""

    def values(self, i: Ints, j: Ints) -> Array:
        """Affinities of the pairs (i, j); 0 where nothing is known."""

    def evidence(self, i: Ints, j: Ints) -> Array:
        """The same, or what speaks more plainly: only the sign matters."""

    def draw_similar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        """One row for each anchor, likely of high affinity."""

    def draw_dissimilar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        """One row for each anchor, likely of negative affinity."""

    def weights(self, ends: tuple[Ints, ...], affinities: tuple[Array, ...]) -> Array:
        """Trust in triplets, from 0 to 1, given their ends and the affinities of their pairs."""


def affinity_lookup(affinities: Any, n_samples: int, who: str) -> Lookup:
    """The lookup for affinities of whichever kind."""
    if isinstance(affinities, ClassMasses):
        masses = np.asarray(affinities.masses)
        _check(masses, (n_samples, max(masses.shape[1:2], default=0) or 1), who)
        if masses.min() < 0:
            raise ValueError(
                f"{who}: affinities must have masses of at least 0; got {masses.min()}."
            )
        return MassLookup(ClassMasses(masses))
    if sparse.issparse(affinities):
        _check(affinities, (n_samples, n_samples), who)
        return EdgeLookup(affinities)
    matrix = np.asarray(affinities)
    _check(matrix, (n_samples, n_samples), who)
    return ArrayLookup(matrix)


def _check(entries: Any, shape: tuple[int, ...], who: str) -> None:
    """Raise unless an array, or a sparse one, has this shape and holds finite numbers."""
    check_real(entries, who, "affinities")
    if entries.shape != shape:
        raise ValueError(
            f"{who}: affinities must have shape {shape}, a row for each row of the graph; "
            f"got {entries.shape}."
        )
    if sparse.issparse(entries):
        check_sound(entries, who, "affinities")
        entries = sparse.csr_array(entries).data
    if not np.isfinite(entries).all():
        raise ValueError(f"{who}: affinities must be finite; got NaN or infinite entries.")


class MassLookup:
    """Class masses: the classes say where to look, their entropy says how far to trust."""

    def __init__(self, masses: ClassMasses) -> None:
        self.masses = masses
        self.distributions = _distributions(masses.masses)
        self.confidences = _confidences(self.distributions)
        self.likeliest = self.distributions.argmax(axis=1)
        # Rows in the order of their class: a class is a stretch of the running confidence.
        self.order = np.argsort(self.likeliest, kind="stable")
        self.running = np.concatenate([[0.0], np.cumsum(self.confidences[self.order])])
        self.totals, self.n_classes = masses.masses.sum(axis=1), masses.masses.shape[1]
        classes = np.arange(self.n_classes + 1)
        self.starts = np.searchsorted(self.likeliest[self.order], classes)

    def values(self, i: Ints, j: Ints) -> Array:
        return self.masses.affinities(i, j)

    def evidence(self, i: Ints, j: Ints) -> Array:
        # Two rows may lean to one class, neither of them sure: among many classes the vote of
        # their masses, 2 F_i·F_j < (F_i 1)(F_j 1), calls that different. There the affinity is
        # measured against chance instead, F_i·F_j > (F_i 1)(F_j 1) / C.
        votes, alike = self.masses.affinities(i, j), self.likeliest[i] == self.likeliest[j]
        totals = self.totals[i] * self.totals[j]
        above_chance = np.maximum((votes + totals) / 2 - totals / self.n_classes, 0.0)
        return np.where(alike & (votes < 0), above_chance, votes)

    def draw_similar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        return self._draw_from(self.likeliest[anchor], rng)

    def draw_dissimilar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        # From another class, as probable as the anchor's own mass makes that class.
        others = self.distributions[anchor] + np.finfo(np.float64).tiny
        others[np.arange(len(anchor)), self.likeliest[anchor]] = 0
        running = others.cumsum(axis=1)
        threshold = rng.random((len(anchor), 1)) * running[:, -1:]
        return self._draw_from((running[:, :-1] <= threshold).sum(axis=1), rng)

    def weights(self, ends: tuple[Ints, ...], affinities: tuple[Array, ...]) -> Array:
        trust: Array = np.prod([self.confidences[end] for end in ends], axis=0)
        return trust

    def _draw_from(self, classes: Ints, rng: np.random.Generator) -> Ints:
        """A row that leans to the given class, as probable as it is confident."""
        low, high = self.running[self.starts[classes]], self.running[self.starts[classes + 1]]
        level = low + rng.random(len(classes)) * (high - low)
        position = np.searchsorted(self.running, level, side="right") - 1
        return self.order[np.minimum(position, len(self.order) - 1)]


class ArrayLookup:
    """An (n, n) array: rows are tried at random, magnitudes say how far to trust."""

    def __init__(self, affinities: Array) -> None:
        self.affinities = affinities
        self.largest = float(np.abs(affinities).max())

    def values(self, i: Ints, j: Ints) -> Array:
        entries: Array = self.affinities[i, j]
        return entries

    def evidence(self, i: Ints, j: Ints) -> Array:
        return self.values(i, j)

    def draw_similar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        tried, values = self._try(anchor, rng)
        return tried[np.arange(len(anchor)), values.argmax(axis=1)]

    def draw_dissimilar(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        tried, values = self._try(anchor, rng)
        return tried[np.arange(len(anchor)), values.argmin(axis=1)]

    def weights(self, ends: tuple[Ints, ...], affinities: tuple[Array, ...]) -> Array:
        # The geometric mean of the two magnitudes.
        return np.sqrt(np.abs(affinities[0] * affinities[1])) / (self.largest or 1.0)

    def _try(self, anchor: Ints, rng: np.random.Generator) -> tuple[Ints, Array]:
        tried = self._candidates(anchor, rng)
        values = self.values(anchor[:, None], tried)
        return tried, np.where(tried == anchor[:, None], 0.0, values)

    def _candidates(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        return rng.integers(len(self.affinities), size=(len(anchor), N_TRIES))


class EdgeLookup(ArrayLookup):
    """Affinities on edges: the anchor's own edges are tried, elsewhere nothing is known."""

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
        wanted = np.asarray(i, np.int64) * self.n + j  # 32 bits do for rows, not for pairs
        position = np.searchsorted(self.keys, wanted)
        return np.where(self.keys[position] == wanted, self.data[position], 0.0)

    def _candidates(self, anchor: Ints, rng: np.random.Generator) -> Ints:
        starts, ends = self.edges.indptr[anchor], self.edges.indptr[anchor + 1]
        shares = rng.random((len(anchor), N_TRIES))
        position = starts[:, None] + (shares * (ends - starts)[:, None]).astype(np.int64)
        # A row without edges reads what is not its own; the pair's value is 0 then.
        return np.append(self.edges.indices, 0)[position]


def _distributions(masses: Array) -> Array:
    totals = masses.sum(axis=1, keepdims=True)
    even = np.full(masses.shape, 1 / masses.shape[1], masses.dtype)
    return np.divide(masses, totals, out=even, where=totals > 0)


def _confidences(distributions: Array) -> Array:
    """One minus the entropy, relative to that of all classes alike, squared."""
    n_classes = distributions.shape[1]
    if n_classes == 1:
        return np.ones(len(distributions))
    entropies = np.empty(len(distributions))
    for start in range(0, len(distributions), BLOCK_ROWS):
        block = distributions[start : start + BLOCK_ROWS]
        logarithms = np.log(np.where(block > 0, block, 1))
        entropies[start : start + BLOCK_ROWS] = -(block * logarithms).sum(axis=1)
    return np.clip(1 - entropies / np.log(n_classes), 0, 1) ** 2
