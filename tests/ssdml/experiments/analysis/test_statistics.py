"""Intervals, paired tests and ranks, against SciPy and published tables."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ssdml.experiments.analysis.statistics import (
    average_ranks,
    corrected_t_test,
    friedman_nemenyi,
    mean_interval,
    paired_difference,
)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [2, 3, 30])
def test_interval_matches_scipy(rng, n, level):
    values = rng.normal(size=n)
    estimate = mean_interval(values, level=level)
    expected = stats.ttest_1samp(values, 0).confidence_interval(level)
    np.testing.assert_allclose((estimate.low, estimate.high), expected, rtol=1e-12)
    assert estimate.mean == pytest.approx(values.mean())
    assert estimate.half_width == pytest.approx((expected.high - expected.low) / 2)
    assert estimate.n == n


def test_intervals_cover_the_mean_at_their_level(rng):
    held = [(e := mean_interval(rng.normal(3, 2, size=5))).low <= 3 <= e.high for _ in range(2000)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)  # 4 standard errors


def test_one_value_has_no_interval():
    estimate = mean_interval([7.0])
    assert (estimate.mean, estimate.n) == (7.0, 1)
    assert np.isnan([estimate.low, estimate.high, estimate.half_width]).all()
    assert not estimate.excludes_zero


def test_means_skip_failed_runs():
    assert mean_interval([1.0, np.nan, 3.0]) == mean_interval([1.0, 3.0])


def test_no_value_gives_nan():
    estimate = mean_interval([np.nan])
    assert np.isnan(estimate.mean)
    assert estimate.n == 0


def test_paired_interval_matches_scipy(rng):
    a, b = rng.normal(size=(2, 6))
    estimate = paired_difference(a, b)
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    np.testing.assert_allclose((estimate.low, estimate.high), expected, rtol=1e-12)


def test_pairing_detects_a_small_gain(rng):
    seeds = rng.normal(scale=10, size=5)
    gained = seeds + 1 + 0.1 * rng.normal(size=5)
    assert paired_difference(gained, seeds).excludes_zero
    assert mean_interval(gained).low < mean_interval(seeds).high


def test_an_unpaired_seed_is_skipped():
    assert paired_difference([1.0, np.nan, 5.0], [0.0, 9.0, np.nan]).n == 1


def test_paired_difference_rejects_unequal_shapes():
    with pytest.raises(ValueError, match=r"one entry per seed; got shapes \(2,\) and \(3,\)"):
        paired_difference([1.0, 2.0], [1.0, 2.0, 3.0])


def test_average_ranks_match_scipy(rng):
    scores = rng.integers(0, 4, size=(5, 7)).astype(float)  # many ties
    expected = stats.rankdata(-scores, axis=0).mean(axis=1)
    np.testing.assert_allclose(average_ranks(scores), expected)


def test_failed_runs_rank_last():
    np.testing.assert_allclose(average_ranks([[np.nan], [-1e9], [3.0], [np.nan]]), [3.5, 2, 1, 3.5])


def test_average_ranks_reject_a_vector():
    with pytest.raises(ValueError, match=r"scores must be 2-D; got shape \(2,\)"):
        average_ranks([1.0, 2.0])


def test_uncorrected_test_matches_scipy(rng):
    ours, theirs = rng.standard_normal((2, 8)) + np.array([[0.7], [0.0]])
    test = corrected_t_test(ours - theirs, test_share=0.0)
    assert test.p == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert test.mean == pytest.approx((ours - theirs).mean())


def test_correction_widens_by_the_test_share(rng):
    differences = rng.standard_normal(10) + 1
    t = differences.mean() / (differences.std(ddof=1) * np.sqrt(1 / 10 + 0.5))
    test = corrected_t_test(differences, test_share=0.5)
    assert test.p == pytest.approx(2 * stats.t.sf(t, 9))
    assert test.p > corrected_t_test(differences, test_share=0.0).p


def test_the_test_is_symmetric_and_skips_failed_seeds(rng):
    differences = rng.standard_normal(6)
    plain = corrected_t_test(differences, test_share=0.1)
    assert corrected_t_test(-differences, test_share=0.1).p == pytest.approx(plain.p)
    with_gap = corrected_t_test([*differences, np.nan], test_share=0.1)
    assert with_gap == plain


def test_constant_or_too_few_differences():
    assert corrected_t_test([2.0, 2.0, 2.0], test_share=0.1) == (2.0, 0.0)
    assert corrected_t_test([0.0, 0.0], test_share=0.1) == (0.0, 1.0)
    assert np.isnan(corrected_t_test([1.0], test_share=0.1).p)
    assert np.isnan(corrected_t_test([], test_share=0.1).mean)


@pytest.mark.parametrize(("n_methods", "q"), [(3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)])
def test_critical_difference_matches_demsars_table(rng, n_methods, q):
    test = friedman_nemenyi(rng.standard_normal((n_methods, 10)))
    expected = q * np.sqrt(n_methods * (n_methods + 1) / 60)
    assert test.critical_difference == pytest.approx(expected, abs=2e-3)


def test_friedman_matches_scipy_and_detects_an_order(rng):
    scores = rng.standard_normal((4, 12))
    assert friedman_nemenyi(scores).p == pytest.approx(stats.friedmanchisquare(*scores).pvalue)
    ordered = friedman_nemenyi(scores + 10 * np.arange(4)[:, None])
    assert ordered.p < 1e-6
    np.testing.assert_array_equal(ordered.ranks, [4, 3, 2, 1])


def test_a_failed_run_ranks_last_in_both(rng):
    scores = rng.standard_normal((4, 12))
    failed, last = scores.copy(), scores.copy()
    failed[1, 3], last[1, 3] = np.nan, scores.min() - 1
    one, other = friedman_nemenyi(failed), friedman_nemenyi(last)
    np.testing.assert_array_equal(one.ranks, other.ranks)
    assert one.p == other.p


def test_friedman_rejects_too_few_methods():
    with pytest.raises(ValueError, match="at least 3 methods and 2 data sets; got 2 and 5"):
        friedman_nemenyi(np.zeros((2, 5)))
