"""Retrieval scores: what stands among the nearest rows of a query, all other rows or a gallery."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ssdml.utils.linalg import in_range
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED


def retrieval_scores(
    embeddings: Array,
    codes: Ints,
    ks: Sequence[int],
    *,
    gallery: tuple[Array, Ints] | None = None,
) -> dict[str, float]:
    """R@K, MAP@R and R-precision in percent; :func:`ssdml.evaluation.evaluate` defines them.

    Parameters
    ----------
    embeddings : ndarray of shape (n, d)
    codes : ndarray of shape (n,)
        Classes from 0; every row has one.
    ks : sequence of int
        The K of R@K.
    gallery : tuple of ndarrays of shapes (m, d) and (m,), optional
        Rows that are searched in the place of the others of `embeddings`, and their classes; -1 is
        one that no query has.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [3.0], [3.5]])
    >>> retrieval_scores(rows, np.array([0, 1, 1, 1]), [1])
    {'R@1': 66.66666666666667, 'MAP@R': 75.0, 'RP': 83.33333333333334}
    """
    n, among = len(codes), None
    n_matches = np.bincount(codes)[codes] - 1  # R of each row
    if gallery is not None:
        known = gallery[1][gallery[1] != UNLABELED]
        n_matches = np.bincount(known, minlength=int(codes.max()) + 1)[codes]
        embeddings, codes = np.concatenate([embeddings, gallery[0]]), np.append(codes, gallery[1])
        among = np.arange(n, len(codes))
    queries = np.flatnonzero(n_matches > 0)
    if len(queries) == 0:
        return dict.fromkeys([*(f"R@{k}" for k in ks), "MAP@R", "RP"], float("nan"))
    depth = min(max([*ks, int(n_matches.max())]), n - 1 if among is None else len(among))
    hits = np.zeros(len(ks))
    average_precision = precision = 0.0
    for rows, neighbors in ranked_neighbors(embeddings, queries, depth, among):
        same = codes[neighbors] == codes[rows, None]  # (b, depth)
        hits += [same[:, :k].any(axis=1).sum() for k in ks]
        R = n_matches[rows]
        rank = np.arange(1, depth + 1)
        counted = same & (rank <= R[:, None])
        found = counted.cumsum(axis=1)
        precision += float((found[:, -1] / R).sum())
        average_precision += float(((found / rank * counted).sum(axis=1) / R).sum())
    scale = 100 / len(queries)
    return {
        **{f"R@{k}": float(hit) * scale for k, hit in zip(ks, hits, strict=True)},
        "MAP@R": average_precision * scale,
        "RP": precision * scale,
    }


# Exact rankings of rows by Euclidean distance, block by block.

BLOCK_ENTRIES = 2**22  # distances held at once: 32 MB, and a few arrays of that size beside them


def ranked_neighbors(
    rows: Array, queries: Ints, depth: int, among: Ints | None = None
) -> Iterator[tuple[Ints, Ints]]:
    """Nearest other rows of the queried rows, nearest first, ties to the smaller index.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Finite.
    queries : ndarray of shape (q,)
        Indices of rows.
    depth : int
        Number of neighbors, from 1 to n - 1.
    among : ndarray, optional
        Sorted indices of the rows that can be neighbors; None: all. Then `depth` is at most their
        number, less one where a query is one of them.

    Yields
    ------
    queries : ndarray of shape (b,)
        A block of the queries.
    neighbors : ndarray of shape (b, depth)
        Indices of rows, without the query itself.

    Notes
    -----
    Squared distances come from a matrix product, |q|² + |x|² - 2 q·x, whose error has a known
    bound. Where two of them are too near to each other to be told apart under this bound, both are
    computed anew as sums of squared differences. So the order is that of the sums, whatever the
    BLAS and its threads do. O(q n d) time, O(n d + b n) memory.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [2.0], [1.0]])
    >>> [(_, neighbors)] = ranked_neighbors(rows, np.arange(4), 2)
    >>> neighbors
    array([[1, 3],
           [3, 0],
           [1, 3],
           [1, 0]])
    """
    points = in_range(rows)[0].astype(np.float64)
    original = first_copies(points)
    searched = np.arange(len(points)) if among is None else among
    _, first, kind = np.unique(original[searched], return_index=True, return_inverse=True)
    own = first[kind]  # the first copy among those that are searched
    kept = _leading_copies(own, depth + 1)  # later copies cannot be among the nearest
    columns, first_column = searched[kept], np.searchsorted(kept, own[kept])
    has_copies = bool((first_column != np.arange(len(columns))).any())
    centered = points - points.mean(axis=0)
    squares = np.einsum("ij,ij->i", centered, centered)
    factor = -2 * centered[columns].T
    step = max(1, BLOCK_ENTRIES // len(columns))
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        squared = centered[block] @ factor
        squared += squares[columns]
        squared += squares[block, None]
        if has_copies:  # equal rows get equal bits
            squared = squared[:, first_column]
        squared[columns == block[:, None]] = np.inf
        resolution = _resolution(squares[block], squares.max(), points.shape[1])
        chosen, near = _candidates(squared, resolution, depth)
        candidates = columns[chosen]
        doubtful = _doubtful(near, original[candidates], resolution)
        if doubtful.any():
            _settle(points, block, candidates, near, doubtful)
        yield block, candidates[:, :depth]


def first_copies(rows: Array) -> Ints:
    """Index of the first row equal to each row.

    Examples
    --------
    >>> first_copies(np.array([[2.0, 0.0], [1.0, 1.0], [2.0, -0.0]]))
    array([0, 1, 0])
    """
    contents = np.ascontiguousarray(rows + 0.0)  # -0.0 becomes 0.0
    keys = contents.view(np.dtype((np.void, contents.itemsize * contents.shape[1]))).ravel()
    _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(first[kind], dtype=np.int64)


def _leading_copies(original: Ints, at_most: int) -> Ints:
    """Rows with fewer than `at_most` copies before them, in order."""
    grouped = original.argsort(kind="stable")
    begins = np.searchsorted(original[grouped], original[grouped])
    return np.sort(grouped[np.arange(len(original)) - begins < at_most])


def _resolution(own: Floats, largest: float, n_features: int) -> Floats:
    """Difference of two squared distances above which their order is certain, for every query.

    With u = eps / 2 and S = (|q| + |x|)², an inner product of d terms is off by at most d u |q||x|,
    so |q|² + |x|² - 2 q·x by (d + 3) u S, the centered rows add 2 u S, and the sum of squared
    differences it stands for is itself off by (d + 2) u S. Two of these differ by twice that.
    """
    eps = float(np.finfo(np.float64).eps)
    return 2 * (n_features + 4) * eps * (np.sqrt(own) + np.sqrt(largest)) ** 2


def _candidates(squared: Floats, resolution: Floats, depth: int) -> tuple[Ints, Floats]:
    """Columns of the smallest entries, in order; all that may tie with the last one are there."""
    chosen = np.argpartition(squared, depth - 1, axis=1)[:, :depth]
    last = np.take_along_axis(squared, chosen, axis=1).max(axis=1)
    width = int((squared <= (last + resolution)[:, None]).sum(axis=1).max())
    if width > depth:
        chosen = np.argpartition(squared, width - 1, axis=1)[:, :width]
    chosen.sort(axis=1)  # a stable sort then leaves ties to the smaller index
    near = np.take_along_axis(squared, chosen, axis=1)
    order = near.argsort(axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1), np.take_along_axis(near, order, axis=1)


def _doubtful(near: Floats, original: Ints, resolution: Floats) -> npt.NDArray[np.bool_]:
    """Entries in a run of distances that are not apart, unless the run is copies of one row."""
    apart = np.diff(near, axis=1) > resolution[:, None]
    differ = ~apart & (np.diff(original, axis=1) != 0)
    if not differ.any():
        return np.zeros(near.shape, dtype=bool)
    begins = np.ones(near.shape, dtype=bool)
    begins[:, 1:] = apart
    run = begins.ravel().cumsum() - 1  # number of the run of every entry
    mixed = np.zeros(run[-1] + 1, dtype=bool)
    mixed[run.reshape(near.shape)[:, 1:][differ]] = True
    return np.asarray(mixed[run].reshape(near.shape))


def _settle(
    rows: Floats, block: Ints, candidates: Ints, near: Floats, doubtful: npt.NDArray[np.bool_]
) -> None:
    """Put doubtful entries in the order of their sums of squared differences, in place."""
    pairs = np.argwhere(doubtful)
    step = max(1, BLOCK_ENTRIES // rows.shape[1])
    for start in range(0, len(pairs), step):
        i, j = pairs[start : start + step].T
        near[i, j] = np.square(rows[block[i]] - rows[candidates[i, j]]).sum(axis=1)
    touched = np.flatnonzero(doubtful.any(axis=1))
    order = np.lexsort((candidates[touched], near[touched]))
    candidates[touched] = np.take_along_axis(candidates[touched], order, axis=1)
