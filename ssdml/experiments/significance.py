"""Whether a method is better than another, over seeds; and which are, over data sets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.experiments.statistics import Estimate, average_ranks, mean_interval
from ssdml.utils.typing import Floats


class PairedTest(NamedTuple):
    """Mean difference, and the probability of one as far from 0 if there were none."""

    mean: float
    p: float


class RankTest(NamedTuple):
    """Ranks over data sets, and how far apart they are for two methods to differ."""

    ranks: Floats  # (n_methods,), 1 is best
    p: float  # of Friedman's test that no method differs
    critical_difference: float  # Nemenyi's


def corrected_t_test(differences: npt.ArrayLike, *, test_share: float) -> PairedTest:
    r"""Student's test of paired differences over seeds whose training rows overlap, two-sided.

    .. math:: t = \bar d \,/\, \sqrt{(1/n + n_\text{test} / n_\text{train})\, s^2}

    Parameters
    ----------
    differences : array-like of shape (n_seeds,)
        Of the two methods' scores on the same split; those that are not finite are left out.
    test_share : float
        ``n_test / n_train``. 0 is the plain paired test: where the test rows stay and the few
        labelled rows of two seeds hardly meet, there is nothing to correct.

    Returns
    -------
    test : PairedTest
        NaN for fewer than two seeds. Differences that are all alike have p = 0, or 1 if they are 0.

    References
    ----------
    .. [1] Nadeau, Bengio, "Inference for the generalization error", Machine Learning 52, 2003.

    Examples
    --------
    >>> test = corrected_t_test([1.0, 2.0, 3.0], test_share=0.0)
    >>> round(test.mean, 3), round(test.p, 3)
    (2.0, 0.074)
    """
    from scipy.special import stdtr

    values = np.asarray(differences, dtype=float)
    values = values[np.isfinite(values)]
    n = len(values)
    if n < 2:
        return PairedTest(float(values.mean()) if n else np.nan, np.nan)
    mean, variance = float(values.mean()), float(values.var(ddof=1))
    if variance == 0:
        return PairedTest(mean, float(mean == 0))
    t = mean / np.sqrt((1 / n + test_share) * variance)
    return PairedTest(mean, float(2 * stdtr(n - 1, -abs(t))))


def corrected_interval(
    differences: npt.ArrayLike, *, test_share: float, level: float = 0.95
) -> Estimate:
    r"""Mean of paired differences with the interval of :func:`corrected_t_test`.

    .. math:: \bar d \pm t_{n-1,\,(1+\text{level})/2}
              \sqrt{(1/n + n_\text{test} / n_\text{train})\, s^2}

    Parameters
    ----------
    differences : array-like of shape (n_seeds,)
        Those that are not finite are left out.
    test_share : float
        ``n_test / n_train``; 0 gives :func:`ssdml.experiments.statistics.mean_interval`.
    level : float
        Coverage of the interval.

    Examples
    --------
    >>> estimate = corrected_interval([1.0, 2.0, 3.0], test_share=0.5)
    >>> f"{estimate.mean:.1f} [{estimate.low:.2f}, {estimate.high:.2f}]"
    '2.0 [-1.93, 5.93]'
    """
    plain = mean_interval(differences, level=level)
    half = plain.half_width * np.sqrt(1 + plain.n * test_share)
    return Estimate(plain.mean, plain.mean - half, plain.mean + half, plain.n)


def holm(p: npt.ArrayLike) -> Floats:
    """Probabilities adjusted for their number, so that 5 % holds for all tests together.

    Parameters
    ----------
    p : array-like
        Of any shape; NaN stays, and counts for nothing.

    References
    ----------
    .. [1] Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
       Statistics 6, 1979.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.array(p, dtype=float)
    known = np.flatnonzero(np.isfinite(values.ravel()))
    order = known[np.argsort(values.ravel()[known], kind="stable")]
    raised = values.ravel()[order] * np.arange(len(order), 0, -1)
    adjusted = values.ravel().copy()
    adjusted[order] = np.minimum(1, np.maximum.accumulate(raised))
    return adjusted.reshape(values.shape)


def friedman_nemenyi(scores: npt.ArrayLike, *, level: float = 0.05) -> RankTest:
    """Ranks of methods over data sets, Friedman's test and Nemenyi's critical difference.

    Parameters
    ----------
    scores : array-like of shape (n_methods, n_datasets)
        Higher is better; at least three methods and two data sets.
    level : float
        Of the critical difference.

    References
    ----------
    .. [1] Demšar, "Statistical comparisons of classifiers over multiple data sets", JMLR 7, 2006,
       Section 3.2.2.

    Examples
    --------
    >>> test = friedman_nemenyi([[3, 3, 3], [2, 2, 1], [1, 1, 2]])
    >>> test.ranks.round(2), round(test.critical_difference, 2)
    (array([1.  , 2.33, 2.67]), 1.91)
    """
    from scipy.stats import friedmanchisquare, studentized_range

    table = np.asarray(scores, dtype=float)
    n_methods, n_datasets = table.shape
    if n_methods < 3 or n_datasets < 2:
        raise ValueError(
            "friedman_nemenyi: scores must be of at least 3 methods on 2 data sets; got "
            f"{n_methods} on {n_datasets}."
        )
    q = studentized_range.ppf(1 - level, n_methods, np.inf) / np.sqrt(2)
    difference = q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets))
    with np.errstate(invalid="ignore"):  # all methods alike on every set: no statistic, p is NaN
        p = float(friedmanchisquare(*table).pvalue)
    return RankTest(average_ranks(table), p, float(difference))
