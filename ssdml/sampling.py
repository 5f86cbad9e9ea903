"""Which rows a batch holds: partitions of the unlabelled ones, classes as often as each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


def partitions(
    labeled: Rows, unlabeled: Rows, count: int, size: int | None, rng: np.random.Generator
) -> list[Rows]:
    """The labelled rows with so many unlabelled ones, disjoint until all have had their turn.

    Parameters
    ----------
    labeled, unlabeled : arrays of int
        Rows.
    count : int
        Partitions.
    size : int or None
        Unlabelled rows of each; None: all.
    rng : Generator

    Returns
    -------
    partitions : list of ndarray
        Sorted rows.

    Examples
    --------
    >>> parts = partitions(np.array([0]), np.arange(1, 5), 2, 2, np.random.default_rng(0))
    >>> [len(part) for part in parts], sorted(set(parts[0]) | set(parts[1])) == [0, 1, 2, 3, 4]
    ([3, 3], True)
    """
    size = min(size or len(unlabeled), len(unlabeled))
    laps = -(-count * size // max(1, len(unlabeled)))
    order = np.concatenate([rng.permutation(unlabeled) for _ in range(max(1, laps))])
    parts = [order[i * size : (i + 1) * size] for i in range(count)]
    return [np.unique(np.concatenate([labeled, part])) for part in parts]


def confidences(distributions: Array) -> Array:
    """``(1 - entropy / log C)²`` of each row: 1 where the class is certain, 0 where nothing is.

    Rows of zeros, of which nothing is known, have 0.

    Examples
    --------
    >>> confidences(np.array([[1.0, 0.0], [0.5, 0.5]]))
    array([1., 0.])
    """
    n_classes = distributions.shape[1]
    known = distributions.sum(axis=1) > 0
    if n_classes == 1:
        return known.astype(float)
    logs = np.log(np.maximum(distributions, np.finfo(distributions.dtype).tiny))
    entropy = -(distributions * logs).sum(axis=1) / np.log(n_classes)
    certainty: Array = np.where(known, np.maximum(1 - entropy, 0) ** 2, 0)
    return certainty


def balanced_batches(
    classes: Classes, weights: Array, size: int, count: int, rng: np.random.Generator
) -> Iterator[Rows]:
    """Rows of each batch: of every class as many as of any other, give or take one, by weight.

    Parameters
    ----------
    classes : array of shape (n,), int
    weights : array of shape (n,)
        Not negative; a class whose rows all have weight 0 is never drawn.
    size, count : int
        Rows of a batch, and batches.
    rng : Generator

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> batches = balanced_batches(np.array([0, 0, 1]), np.array([1.0, 0.0, 1.0]), 4, 2, rng)
    >>> [sorted(batch.tolist()) for batch in batches]
    [[0, 0, 2, 2], [0, 0, 2, 2]]
    """
    rows = np.flatnonzero(weights > 0)
    order = rows[np.argsort(classes[rows], kind="stable")]
    present, starts = np.unique(classes[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    sums = np.concatenate([[0.0], np.cumsum(weights[order], dtype=np.float64)])
    for _ in range(count):
        drawn = np.resize(rng.permutation(len(present)), size)
        low, high = sums[starts[drawn]], sums[ends[drawn]]
        places = np.searchsorted(sums, low + rng.random(size) * (high - low), side="right") - 1
        yield order[np.clip(places, starts[drawn], ends[drawn] - 1)]
