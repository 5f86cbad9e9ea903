"""Held-out samples, by which the best network of a fit is chosen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ssdml.networks.data import Samples
from ssdml.utils.typing import Indices, Ints
from ssdml.utils.validation import UNLABELED


class HeldOut(NamedTuple):
    """Samples and their labels; ``rows`` are those of a part of the samples."""

    samples: Samples
    y: Ints
    rows: Indices | None = None

    def check(self, who: str, fraction: float) -> None:
        """Raise if the samples shall choose the network and no two share a class."""
        counts = np.unique(self.y[self.y != UNLABELED], return_counts=True)[1]
        if fraction and counts.max(initial=0) < 2:
            raise ValueError(
                f"{who}: validation must label two samples of a class to choose a network by R@1; "
                f"got {len(counts)} classes with one. Label more, or set validation_fraction=0."
            )


def held_out_rows(labels: Ints, fraction: float, seed: int, who: str) -> Indices:
    """Draw a share of the labeled samples of each class; one label of a class stays at least.

    Raises ValueError if no two drawn samples share a class: R@1 would not be defined.

    Examples
    --------
    >>> labels = np.repeat([0, 1, -1], [10, 10, 30])
    >>> rows = held_out_rows(labels, 0.15, 0, "fit")
    >>> labels[rows].tolist()
    [0, 0, 1, 1]
    """
    rng = np.random.default_rng([seed, 1])
    drawn, most = [], 0
    for code in np.unique(labels[labels != UNLABELED]):
        rows = np.flatnonzero(labels == code)
        count = min(len(rows) - 1, round(fraction * len(rows)))
        drawn.append(rng.choice(rows, count, replace=False))
        most = max(most, count)
    if most < 2:
        raise ValueError(
            f"{who}: validation_fraction must hold out two labels of a class; got {fraction} of at "
            "most "
            f"{np.unique(labels[labels != UNLABELED], return_counts=True)[1].max(initial=0)} "
            "labels per class. Raise it, or pass validation=(samples, labels) to fit."
        )
    return np.sort(np.concatenate(drawn))
