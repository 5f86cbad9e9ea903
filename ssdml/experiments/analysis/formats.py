"""Format numbers and text for tables and reports."""

from __future__ import annotations

import math
import unicodedata

from ssdml.experiments.analysis.statistics import Estimate


def number(value: float, decimals: int = 1) -> str:
    """Format a number with commas between thousands; a dash for NaN.

    Examples
    --------
    >>> number(88.123), number(60000, 0), number(float("nan"))
    ('88.1', '60,000', '–')
    """
    return "–" if math.isnan(value) else f"{value:,.{decimals}f}"


def percent(value: float, decimals: int = 1) -> str:
    """Format a percentage; a dash for NaN.

    Examples
    --------
    >>> percent(88.123), percent(float("nan"))
    ('88.1%', '–')
    """
    return "–" if math.isnan(value) else f"{number(value, decimals)}%"


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


MARKS = "\n\t\u00ad\u200c\u200d\u200e\u200f"  # controls that texts of some languages need
RIGHT_TO_LEFT = ("R", "AL", "AN")
ISOLATE, END = "\u2068", "\u2069"


def visible(text: str) -> str:
    r"""Escape control characters, and isolate text that is written from right to left.

    Otherwise names in files from others could hide or reverse the text next to them.

    Examples
    --------
    >>> visible("a\x1b[2Jb"), visible("cat\u202e.exe"), visible("Zürich 数字")
    ('a\\x1b[2Jb', 'cat\\u202e.exe', 'Zürich 数字')
    >>> ascii(visible("\u05d0b"))
    "'\\u2068\\u05d0b\\u2069'"
    """
    shown = "".join(map(_escaped, text))
    if any(unicodedata.bidirectional(c) in RIGHT_TO_LEFT for c in shown):
        return f"{ISOLATE}{shown}{END}"
    return shown


def _escaped(character: str) -> str:
    if character in MARKS or unicodedata.category(character)[0] != "C":
        if character not in "\u2028\u2029":  # line separators
            return character
    return character.encode("unicode_escape").decode()
