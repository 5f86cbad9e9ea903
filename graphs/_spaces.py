"""What each metric means: rows to search in, exact distances, and how far a search may err.

A search runs in float32, and its scores only pick candidates; ``distances`` computes what is
returned, from differences, so that nothing cancels.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ssdml.graphs._checks import Floats

ROUNDING_FLOAT32 = float(np.finfo(np.float32).eps)
ROUNDING_FLOAT64 = float(np.finfo(np.float64).eps)


class Space(Protocol):
    """Rows under a metric. Scores grow with the distance and cost one matrix product."""

    inner_product: bool  # what faiss is asked for: inner products, or squared distances

    def rows(self, X: Floats) -> Floats:
        """Rows whose differences give the distances."""

    def searchable(self, rows: Floats, dtype: type) -> Floats:
        """The same rows, moved and scaled so that scores lose few digits."""

    def distances(self, left: Floats, right: Floats) -> Floats:
        """Distances between rows paired along the last axis."""

    def scores(self, left: Floats, right: Floats) -> Floats:
        """Scores of all pairs of searchable rows."""

    def score_bound(self, left: Floats, distances: Floats, rounding: float) -> Floats:
        """Largest score, computed with this rounding, that a row at a distance can have."""


class Euclidean:
    """Euclidean distance; rows are centred and scaled by a power of two for the search."""

    inner_product = False

    def __init__(self, X: Floats) -> None:
        self.center = X.mean(axis=0, dtype=np.float64).astype(X.dtype)
        extent = float(
            max((X.max(axis=0) - self.center).max(), (self.center - X.min(axis=0)).max())
        )
        # A power of two: the scaling itself rounds nothing.
        self.scale = float(2.0 ** np.floor(np.log2(extent))) if extent > 0 else 1.0

    def rows(self, X: Floats) -> Floats:
        return X

    def searchable(self, rows: Floats, dtype: type) -> Floats:
        return ((rows - self.center) / self.scale).astype(dtype, copy=False)

    def distances(self, left: Floats, right: Floats) -> Floats:
        difference = (left - right) / self.scale  # tiny or huge values have squares as well
        return self.scale * np.sqrt(np.einsum("...d,...d->...", difference, difference))

    def scores(self, left: Floats, right: Floats) -> Floats:
        norms = np.einsum("nd,nd->n", left, left)[:, None] + np.einsum("nd,nd->n", right, right)
        return norms - 2 * (left @ right.T)

    def score_bound(self, left: Floats, distances: Floats, rounding: float) -> Floats:
        # |x|² + |y|² - 2 x·y in floating point is off by at most about (d + 8) eps (|x| + |y|)²,
        # and a row y at distance r from x has |y| <= |x| + r.
        norms = np.sqrt(np.einsum("nd,nd->n", left, left, dtype=np.float64))
        reach = distances.astype(np.float64) / self.scale
        return reach**2 + (left.shape[1] + 8) * rounding * (2 * norms + reach) ** 2


class Cosine:
    """1 - cos; the cosine with a row of zeros counts as 0."""

    inner_product = True

    def __init__(self, X: Floats) -> None:
        del X  # every row stands for itself

    def rows(self, X: Floats) -> Floats:
        # Divided by the largest entry first: squares neither overflow nor vanish.
        largest = np.abs(X).max(axis=1, keepdims=True)
        X = X / np.where(largest > 0, largest, 1)
        norms = np.sqrt(np.einsum("nd,nd->n", X, X))[:, None]
        return X / np.where(norms > 0, norms, 1).astype(X.dtype)

    def searchable(self, rows: Floats, dtype: type) -> Floats:
        return rows.astype(dtype, copy=False)

    def distances(self, left: Floats, right: Floats) -> Floats:
        # 1 - u·v = |u - v|² / 2 for unit rows, without the cancellation.
        difference = left - right
        halves = np.einsum("...d,...d->...", difference, difference) / 2
        empty = ~left.any(axis=-1) | ~right.any(axis=-1)
        return np.where(empty, halves.dtype.type(1), halves)

    def scores(self, left: Floats, right: Floats) -> Floats:
        return 1 - left @ right.T

    def score_bound(self, left: Floats, distances: Floats, rounding: float) -> Floats:
        return distances.astype(np.float64) + (left.shape[1] + 8) * rounding


SPACES: dict[str, type[Euclidean] | type[Cosine]] = {"euclidean": Euclidean, "cosine": Cosine}
