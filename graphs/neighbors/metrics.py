"""What each metric means: rows to search in, exact distances, and how far a search may err.

A search runs in float32, and its scores only pick candidates; ``distances`` computes what is
returned, from differences, so that nothing cancels.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ssdml.graphs.neighbors.rows import Rows
from ssdml.utils.typing import Array

ROUNDING_FLOAT32 = float(np.finfo(np.float32).eps)
ROUNDING_FLOAT64 = float(np.finfo(np.float64).eps)


class Space(Protocol):
    """Rows under a metric. Scores grow with the distance and cost one matrix product."""

    inner_product: bool  # what faiss is asked for: inner products, or squared distances

    def prepare(self, rows: Rows) -> Rows:
        """Rows whose differences give the distances."""

    def searchable(self, rows: Array, dtype: type) -> Array:
        """The same rows, moved and scaled so that scores lose few digits."""

    def distances(self, left: Array, right: Array) -> Array:
        """Distances between rows paired along the last axis."""

    def scores(self, left: Array, right: Array) -> Array:
        """Scores of all pairs of searchable rows."""

    def score_bound(self, left: Array, distances: Array, rounding: float) -> Array:
        """Largest score, computed with this rounding, that a row at a distance can have."""


class Euclidean:
    """Euclidean distance; rows are centered and scaled by a power of two for the search."""

    inner_product = False

    def __init__(self, rows: Rows) -> None:
        blocks = rows.blocks()
        sums = [rows[block].sum(axis=0, dtype=np.float64) for block in blocks]
        self.center = (np.sum(sums, axis=0) / len(rows)).astype(rows.dtype)
        extent = float(max(np.abs(rows[block] - self.center).max() for block in blocks))
        # A power of two: the scaling itself rounds nothing.
        self.scale = float(2.0 ** np.floor(np.log2(extent))) if extent > 0 else 1.0

    def prepare(self, rows: Rows) -> Rows:
        return rows

    def searchable(self, rows: Array, dtype: type) -> Array:
        moved = np.subtract(rows, self.center, dtype=np.result_type(rows, dtype))
        moved /= self.scale
        return moved.astype(dtype, copy=False)

    def distances(self, left: Array, right: Array) -> Array:
        difference = left - right
        difference /= self.scale  # tiny or huge values have squares as well
        return self.scale * np.sqrt(np.einsum("...d,...d->...", difference, difference))

    def scores(self, left: Array, right: Array) -> Array:
        norms = np.einsum("nd,nd->n", left, left)[:, None] + np.einsum("nd,nd->n", right, right)
        return norms - 2 * (left @ right.T)

    def score_bound(self, left: Array, distances: Array, rounding: float) -> Array:
        # |x|² + |y|² - 2 x·y in floating point is off by at most about (d + 8) eps (|x| + |y|)²,
        # and a row y at distance r from x has |y| <= |x| + r.
        # Distances are off by a part themselves: at most about (d / 2 + 3) eps of their dtype.
        norms = np.sqrt(np.einsum("nd,nd->n", left, left, dtype=np.float64))
        terms = left.shape[1] + 8
        reach = distances.astype(np.float64) / self.scale
        reach *= 1 + terms * float(np.finfo(distances.dtype).eps)
        return reach**2 + terms * rounding * (2 * norms + reach) ** 2


class Cosine:
    """1 - cos; the cosine with a row of zeros counts as 0."""

    inner_product = True

    def __init__(self, rows: Rows) -> None:
        del rows  # every row stands for itself

    def prepare(self, rows: Rows) -> Rows:
        return rows.changed(_unit_rows)

    def searchable(self, rows: Array, dtype: type) -> Array:
        return rows.astype(dtype, copy=False)

    def distances(self, left: Array, right: Array) -> Array:
        # 1 - u·v = |u - v|² / 2 for unit rows, without the cancellation.
        difference = left - right
        halves = np.einsum("...d,...d->...", difference, difference) / 2
        empty = ~left.any(axis=-1) | ~right.any(axis=-1)
        return np.where(empty, halves.dtype.type(1), halves)

    def scores(self, left: Array, right: Array) -> Array:
        return 1 - left @ right.T

    def score_bound(self, left: Array, distances: Array, rounding: float) -> Array:
        # Products are off by about d eps, and so are lengths (which should be 1) and distances, in
        # the dtype of the rows.
        rounding += 3 * float(np.finfo(distances.dtype).eps)
        return distances.astype(np.float64) + (left.shape[1] + 8) * rounding


def _unit_rows(rows: Array) -> Array:
    # Divided by the largest entry first: squares neither overflow nor vanish.
    largest = np.abs(rows).max(axis=-1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1)
    norms = np.sqrt(np.einsum("...d,...d->...", rows, rows))[..., None]
    rows /= np.where(norms > 0, norms, 1).astype(rows.dtype)
    return rows


SPACES: dict[str, type[Euclidean] | type[Cosine]] = {"euclidean": Euclidean, "cosine": Cosine}
