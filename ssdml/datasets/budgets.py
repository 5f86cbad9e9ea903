"""Label budgets: how many labels, how they are drawn, noise and imbalance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ssdml.utils.typing import Ints
from ssdml.utils.validation import choose

DRAWS = {
    "class": "{} per class",
    "balanced": "{} in total",
    "natural": "{} at random",
    "suggested": "{} as suggested",
}


@dataclass(frozen=True)
class Budget:
    """Number of labels, how they are drawn, label noise and class imbalance.

    Attributes
    ----------
    n_labels : int or None
        None: all training rows are labeled.
    draw : {"class", "balanced", "natural", "suggested"}
        "class": ``n_labels`` per class. "balanced": ``n_labels`` in total, equally many per class
        up to one. "natural": ``n_labels`` in total, drawn from all rows; a class may get none.
        "suggested": ``n_labels`` in total, chosen by ``ssdml.suggest_labels`` in batches of one
        per class, starting without labels; drawn by comparisons only.
    noise : float
        Share of wrong labels, from 0 to 1, drawn uniformly among the other labeled classes.
    imbalance : float
        Ratio of the largest to the smallest class in the training rows, at least 1. Sizes fall
        geometrically, in a random order of classes. Test rows are kept.

    Notes
    -----
    The geometric sizes follow Cui et al., "Class-balanced loss based on effective number of
    samples", CVPR 2019, Section 5.1. There the labels are imbalanced too, as here with "natural";
    "class" and "balanced" label all classes equally.

    Examples
    --------
    >>> print(Budget(5), "|", Budget(50, "natural"), "|", Budget(None, noise=0.2))
    5 labels per class | 50 labels at random | all labels, 20% of them wrong
    """

    n_labels: int | None
    draw: str = "class"
    noise: float = 0.0
    imbalance: float = 1.0

    def __post_init__(self) -> None:
        choose(DRAWS, self.draw, "Budget: draw")
        for name, value in vars(self).copy().items():
            if isinstance(value, np.generic):  # JSON takes no numbers of NumPy
                object.__setattr__(self, name, value.item())
        n = self.n_labels
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
            raise ValueError(
                f"Budget: n_labels must be a positive integer, or None for all; got {n!r}."
            )
        if not 0 <= self.noise <= 1:
            raise ValueError(
                f"Budget: noise must be a share from 0 to 1; got {self.noise!r}. Pass 0.2 for 20%."
            )
        if not 1 <= self.imbalance < np.inf:
            raise ValueError(
                "Budget: imbalance must be at least 1, the ratio of the largest to the smallest "
                f"class; got {self.imbalance!r}."
            )
        if n is None:  # all labels are drawn in one way only
            object.__setattr__(self, "draw", "class")

    @property
    def is_plain(self) -> bool:
        """Whether the budget is just a number of labels per class."""
        return self == Budget(self.n_labels) and self.n_labels is not None

    @property
    def amount(self) -> str:
        """The number of labels in words, such as "1 label per class"."""
        if self.n_labels is None:
            return "all labels"
        return DRAWS[self.draw].format(f"{self.n_labels} label{'s' * (self.n_labels > 1)}")

    @property
    def condition(self) -> str:
        """Noise and imbalance in words; empty without either."""
        noise = f"{100 * self.noise:g}% of them wrong" * (self.noise > 0)
        imbalance = f"class imbalance {self.imbalance:g}" * (self.imbalance > 1)
        return ", ".join(filter(None, (noise, imbalance)))

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.amount, self.condition)))

    @property
    def order(self) -> tuple[str, float, float, float]:
        """Sort key."""
        n_labels = np.inf if self.n_labels is None else self.n_labels
        return (self.draw, self.imbalance, self.noise, n_labels)

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dictionary for JSON."""
        return asdict(self)


def draw_labeled(budget: Budget, by_class: list[Ints], order: Ints) -> Ints:
    """Draw the labeled rows; smaller budgets are subsets of larger ones.

    ``by_class`` has the candidates of each class, and ``order`` all rows, in random order.

    Examples
    --------
    >>> by_class = [np.array([4, 0, 2]), np.array([1])]
    >>> draw_labeled(Budget(3, "balanced"), by_class, np.array([4, 1, 0, 2]))
    array([4, 1, 0])
    """
    n = budget.n_labels
    if n is None:
        return np.concatenate(by_class)
    if budget.draw == "class":
        return np.concatenate([rows[:n] for rows in by_class])
    if budget.draw == "natural":
        return order[np.isin(order, np.concatenate(by_class))][:n]
    # Each round takes a row of every class, in the order of the rows.
    place = np.empty(int(order.max(initial=-1)) + 1, np.int64)
    place[order] = np.arange(len(order))
    rounds = np.concatenate([np.arange(len(rows)) for rows in by_class])
    rows = np.concatenate(by_class)
    return rows[np.lexsort((place[rows], rounds))][:n]


def thin_classes(by_class: list[Ints], imbalance: float, rng: np.random.Generator) -> list[Ints]:
    r"""Keep the first rows of each class, so that the sizes fall geometrically.

    .. math:: n_c = \max_j n_j \; r^{-k_c / (C - 1)}

    with the position :math:`k_c` of class c in a random order. A class with fewer rows keeps all;
    every class keeps one.

    Examples
    --------
    >>> classes = [np.arange(100), np.arange(100), np.arange(100)]
    >>> sorted(len(rows) for rows in thin_classes(classes, 100, np.random.default_rng(0)))
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


def mislabel(y: Ints, rows: Ints, noise: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw ``round(noise * len(rows))`` rows and a wrong label for each.

    The rows for less noise are a subset of those for more.

    Examples
    --------
    >>> y = np.array([0, 1, 0, 1])
    >>> rows, labels = mislabel(y, np.arange(4), 0.5, np.random.default_rng(0))
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
