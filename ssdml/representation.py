"""What the residual backbone makes of a row: its unit embedding, with the input beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ssdml.linalg import unit_rows
from ssdml.utils.typing import Array


class ResidualRepresentation(NamedTuple):
    """A trained residual head under a metric L, as arrays; calling it needs no torch."""

    mean: Array  # (d,)
    scale: Array  # ()
    hidden_weight: Array  # (h, d)
    hidden_bias: Array  # (h,)
    output_weight: Array  # (d, h)
    output_bias: Array  # (d,)
    metric: Array  # L, (d, l)

    def __call__(self, X: Array) -> Array:
        """``[unit(f(x) @ L), x]`` of each row, (n, l + d), in the precision of X."""
        return np.hstack([self.embed(X), X])

    def embed(self, X: Array) -> Array:
        """``unit(f(x) @ L)`` of each row, with ``f(x) = x̂ + B relu(A x̂ + a) + b``."""
        features: Array = self.features(X)
        return unit_rows(features @ self.metric.astype(X.dtype))

    def features(self, X: Array) -> Array:
        """``f(x)``: the standardised row, bent by the hidden layer."""
        mean, scale, A, a, B, b = (part.astype(X.dtype) for part in self[:6])
        centered = (X - mean) * scale
        features: Array = centered + np.maximum(centered @ A.T + a, 0) @ B.T + b
        return features
