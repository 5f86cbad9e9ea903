"""Suspected labels: those that contradict the class probabilities from the other labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ssdml.classification.learning import HeldOut
from ssdml.classification.softmax import softmax
from ssdml.utils.typing import Array, Floats, Ints

TINY = 1e-12  # least probability
POWERS = np.geomspace(0.5, 8, 13)  # of the class probabilities
STEPS = 50  # of the share of wrong labels, which converges in fewer
PRIOR = 20.0  # right labels that are taken to be known besides
WRONG = 0.5  # probability of an error from which on a label is suspected


class SuspectedLabels(NamedTuple):
    """Labels that contradict the others, those that are wrong most probably first."""

    rows: Ints
    labels: Array
    classes: Array  # predicted from the other labels
    confidences: Array  # probability that the label is wrong


def suspects(held_out: HeldOut, classes: Array) -> SuspectedLabels:
    """Return the labels that are more likely wrong than right, by :func:`error_probabilities`."""
    found, errors = held_out.distributions.argmax(1), error_probabilities(held_out)
    wrong = np.flatnonzero(errors > WRONG)
    wrong = wrong[np.argsort(-errors[wrong], kind="stable")]
    labels = classes[held_out.codes[wrong]]
    return SuspectedLabels(held_out.rows[wrong], labels, classes[found[wrong]], errors[wrong])


def error_probabilities(held_out: HeldOut) -> Floats:
    r"""Compute the probability that each held-out label is wrong; 0 where it is predicted.

    Labels are a mixture: right ones follow the class probabilities p that the other labels give,
    wrong ones are of any class:

    .. math:: P(y \mid x) = (1 - \varepsilon) \frac{p_y^\beta}{\sum_c p_c^\beta}
        + \frac{\varepsilon}{C}

    The share ε of wrong labels and the sharpness β are the most probable ones, as if 20 more labels
    were known to be right. A class that is
    hard to tell from its neighbors is explained by p, and ε stays near 0; labels that were changed
    at random are not. A label that is wrong by confusion with a similar class goes unnoticed.

    O(h C) for each of 13 values of β.

    Examples
    --------
    >>> p = np.tile([0.9, 0.05, 0.05], (40, 1))
    >>> codes = np.repeat([0, 1, 2], [36, 2, 2])  # as many as expected
    >>> bool(error_probabilities(HeldOut(np.arange(40), codes, p)).max() < 0.5)
    True
    """
    codes, own = held_out.codes, np.arange(len(held_out.codes))
    logs = np.log(np.maximum(held_out.distributions, TINY))
    n, n_classes = logs.shape
    best, errors = -np.inf, np.zeros(n)
    for power in POWERS:
        right = softmax(power * logs)[own, codes]
        share = 0.1
        for _ in range(STEPS):  # expectation maximization
            wrong = share / n_classes
            found = wrong / ((1 - share) * right + wrong)
            share = found.sum() / (n + PRIOR)
        likelihood = float(np.log((1 - share) * right + share / n_classes).sum())
        likelihood += PRIOR * np.log(1 - share)
        if likelihood > best:
            best, errors = likelihood, found
    predicted = held_out.distributions.argmax(axis=1) == codes
    return np.where(predicted, 0.0, errors)
