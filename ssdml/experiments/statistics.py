"""Statistics of a comparison: means with intervals, paired differences, average ranks.

A column is a seed. Methods that were run on the same seeds saw the same labelled rows, so their
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
