"""Class means that follow clusters of unlabeled rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ssdml.graphs.propagation.class_prior import sample_rows
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.scatter import class_means
from ssdml.utils.typing import Array, Floats, Indices, Ints

STEPS = 3  # more gain nothing


@dataclass(frozen=True, eq=False)
class Clusters:
    """The nearest of the class means, which unlabeled rows have moved."""

    rows: Array  # (n, r)
    means: Floats  # (C, r)

    def logits(self, rows: slice | Indices) -> Array:
        """Minus half the squared distances to the means, up to a constant of the row, (q, C)."""
        chosen, means = self.rows[rows], self.means.astype(self.rows.dtype)
        return chosen @ means.T - (means**2).sum(axis=1) / 2

    def again(self, labeled: Indices, codes: Ints, diffusion: Diffusion) -> Clusters:
        """Learn from other labels of the same classes."""
        return replace(self, means=moved_means(self.rows, labeled, codes, len(self.means)))


def moved_means(rows: Array, labeled: Indices, codes: Ints, n_classes: int) -> Floats:
    """Means (C, r) of the labeled rows of each class and of the other rows nearest to it.

    Three steps of constrained k-means [1]_, which starts from the means of the labeled rows. At
    most 50,000 unlabeled rows are used. Some of the rows of every class must be labeled.

    References
    ----------
    .. [1] Basu, Banerjee, Mooney, "Semi-supervised clustering by seeding", ICML 2002.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [1.2], [5.0], [4.0]])
    >>> moved_means(rows, np.array([0, 3]), np.array([0, 1]), 2).round(2)
    array([[0.73],
           [4.5 ]])
    """
    free = sample_rows(np.delete(np.arange(len(rows)), labeled))
    found = Clusters(rows, class_means(rows[labeled], codes, n_classes=n_classes))
    joined = rows[np.concatenate([labeled, free])]
    for _ in range(STEPS):
        nearest = [found.logits(free[b]).argmax(axis=1) for b in row_blocks(len(free), BLOCK_ROWS)]
        classes = np.concatenate([codes, *nearest])
        found = replace(found, means=class_means(joined, classes, n_classes=n_classes))
    return found.means
