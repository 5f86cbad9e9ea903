"""Searches over rows: exact to the last tie, and approximate by faiss's indices.

Candidates come from faiss in float32. Their distances are computed again from differences, in a
fixed order, and a query is settled only when no row outside its candidates can belong among them;
the others are searched again, wider, and at last in float64 against all rows. So the answer
depends neither on the number of threads nor on rounding, and any number of ties is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.graphs._checks import Floats, Integers
from ssdml.graphs._spaces import ROUNDING_FLOAT32, ROUNDING_FLOAT64, Space

CHUNK_ENTRIES = 2**21  # entries of a temporary array: 8 MB in float32
SLACK = 4  # candidates beyond those asked for, so that most ties are settled at once
WIDER = 8  # how many times more candidates the second search takes
IVF_PROBES = 16
IVF_ROWS_PER_LIST = 39  # faiss's own floor for a k-means that means something
HNSW_LINKS, HNSW_BREADTH = 16, 64

Ranking = tuple[Integers, Floats]  # indices and distances, (n_queries, count) each


@contextmanager
def faiss_threads(n_jobs: int | None) -> Iterator[None]:
    """Let faiss use as many threads as joblib gives for ``n_jobs``; restore the number after."""
    import faiss
    from joblib import effective_n_jobs

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(effective_n_jobs(n_jobs))
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def rank_exactly(space: Space, rows: Floats, queries: Floats, count: int) -> Ranking:
    """The ``count`` rows nearest to each query, sorted by distance, then by index."""
    points = space.searchable(rows, np.float32)
    targets = points if queries is rows else space.searchable(queries, np.float32)
    width = min(count + SLACK, len(rows))
    ranking, settled = _attempt(space, rows, points, queries, targets, count, width)
    return _finish(space, rows, points, queries, count, ranking, settled)


def rank_by_index(space: Space, rows: Floats, count: int, method: str, seed: int) -> Ranking:
    """Approximate ranking of all rows among themselves; rows short of neighbours are exact."""
    points = space.searchable(rows, np.float32)
    index = {"ivf": _ivf, "hnsw": _hnsw}[method](points, space.inner_product, seed)
    _, candidates = index.search(points, min(count + SLACK, len(rows)))
    ranking = _rank_candidates(space, rows, rows, candidates, count)
    return _finish(space, rows, points, rows, count, ranking, np.isfinite(ranking[1][:, -1]))


def _finish(
    space: Space,
    rows: Floats,
    points: Floats,
    queries: Floats,
    count: int,
    ranking: Ranking,
    settled: npt.NDArray[np.bool_],
) -> Ranking:
    """Search again for the queries that are not settled."""
    indices, distances = ranking
    late = np.flatnonzero(~settled)
    if late.size:
        # Equal queries have equal answers: a heap of duplicates is searched once.
        unique, copies = np.unique(queries[late], axis=0, return_inverse=True)
        late_indices, late_distances = _rank_ties(space, rows, points, unique, count)
        indices[late] = late_indices[copies.ravel()]
        distances[late] = late_distances[copies.ravel()]
    return indices, distances


def _rank_ties(space: Space, rows: Floats, points: Floats, queries: Floats, count: int) -> Ranking:
    targets = space.searchable(queries, np.float32)
    width = min(WIDER * count + SLACK, len(rows))
    (indices, distances), settled = _attempt(space, rows, points, queries, targets, count, width)
    late = np.flatnonzero(~settled)
    for block in _blocks(late.size, len(rows)):
        chosen = late[block]
        indices[chosen], distances[chosen] = _rank_all(space, rows, queries[chosen], count)
    return indices, distances


def _attempt(
    space: Space,
    rows: Floats,
    points: Floats,
    queries: Floats,
    targets: Floats,
    count: int,
    width: int,
) -> tuple[Ranking, npt.NDArray[np.bool_]]:
    """Rank among ``width`` candidates, and tell which queries no other row can change."""
    import faiss

    metric = faiss.METRIC_INNER_PRODUCT if space.inner_product else faiss.METRIC_L2
    scores, candidates = faiss.knn(targets, points, width, metric=metric)
    ranking = _rank_candidates(space, rows, queries, candidates, count)
    if width == len(rows):
        return ranking, np.ones(len(queries), bool)
    farthest = 1 - scores[:, -1] if space.inner_product else scores[:, -1]
    bound = space.score_bound(targets, ranking[1][:, -1], ROUNDING_FLOAT32)
    return ranking, farthest > bound


def _rank_candidates(
    space: Space, rows: Floats, queries: Floats, candidates: Integers, count: int
) -> Ranking:
    """The ``count`` best of each query's candidates; a missing one (-1) is infinitely far."""
    indices = np.empty((len(queries), count), np.int64)
    distances = np.empty((len(queries), count), rows.dtype)
    for block in _blocks(len(queries), candidates.shape[1] * rows.shape[1]):
        found = candidates[block]
        away = space.distances(queries[block, None, :], rows[found])
        away[found < 0] = np.inf
        order = np.lexsort((found, away), axis=-1)[:, :count]
        indices[block] = np.take_along_axis(found, order, axis=1)
        distances[block] = np.take_along_axis(away, order, axis=1)
    return indices, distances


def _rank_all(space: Space, rows: Floats, queries: Floats, count: int) -> Ranking:
    """Rank all rows for a few queries: float64 scores, then exact distances where they matter."""
    targets = space.searchable(queries, np.float64)
    scores = np.hstack(
        [
            space.scores(targets, space.searchable(rows[block], np.float64))
            for block in _blocks(len(rows), rows.shape[1])
        ]
    )
    nearest = np.argpartition(scores, count - 1, axis=1)[:, :count]
    # These rows bound the true distance of the last one wanted, hence the scores that matter.
    reach = _rank_candidates(space, rows, queries, nearest, count)[1][:, -1]
    query, row = np.nonzero(scores <= space.score_bound(targets, reach, ROUNDING_FLOAT64)[:, None])
    distances = np.concatenate(
        [
            space.distances(queries[query[block]], rows[row[block]])
            for block in _blocks(len(query), rows.shape[1])
        ]
    )
    order = np.lexsort((row, distances, query))
    first = np.searchsorted(query, np.arange(len(queries)))
    chosen = order[first[:, None] + np.arange(count)]
    return row[chosen], distances[chosen]


def _blocks(n: int, entries_each: int) -> list[slice]:
    """Slices over ``n`` items such that a temporary array stays within ``CHUNK_ENTRIES``."""
    step = max(1, CHUNK_ENTRIES // entries_each)
    return [slice(start, start + step) for start in range(0, n, step)]


def _ivf(points: Floats, inner_product: bool, seed: int) -> Any:
    import faiss

    n, d = points.shape
    metric = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
    n_lists = max(1, min(int(4 * n**0.5), n // IVF_ROWS_PER_LIST))
    quantizer = faiss.IndexFlat(d, metric)
    index = faiss.IndexIVFFlat(quantizer, d, n_lists, metric)
    index.cp.seed = seed
    index.nprobe = IVF_PROBES
    index.train(points)
    index.add(points)
    return index


def _hnsw(points: Floats, inner_product: bool, seed: int) -> Any:
    import faiss

    metric = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
    index = faiss.IndexHNSWFlat(points.shape[1], HNSW_LINKS, metric)
    index.hnsw.rng = faiss.RandomGenerator(seed)
    index.hnsw.efConstruction = index.hnsw.efSearch = HNSW_BREADTH
    with faiss_threads(1):  # links laid by several threads differ from run to run
        index.add(points)
    return index
