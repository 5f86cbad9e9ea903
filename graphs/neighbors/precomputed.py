"""Neighbors computed elsewhere: scikit-learn's CSR of distances, UMAP's pair."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs._validation import check_edges, check_matrix, check_n_neighbors, check_numbers
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import as_array, warn, working_dtype

WHO = "knn_graph(method='precomputed')"
SOME_ROWS, SOME_NEIGHBORS = 1000, 10  # that are checked
TOLERANCE = 0.01  # of distances in half precision
MISSING = -1  # marks a neighbor that an approximate search has not found

Edges = tuple[Ints, Ints, Array, int]


def rank_precomputed(X: Any, n_neighbors: int) -> tuple[Ints, Array]:
    """Sort each row's edges by distance, then by index, and keep the nearest.

    O(n k log(n k)) for n k edges. Entries from a row to itself are ignored.
    """
    if sparse.issparse(X):
        row, column, distance, n = _edges_of_matrix(X)
    elif isinstance(X, tuple | list) and len(X) >= 2:
        row, column, distance, n = _edges_of_pair(X[0], X[1])
    else:
        raise TypeError(
            f"{WHO}: X must be a sparse matrix of distances, as KNeighborsTransformer(mode="
            f"'distance') gives, or a pair (indices, distances); got {type(X).__name__}. Of all "
            "distances, pass KNeighborsTransformer(metric='precomputed').fit_transform(X)."
        )
    k = check_n_neighbors(n_neighbors, n - 1, "n - 1", WHO)
    others = row != column
    row, column, distance = row[others], column[others], distance[others]
    check_edges(row, column, distance, n, WHO)
    counts = np.bincount(row, minlength=n)
    if counts.min() < k:
        raise ValueError(
            f"{WHO}: X must hold n_neighbors={k} other rows for each row; row {counts.argmin()} "
            f"has {counts.min()}. Compute it with more neighbors, or lower n_neighbors."
        )
    if sparse.issparse(X) and (distance == 1).all():
        warn(
            f"{WHO}: X must hold distances; got 1 for all neighbors, as kneighbors_graph marks "
            "them. Pass mode='distance' to it."
        )
    order = np.lexsort((column, distance, row))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    chosen = order[starts[:, None] + np.arange(k)]
    return column[chosen], distance[chosen].astype(working_dtype(distance.dtype), copy=False)


def warn_of_squares(indices: Ints, distances: Array) -> None:
    """Warn if Euclidean distances violate the triangle inequality, as squared ones do.

    Among the first rows, their nearest neighbors, and the neighbors of these.
    """
    few = np.arange(min(SOME_ROWS, len(indices)))
    near, to_near = indices[:, :SOME_NEIGHBORS], distances[:, :SOME_NEIGHBORS].astype(np.float64)
    middle = near[few]  # (m, k)
    ends, from_middle = near[middle], to_near[middle]  # (m, k, k)
    is_end = ends[..., None] == middle[:, None, None, :]
    around = to_near[few][:, :, None] + from_middle
    direct = to_near[few][:, None, None, :]
    if (is_end & (direct > (1 + TOLERANCE) * around[..., None])).any():
        warn(
            f"{WHO}: X holds no Euclidean distances, as some violate the triangle inequality. Take "
            "the square roots of squared ones, as faiss returns, or pass metric='cosine' for "
            "cosine distances."
        )


def _edges_of_matrix(X: Any) -> Edges:
    check_matrix(X, WHO, "X")
    edges = X.tocoo()  # explicit zeros are kept: duplicates of a row
    return edges.row.astype(np.int64), edges.col.astype(np.int64), edges.data, X.shape[0]


def _edges_of_pair(indices: Any, distances: Any) -> Edges:
    indices, distances = as_array(indices, WHO, "indices"), as_array(distances, WHO, "distances")
    if indices.ndim != 2 or indices.shape != distances.shape:
        raise ValueError(
            f"{WHO}: indices and distances must share one shape (n, k); "
            f"got {indices.shape} and {distances.shape}."
        )
    check_numbers(indices, distances, WHO)
    indices = indices.astype(np.int64)
    found = indices != MISSING
    return np.nonzero(found)[0], indices[found], distances[found], len(indices)
