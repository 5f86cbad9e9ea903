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
from ssdml.graphs._precomputed import rank_precomputed
from ssdml.graphs._search import Ranking, Searcher
from ssdml.graphs._spaces import SPACES

METHODS = {name: name for name in ("auto", "exact", "ivf", "hnsw", "precomputed")}
EXACT_WORK = 5e11  # n² d up to which "auto" searches exactly: some 20 s on one core


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
        return directed_csr(self, self.distances)


def check_graph(graph: Any, who: str) -> KNNGraph:
    """Raise unless the argument is a KNNGraph."""
    if not isinstance(graph, KNNGraph):
        raise TypeError(
            f"{who}: graph must be a KNNGraph; got {type(graph).__name__}. "
            "Build it with knn_graph(X, n_neighbors)."
        )
    return graph


def directed_csr(graph: KNNGraph, values: Floats) -> sparse.csr_array:
    """Values of shape (n, k) laid on the directed edges of the graph; columns sorted."""
    n, k = graph.indices.shape
    order = np.argsort(graph.indices, axis=1)
    columns = np.take_along_axis(graph.indices, order, axis=1).ravel()
    data = np.take_along_axis(values, order, axis=1).ravel()
    return sparse.csr_array((data, columns, np.arange(0, n * k + 1, k)), shape=(n, n))


def knn_graph(
    X: Any,
    n_neighbors: int,
    *,
    metric: str = "euclidean",
    method: str = "auto",
    n_jobs: int | None = None,
    random_state: Any = None,
) -> KNNGraph:
    """Graph of each row's nearest other rows.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), sparse matrix or pair of arrays
        Rows to search among. For ``method="precomputed"``: a sparse (n, n) matrix of distances,
        as ``KNeighborsTransformer(mode="distance")`` gives, or UMAP's pair (indices, distances).
        Entries from a row to itself are ignored.
    n_neighbors : int
        At most ``n_samples - 1``: a row is not its own neighbour.
    metric : {"euclidean", "cosine"}
        The cosine distance is 1 - cos; the cosine with a row of zeros counts as 0. For
        precomputed distances: what they are.
    method : {"auto", "exact", "ivf", "hnsw", "precomputed"}
        "auto" searches exactly as long as that takes some 20 s on one core, by inverted lists
        (IVF) beyond.
    n_jobs : int or None
        Threads, as joblib counts them: None is 1, -1 all. Never changes the result.
    random_state : int, Generator, RandomState or None
        Seeds the clustering of "ivf".

    Returns
    -------
    graph : KNNGraph
        ``distances`` have the dtype of ``X`` (float64 for integers).

    Notes
    -----
    Candidates come from faiss in float32, on columns that are centred and scaled; distances are
    then computed from differences in the dtype of ``X``. The exact search gives the true
    neighbours, ties to the smaller index, whatever the offset and however many duplicates there
    are: rows whose candidates leave room for doubt are searched again in float64. It takes
    O(n² d) time and O(n (d + k)) memory. "ivf" and "hnsw" may miss neighbours, but distances and
    order are exact among those they find.

    Examples
    --------
    >>> graph = knn_graph(np.array([[0.0], [1.0], [1.0], [5.0]]), 2)
    >>> graph.indices
    array([[1, 2],
           [2, 0],
           [1, 0],
           [1, 2]])
    >>> graph.distances[3]
    array([4., 4.])
    """
    choose(METHODS, method, "knn_graph: method")
    space_class = choose(SPACES, metric, "knn_graph: metric")
    if method == "precomputed":
        return KNNGraph(*rank_precomputed(X, n_neighbors), metric)
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
    """Drop each row from its own list; where duplicates crowd it out, drop the last."""
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
    """Rows of ``X`` nearest to each query, by the exact search of :func:`knn_graph`.

    A query that is itself a row of ``X`` finds that row.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    queries : array of shape (n_queries, n_features)
    n_neighbors : int
        At most ``n_samples``.
    metric : {"euclidean", "cosine"}
    n_jobs : int or None
        Threads; never changes the result.

    Returns
    -------
    indices : ndarray of shape (n_queries, n_neighbors), int64
        Sorted by distance, then by index.
    distances : ndarray of shape (n_queries, n_neighbors)

    Examples
    --------
    >>> indices, distances = nearest_rows([[0.0], [4.0]], [[3.0], [0.5]], 1)
    >>> indices.ravel(), distances.ravel()
    (array([1, 0]), array([1. , 0.5]))
    """
    X = check_rows(X, "nearest_rows")
    queries = check_rows(queries, "nearest_rows", "queries")
    if queries.shape[1] != X.shape[1]:
        raise ValueError(
            f"nearest_rows: queries must have as many columns as X, {X.shape[1]}; "
            f"got {queries.shape[1]}."
        )
    k = check_n_neighbors(n_neighbors, len(X), "n", "nearest_rows")
    # One dtype for both, so that a query that equals a row is at distance 0.
    dtype = np.result_type(X, queries)
    X, queries = X.astype(dtype, copy=False), queries.astype(dtype, copy=False)
    space = choose(SPACES, metric, "nearest_rows: metric")(X)
    searcher = Searcher(space, space.rows(X), _n_threads(n_jobs))
    return searcher.rank_exactly(space.rows(queries), k)


def _n_threads(n_jobs: int | None) -> int:
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))
