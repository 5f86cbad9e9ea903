"""Metrics of the neighbor search: its scores, their rounding errors, and exact distances.

Scores only pick candidates. The distances returned are computed from differences, so that nothing
cancels.
"""

from __future__ import annotations

import numpy as np

from ssdml.graphs.neighbors.rows import Rows
from ssdml.utils.typing import Array

CENTER_ROWS = 1024  # rows whose median is the center
ROUNDING = float(np.finfo(np.float32).eps)


class Euclidean:
    """Euclidean distance; scores are squared distances of centered and scaled rows."""

    inner_product = False  # whether faiss is asked for inner products

    def __init__(self, rows: Rows) -> None:
        # The median: a few rows far away must not cost the others their digits.
        chosen = np.linspace(0, len(rows) - 1, min(len(rows), CENTER_ROWS)).astype(np.int64)
        self.center = np.median(rows[chosen], axis=0).astype(rows.dtype)
        extent = float(max(np.abs(rows[block] - self.center).max() for block in rows.blocks()))
        # A power of two: the scaling itself rounds nothing.
        self.scale = float(2.0 ** np.floor(np.log2(extent))) if extent > 0 else 1.0

    def prepare(self, rows: Rows) -> Rows:
        """Return rows whose differences give the distances."""
        return rows

    def searchable(self, rows: Array, dtype: type) -> Array:
        """Move and scale rows so that scores lose few digits."""
        moved = np.subtract(rows, self.center, dtype=np.result_type(rows, dtype))
        moved /= self.scale
        return moved.astype(dtype, copy=False)

    def distances(self, left: Array, right: Array) -> Array:
        """Compute distances between rows paired along the last axis."""
        difference = left - right
        difference /= self.scale  # tiny or huge values have squares as well
        return self.scale * np.sqrt(np.einsum("...d,...d->...", difference, difference))

    def scores(self, left: Array, right: Array) -> Array:
        """Compute scores of all pairs of searchable rows."""
        scores: Array = (-2 * left) @ right.T
        scores += np.einsum("nd,nd->n", right, right)
        scores += np.einsum("nd,nd->n", left, left)[:, None]
        return scores

    def score_error(self, left: Array, reach: Array) -> Array:
        """Bound the rounding error of float32 scores of up to ``reach``, for each row of left."""
        # |x|² + |y|² - 2 x·y is off by at most about (d + 8) eps (|x| + |y|)², and a row y at
        # distance r from x has |y| <= |x| + r.
        norms = np.sqrt(np.einsum("nd,nd->n", left, left, dtype=np.float64))
        return (left.shape[1] + 8) * ROUNDING * (2 * norms + np.sqrt(np.maximum(reach, 0))) ** 2


class Cosine:
    """Cosine distance 1 - cos, where the cosine with a row of zeros counts as 0."""

    inner_product = True

    def __init__(self, rows: Rows) -> None:
        """Ignore the rows, which Euclidean needs."""

    def prepare(self, rows: Rows) -> Rows:
        """Return unit rows."""
        return rows.changed(_unit_rows)

    def searchable(self, rows: Array, dtype: type) -> Array:
        """Convert rows."""
        return rows.astype(dtype, copy=False)

    def distances(self, left: Array, right: Array) -> Array:
        """Compute distances between rows paired along the last axis."""
        # 1 - u·v = |u - v|² / 2 for unit rows, without the cancellation.
        difference = left - right
        halves = np.einsum("...d,...d->...", difference, difference) / 2
        empty = ~left.any(axis=-1) | ~right.any(axis=-1)
        return np.where(empty, halves.dtype.type(1), halves)

    def scores(self, left: Array, right: Array) -> Array:
        """Compute scores of all pairs of searchable rows."""
        return 1 - left @ right.T

    def score_error(self, left: Array, reach: Array) -> Array:
        """Bound the rounding error of float32 scores of up to ``reach``, for each row of left."""
        # Products and lengths, which should be 1, are each off by at most about d eps.
        return np.full(len(reach), 2 * (left.shape[1] + 8) * ROUNDING)


Space = Euclidean | Cosine
SPACES: dict[str, type[Space]] = {"euclidean": Euclidean, "cosine": Cosine}


def _unit_rows(rows: Array) -> Array:
    # Divided by the largest entry first: squares neither overflow nor vanish.
    largest = np.abs(rows).max(axis=-1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1)
    norms = np.sqrt(np.einsum("...d,...d->...", rows, rows))[..., None]
    rows /= np.where(norms > 0, norms, 1).astype(rows.dtype)
    return rows
