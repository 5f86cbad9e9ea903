"""Predicted classes of test rows, their confidence and their accuracy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier

from ssdml.evaluation.calibration import Reliability, reliability
from ssdml.evaluation.scores import few_label_accuracy, nearest_mean
from ssdml.utils.scatter import class_means
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED, warn


class Predictions(NamedTuple):
    """Predicted classes and their confidence."""

    classes: Ints  # (n,)
    confidence: npt.NDArray[np.float32]  # (n,), from 0 to 1; NaN without predict_proba
    by_predict: bool = True  # or by the nearest class mean

    @property
    def has_confidence(self) -> bool:
        """Whether the model gives confidences."""
        return not np.isnan(self.confidence).any()


class Confusion(NamedTuple):
    """Nonzero entries of a confusion matrix."""

    true: Ints  # (m,)
    predicted: Ints  # (m,)
    counts: Ints  # (m,)


def predicts_classes(model: Any) -> bool:
    """Return whether a fitted model predicts classes; a clusterer's labels are none.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y = [[0.0], [1.0]], [0, 1]
    >>> predicts_classes(KNeighborsClassifier(1).fit(X, y)), predicts_classes(KMeans(2).fit(X))
    (True, False)
    """
    if not hasattr(model, "predict"):
        return False
    if hasattr(model, "classes_"):  # none after a fit without labels
        return len(model.classes_) > 0
    return hasattr(model, "__sklearn_tags__") and is_classifier(model)


def label_accuracy(model: Any, X: Array, Z: Array, y: Ints, few: Array, y_few: Ints) -> float:
    """Compute the accuracy of ``predict``, or of the nearest class mean, in percent.

    Parameters
    ----------
    model : estimator
        A model that does not predict classes is scored by :func:`few_label_accuracy`.
    X, Z, y : arrays of n rows
        The rows, their embedding, and the true classes; rows with -1 are left out.
    few, y_few : arrays of m rows
        Embedding and classes of the labeled rows.

    Raises
    ------
    ValueError
        If ``predict`` does not return one of the classes in ``y_few`` per row.
    """
    if not predicts_classes(model):
        return few_label_accuracy(few, y_few, Z, y)
    known = y != UNLABELED
    return 100 * float(np.mean(_predicted(model, X[known], y_few) == y[known]))


def predict_classes(model: Any, X: Array, Z: Array, few: Array, y_few: Ints) -> Predictions:
    """Predict classes by ``predict``, or by the nearest class mean.

    Parameters
    ----------
    model : estimator
        Confidences are the probabilities of the predicted classes, if it has ``predict_proba``.
    X, Z : arrays of n rows
        The rows and their embedding.
    few, y_few : arrays of m rows
        Embedding and classes of the labeled rows, for the nearest mean.

    Raises
    ------
    ValueError
        If ``predict`` does not return one of the classes in ``y_few`` per row.

    Warns
    -----
    UserWarning
        If ``predict_proba`` fails, knows other classes, or gives NaN: confidences are left out.
    """
    unknown = np.full(len(Z), np.nan, dtype=np.float32)
    if not predicts_classes(model):
        classes, codes = np.unique(y_few, return_inverse=True)
        nearest = nearest_mean(class_means(few, codes), Z.astype(np.float64))
        return Predictions(classes[nearest], unknown, by_predict=False)
    predicted = _predicted(model, X, y_few)
    if hasattr(model, "predict_proba"):
        try:
            return Predictions(predicted, _confidences(model, X, predicted), by_predict=True)
        except Exception as failure:
            warn(
                f"predict_proba of {type(model).__name__} cannot be used ({failure}); the report "
                "shows no confidence."
            )
    return Predictions(predicted, unknown, by_predict=True)


def _predicted(model: Any, X: Array, y_few: Ints) -> Ints:
    """Predict the classes of rows; raise ValueError unless they are among the labels."""
    predicted, who = np.asarray(model.predict(X)), f"{type(model).__name__}.predict"
    if predicted.shape != (len(X),):
        raise ValueError(
            f"{who} must return one class per row, shape ({len(X)},); got shape {predicted.shape}."
        )
    is_known = np.isin(predicted, y_few)
    is_known &= predicted.dtype.kind in "biuf"  # numpy.isin takes "3" for 3 if there are many
    strange = np.flatnonzero(~is_known)
    if len(strange):
        raise ValueError(
            f"{who} must return classes of the labels given to fit, {y_few.dtype}; got "
            f"{predicted.tolist()[strange[0]]!r} in row {strange[0]}, dtype {predicted.dtype}."
        )
    return predicted.astype(y_few.dtype)


def _confidences(model: Any, X: Array, predicted: Ints) -> npt.NDArray[np.float32]:
    """Return the probabilities of the predicted classes."""
    known, proba = np.asarray(model.classes_), np.asarray(model.predict_proba(X))
    if not np.isin(predicted, known).all():
        raise ValueError(f"classes_ must hold the predicted classes; got {known}")
    if not np.isfinite(proba).all():
        raise ValueError("it returns NaN or infinite entries")
    order = np.argsort(known)
    columns = order[np.searchsorted(known, predicted, sorter=order)]
    return proba[np.arange(len(proba)), columns].astype(np.float32)


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
