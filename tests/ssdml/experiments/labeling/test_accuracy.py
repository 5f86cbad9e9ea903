"""Estimates of how many new labels are right."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binomtest

from ssdml.classification.learning import HeldOut
from ssdml.experiments.labeling.accuracy import (
    FEWEST,
    Threshold,
    held_out_accuracy,
    threshold,
    wilson,
    with_mean,
)


@pytest.mark.parametrize(("right", "n"), [(0, 5), (7, 9), (30, 30)])
def test_wilson_is_that_of_scipy(right, n):
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right / n, n) == pytest.approx((expected.low, expected.high), abs=1e-4)


def test_classes_count_as_often_as_they_are_predicted():
    codes = np.repeat([0, 1], [40, 10])
    predicted = np.where(np.arange(50) < 20, 1, codes)  # half of the first class is wrong
    held_out = HeldOut(np.arange(50), codes, np.eye(2)[predicted])
    seen = np.sqrt(0.8)  # four of five labels were
    for share in (0.0, 0.3, 1.0):
        n_rows = np.array([1000 * share, 1000 * (1 - share)])
        found = held_out_accuracy(held_out, n_rows, np.zeros(50), 0.7)
        weights = np.repeat([share / 40, (1 - share) / 10], [40, 10])
        n = weights.sum() ** 2 / (weights**2).sum()
        expected = (n * (1 - 0.5 * seen * share) + 30 * 0.7) / (n + 30)
        assert found.estimate == pytest.approx(expected)
        assert found.low <= found.estimate <= found.high
    assert found.n_labels == 50


def test_labels_that_are_wrong_do_not_count():
    codes = np.zeros(2000, dtype=np.int64)
    errors = np.where(np.arange(2000) < 500, 1.0, 0.0)
    held_out = HeldOut(np.arange(2000), codes, np.eye(2)[errors.astype(int)])
    assert held_out_accuracy(held_out, np.array([9, 0]), errors, 1.0).estimate > 0.99
    assert held_out_accuracy(held_out, np.array([9, 0]), np.zeros(2000), 1.0).estimate < 0.8


def test_a_single_suspect_may_be_an_error_of_the_predictions():
    errors = np.where(np.arange(20) < 1, 1.0, 0.0)
    held_out = HeldOut(np.arange(20), np.zeros(20, np.int64), np.eye(2)[errors.astype(int)])
    assert held_out_accuracy(held_out, np.array([9, 0]), errors, 1.0).estimate < 0.99


def test_nothing_is_estimated_without_held_out_labels():
    nothing = HeldOut(np.empty(0, int), np.empty(0, int), np.empty((0, 2)))
    assert held_out_accuracy(None, np.array([1, 1]), np.empty(0), 0.5) is None
    assert held_out_accuracy(nothing, np.array([1, 1]), np.empty(0), 0.5) is None


def test_confidences_are_shifted_to_a_mean_in_their_order(rng):
    confidences = rng.uniform(0.2, 1, 500)
    for mean in (0.3, 0.7, 0.99):
        shifted = with_mean(confidences, mean)
        assert shifted.mean() == pytest.approx(mean, abs=1e-6)
        order = np.argsort(confidences)
        assert (np.diff(shifted[order]) >= 0).all()


def drawn(rng, n_labels, shift):
    """Held-out labels, confidences of 2,000 rows, and probabilities that these are right."""
    logits = rng.normal(2, 1.5, n_labels + 2000)
    right, confidence = 0.5 + expit(logits) / 2, 0.5 + expit(logits + shift) / 2
    codes = rng.integers(0, 2, n_labels)
    predicted = np.where(rng.uniform(size=n_labels) < right[:n_labels], codes, 1 - codes)
    sure = confidence[:n_labels, None]
    distributions = np.where(np.eye(2)[predicted] > 0, sure, 1 - sure)
    held_out = HeldOut(np.arange(n_labels), codes, distributions)
    return held_out, confidence[n_labels:], right[n_labels:]


@pytest.mark.parametrize("shift", [0.0, 1.5], ids=["calibrated", "too sure"])
@pytest.mark.parametrize("n_labels", [60, 300, 1500])
def test_rows_above_the_threshold_are_right_as_promised(rng, n_labels, shift):
    n_found = n_wrong = 0
    for _ in range(200):
        held_out, confidences, right = drawn(rng, n_labels, shift)
        found = threshold(held_out, confidences, np.array([1000, 1000]))
        if found is not None:
            n_found += 1
            above = confidences >= found.confidence
            assert above.sum() == found.n_rows
            n_wrong += right[above].mean() < 0.95
    assert n_wrong <= 33  # of 200 with probability 0.1: more has a probability below 0.002
    assert n_found > 150 or n_labels < 1500 or shift > 0


def test_a_threshold_needs_labels_that_can_show_it():
    for n, found in ((FEWEST - 1, None), (FEWEST, Threshold(0.7, 2, FEWEST))):
        held_out = HeldOut(np.arange(n), np.zeros(n, int), np.tile([0.7, 0.3], (n, 1)))
        assert threshold(held_out, np.array([0.9, 0.7, 0.6]), np.array([3, 0])) == found
    bound = binomtest(FEWEST, FEWEST, alternative="greater").proportion_ci(0.9).low
    fewer = binomtest(FEWEST - 1, FEWEST - 1, alternative="greater").proportion_ci(0.9).low
    assert fewer < 0.95 <= bound
    assert threshold(None, np.array([0.9]), np.array([1, 0])) is None
