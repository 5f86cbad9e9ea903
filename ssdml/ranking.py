"""Exact rankings of rows by Euclidean distance, block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK_ENTRIES = 2**22  # of one block of distances: 32 MB


def ranked_neighbors(rows: Floats, queries: Ints, depth: int) -> Iterator[tuple[Ints, Ints]]:
    """Nearest other rows of the queried rows, nearest first, ties to the smaller index.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    queries : ndarray of shape (q,)
        Indices of rows.
    depth : int
        Number of neighbours, at most n - 1.

    Yields
    ------
    queries : ndarray of shape (b,)
        A block of the queries.
    neighbors : ndarray of shape (b, depth)

    Notes
    -----
    Squared distances come from a matrix product, |q|² + |x|² - 2 q·x, whose error has a known
    bound. Where two of them are nearer than the bound allows to tell apart, both are computed anew
    as sums of squared differences: the order is that of the latter, whatever the BLAS and its
    threads do. O(q n d) time, O(n d + b n) memory.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [2.0], [1.0]])
    >>> [neighbors] = [block for _, block in ranked_neighbors(rows, np.arange(4), 2)]
    >>> neighbors
    array([[1, 3],
           [3, 0],
           [1, 3],
           [1, 0]])
    """
    distinct, copy_of = np.unique(rows, axis=0, return_inverse=True)
    centred = distinct - distinct.mean(axis=0)
    squares = np.einsum("ij,ij->i", centred, centred)
    step = max(1, BLOCK_ENTRIES // len(rows))
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        own = copy_of[block]
        squared = squares[own, None] + squares - 2 * centred[own] @ centred.T
        resolution = _resolution(squares[own], squares.max(), rows.shape[1])
        yield block, _ranked(block, squared[:, copy_of], resolution, depth, distinct, copy_of)


def _resolution(own: Floats, largest: float, n_features: int) -> Floats:
    """Differences of squared distances above which their order is certain, per query.

    An inner product of d terms is off by at most d u |q| |x| (u: unit roundoff), the sum of the
    three parts by (d + 4) u (|q| + |x|)²; centring adds one rounding to every coordinate.
    """
    eps = np.finfo(np.float64).eps
    return 4 * (n_features + 8) * eps * (np.sqrt(own) + np.sqrt(largest)) ** 2


def _ranked(block, squared, resolution, depth, distinct, copy_of):  # type: ignore[no-untyped-def]
    squared[np.arange(len(block)), block] = np.inf
    order = np.argsort(squared, axis=1, kind="stable")[:, :depth]
    return order
