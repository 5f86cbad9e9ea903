"""Labeled pairs: scatters of similar and dissimilar pairs, random pairs, distances."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from ssdml.utils.labels import class_codes
from ssdml.utils.scatter import class_means
from ssdml.utils.typing import Array, Floats
from ssdml.utils.validation import UNLABELED


class LabeledPairs(NamedTuple):
    """Mean outer products of the differences of unordered pairs; zeros if there are none."""

    similar: Floats  # (d, d)
    dissimilar: Floats
    n_similar: int
    n_dissimilar: int


def labeled_pairs(X: npt.ArrayLike, labels: npt.ArrayLike) -> LabeledPairs:
    r"""Compute the scatters of the similar and of the dissimilar pairs of labeled rows.

    .. math:: \sum_{i<j} (z_i - z_j)(z_i - z_j)^\top = n \sum_i (z_i - \bar z)(z_i - \bar z)^\top

    within each class and over all rows: O(m d²) for m labeled rows, without forming pairs.

    Examples
    --------
    >>> pairs = labeled_pairs([[0.0], [2.0], [3.0], [9.0]], [0, 0, 1, -1])
    >>> pairs.similar.item(), pairs.dissimilar.item(), pairs.n_similar, pairs.n_dissimilar
    (4.0, 5.0, 1, 2)
    """
    codes, n_classes = class_codes(np.asarray(labels))
    known = codes != UNLABELED
    rows, codes = np.asarray(X, dtype=np.float64)[known], codes[known]
    m, counts = len(rows), np.bincount(codes, minlength=n_classes)
    # Subtract a row before the mean: equal rows then give exact zeros, not rounding errors.
    first = np.unique(codes, return_index=True)[1]
    within = rows - rows[first][codes]
    within -= class_means(within, codes, n_classes=n_classes)[codes]
    centered = rows - rows[:1]
    centered -= centered.mean(axis=0) if m else 0
    similar = (within * counts[codes, None]).T @ within
    dissimilar = m * centered.T @ centered - similar
    n_similar = int((counts * (counts - 1)).sum()) // 2
    n_dissimilar = m * (m - 1) // 2 - n_similar
    if not n_dissimilar:
        dissimilar = np.zeros_like(similar)  # exactly, without rounding errors
    return LabeledPairs(
        similar / max(n_similar, 1), dissimilar / max(n_dissimilar, 1), n_similar, n_dissimilar
    )


def draw_pairs(labels: npt.ArrayLike, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw similar and dissimilar pairs of labeled rows uniformly, with replacement, or take all.

    ``count`` is the maximum number of each kind. Returns two arrays (m, 2) of row indices.

    Examples
    --------
    >>> similar, dissimilar = draw_pairs([0, -1, 0, 1], 9, np.random.default_rng(0))
    >>> similar.tolist(), dissimilar.tolist()
    ([[0, 2]], [[0, 3], [2, 3]])
    """
    codes = np.asarray(labels)
    rows = np.flatnonzero(codes != UNLABELED)
    order = rows[np.argsort(codes[rows], kind="stable")]
    sizes = np.unique(codes[order], return_counts=True)[1]
    ends = np.repeat(np.cumsum(sizes), sizes)  # of each row's class
    places = np.arange(len(order))
    # Pair each row with those after it in its class, and with those of later classes.
    similar = _draw(places + 1, ends, count, rng)
    dissimilar = _draw(ends, np.full(len(order), len(order)), count, rng)
    return order[similar], order[dissimilar]


def draw_unknown_pairs(
    labels: npt.ArrayLike,
    count: int,
    rng: np.random.Generator,
    *,
    both: bool = False,
    n_rows: int | None = None,
) -> tuple[Array, int]:
    """Draw pairs with an unlabeled end uniformly, with replacement, or take all.

    Returns row indices (m, 2) and the number of pairs without the limits: ``count`` on the pairs,
    and ``n_rows`` on the rows, drawn first. ``both`` requires both ends to be unlabeled.

    Examples
    --------
    >>> pairs, n = draw_unknown_pairs([0, 1, -1], 9, np.random.default_rng(0))
    >>> pairs.tolist(), n
    ([[2, 0], [2, 1]], 2)
    """
    unlabeled = np.asarray(labels) == UNLABELED
    known, unknown = np.flatnonzero(~unlabeled)[: 0 if both else None], np.flatnonzero(unlabeled)
    n_pairs = len(unknown) * len(known) + len(unknown) * (len(unknown) - 1) // 2
    share = 1.0 if n_rows is None else n_rows / max(len(known) + len(unknown), 1)
    if share < 1:  # draw from both kinds, so that their pairs stay in proportion
        known, unknown = (
            np.sort(rng.choice(rows, math.ceil(share * len(rows)), replace=False))
            for rows in (known, unknown)
        )
    # Pair each unlabeled row with those before it.
    order = np.concatenate([known, unknown])
    places = np.arange(len(order))
    last = np.where(places < len(known), 0, places)
    return order[_draw(np.zeros_like(last), last, count, rng)], n_pairs


def squares_under(M: Floats, rows: Floats, ends: Array) -> Floats:
    """Compute squared distances under M of pairs of rows (m, 2), without an m x d array.

    O(n d² + m d).

    Examples
    --------
    >>> rows = np.array([[0.0, 0.0], [1.0, 2.0]])
    >>> squares_under(np.diag([1.0, 3.0]), rows, np.array([[0, 1], [1, 1]]))
    array([13.,  0.])
    """
    squares = np.empty(len(ends))
    _products(rows, rows @ M, ends, squares)
    return squares


@njit(nogil=True)
def _products(rows: Any, images: Any, ends: Any, out: Any) -> None:  # pragma: no cover
    """Multiply the differences of rows and of their images."""
    for pair in range(len(ends)):
        i, j = ends[pair]
        total = 0.0
        for k in range(rows.shape[1]):
            total += (rows[i, k] - rows[j, k]) * (images[i, k] - images[j, k])
        out[pair] = total


def _draw(first: Array, last: Array, count: int, rng: np.random.Generator) -> Array:
    """Pair i with one of first[i], ..., last[i] - 1: all, or ``count`` drawn uniformly."""
    before = np.concatenate([[0], np.cumsum(last - first)])
    total = int(before[-1])
    chosen = np.arange(total) if total <= count else rng.integers(total, size=count)
    left = np.searchsorted(before, chosen, side="right") - 1
    return np.stack([left, first[left] + chosen - before[left]], axis=1)
