"""Exact nearest-neighbor search.

Float32 scores pick candidates, and their distances are computed from differences. Where float32
cannot tell the nearest rows apart, the candidates come from float64 scores. Ties at that precision
fall anywhere, but never depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

import numpy as np
import numpy.typing as npt

from ssdml.graphs.neighbors.metrics import Space
from ssdml.graphs.neighbors.rows import CHUNK_ENTRIES, Rows
from ssdml.utils.parallel import one_blas_thread, row_blocks
from ssdml.utils.typing import Array, Ints

GATHERED_ENTRIES = 2**18  # entries of candidates gathered at a time: fits the cache
QUERY_BLOCK, FEWEST_QUERIES = 4096, 512  # queries per thread at a time
SLACK = 4  # candidates beyond the neighbors wanted
SCORE_ENTRIES = 2**22  # scores held at a time: 16 MB in float32
TORCH_ENTRIES = 2**26  # scores on a torch device at a time: 256 MB

Ranking = tuple[Ints, Array]  # indices and distances, (n_queries, count) each
Found = tuple[Array, Ints]  # scores, which grow with the distance, and row numbers
Find = Callable[[Array, int], Found]
Doubt = Callable[[Array, Array, Ints], npt.NDArray[np.bool_]]
Progress = Callable[[float], object]  # called with the fraction done


class Searcher:
    """Rank rows by their distance to queries.

    Each block of queries is computed by one thread, in the same way whichever thread that is.

    Parameters
    ----------
    space : Space
    rows : Rows
        Prepared by the space.
    n_jobs : int

    Attributes
    ----------
    points : Rows
        The rows as they are searched, in float32.
    find : callable
        Finds candidates for ``(queries, width)``, the queries searchable in float32.
    """

    def __init__(self, space: Space, rows: Rows, n_jobs: int) -> None:
        self.space, self.rows, self.n_jobs = space, rows, n_jobs
        self.points = rows.read_through(lambda part: space.searchable(part, np.float32))
        self.find: Find = self._find_in_single

    def rank_exactly(
        self, queries: Rows | Array, count: int, progress: Progress | None = None
    ) -> Ranking:
        """Find the ``count`` nearest rows of each query."""
        width = min(count + SLACK, len(self.rows))

        def doubt(targets: Array, scores: Array, candidates: Ints) -> npt.NDArray[np.bool_]:
            missing = np.asarray((candidates < 0).any(axis=1))  # squares overflowed in float32
            if width == len(self.rows):
                return missing
            # A row left out scores at least as much as the last candidate. It can be among the
            # nearest only if rounding has moved both its score and that of the count-th.
            scores = np.sort(scores, axis=1)
            with np.errstate(invalid="ignore"):
                gap = scores[:, -1] - scores[:, count - 1]
                sure = gap > 2 * self.space.score_error(targets, scores[:, count - 1])
            return missing | ~sure

        return self._rank(self.find, queries, count, width, doubt, progress)

    def rank_found(
        self, find: Find, width: int, count: int, progress: Progress | None = None
    ) -> Ranking:
        """Rank the candidates of each row; rows with too few of them are searched exactly."""

        def doubt(targets: Array, scores: Array, candidates: Ints) -> npt.NDArray[np.bool_]:
            return (candidates >= 0).sum(axis=1) < count

        return self._rank(find, self.rows, count, width, doubt, progress)

    def distances_to(self, queries: Array, candidates: Ints) -> Array:
        """Distances of each query to its candidates; infinite for a missing one (-1)."""
        away = np.empty(candidates.shape, self.rows.dtype)
        entries = candidates.shape[1] * self.rows.n_features
        for block in row_blocks(len(queries), GATHERED_ENTRIES // entries):
            others = self.rows[np.maximum(candidates[block], 0)]
            away[block] = self.space.distances(queries[block, None, :], others)
        away[candidates < 0] = np.inf
        return away

    def _rank(
        self,
        find: Find,
        queries: Rows | Array,
        count: int,
        width: int,
        doubt: Doubt,
        progress: Progress | None,
    ) -> Ranking:
        """Rank the candidates that ``find`` gives, or float64 scores where these are in doubt."""

        def work(block: slice) -> Ranking:
            asked = queries[block]
            targets = self.space.searchable(asked, np.float32)
            scores, candidates = find(targets, width)
            late = doubt(targets, scores, candidates)
            if late.any():
                candidates[late] = self._find_in_double(asked[late], width)
            away = self.distances_to(asked, candidates)
            order = np.lexsort((candidates, away), axis=-1)[:, :count]
            return (
                np.take_along_axis(candidates, order, axis=1),
                np.take_along_axis(away, order, axis=1),
            )

        step = min(QUERY_BLOCK, max(FEWEST_QUERIES, len(queries) // 8))
        blocks = row_blocks(len(queries), step)
        parts = []
        with (
            one_blas_thread(),
            faiss_threads(self.n_jobs),
            ThreadPoolExecutor(self.n_jobs, initializer=leave_threads_to_us) as pool,
        ):
            for part in pool.map(work, blocks):
                parts.append(part)
                if progress is not None:
                    progress(len(parts) / len(blocks))
        indices, distances = (np.concatenate(part) for part in zip(*parts, strict=True))
        return indices, distances

    def _blocks(self, n_queries: int) -> list[slice]:
        """Slices of rows whose scores for so many queries are held at a time."""
        step = min(SCORE_ENTRIES // n_queries, CHUNK_ENTRIES // self.rows.n_features)
        return row_blocks(len(self.rows), step)

    def _find_in_single(self, targets: Array, width: int) -> Found:
        import faiss

        # faiss selects in one pass, but brings a slow BLAS of its own on some machines.
        best = faiss.ResultHeap(len(targets), width)
        for block in self._blocks(len(targets)):
            points = self.space.searchable(self.rows[block], np.float32)
            scores = self.space.scores(targets, points)  # a name: the pointer keeps nothing alive
            pointer = faiss.swig_ptr(scores)
            best.heaps.addn(len(points), pointer, block.start, 0, len(targets))
        best.finalize()
        return best.D, best.I

    def _find_in_double(self, queries: Array, width: int) -> Ints:
        targets = self.space.searchable(queries, np.float64)

        scores, candidates = np.empty((len(targets), 0)), np.empty((len(targets), 0), np.int64)
        for block in self._blocks(len(targets)):
            points = self.space.searchable(self.rows[block], np.float64)
            found, numbers = smallest(self.space.scores(targets, points), width)
            scores, kept = smallest(np.hstack([scores, found]), width)
            candidates = np.hstack([candidates, numbers + block.start])
            candidates = np.take_along_axis(candidates, kept, axis=1)
        return candidates


def smallest(scores: Array, width: int) -> Found:
    """Return the smallest scores of each row and their columns, in no order."""
    if scores.shape[1] <= width:
        return scores, np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    columns = np.argpartition(scores, width - 1, axis=1)[:, :width]
    return np.take_along_axis(scores, columns, axis=1), columns


def without_self(ranking: Ranking, numbers: Ints) -> Ranking:
    """Drop each numbered row from its own list, or the last if it is missing among duplicates."""
    indices, distances = ranking
    n, width = indices.shape
    drop = indices == numbers[:, None]
    drop[~drop.any(axis=1), -1] = True
    return indices[~drop].reshape(n, width - 1), distances[~drop].reshape(n, width - 1)


def part_of(progress: Progress | None, start: float, end: float) -> Progress | None:
    """Map the progress of a part of the work to that of the whole."""
    if progress is None:
        return None
    return lambda done: progress(start + done * (end - start))


def faiss_metric(inner_product: bool) -> int:
    """Return the number of a metric in faiss."""
    import faiss

    return faiss.METRIC_INNER_PRODUCT if inner_product else faiss.METRIC_L2


def leave_threads_to_us() -> None:
    """Limit faiss to one thread in the calling thread."""
    import faiss

    faiss.omp_set_num_threads(1)


@contextmanager
def faiss_threads(n_threads: int) -> Iterator[None]:
    """Set the number of threads of faiss, and restore it afterwards."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def torch_find(searcher: Searcher, device: str) -> Find:
    """Make a function that finds candidates on a torch device, which holds the points."""
    import torch

    from ssdml.utils.torch_tools import find_device, full_precision

    target = find_device(device, "knn_graph")
    points = searcher.points
    blocks = [
        (block.start, torch.from_numpy(points[block]).to(target))
        for block in row_blocks(len(points), TORCH_ENTRIES // QUERY_BLOCK)
    ]
    one_at_a_time = Lock()  # while a thread uses the device, the others rank

    def find(queries: Array, width: int) -> Found:
        with one_at_a_time, torch.inference_mode(), full_precision():
            left = torch.from_numpy(np.ascontiguousarray(queries)).to(target)
            best: list[torch.Tensor] = []
            for start, right in blocks:
                scores = left @ right.T
                if searcher.space.inner_product:
                    scores.neg_().add_(1)
                else:
                    scores.mul_(-2).add_(torch.einsum("nd,nd->n", left, left)[:, None])
                    scores.add_(torch.einsum("nd,nd->n", right, right))
                found, numbers = scores.topk(min(width, len(right)), largest=False)
                parts = [*best, found, numbers + start]
                scores, numbers = torch.hstack(parts[::2]), torch.hstack(parts[1::2])
                kept = scores.topk(min(width, scores.shape[1]), largest=False)
                best = [kept.values, numbers.gather(1, kept.indices)]
            return best[0].cpu().numpy(), best[1].cpu().numpy()

    return find
