"""Which rows a batch holds: partitions of the unlabeled ones, classes as often as each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ssdml.utils.typing import Array, Indices, Ints


def partitions(
    labeled: Indices, unlabeled: Indices, count: int, size: int | None, rng: np.random.Generator
) -> list[Indices]:
    """The labeled rows with so many unlabeled ones, disjoint until all have had their turn.

    Parameters
    ----------
    labeled, unlabeled : arrays of int
        Rows.
    count : int
        Partitions.
    size : int or None
        Unlabeled rows of each; None: all.
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
        again = np.isin(lap, begun)  # the partition that is not full has these: they come last
        order = np.concatenate([order, lap[~again], lap[again]])
    parts = [order[i * size : (i + 1) * size] for i in range(count)]
    return [np.sort(np.concatenate([labeled, part])) for part in parts]


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


def spaced(rows: Indices, count: int) -> Indices:
    """So many of the rows, from all over them, and all where there are no more.

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


def aligned_halves(
    classes: Ints,
    count: int,
    rng: np.random.Generator,
    *,
    n_classes: int = 13,
    per_class: int = 10,
    weights: Array | None = None,
) -> Iterator[Indices]:
    """Rows of each batch: two halves, of one class row by row, for CGML's consistency.

    Parameters
    ----------
    classes : array of shape (n,), int
        -1 where unlabeled: such a row is not drawn.
    count : int
        Batches.
    rng : Generator
    n_classes : int
        Classes of a batch; all of them where there are not so many.
    per_class : int
        Rows of each class in a batch, an even number: half of them in each half.
    weights : array of shape (n,), optional
        Not negative; rows are drawn by them. None: all alike.

    Yields
    ------
    rows : ndarray of shape (n_classes * per_class,)
        Row i has the class of row i + half. No row is in both halves; a class with less rows than
        asked for has some of them more than once, and one with a single row is not drawn.

    Raises
    ------
    ValueError
        For an odd ``per_class``, ``n_classes`` below 1, and where no class has two rows.

    Notes
    -----
    13 classes with 10 rows are those of seed 000, "Deep metric learning with graph consistency",
    AAAI 2021. It does not say whether its 130 are a half or both: here they are both.

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
            f"aligned_halves: per_class must be even and at least 2; got {per_class}. Half of the "
            "rows of a class go into each half of the batch."
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
            "aligned_halves: classes must hold one with two rows; got "
            f"{len(sizes)} classes with one row each. Label more rows, or propagate the labels."
        )
    for _ in range(count):
        drawn = rng.permutation(len(groups))[:n_classes]
        parts = [_two_parts(groups[c], per_class // 2, weights, rng) for c in drawn]
        yield np.concatenate([half for halves in zip(*parts, strict=True) for half in halves])


def _two_parts(
    rows: Indices, size: int, weights: Array | None, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """So many rows and so many others, drawn by weight; where there are less, some again."""
    # The order of exponential waiting times is that of draws without replacement.
    waits = rng.standard_exponential(len(rows))
    if weights is not None:
        waits /= weights[rows]
    shuffled = rows[np.argsort(waits)]
    middle = min(size, len(rows) // 2)
    return np.resize(shuffled[:middle], size), np.resize(shuffled[middle : middle + size], size)
