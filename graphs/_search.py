"""Searches over rows: exact to the last tie, and approximate by faiss's indices.

Candidates come from faiss in float32. Their distances are computed again from differences, in a
fixed order, and a query is settled only when no row outside its candidates can belong among them;
the others are searched again, wider, and at last in float64 against all rows. So the answer
depends neither on the number of threads nor on rounding, and any number of ties is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.graphs._checks import Floats, Integers
from ssdml.graphs._spaces import ROUNDING_FLOAT32, ROUNDING_FLOAT64, Space

CHUNK_ENTRIES = 2**21  # entries of a temporary array: 8 MB in float32
QUERY_BLOCK = 4096  # queries a thread takes at a time
SLACK = 4  # candidates beyond those asked for, so that most ties are settled at once
WIDER = 8  # how many times more candidates the second search takes
IVF_PROBES = 32
IVF_ROWS_PER_LIST = 39  # fewer, and faiss warns that its k-means means little
HNSW_LINKS, HNSW_BREADTH = 16, 64

Ranking = tuple[Integers, Floats]  # indices and distances, (n_queries, count) each
Find = Callable[[Floats, int], tuple[Floats, Integers]]  # faiss's scores and candidates


class Searcher:
    """Ranks rows by their distance to queries, then by index.

    Threads take blocks of queries, so that none waits for another; each block is computed by one
    thread alone, in the same way whichever thread that is.
    """

    def __init__(self, space: Space, rows: Floats, n_jobs: int) -> None:
        self.space, self.rows, self.n_jobs = space, rows, n_jobs
        self.points = space.searchable(rows, np.float32)

    def rank_exactly(self, queries: Floats, count: int) -> Ranking:
        """The ``count`` nearest rows of each query."""
        ranking, settled = self._attempt(queries, count, count + SLACK)
        return self._finish(queries, ranking, settled)

    def rank_by_index(self, method: str, count: int, seed: int) -> Ranking:
        """Approximate ranking of the rows among themselves; rows left short are exact."""
        with faiss_threads(self.n_jobs):
            index = INDICES[method](self.points, self.space.inner_product, seed)
        width = min(count + SLACK, len(self.rows))
        ranking, _ = self._rank_blocks(index.search, self.rows, count, width)
        return self._finish(self.rows, ranking, np.isfinite(ranking[1][:, -1]))

    def _finish(self, queries: Floats, ranking: Ranking, settled: npt.NDArray[np.bool_]) -> Ranking:
        """Search again for the queries that are not settled."""
        indices, distances = ranking
        late = np.flatnonzero(~settled)
        if late.size:
            # Equal queries have equal answers: a heap of duplicates is searched once.
            unique, copies = np.unique(queries[late], axis=0, return_inverse=True)
            found, away = self._rank_ties(unique, indices.shape[1])
            indices[late], distances[late] = found[copies.ravel()], away[copies.ravel()]
        return indices, distances

    def _rank_ties(self, queries: Floats, count: int) -> Ranking:
        (indices, distances), settled = self._attempt(queries, count, WIDER * count)
        late = np.flatnonzero(~settled)
        for block in _blocks(late.size, CHUNK_ENTRIES // len(self.rows)):
            chosen = late[block]
            indices[chosen], distances[chosen] = self._rank_all(queries[chosen], count)
        return indices, distances

    def _attempt(
        self, queries: Floats, count: int, width: int
    ) -> tuple[Ranking, npt.NDArray[np.bool_]]:
        """Rank among the best candidates, and tell which queries no other row can change."""
        import faiss

        metric = faiss.METRIC_INNER_PRODUCT if self.space.inner_product else faiss.METRIC_L2
        width = min(width, len(self.rows))

        def find(targets: Floats, width: int) -> tuple[Floats, Integers]:
            found: tuple[Floats, Integers] = faiss.knn(targets, self.points, width, metric=metric)
            return found

        ranking, margins = self._rank_blocks(find, queries, count, width)
        complete = np.isfinite(ranking[1][:, -1])  # squares may overflow in float32
        return ranking, complete & ((margins > 0) | (width == len(self.rows)))

    def _rank_blocks(
        self, find: Find, queries: Floats, count: int, width: int
    ) -> tuple[Ranking, Floats]:
        """Ranking among what ``find`` finds, and by how much the rest are surely farther."""

        def work(block: slice) -> tuple[Integers, Floats, Floats]:
            targets = self.space.searchable(queries[block], np.float32)
            scores, candidates = find(targets, width)
            indices, distances = self._rank_candidates(queries[block], candidates, count)
            farthest = 1 - scores[:, -1] if self.space.inner_product else scores[:, -1]
            bound = self.space.score_bound(targets, distances[:, -1], ROUNDING_FLOAT32)
            with np.errstate(invalid="ignore"):
                return indices, distances, farthest - bound

        with ThreadPoolExecutor(self.n_jobs, initializer=_leave_threads_to_us) as pool:
            parts = list(pool.map(work, _blocks(len(queries), QUERY_BLOCK)))
        indices, distances, margins = (np.concatenate(part) for part in zip(*parts, strict=True))
        return (indices, distances), margins

    def _rank_candidates(self, queries: Floats, candidates: Integers, count: int) -> Ranking:
        """The ``count`` best of each query's candidates; a missing one (-1) is infinitely far."""
        indices = np.empty((len(queries), count), np.int64)
        distances = np.empty((len(queries), count), self.rows.dtype)
        n_candidates, d = candidates.shape[1], self.rows.shape[1]
        for block in _blocks(len(queries), CHUNK_ENTRIES // (n_candidates * d)):
            found = candidates[block]
            away = self.space.distances(queries[block, None, :], self.rows[found])
            away[found < 0] = np.inf
            order = np.lexsort((found, away), axis=-1)[:, :count]
            indices[block] = np.take_along_axis(found, order, axis=1)
            distances[block] = np.take_along_axis(away, order, axis=1)
        return indices, distances

    def _rank_all(self, queries: Floats, count: int) -> Ranking:
        """Rank all rows for a few queries: float64 scores, exact distances where they matter."""
        targets = self.space.searchable(queries, np.float64)
        blocks = _blocks(len(self.rows), CHUNK_ENTRIES // self.rows.shape[1])
        others = (self.space.searchable(self.rows[block], np.float64) for block in blocks)
        scores = np.hstack([self.space.scores(targets, other) for other in others])
        nearest = np.argpartition(scores, count - 1, axis=1)[:, :count]
        # These rows bound the true distance of the last one wanted, and so the scores that matter.
        reach = self._rank_candidates(queries, nearest, count)[1][:, -1]
        bound = self.space.score_bound(targets, reach, ROUNDING_FLOAT64)
        query, row = np.nonzero(scores <= bound[:, None])
        blocks = _blocks(len(query), CHUNK_ENTRIES // self.rows.shape[1])
        distances = np.concatenate(
            [self.space.distances(queries[query[b]], self.rows[row[b]]) for b in blocks]
        )
        order = np.lexsort((distances, query))  # stable, and rows ascend already
        first = np.searchsorted(query, np.arange(len(queries)))
        chosen = order[first[:, None] + np.arange(count)]
        return row[chosen], distances[chosen]


def _blocks(n: int, step: int) -> list[slice]:
    step = max(1, step)
    return [slice(start, start + step) for start in range(0, n, step)]


def _leave_threads_to_us() -> None:
    """One thread inside faiss for the calling thread, and for no other."""
    import faiss

    faiss.omp_set_num_threads(1)


@contextmanager
def faiss_threads(n_threads: int) -> Iterator[None]:
    """Give faiss so many threads of its own; restore the number after."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


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
    del seed  # faiss draws the layers from a seed of its own, the same each time
    index.hnsw.efConstruction = index.hnsw.efSearch = HNSW_BREADTH
    with faiss_threads(1):  # links laid by several threads differ from run to run
        index.add(points)
    return index


INDICES = {"ivf": _ivf, "hnsw": _hnsw}
