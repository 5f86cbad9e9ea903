"""Class priors: shrunken shares, their estimate, and balance."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.graphs.propagation import class_prior
from ssdml.graphs.propagation.class_prior import (
    DIRICHLET,
    N_STEPS,
    balance_factors,
    estimate_prior,
    reweighted,
    sample_rows,
    shrunken_shares,
)

EVEN = np.full(3, 1 / 3)


def calibrated(rng, prior, n=5000, overlap=1.0):
    """Class probabilities of rows drawn by a prior, under even shares: three Gaussians."""
    codes = rng.choice(3, n, p=prior)
    X = np.eye(3)[codes] * 3 + overlap * rng.standard_normal((n, 3))
    logits = 3 * X / overlap**2
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


# Shares of labels


@pytest.mark.parametrize("counts", [[5, 5, 5], [1, 1], [7, 5, 6, 6]])
def test_counts_of_an_even_draw_give_even_shares(counts):
    shares = shrunken_shares(np.array(counts))
    np.testing.assert_allclose(shares, 1 / len(counts))


def test_shares_are_shrunk_by_chi_square():
    counts = np.array([40, 15, 5])
    even = 20
    chi_square = sum((count - even) ** 2 / even for count in counts)
    weight = 1 - 2 / chi_square
    expected = [weight * count / 60 + (1 - weight) / 3 for count in counts]
    np.testing.assert_allclose(shrunken_shares(counts), expected)


def test_many_labels_keep_their_shares():
    counts = np.array([6000, 3000, 1000])
    np.testing.assert_allclose(shrunken_shares(counts), counts / 10_000, atol=1e-3)


def test_one_class_has_share_one():
    np.testing.assert_array_equal(shrunken_shares(np.array([4])), [1.0])


# The estimate


def slow_estimate(Q, shares, factors=1.0):
    """Expectation maximization, row by row."""
    prior, weight = shares.copy(), DIRICHLET / np.mean([max(row) for row in Q]) ** 2
    for _ in range(N_STEPS):
        total = np.zeros(len(shares))
        for row in Q:
            posterior = row * factors * prior / shares
            total += posterior / posterior.sum()
        prior = (total / len(Q) + weight * shares) / (1 + weight)
    return prior / prior.sum()


@pytest.mark.parametrize("shares", [EVEN, np.array([0.2, 0.3, 0.5])])
def test_estimate_agrees_with_a_slow_loop(rng, shares):
    Q = calibrated(rng, [0.9, 0.05, 0.05], n=200)
    prior = estimate_prior(Q, shares, 5)
    assert prior.skew == 1
    np.testing.assert_allclose(prior.shares, slow_estimate(Q, shares), rtol=1e-9)


def test_estimate_finds_the_shares_of_overlapping_classes(rng):
    truth = np.array([0.85, 0.1, 0.05])
    Q = calibrated(rng, truth, n=20_000, overlap=1.5)
    naive, found = Q.mean(axis=0), estimate_prior(Q, EVEN, 10).shares
    assert np.abs(found - truth).max() < 0.07 < 0.1 < np.abs(naive - truth).max()


def test_shares_that_fit_are_kept(rng):
    prior = estimate_prior(calibrated(rng, EVEN), EVEN, 5)
    assert prior.skew == 0
    assert prior.shares is EVEN


def test_between_the_thresholds_shares_are_interpolated_in_logarithms():
    mean = np.array([0.62, 0.22, 0.16])
    Q = np.repeat(np.eye(3), np.rint(1000 * mean).astype(int), axis=0)
    prior = estimate_prior(Q, EVEN, 4)
    assert 0 < prior.skew < 1
    expected = EVEN * (slow_estimate(Q, EVEN) / EVEN) ** prior.skew
    np.testing.assert_allclose(prior.shares, expected / expected.sum(), rtol=1e-9)


def test_more_labels_detect_a_smaller_skew():
    Q = np.repeat(np.eye(3), [450, 300, 250], axis=0)
    skews = [estimate_prior(Q, EVEN, n_labels).skew for n_labels in (1, 10, 100)]
    assert skews[0] == 0
    assert skews == sorted(skews)
    assert skews[-1] == 1


def test_few_labels_in_all_detect_no_skew():
    Q, even = np.repeat(np.eye(2), [640, 360], axis=0), np.full(2, 0.5)
    assert estimate_prior(Q, even, 5).skew == 0
    assert estimate_prior(Q, even, 20).skew == 1


def test_skew_shows_in_evidence_that_wrong_labels_flatten():
    even = np.full(17, 1 / 17)
    certain = np.repeat(np.eye(17), [700, *[20] * 10, *[15] * 4, *[20] * 2], axis=0)
    flat, sharp = (estimate_prior(c * certain + (1 - c) * even, even, 5) for c in (0.2, 1.0))
    assert flat.skew == sharp.skew == 1
    assert 0.2 < flat.shares[0] < 0.5 < sharp.shares[0] < 0.7  # the less certain, the less


def test_confidence_counts_from_two_labels_per_class_on():
    even = np.full(17, 1 / 17)
    certain = np.repeat(np.eye(17), [700, *[20] * 10, *[15] * 4, *[20] * 2], axis=0)
    flat = 0.2 * certain + 0.8 * even
    assert [estimate_prior(flat, even, n_labels).skew for n_labels in (1, 2)] == [0, 1]


def test_skew_counts_by_the_square_of_the_confidence():
    """What a flat mixture with even shares leaves of a divergence falls by the square as well."""
    certain, even = np.repeat(np.eye(28), [800, *[80] * 27], axis=0), np.full(28, 1 / 28)
    skews = [estimate_prior(c * certain + (1 - c) * even, even, 10).skew for c in (1.0, 0.5, 0.25)]
    assert skews == [1, 1, 1]


def test_factors_correct_the_estimate_alone(rng):
    Q, factors = calibrated(rng, [0.8, 0.15, 0.05], n=500), np.array([1.2, 0.9, 1.0])
    plain = estimate_prior(Q, EVEN, 5)
    corrected = estimate_prior(Q, EVEN, 5, factors)
    assert corrected.skew == plain.skew == 1
    np.testing.assert_allclose(corrected.shares, slow_estimate(Q, EVEN, factors))


def test_renamed_classes_and_reordered_rows_change_nothing(rng):
    Q, order = calibrated(rng, [0.8, 0.15, 0.05], n=500), [2, 0, 1]
    plain = estimate_prior(Q, np.array([0.3, 0.3, 0.4]), 5)
    other = estimate_prior(rng.permutation(Q)[:, order], np.array([0.4, 0.3, 0.3]), 5)
    np.testing.assert_allclose(other.shares, plain.shares[order], rtol=1e-9)
    assert other.skew == pytest.approx(plain.skew)


def test_class_that_no_row_has_keeps_some_share():
    Q = np.tile([0.5, 0.5, 0.0], (50, 1))
    prior = estimate_prior(Q, EVEN, 5).shares
    assert 0.01 < prior[2] < 0.1
    assert prior.sum() == pytest.approx(1)


def test_one_class_is_certain():
    prior = estimate_prior(np.ones((5, 1)), np.ones(1), 3)
    assert (prior.shares.tolist(), prior.skew) == ([1.0], 0.0)


# Balance


def test_balanced_columns_have_the_prior(rng):
    Q, prior = rng.dirichlet(np.ones(4), 1000), np.array([0.4, 0.3, 0.2, 0.1])
    balanced = reweighted(Q, balance_factors(Q, prior))
    np.testing.assert_allclose(balanced.mean(axis=0), prior, rtol=2e-3)
    np.testing.assert_allclose(balanced.sum(axis=1), 1)
    odds = balanced / Q  # one factor per row times one per column
    np.testing.assert_allclose(odds / odds[:, :1], np.tile(odds[0] / odds[0, 0], (1000, 1)))


def test_balanced_rows_need_no_factors(rng):
    Q = rng.dirichlet(np.ones(4), 1000)
    np.testing.assert_allclose(balance_factors(Q, Q.mean(axis=0)), 1)


def test_balance_keeps_certain_rows():
    Q = np.eye(2)[[0, 0, 0, 1]]
    np.testing.assert_array_equal(reweighted(Q, balance_factors(Q, np.array([0.5, 0.5]))), Q)


def test_empty_column_stays_finite():
    factors = balance_factors(np.tile([0.7, 0.3, 0.0], (20, 1)), EVEN)
    assert np.isfinite(factors).all()


# Helpers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reweighting_keeps_the_dtype_and_zero_rows(dtype):
    rows = np.array([[0.5, 0.5], [0.0, 0.0]], dtype)
    found = reweighted(rows, np.array([1.0, 3.0]))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [[0.25, 0.75], [0, 0]])


def test_large_samples_are_bounded_and_the_same_each_time(monkeypatch):
    monkeypatch.setattr(class_prior, "ROWS", 100)
    rows = np.arange(1000)
    chosen = sample_rows(rows)
    assert len(np.unique(chosen)) == 100
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(sample_rows(rows), chosen)
    assert sample_rows(rows[:100]) is not rows
    assert len(sample_rows(rows[:100])) == 100
