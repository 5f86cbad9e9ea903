"""Draw the rows of batches and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ssdml.utils.labels import check_weights, encode_labels
from ssdml.utils.typing import Array, Indices
from ssdml.utils.validation import UNLABELED, as_generator, check_count, warn


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
    parts: list[Indices] = []
    left = unlabeled[:0]
    while size and len(parts) < count:
        lap = rng.permutation(unlabeled)
        again = np.isin(lap, left)  # the unfinished partition holds these: put them last
        order = np.concatenate([left, lap[~again], lap[again]])
        n_whole = len(order) // size
        parts += np.split(order[: n_whole * size], n_whole)
        left = order[n_whole * size :]
    parts = parts[:count] if size else [left] * count
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


def balanced_batches(classes: Any, weights: Any, size: int, count: int, rng: Any) -> Batches:
    """Draw batches with equal counts per class (up to one), each class by weight.

    Parameters
    ----------
    classes : array-like of shape (n,)
        Labels as an estimator takes them; unlabeled rows, -1 or None, are not drawn.
    weights : array of shape (n,), or None
        Nonnegative; a class whose weights are all 0 is never drawn. None: equal weights.
    size, count : int
        Rows per batch, and number of batches per epoch.
    rng : Generator, int, RandomState or None

    Returns
    -------
    batches : Batches
        Of ``size`` rows, which may repeat.

    Raises
    ------
    TypeError, ValueError
        If a number is not whole or below 1, weights are negative, not finite or of another length,
        or no row can be drawn.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> batches = balanced_batches(np.array([0, 0, 1]), np.array([1.0, 0.0, 1.0]), 4, 2, rng)
    >>> [sorted(batch) for batch in batches]
    [[0, 0, 2, 2], [0, 0, 2, 2]]
    """
    who = "balanced_batches"
    check_count(size, "size", who)
    check_count(count, "count", who, least=0)
    groups, weights = _groups(who, classes, weights)
    order, rng = np.concatenate(groups), as_generator(rng, "rng", who)
    ends = np.cumsum([len(group) for group in groups])
    of_rows = np.ones(len(order)) if weights is None else weights[order]
    sums = np.concatenate([[0.0], np.cumsum(of_rows, dtype=np.float64)])
    return Batches(partial(_balanced, order, ends, sums, size, rng), count, size)


class _Groups(NamedTuple):
    """Rows that can be drawn, by class."""

    rows: list[Indices]
    weights: Array | None  # of all rows

    def shuffled(self, n_classes: int, rng: np.random.Generator) -> Iterator[Indices]:
        """Order the rows of some classes at random, those with larger weights first."""
        for c in rng.permutation(len(self.rows))[:n_classes]:
            rows = self.rows[c]
            # Sorting exponential waiting times draws without replacement.
            waits = rng.standard_exponential(len(rows))
            if self.weights is not None:
                with np.errstate(over="ignore", divide="ignore"):  # next to far larger weights
                    waits /= self.weights[rows]
            yield rows[np.argsort(waits)]


class Batches:
    """Batches of rows that are drawn anew each time they are iterated over.

    :func:`balanced_batches`, :func:`class_batches`, :func:`whole_class_batches` and
    :func:`aligned_halves` return them. ``DataLoader(data, batch_sampler=batches)`` serves them;
    where a library asks for a sampler of rows, pass ``sampler=batches.rows,
    batch_size=batches.size``.

    Parameters
    ----------
    draw : callable
        Returns the rows of a batch, ``size`` of them.
    count : int
        Number of batches per iteration, an epoch.
    size : int
        Rows per batch.

    Notes
    -----
    Each batch is a list of int. Processes that train together draw the same batches from the same
    seed: pass ``rng=rank`` for others on each, and ``use_distributed_sampler=False`` to Lightning's
    trainer. accelerate deals out the batches of one seed; pass it ``even_batches=False``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> batches = Batches(lambda: rng.permutation(4)[:2], count=3, size=2)
    >>> len(batches), len(list(batches)), len(batches.rows), len(list(batches.rows))
    (3, 3, 6, 6)
    """

    def __init__(self, draw: Callable[[], Indices], count: int, size: int) -> None:
        self._draw, self._count, self.size = draw, count, size

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[list[int]]:
        return (self._draw().tolist() for _ in range(self._count))

    @property
    def rows(self) -> Rows:
        """The rows of the batches one after another."""
        return Rows(self)


class Rows:
    """Rows of batches one after another, drawn anew each time."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches) * self._batches.size

    def __iter__(self) -> Iterator[int]:
        return (row for batch in self._batches for row in batch)


def class_batches(
    classes: Any,
    count: int,
    rng: Any,
    *,
    n_classes: int = 10,
    per_class: int = 10,
    weights: Array | None = None,
) -> Batches:
    """Draw batches of some classes with the same number of rows each.

    Parameters
    ----------
    classes : array-like of shape (n,)
        Labels as an estimator takes them; unlabeled rows, -1 or None, are not drawn.
    count : int
        Number of batches per epoch.
    rng : Generator, int, RandomState or None
    n_classes : int
        Classes per batch.
    per_class : int
        Rows per class and batch.
    weights : array of shape (n,), optional
        Nonnegative weights of the rows; None: equal weights.

    Returns
    -------
    batches : Batches
        Of ``n_classes * per_class`` rows, grouped by class. Classes with fewer than ``per_class``
        rows repeat them.

    Raises
    ------
    TypeError, ValueError
        If a number is not whole or below 1, weights are negative, not finite or of another length,
        or no row can be drawn.

    Warns
    -----
    UserWarning
        If there are fewer than ``n_classes`` classes: a batch then has all of them.

    Notes
    -----
    The defaults are those of [1]_.

    References
    ----------
    .. [1] Li et al., "Deep metric learning with density adaptivity", IEEE Transactions on
       Multimedia 22(5), 2020.

    Examples
    --------
    >>> classes = np.array([0, 0, 1, 1, 1, 2, -1])
    >>> rng = np.random.default_rng(0)
    >>> batches = class_batches(classes, 5, rng, n_classes=2, per_class=2)
    >>> len(batches), all(len(set(classes[batch])) == 2 for batch in batches)
    (5, True)
    """
    who, counts = "class_batches", {"count": count, "per_class": per_class}
    groups = _groups(who, classes, weights, n_classes=n_classes, **counts)
    n_classes, rng = min(n_classes, len(groups.rows)), as_generator(rng, "rng", who)
    draw = partial(_some_classes, groups, n_classes, per_class, rng)
    return Batches(draw, count, n_classes * per_class)


def whole_class_batches(classes: Any, count: int, rng: Any, *, size: int = 100) -> Batches:
    """Draw batches of all rows of as many classes as fit, for classes of few rows.

    Parameters
    ----------
    classes : array-like of shape (n,)
        Labels as an estimator takes them; unlabeled rows, -1 or None, are not drawn.
    count : int
        Number of batches per epoch.
    rng : Generator, int, RandomState or None
    size : int
        Rows per batch; the last class that does not fit is cut.

    Returns
    -------
    batches : Batches
        Without repeated rows, grouped by class.

    Raises
    ------
    TypeError, ValueError
        If a number is not whole or below 1, or fewer than ``size`` rows have a class.

    Warns
    -----
    UserWarning
        If all rows are of one class.

    Notes
    -----
    The batches of [1]_ for Stanford Online Products, which has 5 rows per class.

    References
    ----------
    .. [1] Li et al., "Deep metric learning with density adaptivity", IEEE Transactions on
       Multimedia 22(5), 2020, Section IV-A.

    Examples
    --------
    >>> classes = np.array([0, 0, 1, 1, 1, 2, 2, -1])
    >>> (batch,) = whole_class_batches(classes, 1, np.random.default_rng(0), size=4)
    >>> len(batch), len(set(classes[batch]))
    (4, 2)
    """
    check_count(size, "size", "whole_class_batches")
    groups = _groups("whole_class_batches", classes, None, count=count).rows
    if len(groups) == 1:
        warn(
            "whole_class_batches: classes must hold two classes, or no batch can compare them; got "
            "one. Label rows of another class."
        )
    n_rows, rng = sum(map(len, groups)), as_generator(rng, "rng", "whole_class_batches")
    if size > n_rows:
        raise ValueError(
            f"whole_class_batches: size must be at most {n_rows}, the rows with a class; got "
            f"{size}. Pass a smaller size."
        )
    return Batches(partial(_whole_classes, groups, size, rng), count, size)


def aligned_halves(
    classes: Any,
    count: int,
    rng: Any,
    *,
    n_classes: int = 13,
    per_class: int = 10,
    weights: Array | None = None,
) -> Batches:
    """Draw batches of two halves, aligned in class row by row, for a graph consistency loss.

    Parameters
    ----------
    classes : array-like of shape (n,)
        Labels as an estimator takes them; unlabeled rows, -1 or None, are not drawn.
    count : int
        Number of batches per epoch.
    rng : Generator, int, RandomState or None
    n_classes : int
        Classes per batch.
    per_class : int
        Rows per class in each half.
    weights : array of shape (n,), optional
        Nonnegative weights of the rows; None: equal weights.

    Returns
    -------
    batches : Batches
        Of ``2 * n_classes * per_class`` rows: row i has the class of row i + half. The halves share
        no row; small classes repeat rows, and classes with a single row are not drawn.

    Raises
    ------
    TypeError, ValueError
        If a number is not whole or below 1, weights are negative, not finite or of another length,
        or no class has two rows.

    Warns
    -----
    UserWarning
        If fewer than ``n_classes`` classes have two rows: a batch then has all of them.

    Notes
    -----
    The halves are the two draws of n = 130 rows of [1]_: 10 rows of 13 classes each. There the
    draws are independent; here they are disjoint, because a row agrees with itself.

    References
    ----------
    .. [1] Chen et al., "Deep metric learning with graph consistency", AAAI 2021.

    Examples
    --------
    >>> classes = np.array([0, 0, 0, 1, 1, -1])
    >>> (batch,) = aligned_halves(classes, 1, np.random.default_rng(0), n_classes=2, per_class=1)
    >>> first, second = classes[batch].reshape(2, -1)
    >>> first.tolist() == second.tolist(), len(set(batch))
    (True, 4)
    """
    who, counts = "aligned_halves", {"count": count, "per_class": per_class}
    groups = _groups(who, classes, weights, fewest=2, n_classes=n_classes, **counts)
    n_classes, rng = min(n_classes, len(groups.rows)), as_generator(rng, "rng", who)
    draw = partial(_two_halves, groups, n_classes, per_class, rng)
    return Batches(draw, count, 2 * n_classes * per_class)


def _groups(
    who: str, classes: Any, weights: Any, *, fewest: int = 1, n_classes: int = 1, **counts: int
) -> _Groups:
    """Group the rows that can be drawn by class; leave out classes with fewer than ``fewest``.

    Checks ``counts``, and warns if there are fewer than ``n_classes`` classes.
    """
    for name, number in {"n_classes": n_classes, **counts}.items():
        check_count(number, name, who)
    codes, _ = encode_labels(classes, who, "classes")
    can_be_drawn = codes != UNLABELED
    if weights is not None:
        weights = check_weights(weights, len(codes), who, "weights")
        can_be_drawn &= weights > 0
    rows = np.flatnonzero(can_be_drawn)
    order = rows[np.argsort(codes[rows], kind="stable")]
    _, starts = np.unique(codes[order], return_index=True)
    parts = np.split(order, starts[1:])
    groups = [part for part in parts if len(part) >= fewest]
    enough = "a row" if fewest == 1 else "two rows"
    if not groups:
        weighted = "" if weights is None else " and a weight above 0"
        raise ValueError(
            f"{who}: classes must hold a class with {enough}; got {len(order)} rows with a class"
            f"{weighted}. Label more rows or propagate the labels."
        )
    if len(groups) < n_classes:
        warn(
            f"{who}: n_classes must be at most {len(groups)}, the classes with {enough}; got "
            f"{n_classes}. Draws all classes each time; pass n_classes={len(groups)}."
        )
    return _Groups(groups, None if weights is None else _scaled(weights, order, starts))


def _scaled(weights: Array, order: Indices, starts: Indices) -> Array:
    """Scale the weights of each class by a power of two, to at most 1.

    Those of other classes would drown in sums over all rows, and huge ones overflow. Classes begin
    at ``starts`` of ``order``.
    """
    _, exponents = np.frexp(np.maximum.reduceat(weights[order], starts))
    sizes = np.diff(starts, append=len(order))
    scaled = weights.copy()
    scaled[order] = np.ldexp(weights[order], -np.repeat(exponents, sizes))
    return scaled


def _balanced(
    order: Indices, ends: Indices, sums: Array, size: int, rng: np.random.Generator
) -> Indices:
    """Draw rows of ``order``, by class; ``ends`` are those of its classes."""
    drawn, starts = np.resize(rng.permutation(len(ends)), size), np.append(0, ends[:-1])
    low, high = sums[starts[drawn]], sums[ends[drawn]]
    places = np.searchsorted(sums, low + rng.random(size) * (high - low), side="right") - 1
    return order[np.clip(places, starts[drawn], ends[drawn] - 1)]


def _some_classes(
    groups: _Groups, n_classes: int, per_class: int, rng: np.random.Generator
) -> Indices:
    parts = groups.shuffled(n_classes, rng)
    return np.concatenate([np.resize(rows[:per_class], per_class) for rows in parts])


def _whole_classes(groups: list[Indices], size: int, rng: np.random.Generator) -> Indices:
    parts, n_drawn = [], 0
    for c in rng.permutation(len(groups)):
        parts.append(rng.permutation(groups[c])[: size - n_drawn])
        n_drawn += len(parts[-1])
        if n_drawn == size:
            break
    return np.concatenate(parts)


def _two_halves(
    groups: _Groups, n_classes: int, per_class: int, rng: np.random.Generator
) -> Indices:
    parts = [_two_parts(rows, per_class) for rows in groups.shuffled(n_classes, rng)]
    return np.concatenate([half for halves in zip(*parts, strict=True) for half in halves])


def _two_parts(rows: Indices, size: int) -> tuple[Indices, Indices]:
    """Take two disjoint parts of the rows; repeat rows if there are too few."""
    middle = min(size, len(rows) // 2)
    return np.resize(rows[:middle], size), np.resize(rows[middle : middle + size], size)
