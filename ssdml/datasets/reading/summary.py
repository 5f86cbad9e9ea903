"""Summary of a file: the roles of its columns, and doubts about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ssdml.utils.validation import warn

NAMED = 6  # of many names


class ReadingWarning(UserWarning):
    """A file was read by a guess, or without some of its columns."""


@dataclass
class Summary:
    """Samples, labels and doubts of a file, as text in a few lines.

    Attributes
    ----------
    title : str
        The file and the number of samples.
    facts : dict of str
        Sources of the samples, labels, ids and so on.
    left_out : dict of str
        Columns or files that became nothing, and why.
    doubts : list of str
        Guesses, each with the way to decide otherwise; :func:`ssdml.datasets.load_dataset` warns
        of them.

    Examples
    --------
    >>> print(Summary("t.csv: 2 samples", {"features": "a, b"}, {"c": "text"}))
    t.csv: 2 samples
      features: a, b
      left out: c (text)
    """

    title: str
    facts: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{name}: {fact}" for name, fact in self.facts.items() if fact]
        reasons: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            reasons.setdefault(reason, []).append(name)
        if reasons:
            parts = (f"{listed(names)} ({reason})" for reason, names in reasons.items())
            lines.append(f"left out: {', '.join(parts)}")
        return "\n  ".join([self.title, *lines, *(f"note: {doubt}" for doubt in self.doubts)])

    def warn(self) -> None:
        """Issue a warning for each doubt."""
        for doubt in self.doubts:
            warn(f"{self.title}: {doubt}", ReadingWarning)


def counted(n: int, singular: str, plural: str = "") -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> counted(1, "column"), counted(1200, "class", "classes")
    ('1 column', '1,200 classes')
    """
    return f"{n:,} {singular if n == 1 else plural or f'{singular}s'}"


def listed(names: Sequence[str], most: int = NAMED) -> str:
    """Name all, or the first and the last of many.

    Examples
    --------
    >>> listed(["a", "b"]), listed([f"f{i}" for i in range(100)], 3)
    ('a, b', 'f0, f1, ..., f99')
    """
    if len(names) <= most:
        return ", ".join(names)
    return ", ".join([*names[: most - 1], "...", names[-1]])
