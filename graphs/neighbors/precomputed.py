"""Neighbors that were computed elsewhere: scikit-learn's CSR of distances, UMAP's pair."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs._validation import check_matrix, check_numbers
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import check_n_neighbors

WHO = "knn_graph(method='precomputed')"
MISSING = -1  # how approximate searches mark a neighbor that they have not found


def rank_precomputed(X: Any, n_neighbors: int) -> tuple[Ints, Array]:
    """Each row's nearest other rows among the edges given, sorted by distance, then by index.

    O(n k log(n k)) for as many edges. Entries from a row to itself are left out, whatever they
    hold.
    """
    if sparse.issparse(X):
        row, column, distance, n = _edges_of_matrix(X)
    elif isinstance(X, tuple | list) and len(X) >= 2:
        row, column, distance, n = _edges_of_pair(X[0], X[1])
    else:
        raise TypeError(
            f"{WHO}: X must be a sparse matrix of distances, as KNeighborsTransformer(mode="
            f"'distance') gives, or a pair (indices, distances); got {type(X).__name__}."
        )
    k = check_n_neighbors(n_neighbors, n - 1, "n - 1", WHO)
    others = row != column
    row, column, distance = row[others], column[others], distance[others]
    _check_edges(row, column, distance, n)
    counts = np.bincount(row, minlength=n)
    if counts.min() < k:
        raise ValueError(
            f"{WHO}: X must hold n_neighbors={k} other rows for each row; row {counts.argmin()} "
            f"has {counts.min()}. Compute it with more neighbors, or lower n_neighbors."
        )
    order = np.lexsort((column, distance, row))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    chosen = order[starts[:, None] + np.arange(k)]
    return column[chosen], distance[chosen]


Edges = tuple[Ints, Ints, Array, int]


def _edges_of_matrix(X: Any) -> Edges:
    check_matrix(X, WHO, "X")
    edges = X.tocoo()  # explicit zeros are kept: duplicates of a row
    return edges.row.astype(np.int64), edges.col.astype(np.int64), edges.data, X.shape[0]


def _edges_of_pair(indices: Any, distances: Any) -> Edges:
    indices, distances = np.asarray(indices), np.asarray(distances)
    if indices.ndim != 2 or indices.shape != distances.shape:
        raise ValueError(
            f"{WHO}: indices and distances must share one shape (n, k); "
            f"got {indices.shape} and {distances.shape}."
        )
    check_numbers(indices, distances, WHO)
    indices = indices.astype(np.int64)
    found = indices != MISSING
    row = np.nonzero(found)[0]
    return row, indices[found], distances[found], len(indices)


def _check_edges(row: Ints, column: Ints, distance: Array, n: int) -> None:
    outside = (column < 0) | (column >= n)
    if outside.any():
        first = outside.argmax()
        raise ValueError(
            f"{WHO}: X must point to rows from 0 to n - 1 = {n - 1}, or to {MISSING} for none; got "
            f"{column[first]} from row {row[first]}. Number rows from 0."
        )
    bad = ~(np.isfinite(distance) & (distance >= 0))
    if bad.any():
        first = bad.argmax()
        raise ValueError(
            f"{WHO}: X must hold finite distances of at least 0; got {distance[first]} "
            f"from row {row[first]} to row {column[first]}. Drop what is missing; use "
            "np.maximum(distances, 0) against rounding."
        )
    keys = np.sort(row * n + column)
    twice = keys[1:] == keys[:-1]
    if twice.any():
        start, end = divmod(int(keys[twice.argmax()]), n)
        raise ValueError(
            f"{WHO}: X must name each neighbor of a row once; got two entries from row {start} to "
            f"row {end}. Keep the smaller; SciPy would add them."
        )
