"""The classes that a method gives test rows, how sure it is of them, and how often it is right."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.evaluation import Reliability, nearest_mean, reliability
from ssdml.scatter import class_means

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class Predictions(NamedTuple):
    """Classes of rows, and how sure the method is of each."""

    classes: Ints  # (n,)
    confidence: npt.NDArray[np.float32]  # (n,), from 0 to 1; NaN where the method does not say

    @property
    def are_sure(self) -> bool:
        """Whether the method says how sure it is."""
        return not np.isnan(self.confidence).any()


def predictions(model: Any, X: Array, Z: Array, few: Array, y_few: Ints) -> Predictions:
    """What a fitted method takes rows for.

    Parameters
    ----------
    model : estimator
        With ``predict_proba`` and ``classes_``, or without.
    X, Z : arrays of n rows
        The rows, and their embedding.
    few, y_few : arrays of m rows
        The labelled rows' embedding and classes.

    Returns
    -------
    predictions : Predictions
        The method's own where it has ``predict_proba``; else the class whose labelled rows have the
        nearest mean.

    Examples
    --------
    >>> rows = np.array([[0.0], [3.0]])
    >>> predictions(None, rows, rows, np.array([[1.0], [4.0]]), np.array([5, 7]))
    Predictions(classes=array([5, 7]), confidence=array([nan, nan], dtype=float32))
    """
    if hasattr(model, "predict_proba"):
        proba = model.predict_proba(X)
        return Predictions(
            np.asarray(model.classes_)[proba.argmax(1)], proba.max(1).astype(np.float32)
        )
    classes, codes = np.unique(y_few, return_inverse=True)
    nearest = nearest_mean(class_means(few, codes), Z.astype(np.float64))
    return Predictions(classes[nearest], np.full(len(Z), np.nan, dtype=np.float32))


def confusion(classes: Ints, y: Ints, n_classes: int) -> Ints:
    """How many rows of each true class (row) were taken for each class (column).

    Examples
    --------
    >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    known = y >= 0
    pairs = y[known] * n_classes + classes[known]
    return np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)


def reliability_of(found: Predictions, y: Ints) -> Reliability | None:
    """How often it is right where it is so sure; None for a method that does not say."""
    known = y >= 0
    if not found.are_sure or not known.any():
        return None
    return reliability(found.confidence[known], found.classes[known] == y[known])
