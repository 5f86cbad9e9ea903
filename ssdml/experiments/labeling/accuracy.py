"""Expected accuracy of new labels, estimated from held-out labels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit
from scipy.stats import beta

from ssdml.classification.learning import HeldOut
from ssdml.classification.pool import N_FOLDS
from ssdml.utils.typing import Array, Floats, Ints

Z = 1.96  # of a 95% interval
TARGET = 0.95  # share of labels that should be right
CERTAINTY = 0.9  # that they are
FEWEST = math.ceil(math.log(1 - CERTAINTY) / math.log(TARGET))  # held-out labels, all right: 45
PRIOR = 30.0  # labels that the mean confidence counts as much as
FEW_ERRORS = 3.0  # expected wrong labels that are as likely errors of the predictions
LARGEST_SHIFT = 20.0  # of confidences, in logits


class Accuracy(NamedTuple):
    """Share of labels that are right, from 0 to 1, with its 95% interval."""

    estimate: float
    low: float
    high: float
    n_labels: int  # that were held out


class Threshold(NamedTuple):
    """Confidence from which on most labels are right, as held-out labels show."""

    confidence: float
    n_rows: int  # new labels of this confidence or more
    n_labels: int  # held-out labels of this confidence or more


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
    weights = _class_weights(codes, n_rows) * (1 - trust * errors)
    if weights.sum() <= 0:
        weights = np.ones(len(codes))
    share = 1 - float(weights @ (wrong * seen[codes]) / weights.sum())
    n = float(weights.sum() ** 2 / (weights**2).sum())
    share = (n * share + PRIOR * confidence) / (n + PRIOR)
    return Accuracy(share, *wilson(share, n), len(codes))


def wilson(share: float, n: float) -> tuple[float, float]:
    """Compute Wilson's 95% interval of a share among n.

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
    return expit(logits + (low + high) / 2)


def threshold(held_out: HeldOut | None, confidences: Array, n_rows: Ints) -> Threshold | None:
    """Find a confidence from which on labels are right 95% of the time, with 90% certainty.

    The held-out labels of the highest confidences are a sample of the labels above a threshold. A
    one-sided bound of Clopper and Pearson [1]_ tests whether enough of these are right. The first
    set that is tested is chosen by the confidences alone, where they promise the clearest answer;
    larger ones follow until one fails, which keeps the certainty over all tests [2]_. Classes
    count as in :func:`held_out_accuracy`, and n labels as their effective number.

    Parameters
    ----------
    held_out : HeldOut or None
    confidences : array of shape (m,)
        Of the new labels, as the model gives them.
    n_rows : array of shape (C,)
        Unlabeled rows that were predicted to be of each class.

    Returns
    -------
    threshold : Threshold or None
        None if no set passes. With fewer held-out labels than 45, which are all right, none does.

    References
    ----------
    .. [1] Clopper, Pearson, "The use of confidence or fiducial limits illustrated in the case of
       the binomial", Biometrika 26, 1934.
    .. [2] Maurer, Hothorn, Lehmacher, "Multiple comparisons in drug clinical trials and preclinical
       assays: a-priori ordered hypotheses", Biometrie in der chemisch-pharmazeutischen Industrie
       6, 1995.

    Examples
    --------
    >>> codes, sure = np.zeros(60, int), np.array([0.99, 0.93, 0.5])
    >>> held_out = HeldOut(np.arange(60), codes, np.tile([0.9, 0.1], (60, 1)))
    >>> threshold(held_out, sure, np.array([3, 0]))
    Threshold(confidence=0.93, n_rows=2, n_labels=60)
    >>> threshold(HeldOut(*(part[:44] for part in held_out)), sure, np.array([3, 0]))
    """
    if held_out is None or not len(held_out.codes):
        return None
    given = held_out.distributions.max(axis=1)
    order = np.argsort(-given, kind="stable")
    given, codes = given[order], held_out.codes[order]
    right = held_out.distributions[order].argmax(axis=1) == codes
    weights = _class_weights(codes, n_rows)
    sums = np.cumsum(weights)
    n = sums**2 / np.maximum(np.cumsum(weights**2), np.finfo(float).tiny)
    share = np.cumsum(weights * right) / np.maximum(sums, np.finfo(float).tiny)
    mean = np.cumsum(weights * given) / np.maximum(sums, np.finfo(float).tiny)
    ends = np.append(given[1:] < given[:-1], True)  # equal confidences are in one set
    sets = np.flatnonzero(ends & (n >= FEWEST))
    if not len(sets):
        return None
    first = int(np.argmax((mean[sets] - TARGET) * np.sqrt(n[sets])))
    tested = sets[first:]
    passed = _least_share(share[tested], n[tested]) >= TARGET
    n_passed = len(passed) if passed.all() else int(np.argmin(passed))
    if not n_passed:
        return None
    last = int(tested[n_passed - 1])
    above = confidences[confidences >= given[last]]
    return Threshold(float(above.min()), len(above), last + 1) if len(above) else None


def _class_weights(codes: Ints, n_rows: Ints) -> Floats:
    """Weights of held-out labels by which classes count as often as they are predicted."""
    counts = np.bincount(codes, minlength=len(n_rows))
    weights: Floats = (n_rows / np.maximum(counts, 1))[codes]
    return weights if weights.sum() > 0 else np.ones(len(codes))


def _least_share(share: Floats, n: Floats) -> Floats:
    """Lower bound of Clopper and Pearson for shares that are right among n."""
    n_right = np.minimum(share * n, n)
    bound: Floats = beta.ppf(1 - CERTAINTY, n_right, n - n_right + 1)
    return np.where(n_right > 0, bound, 0.0)
