"""How well an embedding separates the classes: clustering, retrieval and few-label accuracy.

Every score is in percent, and a row without a label (``y == -1``) never counts: not as a query,
not as a neighbor, not in a cluster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import check_rows


def calibration_error(probabilities: npt.ArrayLike, y: npt.ArrayLike, *, n_bins: int = 15) -> float:
    """Expected calibration error: how far confidence is from the share of what is right, in %.

    Parameters
    ----------
    probabilities : array-like of shape (n, n_classes)
        Of the classes in ascending order, as ``predict_proba`` gives them.
    y : array-like of shape (n,)
        Classes, all of which have a column.
    n_bins : int
        Of equal width, by the largest probability of a row.

    Returns
    -------
    error : float
        Mean over the rows of the difference between mean confidence and accuracy in their bin.

    References
    ----------
    .. [1] Naeini, Cooper, Hauskrecht, "Obtaining well calibrated probabilities using Bayesian
       binning", AAAI 2015.

    Examples
    --------
    >>> calibration_error([[0.75, 0.25]] * 4, [0, 0, 0, 1])
    0.0
    """
    proba = check_rows(probabilities, "calibration_error", "probabilities")
    classes, codes = np.unique(np.asarray(y), return_inverse=True)
    if len(codes) != len(proba) or len(classes) != proba.shape[1]:
        raise ValueError(
            "calibration_error: y must have a class for each row of probabilities, and as many "
            f"classes as columns; got {len(codes)} rows of {len(classes)} classes for shape "
            f"{proba.shape}."
        )
    bins = reliability(proba.max(axis=1), proba.argmax(axis=1) == codes, n_bins=n_bins)
    return bins.error


class Reliability(NamedTuple):
    """How often what is predicted with some confidence is right, in bins of equal width."""

    confidence: Floats  # (m,) mean of a bin, from 0 to 1; bins without a row are left out
    right: Floats  # (m,) share that is right
    counts: Ints  # (m,) rows

    @property
    def error(self) -> float:
        """Expected calibration error, in percent."""
        return float(100 * self.counts @ np.abs(self.confidence - self.right) / self.counts.sum())


def reliability(
    confidence: Array, is_right: npt.NDArray[np.bool_], *, n_bins: int = 15
) -> Reliability:
    """Bins of predictions by their confidence.

    Examples
    --------
    >>> bins = reliability(np.array([0.55, 0.56, 0.95]), np.array([True, False, True]), n_bins=10)
    >>> bins.right.tolist(), bins.counts.tolist()
    ([0.5, 1.0], [2, 1])
    """
    bins = np.minimum((confidence * n_bins).astype(np.intp), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    filled = counts > 0
    sums = [np.bincount(bins, values, minlength=n_bins) for values in (confidence, is_right)]
    mean_confidence, right = (part[filled] / counts[filled] for part in sums)
    return Reliability(mean_confidence, right, counts[filled])
