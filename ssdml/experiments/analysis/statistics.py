"""Statistics of a comparison: means with intervals, paired differences, average ranks.

A column is a seed. Methods that were run on the same seeds saw the same labeled rows, so their
scores are paired, and a difference is taken seed by seed before it is averaged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.utils.typing import Floats


class Estimate(NamedTuple):
    """A mean, the ends of its interval (NaN where there is but one value), and how many values."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval, the number after "±"."""
        return (self.high - self.low) / 2

    def margin(self, form: str = ".1f", sign: str = "±") -> str:
        """The number after the sign, with it; blanks where one value has none.

        Examples
        --------
        >>> mean_interval([1.0, 2.0, 3.0]).margin(), mean_interval([1.0]).margin()
        ('±2.5', '    ')
        """
        text = sign + format(self.half_width, form)
        return text if self.n > 1 else " " * len(text)

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def mean_interval(values: npt.ArrayLike, *, level: float = 0.95) -> Estimate:
    r"""Mean of the finite values with its Student t-interval.

    .. math:: \bar v \pm t_{n-1,\,(1+\text{level})/2} \; s / \sqrt n

    Parameters
    ----------
    values : array-like of shape (n,)
        One value a seed; NaN where a run failed.
    level : float
        Coverage of the interval.

    Examples
    --------
    >>> estimate = mean_interval([1.0, 2.0, 3.0])
    >>> f"{estimate.mean:.1f} [{estimate.low:.2f}, {estimate.high:.2f}]"
    '2.0 [-0.48, 4.48]'
    """
    from scipy.special import stdtrit  # a third of scipy.stats' import time

    finite = _finite(values)
    n = len(finite)
    if n == 0:
        return Estimate(np.nan, np.nan, np.nan, 0)
    mean = float(finite.mean())
    if n == 1:
        return Estimate(mean, np.nan, np.nan, 1)
    half = float(stdtrit(n - 1, (1 + level) / 2) * finite.std(ddof=1) / np.sqrt(n))
    return Estimate(mean, mean - half, mean + half, n)


def paired_difference(
    values: npt.ArrayLike, reference: npt.ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Mean of ``values - reference`` over the seeds that both have, with its interval.

    Examples
    --------
    The spread between the seeds is large, that of the differences is not:

    >>> paired_difference([11.0, 21.0, 31.0], [10.0, 20.0, 30.0])
    Estimate(mean=1.0, low=1.0, high=1.0, n=3)
    """
    values, reference = np.asarray(values, dtype=float), np.asarray(reference, dtype=float)
    if values.shape != reference.shape:
        raise ValueError(
            "paired_difference: values and reference must have one entry a seed; "
            f"got shapes {values.shape} and {reference.shape}."
        )
    return mean_interval(values - reference, level=level)


def average_ranks(scores: npt.ArrayLike) -> Floats:
    """Mean rank of each row over the columns; 1 is the highest score.

    Parameters
    ----------
    scores : array-like of shape (n_methods, n_columns)
        A column is a seed, or a seed and a score. Ties share the mean of their ranks, and NaN,
        a run that failed, ranks behind every score.

    Examples
    --------
    >>> average_ranks([[90.0, 80.0], [70.0, 85.0], [60.0, float("nan")]])
    array([1.5, 1.5, 3. ])
    """
    table = np.asarray(scores, dtype=float)
    if table.ndim != 2:
        raise ValueError(f"average_ranks: scores must be 2-D; got shape {table.shape}.")
    filled = np.where(np.isnan(table), -np.inf, table)
    # A rank is one, plus the number of better ones, plus half the number of equals beside oneself.
    better = (filled[None, :, :] > filled[:, None, :]).sum(axis=1)
    equal = (filled[None, :, :] == filled[:, None, :]).sum(axis=1)
    ranks: Floats = (better + (equal + 1) / 2).mean(axis=1)
    return ranks


def _finite(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=float)
    finite: Floats = array[np.isfinite(array)]
    return finite


# Whether a method is better than another, over seeds; and which are, over data sets.


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
        labeled rows of two seeds hardly meet, there is nothing to correct.

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
        ``n_test / n_train``; 0 gives :func:`ssdml.experiments.analysis.statistics.mean_interval`.
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
