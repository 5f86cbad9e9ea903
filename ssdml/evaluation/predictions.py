"""Predicted classes of test rows, their confidence and their accuracy."""

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
    """Predicted classes and their confidence."""

    classes: Ints  # (n,)
    confidence: npt.NDArray[np.float32]  # (n,), from 0 to 1; NaN without predict_proba

    @property
    def has_confidence(self) -> bool:
        """Whether the classes come from ``predict_proba``."""
        return not np.isnan(self.confidence).any()


class Confusion(NamedTuple):
    """Nonzero entries of a confusion matrix."""

    true: Ints  # (m,)
    predicted: Ints  # (m,)
    counts: Ints  # (m,)


def label_accuracy(model: Any, X: Array, Z: Array, y: Ints, few: Array, y_few: Ints) -> float:
    """Compute the accuracy of a classifier, or of the nearest class mean, in percent.

    Parameters
    ----------
    model : estimator
        A classifier is asked; any other is scored by :func:`few_label_accuracy`.
    X, Z, y : arrays of n rows
        The rows, their embedding, and the true classes; rows with -1 are left out.
    few, y_few : arrays of m rows
        Embedding and classes of the labeled rows.
    """
    if not (hasattr(model, "__sklearn_tags__") and is_classifier(model)):
        return few_label_accuracy(few, y_few, Z, y)
    known = y != UNLABELED
    return 100 * float(np.mean(model.predict(X[known]) == y[known]))


def predict_classes(model: Any, X: Array, Z: Array, few: Array, y_few: Ints) -> Predictions:
    """Predict classes by ``predict_proba``, or by the nearest class mean.

    Parameters
    ----------
    model : estimator
        ``predict_proba`` is used if it is there and knows these classes.
    X, Z : arrays of n rows
        The rows and their embedding.
    few, y_few : arrays of m rows
        Embedding and classes of the labeled rows, for the nearest mean.

    Warns
    -----
    UserWarning
        If ``predict_proba`` fails, knows other classes, or gives NaN.
    """
    classes, codes = np.unique(y_few, return_inverse=True)
    if hasattr(model, "predict_proba") and len(getattr(model, "classes_", ())):
        try:
            return _by_probabilities(model, X, classes)
        except Exception as failure:
            warnings.warn(
                f"predict_proba of {type(model).__name__} cannot be used ({failure}); the report "
                "shows the class whose labeled rows have the nearest mean.",
                stacklevel=2,
            )
    nearest = nearest_mean(class_means(few, codes), Z.astype(np.float64))
    return Predictions(classes[nearest], np.full(len(Z), np.nan, dtype=np.float32))


def _by_probabilities(model: Any, X: Array, classes: Ints) -> Predictions:
    known, proba = np.asarray(model.classes_), np.asarray(model.predict_proba(X))
    others = known[~np.isin(known, classes)]
    if len(others):
        raise ValueError(f"classes_ must be among the labels; got {others}")
    if not np.isfinite(proba).all():
        raise ValueError("it returns NaN or infinite entries")
    return Predictions(known[proba.argmax(axis=1)], proba.max(axis=1).astype(np.float32))


def confusion(classes: Ints, y: Ints) -> Confusion:
    """Count the rows of each true class by predicted class; unlabeled rows are left out."""
    pairs = np.stack([y, classes], axis=1)[y >= 0]
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    return Confusion(found[:, 0], found[:, 1], counts)


def reliability_of(found: Predictions, y: Ints) -> Reliability | None:
    """Bin the accuracy of predictions by confidence; None without confidence."""
    known = y >= 0
    if not found.has_confidence or not known.any():
        return None
    return reliability(found.confidence[known], found.classes[known] == y[known])
