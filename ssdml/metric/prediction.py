"""Predict the classes of new rows from propagated distributions, with calibrated confidence."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from ssdml.graphs.neighbors.exact import without_self
from ssdml.graphs.neighbors.knn import nearest_rows
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.utils.labels import class_codes
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

FOLDS = 5
TOL = 1e-3  # of the solver: powers are not known to a hundredth
UNIFORM_WEIGHT = 0.25  # pseudo-sample with uniform classes, so that the power stays finite
POWERS = (0.1, 50.0)


class Calibration(NamedTuple):
    """Powers that calibrate confidence, and the held-out distributions they were fitted to."""

    of_rows: float  # for propagated distributions
    of_new: float  # for distributions that new rows take from their neighbors
    rows: Ints  # (m,) labeled rows that were held out
    codes: Ints  # (m,) their classes, as columns of the distributions
    distributions: Array  # (m, n_classes), from the other labels, calibrated


class SuspectedLabels(NamedTuple):
    """Labels that contradict the others, the most confident contradictions first."""

    rows: Ints
    labels: Array
    classes: Array  # predicted from the other labels
    confidences: Array  # in these classes


def calibrate(
    edges: Any,
    labels: Ints,
    embedding: Array,
    *,
    decay: float,
    n_neighbors: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> Calibration | None:
    """Fit the powers by five-fold cross-validation over the labels; None if no class has two.

    Labels are propagated along ``edges``, a graph or sparse array; new rows find their neighbors in
    the embedding (n, l). A power is an inverse temperature [1]_ and never changes the most probable
    class. It maximizes the likelihood of the held-out labels, with a quarter of a uniform sample
    added to keep it finite where all are correct.

    References
    ----------
    .. [1] Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", ICML 2017,
       Section 4.2.
    """
    rows, folds = stratified_folds(labels, rng)
    if not len(rows):
        return None
    codes, n_classes = class_codes(labels)
    k = min(n_neighbors, len(embedding) - 1)
    ranked = nearest_rows(embedding, embedding[rows], k + 1, n_jobs=n_jobs)
    indices, distances = without_self(ranked, rows)
    of_rows = np.empty((len(rows), n_classes))
    of_new = np.empty_like(of_rows)
    for fold in np.unique(folds):
        held_out, known = folds == fold, labels.copy()
        known[rows[held_out]] = UNLABELED
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # with labels held out, some rows are out of reach
            propagated = propagate_labels(edges, known, decay=decay, tol=TOL, n_jobs=n_jobs)
        of_rows[held_out] = propagated[rows[held_out]]
        of_new[held_out] = neighbor_votes(distances[held_out], propagated[indices[held_out]])
    codes = codes[rows]
    power = best_power(of_rows, codes)
    return Calibration(power, best_power(of_new, codes), rows, codes, sharpened(of_rows, power))


def stratified_folds(labels: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Labeled rows of classes with two labels or more, and the fold of each.

    No class has all its labeled rows in one fold.

    Examples
    --------
    >>> rows, folds = stratified_folds(np.array([0, 1, -1, 0, 0]), np.random.default_rng(0))
    >>> rows.tolist(), sorted(folds.tolist())
    ([0, 3, 4], [0, 1, 2])
    """
    rows, folds = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for label in np.unique(labels[labels != UNLABELED]):
        members = np.flatnonzero(labels == label)
        if len(members) > 1:
            rows.append(members)
            folds.append(rng.permutation(len(members)) % FOLDS)
    together = np.concatenate(rows)
    order = np.argsort(together)
    return together[order], np.concatenate(folds)[order]


def best_power(distributions: Array, codes: Ints) -> float:
    """Power of the distributions (m, n_classes) that maximizes the likelihood of the classes (m,).

    Examples
    --------
    Accuracy 0.9 at a confidence of 0.6:

    >>> underconfident = np.tile([0.6, 0.4], (1000, 1))
    >>> power = best_power(underconfident, (np.arange(1000) % 10 == 0).astype(int))
    >>> sharpened(underconfident[:1], power).round(2)
    array([[0.9, 0.1]])
    """

    def loss(exponent: float) -> float:
        log = np.log(np.maximum(sharpened(distributions, np.exp(exponent)), 1e-300))
        return float(-log[np.arange(len(codes)), codes].sum() - UNIFORM_WEIGHT * log.mean())

    found = minimize_scalar(loss, bounds=tuple(np.log(POWERS)), method="bounded")
    return float(np.exp(found.x))


def sharpened(distributions: Array, power: float) -> Array:
    """Raise the entries to a power and normalize the rows, in their dtype.

    Examples
    --------
    >>> sharpened(np.array([[0.8, 0.2]]), 2.0).round(3)
    array([[0.941, 0.059]])
    """
    top = distributions.max(axis=1, keepdims=True)
    powers: Array = (distributions / top) ** power
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def neighbor_votes(distances: Array, distributions: Array) -> Array:
    """Average the distributions (m, k, n_classes) of neighbors, weighted by their distance.

    Examples
    --------
    >>> neighbor_votes(np.array([[0.0, 1.0]]), np.array([[[1.0, 0.0], [0.0, 1.0]]])).round(3)
    array([[0.731, 0.269]])
    """
    scale = np.maximum(distances[:, -1:], np.finfo(distances.dtype).tiny)
    weights = np.exp(-((distances / scale) ** 2))[:, :, None]
    votes: Array = (weights * distributions).sum(axis=1)
    votes /= votes.sum(axis=1, keepdims=True)
    return votes


def suspects(calibration: Calibration, classes: Array) -> SuspectedLabels:
    """Labels that the calibration predicts to be another class, the most confident first."""
    found, confidences = calibration.distributions.argmax(1), calibration.distributions.max(1)
    wrong = np.flatnonzero(found != calibration.codes)
    wrong = wrong[np.argsort(-confidences[wrong], kind="stable")]
    labels = classes[calibration.codes[wrong]]
    return SuspectedLabels(
        calibration.rows[wrong], labels, classes[found[wrong]], confidences[wrong]
    )
