"""Statistics over seeds and data sets: intervals, paired tests, ranks.

Methods that ran on the same seed saw the same labeled samples, so their scores are paired:
differences are taken per seed before they are averaged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.utils.typing import Array, Floats

MIN_SEEDS = 5  # for a p-value


class Estimate(NamedTuple):
    """A mean of n values and its interval, which is NaN if there is none."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2

    def margin(self, form: str = ".1f", sign: str = "±") -> str:
        """Format the half width with its sign; blanks if there is no interval.

        Examples
        --------
        >>> mean_interval([1.0, 2.0, 3.0]).margin(), mean_interval([1.0]).margin()
        ('±2.5', '    ')
        """
        text = sign + format(self.half_width, form)
        return text if self.has_interval else " " * len(text)

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval: not of one value, nor of a mean rank."""
        return self.low == self.low

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


class PairedTest(NamedTuple):
    """Mean difference and two-sided p-value."""

    mean: float
    p: float


def p_value(test: PairedTest, n_seeds: int) -> float:
    """Return the p-value of a test, NaN for fewer than five seeds.

    Examples
    --------
    >>> p_value(PairedTest(1.0, 0.03), 5), p_value(PairedTest(1.0, 0.03), 3)
    (0.03, nan)
    """
    return test.p if n_seeds >= MIN_SEEDS else float("nan")


class RankTest(NamedTuple):
    """Mean ranks, Friedman's test and Nemenyi's critical difference."""

    ranks: Floats  # (n_methods,), 1 is best
    p: float
    critical_difference: float


def mean_interval(
    values: npt.ArrayLike, *, test_share: float = 0.0, level: float = 0.95
) -> Estimate:
    r"""Mean of the finite values with its Student t-interval.

    .. math:: \bar v \pm t_{n-1,\,(1+\text{level})/2}
              \sqrt{(1/n + n_\text{test} / n_\text{train})\, s^2}

    Parameters
    ----------
    values : array-like of shape (n,)
        One value per seed; NaN where a run failed.
    test_share : float
        ``n_test / n_train``, as in :func:`corrected_t_test`. 0 gives the plain interval.
    level : float
        Coverage of the interval.

    Examples
    --------
    >>> estimate = mean_interval([1.0, 2.0, 3.0])
    >>> f"{estimate.mean:.1f} [{estimate.low:.2f}, {estimate.high:.2f}]"
    '2.0 [-0.48, 4.48]'
    """
    from scipy.special import stdtrit  # imports faster than scipy.stats

    finite = _finite(values)
    n = len(finite)
    mean = float(finite.mean()) if n else np.nan
    if n < 2:
        return Estimate(mean, np.nan, np.nan, n)
    error = finite.std(ddof=1) * np.sqrt(1 / n + test_share)
    half = float(stdtrit(n - 1, (1 + level) / 2) * error)
    return Estimate(mean, mean - half, mean + half, n)


def paired_difference(values: npt.ArrayLike, reference: npt.ArrayLike) -> Estimate:
    """Mean of ``values - reference`` over the seeds that both have, with its 95% interval.

    Examples
    --------
    The seeds differ a lot, the paired differences do not:

    >>> paired_difference([11.0, 21.0, 31.0], [10.0, 20.0, 30.0])
    Estimate(mean=1.0, low=1.0, high=1.0, n=3)
    """
    values, reference = np.asarray(values, dtype=float), np.asarray(reference, dtype=float)
    if values.shape != reference.shape:
        raise ValueError(
            "paired_difference: values and reference must have one entry per seed; "
            f"got shapes {values.shape} and {reference.shape}."
        )
    return mean_interval(values - reference)


def corrected_t_test(differences: npt.ArrayLike, *, test_share: float) -> PairedTest:
    r"""Two-sided t-test of paired differences over seeds with overlapping training samples.

    .. math:: t = \bar d \,/\, \sqrt{(1/n + n_\text{test} / n_\text{train})\, s^2}

    Parameters
    ----------
    differences : array-like of shape (n_seeds,)
        Differences between two methods on the same split; NaN and infinities are left out.
    test_share : float
        ``n_test / n_train``. 0 gives the plain paired test, which is right where the test samples
        are fixed and the labeled samples of two seeds hardly overlap.

    Returns
    -------
    test : PairedTest
        NaN for fewer than two seeds. For equal differences p is 0, or 1 if they are 0.

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

    finite = _finite(differences)
    n = len(finite)
    mean = float(finite.mean()) if n else np.nan
    if n < 2:
        return PairedTest(mean, np.nan)
    variance = float(finite.var(ddof=1))
    if variance == 0:
        return PairedTest(mean, float(mean == 0))
    t = mean / np.sqrt((1 / n + test_share) * variance)
    return PairedTest(mean, float(2 * stdtr(n - 1, -abs(t))))


def holm(p: npt.ArrayLike) -> Array:
    """Adjust p-values for multiple tests.

    Parameters
    ----------
    p : array-like
        Any shape; NaN stays NaN and is not counted.

    References
    ----------
    .. [1] Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
       Statistics 6, 1979.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    values = np.array(p, dtype=float, order="C")
    flat = values.ravel()  # a view
    order = np.argsort(flat, kind="stable")[: np.isfinite(flat).sum()]  # NaN is last
    raised = flat[order] * np.arange(len(order), 0, -1)
    flat[order] = np.minimum(1, np.maximum.accumulate(raised))
    return values


def average_ranks(scores: npt.ArrayLike) -> Floats:
    """Mean rank of each method over seeds or data sets; 1 is the highest score.

    Parameters
    ----------
    scores : array-like of shape (n_methods, n_columns)
        Ties share their mean rank. NaN, a failed run, ranks last.

    Examples
    --------
    >>> average_ranks([[90.0, 80.0], [70.0, 85.0], [60.0, float("nan")]])
    array([1.5, 1.5, 3. ])
    """
    from scipy.stats import rankdata

    table = np.asarray(scores, dtype=float)
    if table.ndim != 2:
        raise ValueError(f"average_ranks: scores must be 2-D; got shape {table.shape}.")
    return rankdata(np.where(np.isnan(table), np.inf, -table), axis=0).mean(axis=1)


def friedman_nemenyi(scores: npt.ArrayLike) -> RankTest:
    """Rank methods over data sets, with Friedman's test and Nemenyi's critical difference at 5%.

    Parameters
    ----------
    scores : array-like of shape (n_methods, n_datasets)
        Higher is better, and NaN ranks last; at least three methods and two data sets.

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
            "friedman_nemenyi: scores must have at least 3 methods and 2 data sets; got "
            f"{n_methods} and {n_datasets}."
        )
    q = studentized_range.ppf(0.95, n_methods, np.inf) / np.sqrt(2)
    difference = q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets))
    with np.errstate(invalid="ignore"):  # NaN if all methods are equal everywhere
        p = float(friedmanchisquare(*np.where(np.isnan(table), -np.inf, table)).pvalue)
    return RankTest(average_ranks(table), p, float(difference))


def _finite(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=float)
    return array[np.isfinite(array)]
