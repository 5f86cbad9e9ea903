"""Nearest neighbors: the directed graph that everything else walks on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs._validation import check_ranking
from ssdml.graphs.neighbors.approximate import (
    SAMPLE,
    TARGET_RECALL,
    best_index,
    draw_sample,
    rank_by_index,
)
from ssdml.graphs.neighbors.exact import (
    Progress,
    Ranking,
    Searcher,
    float32_points,
    part_of,
    without_self,
)
from ssdml.graphs.neighbors.metrics import SPACES
from ssdml.graphs.neighbors.precomputed import rank_precomputed
from ssdml.graphs.neighbors.rows import Rows, open_rows
from ssdml.utils.parallel import count_threads
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import as_generator, check_n_neighbors, choose


@dataclass(frozen=True, eq=False)
class KNNGraph:
    """Each row's nearest other rows, sorted by distance, then by index.

    Parameters
    ----------
    indices : ndarray of shape (n_samples, n_neighbors), int64
        Never the row itself, and no row twice. Other integers are converted.
    distances : ndarray of shape (n_samples, n_neighbors)
        Finite, at least 0, never falling along a row; equal ones may come in any order. Integers
        become float64, half precision float32.
    metric : {"euclidean", "cosine"}
        What the distances are; the cosine distance is 1 - cos.
    recall_ : float or None
        Share of the true neighbors that are among these: 1 after an exact search, measured on
        1,024 random rows after an approximate one, None where nobody measured.
    rows : Rows or None
        The rows that were searched, for :meth:`extend`: the arrays themselves, no copies. Pickles
        leave them out, or each would carry the data.

    Raises
    ------
    ValueError, TypeError
        Where the arrays are not such neighbors; found in O(n k log k).

    Examples
    --------
    >>> graph = KNNGraph(np.array([[1], [0]]), np.array([[2.0], [2.0]]))
    >>> graph.to_csr().toarray()
    array([[0., 2.],
           [2., 0.]])
    """

    indices: Ints
    distances: Array
    metric: str = "euclidean"
    recall_: float | None = None
    rows: Rows | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check what compiled code relies on; no array that is as it should be is copied."""
        choose(SPACES, self.metric, "KNNGraph: metric")
        indices, distances = check_ranking(self.indices, self.distances, "KNNGraph")
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "distances", distances)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return int(self.indices.shape[0])

    @property
    def n_neighbors(self) -> int:
        """Number of neighbors of each row."""
        return int(self.indices.shape[1])

    def to_csr(self) -> sparse.csr_array:
        """Directed distances, (n, n); a neighbor at distance 0 is stored, as an explicit zero."""
        return directed_csr(self, self.distances)

    def extend(
        self,
        X_new: Any,
        *,
        X: Any = None,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> KNNGraph:
        """Graph of the rows and of new ones below them, as :func:`knn_graph` of all would be.

        Parameters
        ----------
        X_new : array of shape (n_new, n_features)
            Of the precision of the rows.
        X : array of shape (n_samples, n_features) or None
            The rows of the graph, where it does not hold them: precomputed or read from a pickle.
        n_jobs : int or None
            Threads; never changes the result.
        progress : callable or None
            Called with the fraction done, from 0 to 1.

        Returns
        -------
        graph : KNNGraph
            Neighbors that an approximate search missed stay missed: ``recall_`` is 1 or None.

        Raises
        ------
        ValueError, TypeError
            Where there are no rows to search among, or the new ones are not like them.

        Notes
        -----
        New rows are searched exactly among all rows and all rows among them, in O(n_new n d) time:
        old rows are not compared with each other. They must be what they were when the graph was
        made.

        Examples
        --------
        >>> graph = knn_graph([[0.0], [1.0], [5.0]], 1).extend([[4.0]])
        >>> graph.indices.ravel()
        array([1, 0, 3, 2])
        """
        old = self.rows if X is None else open_rows(X, "extend")
        if old is None:
            raise ValueError(
                "extend: X must be given for a graph that holds no rows (precomputed or read "
                "from a pickle); got None. Pass the rows of the graph as X."
            )
        new = open_rows(X_new, "extend", "X_new")
        check_extension(self.n_samples, self.distances.dtype, old, new)
        ranking = extended_ranking(
            (self.indices, self.distances), self.metric, old, new, count_threads(n_jobs), progress
        )
        return KNNGraph(*ranking, self.metric, 1.0 if self.recall_ == 1.0 else None, old + new)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the rows."""
        return {**self.__dict__, "rows": None}


def check_graph(graph: Any, who: str) -> KNNGraph:
    """Raise unless the argument is a KNNGraph."""
    if not isinstance(graph, KNNGraph):
        raise TypeError(
            f"{who}: graph must be a KNNGraph; got {type(graph).__name__}. "
            "Build it with knn_graph(X, n_neighbors)."
        )
    return graph


def directed_csr(graph: KNNGraph, values: Array) -> sparse.csr_array:
    """Values of shape (n, k) laid on the directed edges of the graph; columns sorted."""
    n, k = graph.indices.shape
    order = np.argsort(graph.indices, axis=1)
    columns = np.take_along_axis(graph.indices, order, axis=1).ravel()
    data = np.take_along_axis(values, order, axis=1).ravel()
    return sparse.csr_array((data, columns, _row_starts(n, k)), shape=(n, n))


def _row_starts(n: int, k: int) -> Ints:
    # 64 bits: n k may pass 2^31, and where it does not SciPy takes 32.
    return np.arange(0, n * k + 1, k, dtype=np.int64)


def knn_graph(
    X: Any,
    n_neighbors: int,
    *,
    metric: str = "euclidean",
    method: str = "auto",
    device: str = "auto",
    n_jobs: int | None = None,
    random_state: Any = None,
    progress: Progress | None = None,
) -> KNNGraph:
    """Graph of each row's nearest other rows.

    Parameters
    ----------
    X : array of shape (n_samples, n_features), sparse matrix or pair of arrays
        Rows to search among. Memory-mapped files and half precision are read in parts, never
        converted as a whole. For ``method="precomputed"``: a sparse (n, n) matrix of distances,
        as ``KNeighborsTransformer(mode="distance")`` gives, or UMAP's pair (indices, distances).
        Entries from a row to itself are ignored.
    n_neighbors : int
        At most ``n_samples - 1``: a row is not its own neighbor.
    metric : {"euclidean", "cosine"}
        The cosine distance is 1 - cos; the cosine with a row of zeros counts as 0. For
        precomputed distances: what they are.
    method : {"auto", "exact", "ivf", "hnsw", "torch", "precomputed"}
        "auto" searches exactly as long as that takes some 20 s on one core, and by inverted lists
        ("ivf") beyond; where these find too few of the neighbors, exactly all the same. "hnsw"
        follows links between points. "torch" is the exact search with its products on ``device``.
    device : str
        Where "torch" multiplies: "auto" is CUDA where torch finds it, else the CPU. It must have
        room for X in float32.
    n_jobs : int or None
        Threads, as joblib counts them: None is 1, -1 all. Never changes the result.
    random_state : int, Generator, RandomState or None
        Of an approximate search: draws the sample and the rows that the lists are learned on.
    progress : callable or None
        Called with the fraction done, from 0 to 1.

    Returns
    -------
    graph : KNNGraph
        ``distances`` have the dtype of ``X``: float32 for half precision, float64 for integers.
        ``recall_`` says what an approximate search found.

    Raises
    ------
    ValueError, TypeError
        Where X is not a finite table of numbers, or an argument does not fit it.

    Warns
    -----
    RuntimeWarning
        Where "ivf" or "hnsw" finds less than 95 % of the true neighbors of the sample.

    Notes
    -----
    Candidates come from float32 scores, on columns that are centered and scaled; distances are
    then computed from differences in the dtype of ``X``. The exact search gives the true
    neighbors, ties to the smaller index, whatever the offset and however many duplicates there
    are: rows whose candidates leave room for doubt are searched again in float64. It takes
    O(n² d) time and O(n k) memory beside ``X`` (and a copy of it for cosines).

    "ivf" and "hnsw" may miss neighbors, but distances and order are exact among the candidates
    that they find. They are asked for 1,024 random rows first, with growing effort, until 98.5 %
    of the true neighbors are found. "ivf" looks into p of sqrt(n) lists: O(n^1.5 p d) time, d / 2
    bytes a row for codes, or 4 d where codes of 4 bits a coordinate are too coarse. Up to 1,024
    rows the search is exact.

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
    choose(SPACES, metric, "knn_graph: metric")
    if device != "auto" and method != "torch":
        raise ValueError(
            f"knn_graph: device must be 'auto' unless method is 'torch'; got {device!r} with "
            f"{method!r}. Pass method='torch' to search there."
        )
    if method == "precomputed":
        graph = KNNGraph(*rank_precomputed(X, n_neighbors), metric)
    else:
        rows = open_rows(X, "knn_graph")
        k = check_n_neighbors(n_neighbors, len(rows) - 1, "n - 1", "knn_graph")
        searcher = make_searcher(rows, metric, method, device, count_threads(n_jobs))
        # The last step is left for the end: a few rows may be searched again.
        ranking, recall = rank(searcher, method, k, random_state, part_of(progress, 0.0, 0.99))
        graph = KNNGraph(*ranking, metric, recall, rows)
    if progress is not None:
        progress(1.0)
    return graph


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
    rows = open_rows(X, "nearest_rows")
    targets = open_rows(queries, "nearest_rows", "queries")
    if targets.n_features != rows.n_features:
        raise ValueError(
            f"nearest_rows: queries must have as many columns as X, {rows.n_features}; "
            f"got {targets.n_features}."
        )
    k = check_n_neighbors(n_neighbors, len(rows), "n", "nearest_rows")
    # One dtype for both, so that a query that equals a row is at distance 0.
    dtype = np.result_type(rows.dtype, targets.dtype)
    rows, targets = rows.as_dtype(dtype), targets.as_dtype(dtype)
    space = choose(SPACES, metric, "nearest_rows: metric")(rows)
    searcher = Searcher(space, space.prepare(rows), count_threads(n_jobs))
    return searcher.rank_exactly(space.prepare(targets), k)


# New rows for a graph: only distances to the new rows are computed.


def extended_ranking(
    ranking: Ranking,
    metric: str,
    old: Rows,
    new: Rows,
    n_jobs: int,
    progress: Progress | None = None,
) -> Ranking:
    """Ranking of the old rows with the new ones below, from the ranking of the old ones.

    A new row is searched among all, an old row among the new; whichever of these is nearer than
    the neighbors that the old row has takes its place among them.
    """
    n, k = ranking[0].shape
    space = SPACES[metric](old + new)
    old, new = space.prepare(old), space.prepare(new)
    among_all = Searcher(space, old + new, n_jobs)
    added = without_self(
        among_all.rank_exactly(new, k + 1, part_of(progress, 0.0, 0.5)), n + np.arange(len(new))
    )
    among_new = Searcher(space, new, n_jobs)
    nearer = among_new.rank_exactly(old, min(k, len(new)), part_of(progress, 0.5, 1.0))
    indices = np.hstack([ranking[0], nearer[0] + n])
    distances = np.hstack([ranking[1], nearer[1]])
    order = np.lexsort((indices, distances), axis=-1)[:, :k]
    return (
        np.vstack([np.take_along_axis(indices, order, axis=1), added[0]]),
        np.vstack([np.take_along_axis(distances, order, axis=1), added[1]]),
    )


def check_extension(n_samples: int, dtype: np.dtype[Any], old: Rows, new: Rows) -> None:
    """Raise unless the old rows are those of the graph, and the new ones like them."""
    if len(old) != n_samples:
        raise ValueError(
            f"extend: X must be the {n_samples} rows of the graph; got {len(old)} rows."
        )
    if new.n_features != old.n_features:
        raise ValueError(
            f"extend: X_new must have as many columns as the rows of the graph, "
            f"{old.n_features}; got {new.n_features}."
        )
    for rows, name in ((old, "X"), (new, "X_new")):
        if rows.dtype != dtype:
            raise TypeError(
                f"extend: {name} must have the precision of the graph's distances, {dtype}; "
                f"got {rows.dtype}. Use {name}.astype({str(dtype)!r})."
            )


# How a graph's rows are searched: which method, by whose products, with what recall.

METHODS = {name: name for name in ("auto", "exact", "ivf", "hnsw", "torch", "precomputed")}
# n² (d + 30) up to which "auto" searches exactly: some 12 s on one core. To rank the scores costs
# as much as 30 columns.
EXACT_WORK, RANKING_COLUMNS = 7e11, 30
ENOUGH_RECALL = 0.95  # below, there is a warning
INDEXING = 0.1  # share of the time that an index takes to build, for the progress


def make_searcher(rows: Rows, metric: str, method: str, device: str, n_jobs: int) -> Searcher:
    """Searcher of the rows among themselves; "torch" finds its candidates on the device."""
    space = SPACES[metric](rows)
    rows = space.prepare(rows)
    if method != "torch":
        return Searcher(space, rows, n_jobs)
    from ssdml.graphs.neighbors.exact import torch_find

    find = torch_find(float32_points(space, rows), space.inner_product, device)
    return Searcher(space, rows, n_jobs, find)


def rank(
    searcher: Searcher, method: str, k: int, random_state: Any, progress: Progress | None
) -> tuple[Ranking, float]:
    """Each row's k nearest other rows by the method, and their recall."""
    if _by_index(searcher, method):
        seed = int(as_generator(random_state).integers(2**31 - 1))
        sample = draw_sample(searcher, k, seed)
        index = best_index(searcher, "ivf" if method == "auto" else method, sample, seed)
        if method != "auto" or index.recall >= TARGET_RECALL:
            found = rank_by_index(searcher, index, sample, part_of(progress, INDEXING, 1.0))
            _warn_of(found[1], method)
            return found
    ranking = searcher.rank_exactly(searcher.rows, k + 1, progress)
    return without_self(ranking, np.arange(len(searcher.rows))), 1.0


def exact_work(n: int, d: int) -> float:
    """Work of an exact search for the neighbors of n rows of d columns, in products of entries.

    Examples
    --------
    >>> exact_work(80_000, 64) < EXACT_WORK < exact_work(100_000, 64)
    True
    """
    return float(n) ** 2 * (d + RANKING_COLUMNS)


def _by_index(searcher: Searcher, method: str) -> bool:
    n, d = len(searcher.rows), searcher.rows.n_features
    if n <= SAMPLE or method in ("exact", "torch"):
        return False
    return method != "auto" or exact_work(n, d) > EXACT_WORK


def _warn_of(recall: float, method: str) -> None:
    if recall < ENOUGH_RECALL:
        warnings.warn(
            f"knn_graph: {method!r} found {recall:.1%} of the true neighbors of {SAMPLE} random "
            "rows; method='auto' or 'exact' finds more.",
            RuntimeWarning,
            stacklevel=4,
        )
