"""Confidence in the classes that a graph gave, calibrated by labelled rows that were hidden."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from ssdml.graphs._checks import UNLABELED
from ssdml.graphs._search import without_self
from ssdml.graphs.masses import class_codes
from ssdml.graphs.neighbors import nearest_rows
from ssdml.graphs.propagation import propagate_labels
from ssdml.utils.typing import Array, Ints

FOLDS = 5
TOL = 1e-3  # of the solver: powers are not known to a hundredth
DOUBT = 0.25  # of a row whose classes are all alike, beside those that were hidden
POWERS = (0.1, 50.0)


class Calibration(NamedTuple):
    """Powers that make confidences as large as the share of what is right, and what told them."""

    of_rows: float  # of the distributions that were propagated
    of_new: float  # of those that new rows take from their neighbours
    rows: Ints  # (m,) labelled rows that were hidden
    codes: Ints  # (m,) their classes, by number
    distributions: Array  # (m, n_classes), what the others say of them, calibrated


class SuspectedLabels(NamedTuple):
    """Labels that the others contradict."""

    rows: Ints
    labels: Array
    classes: Array  # that the others give the rows
    confidences: Array  # in these


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
    """Hide a fifth of the labelled rows at a time, and see how sure the others are of them.

    Parameters
    ----------
    edges : KNNGraph or sparse array
        Along which labels are spread.
    labels : array of shape (n,), int
        -1 where unlabelled.
    embedding : array of shape (n, l)
        In which new rows find their neighbours.
    decay : float
    n_neighbors : int
    rng : Generator
        Of the fifths.
    n_jobs : int or None

    Returns
    -------
    calibration : Calibration or None
        None where no class has two labelled rows.

    Notes
    -----
    Five propagations. A power is a temperature of the log-probabilities [1]_; it is that of the
    greatest likelihood of the hidden labels, with a quarter of a row beside them whose classes are
    all alike, so that it stays finite where all are right. It never changes which class is
    likeliest.

    References
    ----------
    .. [1] Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", ICML 2017,
       Section 4.2.
    """
    rows, folds = hidden_folds(labels, rng)
    if not len(rows):
        return None
    codes, n_classes = class_codes(labels)
    indices, distances = _other_neighbors(embedding, rows, n_neighbors, n_jobs)
    of_rows = np.empty((len(rows), n_classes))
    of_new = np.empty_like(of_rows)
    for fold in np.unique(folds):
        hidden, known = folds == fold, labels.copy()
        known[rows[hidden]] = UNLABELED
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of labels that are hidden for a moment
            spread = propagate_labels(edges, known, decay=decay, tol=TOL, n_jobs=n_jobs)
        of_rows[hidden] = spread[rows[hidden]]
        of_new[hidden] = neighbor_votes(distances[hidden], spread[indices[hidden]])
    hidden_codes = codes[rows]
    power = best_power(of_rows, hidden_codes)
    return Calibration(
        power, best_power(of_new, hidden_codes), rows, hidden_codes, sharpened(of_rows, power)
    )


def suspects(calibration: Calibration, classes: Array) -> SuspectedLabels:
    """Labelled rows whose likeliest class is another, the surest first."""
    found, confidences = calibration.distributions.argmax(1), calibration.distributions.max(1)
    wrong = np.flatnonzero(found != calibration.codes)
    wrong = wrong[np.argsort(-confidences[wrong], kind="stable")]
    codes = calibration.codes[wrong]
    return SuspectedLabels(
        calibration.rows[wrong], classes[codes], classes[found[wrong]], confidences[wrong]
    )


def hidden_folds(labels: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Labelled rows of the classes that have two or more, and the fifth of each.

    Of no class all rows are in one fifth.

    Examples
    --------
    >>> rows, folds = hidden_folds(np.array([0, 1, -1, 0, 0]), np.random.default_rng(0))
    >>> rows.tolist(), sorted(folds.tolist())
    ([0, 3, 4], [0, 1, 2])
    """
    rows, folds = [], []
    for label in np.unique(labels[labels != UNLABELED]):
        members = np.flatnonzero(labels == label)
        if len(members) > 1:
            rows.append(members)
            folds.append(rng.permutation(len(members)) % FOLDS)
    if not rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    together, order = np.concatenate(rows), np.argsort(np.concatenate(rows))
    return together[order], np.concatenate(folds)[order]


def best_power(distributions: Array, codes: Ints) -> float:
    """Power of the distributions (m, n_classes) under which the classes (m,) are likeliest.

    Examples
    --------
    Nine of ten are right where the confidence is 0.6:

    >>> sure = np.tile([0.6, 0.4], (1000, 1))
    >>> power = best_power(sure, (np.arange(1000) % 10 == 0).astype(int))
    >>> sharpened(sure[:1], power).round(2)
    array([[0.9, 0.1]])
    """

    def surprise(exponent: float) -> float:
        log = np.log(np.maximum(sharpened(distributions, np.exp(exponent)), 1e-300))
        return float(-log[np.arange(len(codes)), codes].sum() - DOUBT * log.mean())

    found = minimize_scalar(surprise, bounds=tuple(np.log(POWERS)), method="bounded")
    return float(np.exp(found.x))


def sharpened(distributions: Array, power: float) -> Array:
    """Powers of the entries, rows scaled to sum to 1 again; in the precision they have.

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
    """Distributions (m, k, n_classes) of neighbours, by how near they are, as one of each row.

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


def _other_neighbors(
    embedding: Array, rows: Ints, n_neighbors: int, n_jobs: int | None
) -> tuple[Ints, Array]:
    """Nearest neighbours of rows, themselves left out, and the distances to them."""
    k = min(n_neighbors, len(embedding) - 1)
    return without_self(nearest_rows(embedding, embedding[rows], k + 1, n_jobs=n_jobs), rows)
