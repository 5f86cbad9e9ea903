"""The labels of all rows, and what is known about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ssdml.classification.learning import HeldOut
from ssdml.classification.suspects import SuspectedLabels, error_probabilities, suspects
from ssdml.datasets.base import RawItems
from ssdml.datasets.reading.names import ADDED, added_columns
from ssdml.datasets.reading.table import distinct
from ssdml.experiments.labeling.accuracy import (
    Accuracy,
    Threshold,
    held_out_accuracy,
    threshold,
    with_mean,
)
from ssdml.metric.estimator import SSDML
from ssdml.model_selection.labeling import suggest_labels
from ssdml.utils.parallel import one_blas_thread
from ssdml.utils.typing import Array, Floats, Ints, Mask

SUGGESTED = 25  # rows to label next


@dataclass(frozen=True, eq=False)
class LabeledRows:
    """Labels of n rows.

    Attributes
    ----------
    classes : ndarray of shape (C,)
    codes : ndarray of shape (n,), int
        The class of each row; given labels stay.
    runner_up : ndarray of shape (n,), int
        The next probable class, -1 if there is one class alone. Of a given label, what the other
        labels say instead.
    confidence : ndarray of shape (n,)
        Probability that the label is right. Of a given label, one minus the probability that it is
        wrong (:func:`ssdml.classification.suspects.error_probabilities`).
    is_new : ndarray of shape (n,), bool
    points : ndarray of shape (n, 2)
        The map, see :meth:`ssdml.SSDML.map`.
    accuracy : Accuracy or None
        Of the new labels; None if no label could be held out.
    threshold : Threshold or None
        Confidence from which on 95% of the new labels are right, with 90% certainty; None if
        held-out labels show none.
    suspects : SuspectedLabels
    next_rows : ndarray of shape (k,), int
        At most 25 rows whose labels would help most, see :func:`ssdml.suggest_labels`; the least
        confident ones if there is a single class.
    """

    classes: Array
    codes: Ints
    runner_up: Ints
    confidence: Floats
    is_new: Mask
    points: Array
    accuracy: Accuracy | None
    threshold: Threshold | None
    suspects: SuspectedLabels
    next_rows: Ints


@one_blas_thread()  # its threads change the last bits of sums
def label_rows(model: SSDML, is_new: Mask) -> LabeledRows:
    """Gather the labels of the rows of a fit.

    Parameters
    ----------
    model : SSDML
        Fitted in memory.
    is_new : array of shape (n,), bool
        Rows that had no label.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> found = label_rows(SSDML(random_state=0).fit(X, labels), labels < 0)
    >>> found.accuracy.estimate > 0.8, bool((found.codes == y).mean() > 0.8)
    (True, True)
    """
    proba = model.label_distributions_
    first, second = _two_likeliest(proba)
    confidence = proba.max(axis=1).astype(np.float64)
    held_out, errors = _held_out(model)
    accuracy = expected_accuracy(model, is_new)
    n_rows = np.bincount(first[is_new], minlength=proba.shape[1])
    limit = threshold(held_out, confidence[is_new], n_rows)
    if accuracy is not None and is_new.any():
        shifted = with_mean(confidence[is_new], accuracy.estimate)
        if limit is not None:
            limit = limit._replace(confidence=float(np.sort(shifted)[-limit.n_rows]))
        confidence[is_new] = shifted
    suspected = SuspectedLabels(first[:0], model.classes_[:0], model.classes_[:0], confidence[:0])
    if held_out is not None:
        suspected = suspects(held_out, model.classes_)
        confidence[held_out.rows] = 1 - errors
        likely, next_likely = _two_likeliest(held_out.distributions)
        agrees = likely == held_out.codes
        second[held_out.rows] = np.where(agrees, next_likely, likely)
    return LabeledRows(
        classes=model.classes_,
        codes=first,
        runner_up=second,
        confidence=confidence,
        is_new=is_new,
        points=model.map(),
        accuracy=accuracy,
        threshold=limit,
        suspects=suspected,
        next_rows=_next_rows(model, is_new, confidence),
    )


def expected_accuracy(model: SSDML, is_new: Mask) -> Accuracy | None:
    """Estimate the accuracy of new labels, see :func:`held_out_accuracy`."""
    proba, (held_out, errors) = model.label_distributions_[is_new], _held_out(model)
    n_rows = np.bincount(proba.argmax(axis=1), minlength=proba.shape[1])
    mean = float(proba.max(axis=1).mean(dtype=np.float64)) if len(proba) else 1.0
    return held_out_accuracy(held_out, n_rows, errors, mean)


def _held_out(model: SSDML) -> tuple[HeldOut | None, Floats]:
    """Held-out labels, if any, and the probability that each is wrong."""
    held_out = model.held_out_
    if held_out is None or not len(held_out.rows):
        return None, np.empty(0)
    return held_out, error_probabilities(held_out)


def _next_rows(model: SSDML, is_new: Mask, confidence: Floats) -> Ints:
    new = np.flatnonzero(is_new)
    n = min(SUGGESTED, len(new))
    if n == 0 or model.classifier_ is None:
        return new[np.argsort(confidence[new], kind="stable")][:n]
    return suggest_labels(model, n)


def _two_likeliest(proba: Array) -> tuple[Ints, Ints]:
    first: Ints = proba.argmax(axis=1)
    if proba.shape[1] == 1:
        return first, np.full(len(first), -1)
    rest = proba.copy()
    rest[np.arange(len(rest)), first] = -1
    return first, rest.argmax(axis=1)


def labeled_columns(raw: RawItems, found: LabeledRows) -> dict[str, Any]:
    """Return the columns of the table with all labels.

    A table keeps its columns, and the gaps among its labels are filled. Other samples have their
    ids, or else the number of the row from 0. The columns :data:`ADDED` follow; their names are
    numbered, such as confidence.1, where the table has such a column.
    """
    names = labels_of(found.classes)
    labels = found.classes[found.codes]
    added = (
        found.confidence.round(4),
        found.is_new,
        np.append(names.astype(object), "")[found.runner_up],
        *found.points.T.round(4),
    )
    columns: dict[str, Any] = {}
    if raw.table is None:
        columns["row" if raw.ids is None else "id"] = (
            np.arange(len(labels)) if raw.ids is None else raw.ids
        )
    else:
        table = raw.table.columns
        added_before = added_columns(table.column_names).values()
        columns |= {name: table[name] for name in table.column_names if name not in added_before}
    place = raw.label_column or next(
        name for name in distinct([*columns, "label"]) if name not in columns
    )
    is_text = place in columns and not has_numbers(columns[place])
    columns[place] = names[found.codes] if is_text else labels
    new = distinct([*columns, *ADDED])[-len(ADDED) :]
    return columns | dict(zip(new, added, strict=True))


def has_numbers(column: Any) -> bool:
    """Whether a column of Arrow holds numbers or booleans.

    Examples
    --------
    >>> import pyarrow as pa
    >>> has_numbers(pa.array([1.5])), has_numbers(pa.array(["1.5"]))
    (True, False)
    """
    import pyarrow as pa

    kind = column.type
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def labels_of(classes: Array) -> Array:
    """Return the names of classes; 7.0 is "7".

    Examples
    --------
    >>> labels_of(np.array([7.0, 8.0])).tolist()
    ['7', '8']
    """
    from ssdml.datasets.labels import class_name

    return np.array([class_name(label) for label in classes.tolist()])
