"""Estimates of how many new labels are right."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from ssdml.classification.learning import HeldOut
from ssdml.experiments.labeling.accuracy import (
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


def test_the_threshold_takes_as_many_rows_as_it_can(rng):
    confidences = rng.uniform(0.5, 1, 300)
    found = threshold(confidences, 0.9)
    assert confidences[confidences >= found.confidence].mean() >= 0.9
    assert (confidences >= found.confidence).sum() == found.n_rows
    below = confidences[confidences < found.confidence].max()
    assert confidences[confidences >= below].mean() < 0.9
    assert threshold(np.full(9, 0.5)) is None
