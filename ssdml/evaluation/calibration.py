"""Calibration of predicted probabilities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import check_rows


def calibration_error(probabilities: npt.ArrayLike, y: npt.ArrayLike, *, n_bins: int = 15) -> float:
    """Compute the expected calibration error, in percent [1]_.

    Parameters
    ----------
    probabilities : array-like of shape (n, n_classes)
        Columns in ascending order of the classes, as ``predict_proba`` gives them.
    y : array-like of shape (n,)
        True classes; each column's class must occur.
    n_bins : int
        Number of confidence bins of equal width.

    Returns
    -------
    error : float
        Difference between mean confidence and accuracy per bin, averaged over the rows.

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
    """Accuracy by confidence, in bins of equal width; empty bins are left out."""

    confidence: Floats  # (m,) mean per bin, from 0 to 1
    accuracy: Floats  # (m,) from 0 to 1
    counts: Ints  # (m,) rows per bin

    @property
    def error(self) -> float:
        """Expected calibration error, in percent."""
        return float(
            100 * self.counts @ np.abs(self.confidence - self.accuracy) / self.counts.sum()
        )


def reliability(
    confidence: Array, is_right: npt.NDArray[np.bool_], *, n_bins: int = 15
) -> Reliability:
    """Bin predictions by their confidence.

    Examples
    --------
    >>> bins = reliability(np.array([0.55, 0.56, 0.95]), np.array([True, False, True]), n_bins=10)
    >>> bins.accuracy.tolist(), bins.counts.tolist()
    ([0.5, 1.0], [2, 1])
    """
    bins = np.minimum((confidence * n_bins).astype(np.intp), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    filled = counts > 0
    sums = [np.bincount(bins, values, minlength=n_bins) for values in (confidence, is_right)]
    mean_confidence, accuracy = (part[filled] / counts[filled] for part in sums)
    return Reliability(mean_confidence, accuracy, counts[filled])
