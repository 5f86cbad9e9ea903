"""Calibration of predicted probabilities."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.evaluation.scores import codes_of_rows
from ssdml.utils.labels import as_labels, check_same_kind
from ssdml.utils.typing import Floats, Ints
from ssdml.utils.validation import (
    UNLABELED,
    as_array,
    check_count,
    check_rows,
    warn,
    without_container,
)

MOST_BINS = 10**6
KINDS = ("fb", "ib", "ub")  # of confidences and of what is right
ROUNDING = 1e-3  # of probabilities in half precision, summed over many classes


def calibration_error(
    probabilities: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    classes: npt.ArrayLike | None = None,
    n_bins: int = 15,
) -> float:
    """Compute the expected calibration error, in percent [1]_.

    Parameters
    ----------
    probabilities : array-like of shape (n, n_classes)
        Columns in ascending order of the classes, as ``predict_proba`` gives them.
    y : array-like of shape (n,)
        True classes. Rows with -1 (or None, NaN, "") are left out.
    classes : array-like of shape (n_classes,), optional
        The class of each column, ``model.classes_``; a row of another class counts as wrong. None:
        the columns of a DataFrame that are named after the classes of y, else these classes, if
        they are as many as columns.
    n_bins : int
        Number of confidence bins of equal width.

    Returns
    -------
    error : float
        Difference between mean confidence and accuracy per bin, averaged over the rows.

    Raises
    ------
    ValueError
        If rows are not distributions, y has another length or no label, or the columns are not as
        many as the classes.

    Warns
    -----
    UserWarning
        If y has fewer classes than columns, all of them numbers of columns, and `classes` is None.

    References
    ----------
    .. [1] Naeini, Cooper, Hauskrecht, "Obtaining well calibrated probabilities using Bayesian
       binning", AAAI 2015.

    Examples
    --------
    >>> calibration_error([[0.75, 0.25]] * 4, [0, 0, 0, 1])
    0.0

    No row is of the last class, and one has no label:

    >>> calibration_error([[0.5, 0.5, 0.0]] * 3, ["a", "b", None], classes=["a", "b", "c"])
    0.0
    """
    who = "calibration_error"
    _check_n_bins(n_bins, who)
    if np.ndim(without_container(probabilities, who, "probabilities")) == 1:
        raise ValueError(
            f"{who}: probabilities must have a column per class; got shape "
            f"{np.shape(probabilities)}. Of two classes, pass numpy.column_stack([1 - p, p])."
        )
    proba = check_rows(probabilities, who, "probabilities")
    _check_distributions(proba, who)
    codes, found = codes_of_rows(y, len(proba), who, ("probabilities", "y"))
    known = codes != UNLABELED
    names = getattr(probabilities, "column_names", getattr(probabilities, "columns", None))
    if classes is None and names is not None and set(names).issuperset(found.tolist()):
        classes = list(names)
    columns = _column_classes(found, proba.shape[1], classes, who)
    predicted = columns[proba[known].argmax(axis=1)]
    bins = reliability(proba[known].max(axis=1), predicted == found[codes[known]], n_bins=n_bins)
    return bins.error


def _column_classes(
    found: npt.NDArray[Any], n_columns: int, classes: npt.ArrayLike | None, who: str
) -> npt.NDArray[Any]:
    """Return the class of each column."""
    columns = found if classes is None else as_labels(classes, who, "classes")
    if classes is not None:
        check_same_kind(columns, found, who, ("classes", "y"))
        if len(set(columns.tolist())) < len(columns):
            raise ValueError(
                f"{who}: classes must differ; got {columns.tolist()}. Pass model.classes_."
            )
    if len(columns) == n_columns:
        return columns
    numbers = np.arange(n_columns)
    if classes is None and found.dtype.kind == "i" and np.isin(found, numbers).all():
        warn(
            f"{who}: y has {len(found)} of {n_columns} classes, and its numbers are taken for "
            "those of the columns. Pass classes=model.classes_."
        )
        return numbers
    raise ValueError(
        f"{who}: {'y' if classes is None else 'classes'} must name the class of each column; got "
        f"{len(columns)} classes for {n_columns} columns. Pass classes=model.classes_."
    )


def _check_distributions(proba: npt.NDArray[Any], who: str) -> None:
    """Raise on the first row that is not a distribution."""
    wrong = (proba < -ROUNDING).any(axis=1) | (np.abs(proba.sum(axis=1) - 1) > ROUNDING)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"{who}: probabilities must be at least 0 and sum to 1 in each row; got "
            f"{proba[row].tolist()} in row {row}. Pass the result of predict_proba."
        )


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
    confidence: npt.ArrayLike, is_right: npt.ArrayLike, *, n_bins: int = 15
) -> Reliability:
    """Bin predictions by their confidence.

    Parameters
    ----------
    confidence : array-like of shape (n,)
        From 0 to 1, such as ``predict_proba(X).max(axis=1)``.
    is_right : array-like of shape (n,), bool
        Such as ``predict(X) == y``.
    n_bins : int
        Number of bins of equal width.

    Returns
    -------
    bins : Reliability

    Raises
    ------
    ValueError
        If confidences are not between 0 and 1, or lengths differ.

    Examples
    --------
    >>> bins = reliability(np.array([0.55, 0.56, 0.95]), np.array([True, False, True]), n_bins=10)
    >>> bins.accuracy.tolist(), bins.counts.tolist()
    ([0.5, 1.0], [2, 1])
    """
    who = "reliability"
    _check_n_bins(n_bins, who)
    confidence = as_array(confidence, who, "confidence")
    is_right = as_array(is_right, who, "is_right")
    kinds = confidence.dtype.kind + is_right.dtype.kind
    if confidence.ndim != 1 or is_right.shape != confidence.shape or kinds not in KINDS:
        raise ValueError(
            f"{who}: confidence and is_right must have shape (n,), numbers and booleans; got "
            f"shapes {confidence.shape} and {is_right.shape}, {is_right.dtype}. Pass "
            "predict_proba(X).max(axis=1) and predict(X) == y."
        )
    wrong = ~((confidence >= -ROUNDING) & (confidence <= 1 + ROUNDING))  # NaN, too
    if wrong.any():
        raise ValueError(f"{who}: confidence must be between 0 and 1; got {confidence[wrong][0]}.")
    confidence = confidence.astype(np.float64)
    bins = np.minimum((confidence * n_bins).astype(np.intp), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    filled = counts > 0
    sums = [np.bincount(bins, values, minlength=n_bins) for values in (confidence, is_right)]
    mean_confidence, accuracy = (part[filled] / counts[filled] for part in sums)
    return Reliability(mean_confidence, accuracy, counts[filled])


def _check_n_bins(n_bins: int, who: str) -> None:
    check_count(n_bins, "n_bins", who)
    if n_bins > MOST_BINS:
        raise ValueError(f"{who}: n_bins must be at most {MOST_BINS}; got {n_bins}. Pass 15.")
