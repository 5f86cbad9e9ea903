"""Nearest-neighbor graphs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs._validation import check_n_neighbors, check_ranking
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
    part_of,
    torch_find,
    without_self,
)
from ssdml.graphs.neighbors.metrics import SPACES
from ssdml.graphs.neighbors.precomputed import rank_precomputed, warn_of_squares
from ssdml.graphs.neighbors.rows import Rows, open_rows
from ssdml.utils.labels import check_columns
from ssdml.utils.parallel import count_threads
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import as_generator, choose, warn

METHODS = dict.fromkeys(("auto", "exact", "ivf", "hnsw", "torch", "precomputed"))
# n² (d + 30) up to which "auto" searches exactly: some 12 s on one core. Ranking the scores costs
# as much as 30 columns.
EXACT_WORK, RANKING_COLUMNS = 7e11, 30
ENOUGH_RECALL = 0.95  # a lower recall raises a warning
INDEXING = 0.1  # share of the time spent on building an index, for the progress


@dataclass(frozen=True, eq=False)
class KNNGraph:
    """Nearest other rows of each row, sorted by distance, then by index.

    Parameters
    ----------
    indices : ndarray of shape (n_samples, n_neighbors), int64
        Never the row itself, and no row twice. Other integers are converted.
    distances : ndarray of shape (n_samples, n_neighbors)
        Finite, at least 0, not decreasing along a row. Integers become float64, half precision
        float32.
    metric : {"euclidean", "cosine"}
        What the distances are; the cosine distance is 1 - cos.
    recall_ : float or None
        Share of the true neighbors found: 1 after an exact search, measured on 1,024 random rows
        after an approximate one, None if unknown.
    rows : Rows or None
        The rows that were searched, for :meth:`extend`; not copied, and left out of pickles.

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
        """Check what compiled code relies on; sound arrays are not copied."""
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
        """Return the directed distances, (n, n); a distance of 0 is stored as an explicit zero."""
        return directed_csr(self, self.distances)

    def extend(
        self,
        X_new: Any,
        *,
        X: Any = None,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> KNNGraph:
        """Add rows to the graph, as if :func:`knn_graph` had searched all of them.

        Parameters
        ----------
        X_new : array of shape (n_new, n_features)
            Must have the dtype of the rows.
        X : array of shape (n_samples, n_features) or None
            The rows of the graph, if it does not hold them: precomputed or read from a pickle.
        n_jobs : int or None
            Threads; never changes the result.
        progress : callable or None
            Called with the fraction done, from 0 to 1.

        Returns
        -------
        graph : KNNGraph
            Neighbors that an approximate search missed stay missed: ``recall_`` is 1 or None.

        Notes
        -----
        New rows are searched exactly among all rows, and old rows among the new ones, in
        O(n_new n d) time. The old rows must not have changed since the graph was made.

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
        self._check_extension(old, new)
        n, k, threads = self.n_samples, self.n_neighbors, count_threads(n_jobs, "extend")
        both = old + new
        space = SPACES[self.metric](both)
        old, new = space.prepare(old), space.prepare(new)
        among_all = Searcher(space, old + new, threads).rank_exactly(
            new, k + 1, part_of(progress, 0.0, 0.5)
        )
        added = without_self(among_all, n + np.arange(len(new)))
        # A new row that is nearer than an old row's neighbors takes its place among them.
        nearer = Searcher(space, new, threads).rank_exactly(
            old, min(k, len(new)), part_of(progress, 0.5, 1.0)
        )
        indices = np.hstack([self.indices, nearer[0] + n])
        distances = np.hstack([self.distances, nearer[1]])
        order = np.lexsort((indices, distances), axis=-1)[:, :k]
        ranking = (
            np.vstack([np.take_along_axis(indices, order, axis=1), added[0]]),
            np.vstack([np.take_along_axis(distances, order, axis=1), added[1]]),
        )
        return _graph(ranking, self.metric, 1.0 if self.recall_ == 1.0 else None, both)

    def _check_extension(self, old: Rows, new: Rows) -> None:
        if len(old) != self.n_samples:
            raise ValueError(
                f"extend: X must be the {self.n_samples} rows of the graph; got {len(old)} rows."
            )
        if new.n_features != old.n_features:
            raise ValueError(
                f"extend: X_new must have as many columns as the rows of the graph, "
                f"{old.n_features}; got {new.n_features}."
            )
        check_columns(old.names, new.names, "extend", ("the rows of the graph", "X_new"))
        for rows, name in ((old, "X"), (new, "X_new")):
            if rows.dtype != self.distances.dtype:
                raise TypeError(
                    f"extend: {name} must have the dtype of the graph's distances, "
                    f"{self.distances.dtype}; got {rows.dtype}. Use "
                    f"{name}.astype({str(self.distances.dtype)!r})."
                )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the rows out."""
        return {**self.__dict__, "rows": None}

    def __copy__(self) -> KNNGraph:
        """Return a graph of the same rows, which only pickles leave out."""
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> KNNGraph:
        """Return a graph with neighbors of its own; rows are never copied."""
        return replace(self, indices=self.indices.copy(), distances=self.distances.copy())


def _graph(ranking: Ranking, metric: str, recall: float | None, rows: Rows | None) -> KNNGraph:
    """Make a graph of the search's own result, without the checks of the constructor."""
    overflowing = ~np.isfinite(ranking[1][:, -1])  # the largest of the row
    if overflowing.any():
        raise ValueError(
            f"knn_graph: X must have finite distances; got {ranking[1][overflowing][0, -1]} at row "
            f"{overflowing.argmax()}. Scale X down."
        )
    graph = object.__new__(KNNGraph)
    graph.__dict__.update(
        indices=ranking[0], distances=ranking[1], metric=metric, recall_=recall, rows=rows
    )
    return graph


def check_graph(graph: Any, who: str) -> KNNGraph:
    """Raise unless the argument is a KNNGraph."""
    if not isinstance(graph, KNNGraph):
        raise TypeError(
            f"{who}: graph must be a KNNGraph; got {type(graph).__name__}. "
            "Build it with knn_graph(X, n_neighbors)."
        )
    return graph


def directed_csr(graph: KNNGraph, values: Array) -> sparse.csr_array:
    """Put values of shape (n, k) on the directed edges of the graph; columns sorted."""
    n, k = graph.indices.shape
    order = np.argsort(graph.indices, axis=1)
    columns = np.take_along_axis(graph.indices, order, axis=1).ravel()
    data = np.take_along_axis(values, order, axis=1).ravel()
    return sparse.csr_array((data, columns, _row_starts(n, k)), shape=(n, n))


def _row_starts(n: int, k: int) -> Ints:
    # 64 bits: n k may exceed 2^31. SciPy takes 32 if it does not.
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
    """Build the graph of the nearest neighbors of each row, without self-loops.

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
        precomputed distances: the metric they were computed with.
    method : {"auto", "exact", "ivf", "hnsw", "torch", "precomputed"}
        "auto" searches exactly if that takes at most some 20 s on one core; else it uses
        inverted lists ("ivf"), or the exact search if these find too few neighbors. "hnsw"
        follows links between points. "torch" is the exact search with matrix products on
        ``device``.
    device : str
        Device for "torch": "auto" is CUDA if available, else the CPU. X must fit its memory in
        float32.
    n_jobs : int or None
        Threads, as joblib counts them: None is 1, -1 all. Never changes the result.
    random_state : int, Generator, RandomState or None
        Seed of an approximate search: of its sample, and of the rows its lists are learned on.
    progress : callable or None
        Called with the fraction done, from 0 to 1.

    Returns
    -------
    graph : KNNGraph
        ``distances`` have the dtype of ``X``: float32 for half precision, float64 for integers.
        ``recall_`` is the share of the true neighbors found.

    Warns
    -----
    RuntimeWarning
        If "ivf" or "hnsw" finds less than 95% of the true neighbors of the sample.
    UserWarning
        If precomputed distances are squared, or 1 for all neighbors.

    Notes
    -----
    Candidates come from float32 scores of centered and scaled columns; their distances are
    computed from differences in the dtype of ``X``. Rows whose scores are too close to call get
    candidates from float64 scores. The exact search is exact up to the precision of those: any
    of several rows at the same distance may be among the neighbors, the same on each run and for
    any number of threads. It takes O(n² d) time and O(n k) memory beside ``X`` (and a copy of it
    for cosines), however many ties and duplicates there are.

    "ivf" and "hnsw" may miss neighbors. They first search for 1,024 random rows, with growing
    effort, until 98.5% of the true neighbors are found. "ivf" looks into p of sqrt(n) lists:
    O(n^1.5 p d) time, d / 2 bytes per row for codes, or 4 d if codes of 4 bits per coordinate are
    too coarse. Up to 1,024 rows the search is exact.

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
    n_threads = count_threads(n_jobs, "knn_graph")
    if progress is not None and not callable(progress):
        raise TypeError(
            f"knn_graph: progress must be a function of the share that is done; got {progress!r}. "
            "Omit it, or pass print."
        )
    if device != "auto" and method != "torch":
        raise ValueError(
            f"knn_graph: device must be 'auto' unless method is 'torch'; got {device!r} with "
            f"{method!r}. Pass method='torch' to search there."
        )
    if method == "precomputed":
        ranking = rank_precomputed(X, n_neighbors)
        if metric == "euclidean":
            warn_of_squares(*ranking)
        graph = _graph(ranking, metric, None, None)
    else:
        rows = open_rows(X, "knn_graph")
        k = check_n_neighbors(n_neighbors, len(rows) - 1, "n - 1", "knn_graph")
        space = SPACES[metric](rows)
        searcher = Searcher(space, space.prepare(rows), n_threads)
        if method == "torch":
            searcher.find = torch_find(searcher, device)
        ranking, recall = _rank(searcher, method, k, random_state, progress)
        graph = _graph(ranking, metric, recall, rows)
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
    """Find the rows of ``X`` nearest to each query, by the exact search of :func:`knn_graph`.

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
    check_columns(rows.names, targets.names, "nearest_rows", ("X", "queries"))
    k = check_n_neighbors(n_neighbors, len(rows), "n", "nearest_rows")
    # One dtype for both, so that a query that equals a row is at distance 0.
    dtype = np.result_type(rows.dtype, targets.dtype)
    rows, targets = rows.as_dtype(dtype), targets.as_dtype(dtype)
    space = choose(SPACES, metric, "nearest_rows: metric")(rows)
    searcher = Searcher(space, space.prepare(rows), count_threads(n_jobs, "nearest_rows"))
    return searcher.rank_exactly(space.prepare(targets), k)


def exact_work(n: int, d: int) -> float:
    """Work of an exact search for the neighbors of n rows of d columns, in products of entries.

    Examples
    --------
    >>> exact_work(80_000, 64) < EXACT_WORK < exact_work(100_000, 64)
    True
    """
    return float(n) ** 2 * (d + RANKING_COLUMNS)


def _rank(
    searcher: Searcher, method: str, k: int, random_state: Any, progress: Progress | None
) -> tuple[Ranking, float]:
    """Find each row's k nearest other rows by the method, and their recall."""
    n, rows = len(searcher.rows), searcher.rows
    by_index = method in ("ivf", "hnsw") or (
        method == "auto" and exact_work(n, rows.n_features) > EXACT_WORK
    )
    if by_index and n > SAMPLE:
        seed = int(as_generator(random_state, "random_state", "knn_graph").integers(2**31 - 1))
        sample = draw_sample(searcher, k, seed)
        index = best_index(searcher, "ivf" if method == "auto" else method, sample, seed)
        if method != "auto" or index.recall >= TARGET_RECALL:
            searching = part_of(progress, INDEXING, 1.0)
            ranking, recall = rank_by_index(searcher, index, sample, searching)
            if recall < ENOUGH_RECALL:
                warn(
                    f"knn_graph: {method!r} found {recall:.1%} of the true neighbors of {SAMPLE} "
                    "random rows; method='auto' or 'exact' finds more.",
                    RuntimeWarning,
                )
            return ranking, recall
    ranking = searcher.rank_exactly(rows, k + 1, progress)
    return without_self(ranking, np.arange(n)), 1.0


def limit_neighbors(n_neighbors: int, n_samples: int, who: str) -> int:
    """Limit the number of neighbors to the other samples, with a warning.

    Examples
    --------
    >>> limit_neighbors(10, 100, "SSDML")
    10
    """
    if n_samples < 2:
        raise ValueError(
            f"{who}: X must have at least 2 samples for a neighbor graph; got {n_samples}. Add "
            "samples."
        )
    if n_neighbors < n_samples:
        return int(n_neighbors)
    warn(
        f"{who}: n_neighbors must be below n_samples = {n_samples}; got {n_neighbors}. "
        f"Using {n_samples - 1}."
    )
    return n_samples - 1
