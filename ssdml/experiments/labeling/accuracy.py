"""How often new labels are right: estimated from held-out labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from ssdml.classification.learning import HeldOut
from ssdml.classification.pool import N_FOLDS
from ssdml.utils.typing import Array, Floats, Ints

Z = 1.96  # of a 95 % interval
TARGET = 0.95  # share of labels that should be right
PRIOR = 30.0  # labels that the mean confidence counts as much as
FEW_ERRORS = 3.0  # expected wrong labels that are as likely errors of the predictions
LARGEST_SHIFT = 20.0  # of confidences, in logits


class Accuracy(NamedTuple):
    """Share of labels that are right, from 0 to 1, with its 95 % interval."""

    estimate: float
    low: float
    high: float
    n_labels: int  # that were held out


class Threshold(NamedTuple):
    """Confidence from which on most labels are expected to be right."""

    confidence: float
    n_rows: int


def held_out_accuracy(
    held_out: HeldOut | None, n_rows: Ints, errors: Floats, confidence: float
) -> Accuracy | None:
    r"""Estimate the accuracy of new labels from labels predicted by the others.

    A class counts as often as it is predicted, whatever its number of labels. A label counts by the
    probability that it is right, unless few are suspected: these may be errors of the predictions.
    The mean confidence, which is calibrated, counts as much as 30 labels. The error of predictions
    from a part of the labels is taken to fall with the square root of their number,
    :math:`e \sqrt{m' / m}` with m' of m labels of a class seen.

    Parameters
    ----------
    held_out : HeldOut or None
    n_rows : array of shape (C,)
        Unlabeled rows that were predicted to be of each class.
    errors : array of shape (h,)
        Probability that each held-out label is wrong.
    confidence : float
        Mean confidence in the new labels.

    Returns
    -------
    accuracy : Accuracy or None
        With Wilson's interval [1]_ for the effective number of labels. None without held-out
        labels.

    References
    ----------
    .. [1] Wilson, "Probable inference, the law of succession, and statistical inference",
       Journal of the American Statistical Association 22, 1927.

    Examples
    --------
    >>> p = np.eye(2)[[0, 0, 0, 1, 1]]
    >>> held_out = HeldOut(np.arange(5), np.array([0, 0, 1, 1, 1]), p)
    >>> round(held_out_accuracy(held_out, np.array([20, 30]), np.zeros(5), 0.8).estimate, 3)
    0.805
    """
    if held_out is None or not len(held_out.codes):
        return None
    codes, counts = held_out.codes, np.bincount(held_out.codes, minlength=len(n_rows))
    wrong = held_out.distributions.argmax(axis=1) != codes
    n_hidden = np.ceil(counts / N_FOLDS)
    seen = np.sqrt((counts - n_hidden) / np.maximum(counts, 1))
    trust = errors.sum() / (errors.sum() + FEW_ERRORS)
    weights = (n_rows / np.maximum(counts, 1))[codes] * (1 - trust * errors)
    if weights.sum() <= 0:
        weights = np.ones(len(codes))
    share = 1 - float(weights @ (wrong * seen[codes]) / weights.sum())
    n = float(weights.sum() ** 2 / (weights**2).sum())
    share = (n * share + PRIOR * confidence) / (n + PRIOR)
    return Accuracy(share, *wilson(share, n), len(codes))


def wilson(share: float, n: float) -> tuple[float, float]:
    """Compute Wilson's 95 % interval of a share among n.

    Examples
    --------
    >>> low, high = wilson(0.8, 100)
    >>> round(low, 3), round(high, 3)
    (0.711, 0.867)
    """
    center = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * np.sqrt(share * (1 - share) / n + (Z / (2 * n)) ** 2)
    return max(0.0, float(center - half)), min(1.0, float(center + half))


def with_mean(confidences: Array, mean: float) -> Floats:
    """Shift confidences in logits, so that their mean is as given; their order stays.

    Examples
    --------
    >>> round(float(with_mean(np.array([0.5, 0.9]), 0.8).mean()), 6)
    0.8
    """
    logits = logit(np.clip(confidences.astype(np.float64), 1e-6, 1 - 1e-6))
    low, high = -LARGEST_SHIFT, LARGEST_SHIFT
    for _ in range(50):
        middle = (low + high) / 2
        if expit(logits + middle).mean() < mean:
            low = middle
        else:
            high = middle
    shifted: Floats = expit(logits + (low + high) / 2)
    return shifted


def threshold(confidences: Array, target: float = TARGET) -> Threshold | None:
    """Find the least confidence above which rows are right as often as the target, on average.

    Examples
    --------
    >>> threshold(np.array([0.99, 0.93, 0.5]))
    Threshold(confidence=0.93, n_rows=2)
    """
    order = np.sort(confidences.astype(np.float64))[::-1]
    means = np.cumsum(order) / np.arange(1, len(order) + 1)
    enough = np.flatnonzero(means >= target)
    if not len(enough):
        return None
    n = int(enough[-1]) + 1
    return Threshold(float(order[n - 1]), n)
