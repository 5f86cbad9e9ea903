"""Powers of distributions that change how sure they are, but not of what."""

from __future__ import annotations

import numpy as np

from ssdml.utils.typing import Array

CONFIDENCE_ROWS = 5000
FAINT = 1e-9  # added to probabilities before logarithms


def confidence_power(distributions: Array, confidence: float) -> float:
    """Power of distributions (n, C) under which their largest entries have the given mean.

    Examples
    --------
    >>> round(confidence_power(np.array([[0.6, 0.4]]), 0.692), 2)
    2.0
    """
    logs = np.log(distributions[:: max(1, len(distributions) // CONFIDENCE_ROWS)] + FAINT)
    gaps = logs - logs.max(axis=1, keepdims=True)
    low, high = np.log(0.05), np.log(50.0)
    for _ in range(12):  # to 0.2% of the power
        middle = (low + high) / 2
        if (1 / np.exp(gaps * np.exp(middle)).sum(axis=1)).mean() < confidence:
            low = middle
        else:
            high = middle
    return float(np.exp((low + high) / 2))
