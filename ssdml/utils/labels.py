"""Partial labels: encoding, reading, classes and confidences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.utils.linalg import unit_rows
from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED, check_labeled, check_labels


def encode_partial_labels(
    y: npt.ArrayLike, *, unlabeled: Iterable[Any] = (None, float("nan"), "", -1, "-1", "nan")
) -> tuple[Ints, Array]:
    """Encode labels as 0, 1, ... and missing labels as -1.

    Parameters
    ----------
    y : array-like of shape (n,)
        Integers or strings, with None and NaN among them. Bytes are decoded as UTF-8.
    unlabeled : iterable
        Values that mean "no label". NaN matches every NaN, None also pandas' NA; -1 and NaN become
        "-1" and "nan" in an array of strings.

    Returns
    -------
    codes : ndarray of shape (n,), int64
        ``classes[codes]`` returns the labels if ``codes != -1``.
    classes : ndarray of shape (n_classes,)
        Sorted distinct labels.

    Examples
    --------
    >>> encode_partial_labels(["cat", None, "dog", "", "cat"])
    (array([ 0, -1,  1, -1,  0]), array(['cat', 'dog'], dtype='<U3'))
    >>> encode_partial_labels([7, -1, 3])
    (array([ 1, -1,  0]), array([3, 7]))
    """
    values = _as_column(y)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    missing = _is_missing(values, list(unlabeled))
    known = values[~missing]
    if known.dtype == object:
        known = _of_one_kind(known)
    classes, found = np.unique(known, return_inverse=True)
    codes = np.full(len(values), UNLABELED, dtype=np.int64)
    codes[~missing] = found
    return codes, classes


def likeliest(distributions: Array) -> Ints:
    """Return the column of the largest entry in each row; -1 if there are no columns.

    Examples
    --------
    >>> likeliest(np.array([[0.2, 0.8], [0.6, 0.4]]))
    array([1, 0])
    >>> likeliest(np.empty((2, 0)))
    array([-1, -1])
    """
    if not distributions.shape[1]:
        return np.full(len(distributions), UNLABELED, dtype=np.int64)
    codes: Ints = distributions.argmax(axis=1)
    return codes


def confidences(distributions: Array) -> Array:
    """Compute the confidence of each row, ``(1 - entropy / log C)²``; 0 for rows of zeros.

    Examples
    --------
    >>> confidences(np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]]))
    array([1., 0., 0.])
    """
    n_classes = distributions.shape[1]
    known = distributions.sum(axis=1) > 0
    if n_classes == 1:
        return known.astype(float)
    entropies = np.empty(len(distributions))
    for rows in row_blocks(len(distributions), BLOCK_ROWS):
        block = distributions[rows]
        entropies[rows] = -(block * np.log(np.where(block > 0, block, 1))).sum(axis=1)
    return np.where(known, np.clip(1 - entropies / np.log(n_classes), 0, 1) ** 2, 0)


def proxy_accuracy(classes: Ints, embedding: Array, proxies: Array) -> float:
    """Compute the share of rows whose class has the proxy with the largest cosine.

    Examples
    --------
    >>> rows, proxies = np.array([[1.0, 0.0], [1.0, 0.1]]), np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> proxy_accuracy(np.array([0, 1]), rows, proxies)
    0.5
    """
    return float((likeliest(embedding @ unit_rows(proxies).T) == classes).mean())


def read_labels(y: Any, n_samples: int, who: str, way_out: str | None = None) -> Ints:
    """Check the labels passed to an estimator, -1 where missing.

    Whole numbers of any dtype, including object, are accepted; a column vector raises
    scikit-learn's warning. With ``way_out``, at least one label is required, and the error ends
    with that advice.

    Examples
    --------
    >>> read_labels(np.array([3.0, -1.0]), 2, "SSDML", "Label some rows.")
    array([ 3, -1])
    """
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise ValueError(f"{who} requires y to be passed, but the target y is None.")
    y = column_or_1d(y, warn=True)
    labels = check_labels(y.tolist() if y.dtype == object else y, n_samples, who)
    if way_out is not None:
        check_labeled(labels, who, way_out)
    return labels


def _as_column(y: npt.ArrayLike) -> Array:
    if isinstance(y, list | tuple):
        # np.asarray would turn None or numbers among strings into text.
        mixed = len({type(label) for label in y}) > 1
        values = np.fromiter(y, dtype=object, count=len(y)) if mixed else np.asarray(y)
    else:
        values = np.asarray(y)
    if values.ndim != 1:
        raise ValueError(f"encode_partial_labels: y must be 1-D; got shape {values.shape}.")
    return values


def _is_missing(values: Array, unlabeled: list[Any]) -> npt.NDArray[np.bool_]:
    nan = any(_is_nan(mark) for mark in unlabeled)
    marks = [mark for mark in unlabeled if not _is_nan(mark)]
    if values.dtype.kind == "f":
        missing = np.isnan(values) if nan else np.zeros(len(values), dtype=bool)
        return missing | np.isin(values, [m for m in marks if isinstance(m, int | float)])
    if values.dtype.kind in "iu":
        return np.isin(values, [m for m in marks if isinstance(m, int | float)])
    if values.dtype.kind == "U":
        return np.isin(values, [m for m in marks if isinstance(m, str)])
    return np.array([_is_one_of(label, marks, nan) for label in values], dtype=bool)


def _is_nan(label: Any) -> bool:
    return isinstance(label, float | np.floating) and bool(np.isnan(label))


def _is_one_of(label: Any, marks: list[Any], nan: bool) -> bool:
    if _is_nan(label):
        return nan
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return None in marks
    return any(mark is not None and label == mark for mark in marks)


def _of_one_kind(known: Array) -> Array:
    column = np.asarray(known.tolist())
    kinds = {str if isinstance(label, str) else float for label in known}
    if len(kinds) > 1 or column.ndim != 1:
        raise TypeError(
            "encode_partial_labels: y must hold labels of one kind, all strings or all numbers; "
            f"got {', '.join(sorted({type(label).__name__ for label in known}))}."
        )
    return column


def class_codes(labels: Ints) -> tuple[Ints, int]:
    """Return each row's class as an index into ``np.unique``, or -1, and the number of classes."""
    codes, labeled = np.full(len(labels), UNLABELED), labels != UNLABELED
    classes, codes[labeled] = np.unique(labels[labeled], return_inverse=True)
    return codes, len(classes)


def one_hot(labels: Ints) -> Array:
    """Encode classes as indicator columns, in the order of ``np.unique``; unlabeled rows are 0."""
    codes, n_classes = class_codes(labels)
    indicator = np.zeros((len(labels), n_classes))
    labeled = np.flatnonzero(codes != UNLABELED)
    indicator[labeled, codes[labeled]] = 1
    return indicator
