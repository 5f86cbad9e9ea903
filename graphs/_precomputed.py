"""Neighbours that were computed elsewhere: scikit-learn's CSR of distances, UMAP's pair."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs._checks import Floats, Integers, check_n_neighbors

WHO = "knn_graph(method='precomputed')"


def rank_precomputed(X: Any, n_neighbors: int) -> tuple[Integers, Floats]:
    """Each row's nearest other rows among the edges given, sorted by distance, then by index."""
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
    _check_edges(row, column, distance, n)
    others = row != column
    row, column, distance = row[others], column[others], distance[others]
    counts = np.bincount(row, minlength=n)
    if counts.min() < k:
        raise ValueError(
            f"{WHO}: X must hold n_neighbors={k} other rows for each row; row {counts.argmin()} "
            f"has {counts.min()}. Compute it with more neighbours, or lower n_neighbors."
        )
    order = np.lexsort((column, distance, row))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    chosen = order[starts[:, None] + np.arange(k)]
    return column[chosen], distance[chosen]


Edges = tuple[Integers, Integers, Floats, int]


def _edges_of_matrix(X: Any) -> Edges:
    if X.shape[0] != X.shape[1]:
        raise ValueError(f"{WHO}: X must be square; got shape {X.shape}.")
    edges = X.tocoo()  # explicit zeros are kept: duplicates of a row
    return edges.row.astype(np.int64), edges.col.astype(np.int64), edges.data, X.shape[0]


def _edges_of_pair(indices: Any, distances: Any) -> Edges:
    indices, distances = np.asarray(indices), np.asarray(distances)
    if indices.ndim != 2 or indices.shape != distances.shape:
        raise ValueError(
            f"{WHO}: indices and distances must share one shape (n, k); "
            f"got {indices.shape} and {distances.shape}."
        )
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{WHO}: indices must be integers; got dtype {indices.dtype}.")
    found = indices >= 0  # approximate searches mark a missing neighbour by -1
    row = np.nonzero(found)[0]
    return row, indices[found].astype(np.int64), distances[found], len(indices)


def _check_edges(row: Integers, column: Integers, distance: Floats, n: int) -> None:
    if column.size and column.max() >= n:
        raise ValueError(f"{WHO}: X must point to rows below n = {n}; got {column.max()}.")
    bad = ~(np.isfinite(distance) & (distance >= 0))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"{WHO}: X must hold finite distances of at least 0; got {distance[first]} "
            f"from row {row[first]} to row {column[first]}."
        )
    if len(np.unique(row * n + column)) < len(row):
        raise ValueError(f"{WHO}: X must name each neighbour of a row once; got duplicates.")
