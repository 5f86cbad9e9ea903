"""Draw the rows of batches and partitions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ssdml.utils.typing import Array, Indices, Ints


def partitions(
    labeled: Indices, unlabeled: Indices, count: int, size: int | None, rng: np.random.Generator
) -> list[Indices]:
    """Split unlabeled rows into partitions, each with all labeled rows.

    Partitions are disjoint until every row has been drawn.

    Parameters
    ----------
    labeled, unlabeled : arrays of int
        Rows.
    count : int
        Number of partitions.
    size : int or None
        Unlabeled rows per partition; None: all.
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
    order = rng.permutation(unlabeled)
    while len(order) < count * size:
        lap, begun = rng.permutation(unlabeled), order[len(order) - len(order) % size :]
        again = np.isin(lap, begun)  # the unfinished partition holds these: put them last
        order = np.concatenate([order, lap[~again], lap[again]])
    parts = [order[i * size : (i + 1) * size] for i in range(count)]
    return [np.sort(np.concatenate([labeled, part])) for part in parts]


def spaced(rows: Indices, count: int) -> Indices:
    """Take ``count`` evenly spaced rows, or all if there are fewer.

    Examples
    --------
    >>> spaced(np.arange(0, 100, 10), 4)
    array([ 0, 30, 60, 90])
    """
    places = np.linspace(0, len(rows) - 1, min(count, len(rows)))
    return rows[places.astype(np.intp)]


def balanced_batches(
    classes: Ints, weights: Array, size: int, count: int, rng: np.random.Generator
) -> Iterator[Indices]:
    """Draw batches with equal counts per class (up to one), each class by weight.

    Parameters
    ----------
    classes : array of shape (n,), int
    weights : array of shape (n,)
        Nonnegative; a class whose weights are all 0 is never drawn.
    size, count : int
        Rows per batch, and number of batches.
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


def aligned_halves(
    classes: Ints,
    count: int,
    rng: np.random.Generator,
    *,
    n_classes: int = 13,
    per_class: int = 10,
    weights: Array | None = None,
) -> Iterator[Indices]:
    """Draw batches of two halves, aligned in class row by row, for a graph consistency loss.

    Parameters
    ----------
    classes : array of shape (n,), int
        -1 where unlabeled: such rows are not drawn.
    count : int
        Number of batches.
    rng : Generator
    n_classes : int
        Classes per batch; all of them if there are fewer.
    per_class : int
        Rows per class and batch; even, since half of them go into each half.
    weights : array of shape (n,), optional
        Nonnegative weights of the rows; None: equal weights.

    Yields
    ------
    rows : ndarray of shape (n_classes * per_class,)
        Row i has the class of row i + half. The halves share no row; small classes repeat rows, and
        classes with a single row are not drawn.

    Raises
    ------
    ValueError
        If ``per_class`` is odd, ``n_classes`` is below 1, or no class has two rows.

    Notes
    -----
    The default of 13 classes with 10 rows is that of [1]_, read as the size of both halves
    together.

    References
    ----------
    .. [1] Chen et al., "Deep metric learning with graph consistency", AAAI 2021.

    Examples
    --------
    >>> classes = np.array([0, 0, 0, 1, 1, -1])
    >>> (batch,) = aligned_halves(classes, 1, np.random.default_rng(0), n_classes=2, per_class=2)
    >>> first, second = classes[batch].reshape(2, -1)
    >>> first.tolist() == second.tolist(), len(set(batch))
    (True, 4)
    """
    if per_class < 2 or per_class % 2:
        raise ValueError(
            f"aligned_halves: per_class must be even and at least 2; got {per_class}. Each half of "
            "the batch takes half of the rows."
        )
    if n_classes < 1:
        raise ValueError(f"aligned_halves: n_classes must be at least 1; got {n_classes}.")
    drawable = classes >= 0 if weights is None else (classes >= 0) & (weights > 0)
    rows = np.flatnonzero(drawable)
    order = rows[np.argsort(classes[rows], kind="stable")]
    _, starts, sizes = np.unique(classes[order], return_index=True, return_counts=True)
    groups = [order[i : i + n] for i, n in zip(starts, sizes, strict=True) if n > 1]
    if not groups:
        raise ValueError(
            "aligned_halves: classes must hold one class with two rows; got "
            f"{len(sizes)} classes with one row each. Label more rows or propagate the labels."
        )
    for _ in range(count):
        drawn = rng.permutation(len(groups))[:n_classes]
        parts = [_two_parts(groups[c], per_class // 2, weights, rng) for c in drawn]
        yield np.concatenate([half for halves in zip(*parts, strict=True) for half in halves])


def _two_parts(
    rows: Indices, size: int, weights: Array | None, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Draw two disjoint sets of rows by weight; repeat rows if there are too few."""
    # Sorting exponential waiting times draws without replacement.
    waits = rng.standard_exponential(len(rows))
    if weights is not None:
        waits /= weights[rows]
    shuffled = rows[np.argsort(waits)]
    middle = min(size, len(rows) // 2)
    return np.resize(shuffled[:middle], size), np.resize(shuffled[middle : middle + size], size)
