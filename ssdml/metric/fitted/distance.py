"""The learned distance between two rows, as a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ssdml.utils.typing import Array

LAST_ROWS = 10_000  # whose embeddings are cached


class RowDistance:
    """Distance between the embeddings of two rows; it can be copied and pickled.

    Examples
    --------
    >>> distance = RowDistance(lambda X, who: 2 * X, 2, "who")
    >>> distance([0.0, 0.0], [3.0, 4.0])
    10.0
    """

    def __init__(self, embedder: Callable[..., Array], n_features: int, who: str) -> None:
        self.embedder, self.n_features, self.who = embedder, n_features, who
        self._embedding = lru_cache(LAST_ROWS)(self._embed)

    def __call__(self, u: Any, v: Any) -> float:
        """Compute the distance between two rows of ``n_features`` numbers."""
        one, two = (self._embedding(self._bytes(row)) for row in (u, v))
        return float(np.linalg.norm(one - two))

    def __reduce__(self) -> tuple[type[RowDistance], tuple[Any, ...]]:
        """Leave the cache out."""
        return type(self), (self.embedder, self.n_features, self.who)

    def _bytes(self, row: Any) -> bytes:
        entries = np.asarray(row, dtype=np.float64)
        if entries.size != self.n_features:
            raise ValueError(
                f"{self.who}: rows must have {self.n_features} entries, as those of the fit; got "
                f"shape {entries.shape}. Of pairs of rows, call pair_distance."
            )
        return entries.tobytes()

    def _embed(self, row: bytes) -> Array:
        embedding: Array = self.embedder(np.frombuffer(row)[None], who=self.who)[0]
        return embedding
