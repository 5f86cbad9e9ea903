"""Format numbers for tables and reports."""

from __future__ import annotations

import math

from ssdml.experiments.analysis.statistics import Estimate


def number(value: float, decimals: int = 1) -> str:
    r"""Format a number with thin spaces between thousands; a dash for NaN.

    Examples
    --------
    >>> number(88.123), number(60000, 0), number(float("nan"))
    ('88.1', '60\u202f000', '–')
    """
    return "–" if math.isnan(value) else f"{value:,.{decimals}f}".replace(",", "\u202f")


def signed(value: float, decimals: int = 1) -> str:
    """Format a number with its sign; a dash for NaN.

    Examples
    --------
    >>> signed(2.04), signed(-0.31), signed(0.01)
    ('+2.0', '−0.3', '0.0')
    """
    if math.isnan(value):
        return "–"
    text = f"{value:+.{decimals}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def interval(estimate: Estimate) -> str:
    """Format the ends of an interval; empty if there is none.

    Examples
    --------
    >>> interval(Estimate(1.0, -0.5, 2.5, 3))
    '−0.5 to +2.5'
    """
    if math.isnan(estimate.low):
        return ""
    return f"{signed(estimate.low)} to {signed(estimate.high)}"


def duration(seconds: float) -> str:
    """Format seconds in a suitable unit; a dash for NaN.

    Examples
    --------
    >>> [duration(s) for s in (0.00002, 0.0123, 4.56, 78.9, 200)]
    ['< 1 ms', '12 ms', '4.6 s', '79 s', '3 min 20 s']
    """
    if math.isnan(seconds):
        return "–"
    if seconds < 1:
        return "< 1 ms" if seconds < 0.001 else f"{1000 * seconds:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{round(seconds) // 60} min {round(seconds) % 60} s"
