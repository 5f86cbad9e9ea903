"""Searches over rows: exact to the last tie, and among the candidates that an index finds.

Candidates come from float32 scores. Their distances are computed again from differences, in a
fixed order, and a query is settled only when no row outside its candidates can belong among them;
the others are searched again, wider, and at last in float64 against all rows. So the answer
depends neither on the number of threads nor on rounding, and any number of ties is served.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ssdml.graphs.neighbors.metrics import ROUNDING_FLOAT32, ROUNDING_FLOAT64, Space
from ssdml.graphs.neighbors.rows import CHUNK_ENTRIES, Rows
from ssdml.utils.parallel import row_blocks
from ssdml.utils.torch_tools import find_device, full_precision
from ssdml.utils.typing import Array, Ints

if TYPE_CHECKING:
    import torch

GATHERED_ENTRIES = 2**18  # of candidates whose distances are computed at a time: fits a cache
QUERY_BLOCK, FEWEST_QUERIES = 4096, 512  # queries a thread takes at a time
SLACK = 4  # candidates beyond those asked for, so that most ties are settled at once
WIDER = 8  # how many times more candidates the second search takes
TIED_QUERIES, TIED_ROWS = 256, 2**14  # whose float64 scores are computed at a time: 32 MB

Ranking = tuple[Ints, Array]  # indices and distances, (n_queries, count) each
Find = Callable[[Array, int], tuple[Array, Ints]]  # scores and candidates
Progress = Callable[[float], object]  # told the fraction done


class Searcher:
    """Ranks rows by their distance to queries, then by index.

    Threads take blocks of queries, so that none waits for another; each block is computed by one
    thread alone, in the same way whichever thread that is.

    Parameters
    ----------
    space : Space
    rows : Rows
        Prepared by the space.
    n_jobs : int
    find : callable or None
        Finds candidates of the exact search: for ``(queries, width)``, both searchable in float32,
        scores that grow with the distance and row numbers. None: by faiss, a block of rows at a
        time.
    """

    def __init__(self, space: Space, rows: Rows, n_jobs: int, find: Find | None = None) -> None:
        self.space, self.rows, self.n_jobs = space, rows, n_jobs
        self.points = float32_points(space, rows)
        self._find = find or self._find_by_blocks

    def rank_exactly(
        self, queries: Rows | Array, count: int, progress: Progress | None = None
    ) -> Ranking:
        """The ``count`` nearest rows of each query."""
        ranking, settled = self._attempt(queries, count, count + SLACK, progress)
        return self._finish(queries, ranking, settled)

    def rank_found(
        self, find: Find, width: int, count: int, progress: Progress | None = None
    ) -> Ranking:
        """Rank each row's candidates; the rows that ``find`` leaves short are searched exactly."""
        ranking, _ = self._rank_blocks(find, self.rows, count, width, progress)
        return self._finish(self.rows, ranking, np.isfinite(ranking[1][:, -1]))

    def distances_to(self, queries: Array, candidates: Ints) -> Array:
        """Distances of each query to its candidates; a missing one (-1) is infinitely far."""
        away = np.empty(candidates.shape, self.rows.dtype)
        entries = candidates.shape[1] * self.rows.n_features
        for block in row_blocks(len(queries), GATHERED_ENTRIES // entries):
            others = self.rows[np.maximum(candidates[block], 0)]
            away[block] = self.space.distances(queries[block, None, :], others)
        away[candidates < 0] = np.inf
        return away

    def _finish(
        self, queries: Rows | Array, ranking: Ranking, settled: npt.NDArray[np.bool_]
    ) -> Ranking:
        """Search again for the queries that are not settled."""
        indices, distances = ranking
        late = np.flatnonzero(~settled)
        if late.size:
            # Equal queries have equal answers: a heap of duplicates is searched once.
            unique, copies = np.unique(queries[late], axis=0, return_inverse=True)
            found, away = self._rank_ties(unique, indices.shape[1])
            indices[late], distances[late] = found[copies.ravel()], away[copies.ravel()]
        return indices, distances

    def _rank_ties(self, queries: Array, count: int) -> Ranking:
        (indices, distances), settled = self._attempt(queries, count, WIDER * count)
        late = np.flatnonzero(~settled)
        for block in row_blocks(late.size, TIED_QUERIES):
            chosen = late[block]
            reach = distances[chosen, -1]
            indices[chosen], distances[chosen] = self._rank_all(queries[chosen], count, reach)
        return indices, distances

    def _attempt(
        self, queries: Rows | Array, count: int, width: int, progress: Progress | None = None
    ) -> tuple[Ranking, npt.NDArray[np.bool_]]:
        """Rank among the best candidates, and tell which queries no other row can change."""
        width = min(width, len(self.rows))
        ranking, margins = self._rank_blocks(self._find, queries, count, width, progress)
        complete = np.isfinite(ranking[1][:, -1])  # squares may overflow in float32
        return ranking, complete & ((margins > 0) | (width == len(self.rows)))

    def _rank_blocks(
        self,
        find: Find,
        queries: Rows | Array,
        count: int,
        width: int,
        progress: Progress | None = None,
    ) -> tuple[Ranking, Array]:
        """Ranking among what ``find`` finds, and by how much the rest are surely farther."""

        def work(block: slice) -> tuple[Ints, Array, Array]:
            asked = queries[block]
            targets = self.space.searchable(asked, np.float32)
            scores, candidates = find(targets, width)
            indices, distances = self._rank_candidates(asked, candidates, count)
            bound = self.space.score_bound(targets, distances[:, -1], ROUNDING_FLOAT32)
            # Where rows are missing, squares overflow: nothing is sure.
            farthest = np.where(candidates < 0, np.nan, scores).max(axis=1)
            with np.errstate(invalid="ignore"):
                return indices, distances, farthest - bound

        step = min(QUERY_BLOCK, max(FEWEST_QUERIES, len(queries) // 8))
        blocks = row_blocks(len(queries), step)
        parts = []
        with (
            faiss_threads(self.n_jobs),
            ThreadPoolExecutor(self.n_jobs, initializer=leave_threads_to_us) as pool,
        ):
            for part in pool.map(work, blocks):
                parts.append(part)
                if progress is not None:
                    progress(len(parts) / len(blocks))
        indices, distances, margins = (np.concatenate(part) for part in zip(*parts, strict=True))
        return (indices, distances), margins

    def _find_by_blocks(self, targets: Array, width: int) -> tuple[Array, Ints]:
        """The best of each block of points, and of those again the best."""
        scores = np.empty((len(targets), 0), np.float32)
        candidates = np.empty((len(targets), 0), np.int64)
        for block in self.points.blocks():
            found, numbers = nearest_points(
                targets, self.points[block], width, self.space.inner_product
            )
            numbers[numbers >= 0] += block.start
            scores, candidates = np.hstack([scores, found]), np.hstack([candidates, numbers])
            if scores.shape[1] > width:
                best = np.argpartition(scores, width - 1, axis=1)[:, :width]
                scores = np.take_along_axis(scores, best, axis=1)
                candidates = np.take_along_axis(candidates, best, axis=1)
        return scores, candidates

    def _rank_candidates(self, queries: Array, candidates: Ints, count: int) -> Ranking:
        """The ``count`` best of each query's candidates."""
        away = self.distances_to(queries, candidates)
        order = np.lexsort((candidates, away), axis=-1)[:, :count]
        return (
            np.take_along_axis(candidates, order, axis=1),
            np.take_along_axis(away, order, axis=1),
        )

    def _rank_all(self, queries: Array, count: int, reach: Array) -> Ranking:
        """Rank all rows for a few queries, by float64 scores; none wanted is beyond ``reach``."""
        targets = self.space.searchable(queries, np.float64)
        query, row = np.empty(0, np.int64), np.empty(0, np.int64)
        away = np.empty(0, self.rows.dtype)
        for block in row_blocks(len(self.rows), TIED_ROWS):
            others = self.rows[block]
            scores = self.space.scores(targets, self.space.searchable(others, np.float64))
            bound = self.space.score_bound(targets, reach, ROUNDING_FLOAT64)
            near, number = np.nonzero(~(scores > bound[:, None]))
            query, row = np.append(query, near), np.append(row, number + block.start)
            away = np.append(away, self._pair_distances(queries, near, others, number))
            # Of each query the best so far, and how near a row must be to come among them.
            order = np.lexsort((row, away, query))
            place = np.arange(len(query)) - np.searchsorted(query[order], query[order])
            kept = order[place < count]
            query, row, away = query[kept], row[kept], away[kept]
            n_found = np.bincount(query, minlength=len(queries))
            full = n_found == count
            reach = reach.copy()
            reach[full] = away[np.cumsum(n_found)[full] - 1]
        return row.reshape(-1, count), away.reshape(-1, count)

    def _pair_distances(self, queries: Array, query: Ints, rows: Array, row: Ints) -> Array:
        away = np.empty(len(query), self.rows.dtype)
        for block in row_blocks(len(query), CHUNK_ENTRIES // self.rows.n_features):
            away[block] = self.space.distances(queries[query[block]], rows[row[block]])
        return away


def float32_points(space: Space, rows: Rows) -> Rows:
    """The points to search among, made of the rows as they are read."""
    return rows.read_through(lambda part: space.searchable(part, np.float32))


def without_self(ranking: Ranking, numbers: Ints) -> Ranking:
    """Drop each numbered row from its own list; where duplicates crowd it out, drop the last."""
    indices, distances = ranking
    n, width = indices.shape
    drop = indices == numbers[:, None]
    drop[~drop.any(axis=1), -1] = True
    return indices[~drop].reshape(n, width - 1), distances[~drop].reshape(n, width - 1)


def part_of(progress: Progress | None, start: float, end: float) -> Progress | None:
    """Progress of a part of the work, told as progress of the whole."""
    if progress is None:
        return None
    return lambda done: progress(start + done * (end - start))


def nearest_points(
    queries: Array, points: Array, width: int, inner_product: bool
) -> tuple[Array, Ints]:
    """Scores, which grow with the distance, and numbers of the points nearest to each query."""
    import faiss

    metric = faiss_metric(inner_product)
    scores, candidates = faiss.knn(queries, points, min(width, len(points)), metric=metric)
    return (1 - scores if inner_product else scores), candidates


def faiss_metric(inner_product: bool) -> int:
    import faiss

    metric: int = faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2
    return metric


def leave_threads_to_us() -> None:
    """One thread inside faiss for the calling thread, and for no other."""
    import faiss

    faiss.omp_set_num_threads(1)


@contextmanager
def faiss_threads(n_threads: int) -> Iterator[None]:
    """Give faiss so many threads of its own, and let it multiply matrices; restore both after."""
    import faiss

    threads, fewest = faiss.omp_get_max_threads(), faiss.cvar.distance_compute_blas_threshold
    faiss.omp_set_num_threads(n_threads)
    # From 1.15 on faiss takes differences row by row for fewer than 128,000 entries of queries,
    # which is 3 to 5 times slower.
    faiss.cvar.distance_compute_blas_threshold = 1
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)
        faiss.cvar.distance_compute_blas_threshold = fewest


# Candidates of the exact search by torch, on a graphics card or elsewhere.

SCORE_ENTRIES = 2**26  # scores on the device at a time: 256 MB


def torch_find(points: Rows, inner_product: bool, device: str) -> Find:
    """Finder of candidates, as a Searcher takes it, that multiplies on a device of torch.

    The points stay there, 4 n d bytes.
    """
    import torch

    target = find_device(device, "knn_graph")
    blocks = [
        (block.start, torch.from_numpy(points[block]).to(target))
        for block in row_blocks(len(points), SCORE_ENTRIES // QUERY_BLOCK)
    ]
    one_at_a_time = Lock()  # while a thread uses the device, the others rank

    def find(queries: Array, width: int) -> tuple[Array, Ints]:
        with one_at_a_time, torch.inference_mode(), full_precision():
            left = torch.from_numpy(np.ascontiguousarray(queries)).to(target)
            best: list[torch.Tensor] = []
            for start, right in blocks:
                scores = _scores(left, right, inner_product)
                found, numbers = scores.topk(min(width, len(right)), largest=False)
                parts = [*best, found, numbers + start]
                scores, numbers = torch.hstack(parts[::2]), torch.hstack(parts[1::2])
                kept = scores.topk(min(width, scores.shape[1]), largest=False)
                best = [kept.values, numbers.gather(1, kept.indices)]
            return best[0].cpu().numpy(), best[1].cpu().numpy()

    return find


def _scores(left: torch.Tensor, right: torch.Tensor, inner_product: bool) -> torch.Tensor:
    import torch

    products = left @ right.T
    if inner_product:
        return products.neg_().add_(1)
    products.mul_(-2).add_(torch.einsum("nd,nd->n", left, left)[:, None])
    return products.add_(torch.einsum("nd,nd->n", right, right))
