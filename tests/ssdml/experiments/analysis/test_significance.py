"""Tests of a difference: scipy's where there is nothing to correct, and tables of others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ssdml.experiments.analysis.statistics import corrected_t_test, friedman_nemenyi


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


def test_friedman_rejects_too_few_methods():
    with pytest.raises(ValueError, match="at least 3 methods on 2 data sets; got 2 on 5"):
        friedman_nemenyi(np.zeros((2, 5)))
