"""Which classes a method takes for which: a table where they are few, else the commonest errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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


def confused(counts: npt.NDArray[np.int64], names: Sequence[str]) -> Confused:
    """What the report shows of a confusion matrix, true classes in rows.

    Examples
    --------
    >>> confused(np.array([[3, 1], [0, 2]]), ["a", "b"]).table[0]
    [Cell(count=3, share=0.75), Cell(count=1, share=0.25)]
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    if len(names) <= MOST_CLASSES:
        table = [
            [Cell(int(n), float(share)) for n, share in zip(*rows, strict=True)]
            for rows in zip(counts, shares, strict=True)
        ]
        return Confused(names, table, [])
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    places = [divmod(int(place), len(names)) for place in order if wrong.flat[place]]
    pairs = [Pair(names[i], names[j], int(counts[i, j]), float(shares[i, j])) for i, j in places]
    return Confused(names, [], pairs)
