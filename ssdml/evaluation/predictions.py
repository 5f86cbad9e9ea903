"""The classes that a method gives test rows, how sure it is of them, and how often it is right."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier

from ssdml.evaluation.calibration import Reliability, reliability
from ssdml.evaluation.scores import few_label_accuracy, nearest_mean
from ssdml.utils.scatter import class_means
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED


class Predictions(NamedTuple):
    """Classes of rows, and how sure the method is of each."""

    classes: Ints  # (n,)
    confidence: npt.NDArray[np.float32]  # (n,), from 0 to 1; NaN where it is not the method's word

    @property
    def are_own(self) -> bool:
        """Whether the method says so itself, and how sure it is."""
        return not np.isnan(self.confidence).any()


class Confusion(NamedTuple):
    """Which classes were taken for which: of many classes most pairs never occur."""

    true: Ints  # (m,)
    taken: Ints  # (m,)
    counts: Ints  # (m,) rows, at least 1


def label_accuracy(model: Any, X: Array, Z: Array, y: Ints, few: Array, y_few: Ints) -> float:
    """How many rows are taken for what they are, in percent: how methods are compared.

    Parameters
    ----------
    model : estimator
        A classifier says itself; a metric's rows are of the nearest mean of the labeled rows.
    X, Z, y : arrays of n rows
        The rows, their embedding, and the truth; rows with -1 are left out.
    few, y_few : arrays of m rows
        The labeled rows' embedding and classes.

    Returns
    -------
    accuracy : float

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rows, y = np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([0, 0, 1, 1])
    >>> label_accuracy(None, rows, rows, y, rows, y)
    75.0
    >>> model = LogisticRegression(C=100).fit(rows, y)
    >>> label_accuracy(model, rows, rows, y, rows, y)
    100.0
    """
    if not (hasattr(model, "__sklearn_tags__") and is_classifier(model)):
        return few_label_accuracy(few, y_few, Z, y)
    known = y != UNLABELED
    return 100 * float(np.mean(model.predict(X[known]) == y[known]))


def predictions(model: Any, X: Array, Z: Array, few: Array, y_few: Ints) -> Predictions:
    """What a fitted method takes rows for.

    Parameters
    ----------
    model : estimator
        With ``predict_proba`` and ``classes_``, or without.
    X, Z : arrays of n rows
        The rows, and their embedding.
    few, y_few : arrays of m rows
        The labeled rows' embedding and classes.

    Returns
    -------
    predictions : Predictions
        The method's own where it has ``predict_proba`` for these classes; else the class whose
        labeled rows have the nearest mean.

    Warns
    -----
    UserWarning
        Where ``predict_proba`` fails, knows other classes, or gives no numbers.

    Examples
    --------
    >>> rows = np.array([[0.0], [3.0]])
    >>> predictions(None, rows, rows, np.array([[1.0], [4.0]]), np.array([5, 7]))
    Predictions(classes=array([5, 7]), confidence=array([nan, nan], dtype=float32))
    """
    classes, codes = np.unique(y_few, return_inverse=True)
    if hasattr(model, "predict_proba") and len(getattr(model, "classes_", ())):
        try:
            return _own(model, X, classes)
        except Exception as failure:
            warnings.warn(
                f"predict_proba of {type(model).__name__} is of no use for the report ({failure}); "
                "it shows the class of the nearest mean of the labeled rows.",
                stacklevel=2,
            )
    nearest = nearest_mean(class_means(few, codes), Z.astype(np.float64))
    return Predictions(classes[nearest], np.full(len(Z), np.nan, dtype=np.float32))


def _own(model: Any, X: Array, classes: Ints) -> Predictions:
    known, proba = np.asarray(model.classes_), np.asarray(model.predict_proba(X))
    others = known[~np.isin(known, classes)]
    if len(others):
        raise ValueError(f"classes_ must be among the labels; got {others}")
    if not np.isfinite(proba).all():
        raise ValueError("it holds NaN or infinite entries")
    return Predictions(known[proba.argmax(axis=1)], proba.max(axis=1).astype(np.float32))


def confusion(classes: Ints, y: Ints) -> Confusion:
    """How many rows of each true class were taken for each class.

    Examples
    --------
    >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]))
    Confusion(true=array([0, 0, 1]), taken=array([0, 1, 1]), counts=array([1, 1, 1]))
    """
    pairs = np.stack([y, classes], axis=1)[y >= 0]
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    return Confusion(found[:, 0], found[:, 1], counts)


def reliability_of(found: Predictions, y: Ints) -> Reliability | None:
    """How often it is right where it is so sure; None for a method that does not say."""
    known = y >= 0
    if not found.are_own or not known.any():
        return None
    return reliability(found.confidence[known], found.classes[known] == y[known])
