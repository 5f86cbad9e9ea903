"""Scatter of the pairs that labels know: similar ones of one class, dissimilar ones of two."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.masses import class_codes
from ssdml.linalg import Matrix


class LabelledPairs(NamedTuple):
    """Mean outer products of the differences over unordered pairs; zeros where there are none."""

    similar: Matrix  # (d, d)
    dissimilar: Matrix
    n_similar: int
    n_dissimilar: int


def labelled_pairs(X: npt.ArrayLike, labels: npt.ArrayLike) -> LabelledPairs:
    r"""Scatter of the similar and of the dissimilar pairs of labelled rows.

    .. math:: \sum_{i<j} (z_i - z_j)(z_i - z_j)^\top = n \sum_i (z_i - \bar z)(z_i - \bar z)^\top

    within each class, and for all rows together: no pair is formed.

    Parameters
    ----------
    X : array of shape (n, d)
    labels : array of shape (n,), int
        -1 where unlabelled.

    Returns
    -------
    pairs : LabelledPairs

    Notes
    -----
    O(m d²) for m labelled rows.

    Examples
    --------
    >>> pairs = labelled_pairs([[0.0], [2.0], [3.0], [9.0]], [0, 0, 1, -1])
    >>> pairs.similar.item(), pairs.dissimilar.item(), pairs.n_similar, pairs.n_dissimilar
    (4.0, 5.0, 1, 2)
    """
    codes, n_classes = class_codes(np.asarray(labels))
    known = codes != UNLABELED
    rows, codes = np.asarray(X, dtype=np.float64)[known], codes[known]
    d, counts = np.shape(X)[1], np.bincount(codes, minlength=n_classes)
    within = np.zeros((d, d))
    for c in range(n_classes):
        within += _all_pairs(rows[codes == c])
    n_similar = int((counts * (counts - 1)).sum()) // 2
    n_dissimilar = len(rows) * (len(rows) - 1) // 2 - n_similar
    between = _all_pairs(rows) - within if n_dissimilar else np.zeros((d, d))
    return LabelledPairs(
        within / max(n_similar, 1), between / max(n_dissimilar, 1), n_similar, n_dissimilar
    )


def _all_pairs(rows: Matrix) -> Matrix:
    """Sum over all pairs of the outer products of their differences."""
    if not len(rows):
        return np.zeros((rows.shape[1], rows.shape[1]))
    centered = rows - rows.mean(axis=0)
    total: Matrix = len(rows) * centered.T @ centered
    return total


def draw_pairs(
    labels: npt.ArrayLike, count: int, rng: np.random.Generator
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Similar and dissimilar pairs of labelled rows: all of a kind, or so many drawn evenly.

    Parameters
    ----------
    labels : array of shape (n,), int
        -1 where unlabelled.
    count : int
        The most of each kind; where there are more, so many are drawn, some perhaps twice.
    rng : Generator

    Returns
    -------
    similar, dissimilar : arrays of shape (m, 2), int
        Rows.

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
    ends = np.repeat(np.cumsum(sizes), sizes)  # of the class of each
    places = np.arange(len(order))
    # Of each row those after it in its class, and those of later classes.
    similar = _draw(places + 1, ends, count, rng)
    dissimilar = _draw(ends, np.full(len(order), len(order)), count, rng)
    return order[similar], order[dissimilar]


def _draw(
    first: npt.NDArray[Any], last: npt.NDArray[Any], count: int, rng: np.random.Generator
) -> npt.NDArray[Any]:
    """Pairs of i with one of first[i], ..., last[i] - 1: all, or so many drawn evenly."""
    before = np.concatenate([[0], np.cumsum(last - first)])
    total = int(before[-1])
    chosen = np.arange(total) if total <= count else rng.integers(total, size=count)
    left = np.searchsorted(before, chosen, side="right") - 1
    return np.stack([left, first[left] + chosen - before[left]], axis=1)
