"""Class priors of unlabeled rows, and distributions balanced to a prior."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ssdml.utils.typing import Array, Floats

SKEW = 0.1  # divergence of certain rows at which labels start to count as drawn by other shares
SKEW_OF_LABELS = 0.4  # the same, over labels per class, if that is more
SKEW_OF_CLASSES = 0.18  # the same, of each class but one, over labels per class**1.5, if less
CHANCE = 4.0  # divergence by the errors of a classifier of one label, over labels**1.5
GUESS = 0.5  # confidence with one label per class, where that of the evidence is a guess
DIRICHLET = 0.07  # weight of the labeled shares beside certain rows, in the estimate
N_STEPS = 20  # of the estimate, and of the balance
ROWS = 50_000  # rows from which both are computed


class ClassPrior(NamedTuple):
    """Shares of the classes, and whether the labels follow other ones."""

    shares: Floats  # (n_classes,), sum to 1
    skew: float  # 0: labels were drawn by the shares of the classes; 1: certainly not


def shrunken_shares(counts: Array) -> Floats:
    r"""Shares of labels, shrunk to even ones as far as chance explains their differences.

    The weight of the counts is ``max(0, 1 - (C - 1) / χ²)`` with χ² against even counts: even
    counts, and those of random draws from even classes, give even shares.

    Examples
    --------
    >>> shrunken_shares(np.array([5, 6, 4])).round(3)
    array([0.333, 0.333, 0.333])
    >>> shrunken_shares(np.array([90, 10])).round(3)
    array([0.894, 0.106])
    """
    even = counts.sum() / len(counts)
    chi_square = float(((counts - even) ** 2).sum() / even)
    weight = max(0.0, 1 - (len(counts) - 1) / max(chi_square, 1e-12))
    return (weight * counts + (1 - weight) * even) / counts.sum()


def estimate_prior(
    evidence: Array, shares: Floats, n_labels: float, factors: Floats | None = None
) -> ClassPrior:
    r"""Estimate the class prior of rows from their class probabilities under other shares.

    Labels drawn by the shares of the classes leave the mean of the evidence near the ``shares``.
    Where its Kullback-Leibler divergence exceeds a threshold, expectation maximization [1]_
    estimates the shares; from twice the threshold on, the estimate replaces the shares, and between
    the two it is interpolated in logarithms.

    For m labels per class the threshold is ``min(max(0.1, 0.4 / m), 0.18 (C - 1) / m**1.5)`` times
    the squared confidence, the mean of the rows' largest probabilities: doubtful evidence, as from
    wrong labels, shows little of a skew. With one label per class the confidence is a guess, and
    0.5 is taken instead. It is at least ``4 / (C m)**1.5`` and (C - 1) / n: the more labels and
    rows, the less of the divergence is chance. The Dirichlet prior of the estimate weighs 0.07 of
    the rows over the squared confidence.

    Parameters
    ----------
    evidence : array of shape (n, n_classes)
        Calibrated class probabilities. At most 50,000 rows are used.
    shares : array of shape (n_classes,)
        Positive; the prior that the evidence contains.
    n_labels : float
        Labels per class behind the evidence.
    factors : array of shape (n_classes,) or None
        By which the columns are multiplied before the estimate, to correct what held-out labels
        contradict. None: 1.

    References
    ----------
    .. [1] Saerens, Latinne, Decaestecker, "Adjusting the outputs of a classifier to new a priori
       probabilities", Neural Computation 14(1), 2002, Eq. (2.9). The regularization and the
       threshold, which lies between data sets with even and with skewed classes, are ours.

    Examples
    --------
    >>> Q = np.repeat([[0.95, 0.05], [0.1, 0.9]], [90, 10], axis=0)
    >>> prior = estimate_prior(Q, np.array([0.5, 0.5]), 5)
    >>> prior.shares.round(2), prior.skew
    (array([0.92, 0.08]), 1.0)
    """
    rows = sample_rows(evidence)
    mean = np.maximum(rows.mean(axis=0, dtype=np.float64), 1e-12)
    divergence = float(mean @ np.log(mean / shares))
    free = max(1, len(shares) - 1)
    known = float(np.clip(n_labels - 1, 0, 1))
    confidence = float(rows.max(axis=1).mean(dtype=np.float64))
    certain = min(max(SKEW, SKEW_OF_LABELS / n_labels), SKEW_OF_CLASSES * free / n_labels**1.5)
    chance = CHANCE / (n_labels * len(shares)) ** 1.5
    shown = (known * confidence + (1 - known) * GUESS) ** 2
    threshold = max(shown * certain, chance, free / len(rows))
    skew = float(np.clip(divergence / threshold - 1, 0, 1))
    if skew == 0:
        return ClassPrior(shares, 0.0)
    if factors is not None:
        rows = reweighted(rows, factors)
    prior, weight = shares, DIRICHLET / confidence**2
    for _ in range(N_STEPS):
        posterior = reweighted(rows, prior / shares).mean(axis=0, dtype=np.float64)
        prior = (posterior + weight * shares) / (1 + weight)
    prior = shares * (np.maximum(prior, 1e-12) / shares) ** skew
    return ClassPrior(prior / prior.sum(), skew)


def balance_factors(distributions: Array, prior: Floats) -> Floats:
    """Factors of the columns that give distributions the column means ``prior``.

    Sinkhorn's iteration: columns are scaled to the prior and rows to sum to 1, in turn, at most 20
    times. At most 50,000 rows are used.

    Examples
    --------
    >>> P = np.array([[0.9, 0.1], [0.6, 0.4]])
    >>> reweighted(P, balance_factors(P, np.array([0.5, 0.5]))).mean(axis=0).round(3)
    array([0.5, 0.5])
    """
    rows, factors = sample_rows(distributions), np.ones(distributions.shape[1])
    for _ in range(N_STEPS):
        ratio = prior / np.maximum(rows.mean(axis=0, dtype=np.float64), 1e-12)
        factors *= ratio
        rows = reweighted(rows, ratio)
        if np.abs(ratio - 1).max() < 1e-3:
            break
    return factors


def reweighted(distributions: Array, factors: Array) -> Array:
    """Multiply the columns by factors, and scale the rows to sum to 1.

    Examples
    --------
    >>> reweighted(np.array([[0.5, 0.5]]), np.array([3.0, 1.0]))
    array([[0.75, 0.25]])
    """
    product: Array = distributions * np.asarray(factors, distributions.dtype)
    product /= np.maximum(product.sum(axis=1, keepdims=True), np.finfo(product.dtype).tiny)
    return product


def sample_rows(rows: Array) -> Array:
    """At most 50,000 rows, at random but always the same ones."""
    if len(rows) <= ROWS:
        return rows
    return rows[np.sort(np.random.default_rng(0).choice(len(rows), ROWS, replace=False))]
