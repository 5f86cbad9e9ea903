"""Which classes a method takes for which: a table where they are few, else the commonest errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ssdml.experiments.predictions import Confusion

MOST_CLASSES = 12  # of a table that fits on the page
MOST_PAIRS = 12


@dataclass(frozen=True)
class Cell:
    """Rows of one class that were taken for one class."""

    count: int
    share: float  # of the rows of the true class


@dataclass(frozen=True)
class Pair:
    """Two classes of which one is taken for the other."""

    true: str
    taken: str
    count: int
    share: float


class Confused(NamedTuple):
    """What is taken for what; either the table or the pairs are empty."""

    names: Sequence[str]
    table: list[list[Cell]]
    pairs: list[Pair]


def confused(found: Confusion, names: Sequence[str]) -> Confused:
    """What the report shows of which classes were taken for which.

    Examples
    --------
    >>> counts = Confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([3, 1, 2]))
    >>> confused(counts, ["a", "b"]).table[0]
    [Cell(count=3, share=0.75), Cell(count=1, share=0.25)]
    """
    true, taken, counts = found
    sizes = np.bincount(true, counts, minlength=len(names))
    if len(names) <= MOST_CLASSES:
        whole = np.zeros((len(names), len(names)), dtype=np.int64)
        whole[true, taken] = counts
        shares = whole / np.maximum(sizes, 1)[:, None]
        table = [
            [Cell(int(n), float(share)) for n, share in zip(*rows, strict=True)]
            for rows in zip(whole, shares, strict=True)
        ]
        return Confused(names, table, [])
    wrong = np.flatnonzero(true != taken)
    wrong = wrong[np.argsort(-counts[wrong], kind="stable")][:MOST_PAIRS]
    places = zip(true[wrong].tolist(), taken[wrong].tolist(), counts[wrong].tolist(), strict=True)
    return Confused(
        names, [], [Pair(names[i], names[j], n, float(n / sizes[i])) for i, j, n in places]
    )
