"""Nearest neighbours: the directed graph that everything else walks on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs._checks import (
    Floats,
    Integers,
    as_generator,
    check_n_neighbors,
    check_rows,
    choose,
)
from ssdml.graphs._search import Ranking, Searcher
from ssdml.graphs._spaces import SPACES, Space

METHODS = {name: name for name in ("auto", "exact", "ivf", "hnsw", "precomputed")}
EXACT_WORK = 2e12  # n² d up to which "auto" searches exactly: below a minute on two cores


@dataclass(frozen=True, eq=False)
class KNNGraph:
    """Each row's nearest other rows, sorted by distance, then by index.

    Parameters
    ----------
    indices : ndarray of shape (n_samples, n_neighbors), int64
        Never the row itself.
    distances : ndarray of shape (n_samples, n_neighbors)
    metric : {"euclidean", "cosine"}
        What the distances are; the cosine distance is 1 - cos.

    Examples
    --------
    >>> graph = KNNGraph(np.array([[1], [0]]), np.array([[2.0], [2.0]]))
    >>> graph.to_csr().toarray()
    array([[0., 2.],
           [2., 0.]])
    """

    indices: Integers
    distances: Floats
    metric: str = "euclidean"

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.indices.shape[0])

    @property
    def n_neighbors(self) -> int:
        """Number of neighbours of each row."""
        return int(self.indices.shape[1])

    def to_csr(self) -> sparse.csr_array:
        """Directed distances, (n, n); a neighbour at distance 0 is stored, as an explicit zero."""
        n, k = self.indices.shape
        order = np.argsort(self.indices, axis=1)
        columns = np.take_along_axis(self.indices, order, axis=1).ravel()
        values = np.take_along_axis(self.distances, order, axis=1).ravel()
        return sparse.csr_array((values, columns, np.arange(0, n * k + 1, k)), shape=(n, n))


def knn_graph(
    X: Any,
    n_neighbors: int,
    *,
    metric: str = "euclidean",
    method: str = "auto",
    n_jobs: int | None = None,
    random_state: Any = None,
) -> KNNGraph:
    """Graph of the nearest other rows of each row."""
    choose(METHODS, method, "knn_graph: method")
    space_class = choose(SPACES, metric, "knn_graph: metric")
    X = check_rows(X, "knn_graph")
    k = check_n_neighbors(n_neighbors, len(X) - 1, "n - 1", "knn_graph")
    space = space_class(X)
    searcher = Searcher(space, space.rows(X), _n_threads(n_jobs))
    if method == "exact" or (method == "auto" and len(X) ** 2 * X.shape[1] <= EXACT_WORK):
        ranking = searcher.rank_exactly(searcher.rows, k + 1)
    else:
        seed = int(as_generator(random_state).integers(2**31 - 1))
        ranking = searcher.rank_by_index("ivf" if method == "auto" else method, k + 1, seed)
    return KNNGraph(*_without_self(*ranking), metric)


def _without_self(indices: Integers, distances: Floats) -> Ranking:
    """Drop each row from its own list; where many duplicates crowd it out, drop the last."""
    n, width = indices.shape
    drop = indices == np.arange(n)[:, None]
    drop[~drop.any(axis=1), -1] = True
    return indices[~drop].reshape(n, width - 1), distances[~drop].reshape(n, width - 1)


def nearest_rows(
    X: Any,
    queries: Any,
    n_neighbors: int,
    *,
    metric: str = "euclidean",
    n_jobs: int | None = None,
) -> Ranking:
    """Rows of ``X`` nearest to each query, sorted by distance, then by index; exact."""
    X = check_rows(X, "nearest_rows")
    queries = check_rows(queries, "nearest_rows", "queries")
    k = check_n_neighbors(n_neighbors, len(X), "n", "nearest_rows")
    space: Space = choose(SPACES, metric, "nearest_rows: metric")(X)
    searcher = Searcher(space, space.rows(X), _n_threads(n_jobs))
    return searcher.rank_exactly(space.rows(queries), k)


def _n_threads(n_jobs: int | None) -> int:
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))
