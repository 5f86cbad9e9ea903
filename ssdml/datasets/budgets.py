"""How many rows are labeled, which, and how many labels are wrong: what a split is drawn by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ssdml.utils.typing import Ints
from ssdml.utils.validation import choose

DRAWS = {"class": "{} a class", "balanced": "{} in all", "natural": "{} as they fall"}


@dataclass(frozen=True)
class Budget:
    """A number of labels, how they are drawn, the share of wrong ones, the imbalance of the rows.

    Attributes
    ----------
    n_labels : int or None
        None: every training row is labeled.
    draw : {"class", "balanced", "natural"}
        What the number counts. "class": labels a class. "balanced": labels in all, as many of each
        class as of any other, give or take one. "natural": labels in all, of any rows, as they
        fall; a class may get none.
    noise : float
        Share of the labels given that name another class, from 0 to 1, drawn with equal chances
        among the other classes that have labels.
    imbalance : float
        At least 1: how many times more training rows the first class has than the last. The sizes
        between fall geometrically, in an order of classes that the seed draws. Test rows stay.

    Notes
    -----
    The geometric sizes are those of Cui et al., "Class-balanced loss based on effective number of
    samples", CVPR 2019, Section 5.1. There the labels are thinned with the rows; here "class" and
    "balanced" still label every class alike, and "natural" follows the imbalance.

    Examples
    --------
    >>> print(Budget(5), "|", Budget(50, "natural"), "|", Budget(None, noise=0.2))
    5 labels a class | 50 labels as they fall | all labels, 20 % of them wrong
    """

    n_labels: int | None
    draw: str = "class"
    noise: float = 0.0
    imbalance: float = 1.0

    def __post_init__(self) -> None:
        choose(DRAWS, self.draw, "Budget: draw")
        n = self.n_labels
        if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1):
            raise ValueError(
                f"Budget: n_labels must be a whole number from 1 on, or None for all; got {n!r}."
            )
        if not 0 <= self.noise <= 1:
            raise ValueError(
                f"Budget: noise must be a share of the labels from 0 to 1; got {self.noise!r}. "
                "A fifth of them is 0.2."
            )
        if not 1 <= self.imbalance < np.inf:
            raise ValueError(
                "Budget: imbalance must be at least 1, the largest class over the smallest; got "
                f"{self.imbalance!r}."
            )
        if n is None:  # there is one way to draw all
            object.__setattr__(self, "draw", "class")

    @property
    def is_plain(self) -> bool:
        """Whether it says no more than a number of labels a class."""
        return self == Budget(self.n_labels) and self.n_labels is not None

    @property
    def amount(self) -> str:
        """How many labels, in words: "1 label a class"."""
        if self.n_labels is None:
            return "all labels"
        return DRAWS[self.draw].format(f"{self.n_labels} label{'s' * (self.n_labels > 1)}")

    @property
    def condition(self) -> str:
        """What is wrong with the labels and the classes, in words; empty where nothing is."""
        noise = f"{100 * self.noise:g} % of them wrong" * (self.noise > 0)
        imbalance = f"classes of 1 to {self.imbalance:g} in size" * (self.imbalance > 1)
        return ", ".join(filter(None, (noise, imbalance)))

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.amount, self.condition)))

    @property
    def order(self) -> tuple[str, float, float, float]:
        """What budgets are sorted by: how they are drawn, what is wrong, how many there are."""
        n_labels = np.inf if self.n_labels is None else self.n_labels
        return (self.draw, self.imbalance, self.noise, n_labels)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return asdict(self)


def drawn(budget: Budget, by_class: list[Ints], order: Ints) -> Ints:
    """The labeled rows; those of a smaller number are always among those of a larger one.

    Parameters
    ----------
    budget : Budget
    by_class : list of ndarray of int
        Rows of each class that may be labeled, in the order in which they are drawn.
    order : ndarray of int
        All rows in that order.

    Returns
    -------
    rows : ndarray of int

    Examples
    --------
    >>> by_class = [np.array([4, 0, 2]), np.array([1])]
    >>> drawn(Budget(3, "balanced"), by_class, np.array([4, 1, 0, 2]))
    array([4, 1, 0])
    """
    n = budget.n_labels
    if n is None:
        return np.concatenate(by_class)
    if budget.draw == "class":
        return np.concatenate([rows[:n] for rows in by_class])
    if budget.draw == "natural":
        return order[np.isin(order, np.concatenate(by_class))][:n]
    # A round takes a row of every class; the order of the rows decides within a round.
    place = np.empty(int(order.max(initial=-1)) + 1, np.int64)
    place[order] = np.arange(len(order))
    turns = np.concatenate([np.arange(len(rows)) for rows in by_class])
    rows = np.concatenate(by_class)
    return rows[np.lexsort((place[rows], turns))][:n]


def thinned(by_class: list[Ints], imbalance: float, rng: np.random.Generator) -> list[Ints]:
    r"""The first rows of each class, so that the sizes fall geometrically.

    .. math:: n_c = \max_j n_j \; r^{-k_c / (C - 1)}

    with :math:`k_c` the place of class c in an order drawn by `rng`. A class with fewer rows keeps
    them all; every class keeps one.

    Examples
    --------
    >>> classes = [np.arange(100), np.arange(100), np.arange(100)]
    >>> sorted(len(rows) for rows in thinned(classes, 100, np.random.default_rng(0)))
    [1, 10, 100]
    """
    filled = [c for c, rows in enumerate(by_class) if len(rows)]
    if len(filled) < 2:
        return by_class
    places = dict(zip(filled, rng.permutation(len(filled)), strict=True))
    largest = max(map(len, by_class))
    shares = {c: imbalance ** (-place / (len(filled) - 1)) for c, place in places.items()}
    return [
        rows[: max(1, round(largest * shares[c]))] if c in shares else rows
        for c, rows in enumerate(by_class)
    ]


def mislabeled(y: Ints, rows: Ints, noise: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Rows whose label is wrong, ``round(noise * len(rows))`` of them, and what it says.

    Parameters
    ----------
    y : ndarray of shape (n,)
        True codes of all rows.
    rows : ndarray of int
        The labeled ones.
    noise : float
    rng : Generator
        Draws a number for every row, so that those of a smaller share are among those of a larger.

    Examples
    --------
    >>> y = np.array([0, 1, 0, 1])
    >>> rows, labels = mislabeled(y, np.arange(4), 0.5, np.random.default_rng(0))
    >>> len(rows), bool((labels != y[rows]).all())
    (2, True)
    """
    chance, other = rng.random(len(y)), rng.random(len(y))
    n_wrong = round(noise * len(rows))
    classes = np.unique(y[rows])
    if n_wrong == 0 or len(classes) < 2:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    wrong = np.sort(rows[np.argsort(chance[rows], kind="stable")[:n_wrong]])
    true = np.searchsorted(classes, y[wrong])
    step = 1 + (other[wrong] * (len(classes) - 1)).astype(np.int64)
    return wrong, classes[(true + step) % len(classes)]
