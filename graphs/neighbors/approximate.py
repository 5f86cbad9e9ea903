"""Approximate nearest-neighbor search by faiss, with measured recall.

Random rows are searched exactly, then by an index with growing effort, until it finds enough of
their true neighbors. The index then searches for all rows with that effort.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ssdml.graphs.neighbors.exact import (
    SLACK,
    Progress,
    Ranking,
    Searcher,
    faiss_metric,
    faiss_threads,
    without_self,
)
from ssdml.graphs.neighbors.rows import Rows
from ssdml.utils.typing import Array, Ints

logger = logging.getLogger("ssdml.graphs")

SAMPLE = 1024  # rows whose recall is measured, to some 0.003
TARGET_RECALL = 0.985
GAIN = 0.003  # share of the misses that more effort must find, or it is given up
CODE_BITS = 4  # per coordinate: faiss compares 32 such codes by one instruction
ROWS_PER_CENTER = 64  # rows that the centers of the lists are learned on
FEWEST_PROBES, MORE_EFFORT = 4, 1.25
HALVINGS = 2  # of the last step, each as long as the search for SAMPLE rows
HNSW_LINKS, HNSW_BREADTH = 16, 64


class Index(NamedTuple):
    """A faiss index whose effort can be set."""

    search: Callable[[Array, int], tuple[Array, Ints]]  # scores and candidates of (queries, width)
    exert: Callable[[int], None]  # sets the effort
    efforts: list[int]  # ascending
    widths: list[int]  # candidates to rank, in multiples of the neighbors wanted


def inverted_lists(points: Rows, inner_product: bool, seed: int) -> Iterator[Index]:
    """Yield indices with lists of points around sqrt(n) centers.

    First with coordinates as codes of 4 bits, so that many lists can be searched. Codes are too
    coarse in few dimensions or tight clusters, where lists are small; the second index stores
    coordinates as they are, and few of its lists suffice.
    """
    import faiss

    n, d = len(points), points.n_features
    metric = faiss_metric(inner_product)
    n_lists = int(n**0.5)
    quantizer = faiss.IndexFlat(d, metric)
    codes = faiss.IndexIVFPQFastScan(quantizer, d, n_lists, d, CODE_BITS, metric)
    codes.by_residual = False
    codes.cp.seed = seed
    codes.cp.min_points_per_centroid = codes.pq.cp.min_points_per_centroid = 1  # no warnings
    chosen = np.random.default_rng(seed).permutation(n)[: n_lists * ROWS_PER_CENTER]
    with faiss_threads(1):  # small steps, in which threads would mostly wait for each other
        codes.train(points[np.sort(chosen)])
    yield _filled(codes, points, _efforts(n_lists), [4, 6, 8, 12, 16])
    # Beyond an eighth of the lists, the exact search is faster.
    lists = faiss.IndexIVFFlat(quantizer, d, n_lists, metric)
    yield _filled(lists, points, _efforts(n_lists // 8), [1])


def _filled(index: Any, points: Rows, efforts: list[int], widths: list[int]) -> Index:
    for block in points.blocks():
        index.add(points[block])

    def exert(n_probes: int) -> None:
        index.nprobe = n_probes

    def search(queries: Array, width: int) -> tuple[Array, Ints]:
        if index.metric_type == faiss_metric(True):
            # A row of zeros has cosine 0 with every row, but codes would find none.
            queries = np.where(queries.any(axis=1, keepdims=True), queries, np.float32(1))
        return index.search(queries, width)

    return Index(search, exert, efforts, widths)


def _efforts(most: int) -> list[int]:
    efforts = [FEWEST_PROBES]
    while efforts[-1] < most:
        efforts.append(min(most, round(MORE_EFFORT * efforts[-1])))
    return efforts


def linked_points(points: Rows, inner_product: bool, seed: int) -> Iterator[Index]:
    """Yield an index of points linked to near ones on several scales (HNSW)."""
    import faiss

    del seed  # faiss draws the layers with a fixed seed
    index = faiss.IndexHNSWFlat(points.n_features, HNSW_LINKS, faiss_metric(inner_product))
    index.hnsw.efConstruction = HNSW_BREADTH
    with faiss_threads(1):  # links made by several threads differ from run to run
        for block in points.blocks():
            index.add(points[block])

    def exert(breadth: int) -> None:
        index.hnsw.efSearch = breadth

    yield Index(index.search, exert, [HNSW_BREADTH << i for i in range(5)], [1])


INDICES = {"ivf": inverted_lists, "hnsw": linked_points}


class Sample(NamedTuple):
    """Random rows, and how far their true neighbors reach."""

    rows: Ints  # (n_sampled,)
    reach: Array  # (n_sampled,), distance of the last neighbor: all rows this near are true ones
    n_neighbors: int

    def recall_of(self, distances: Array) -> float:
        """Compute the recall from distances of all rows, (n_samples, n_neighbors)."""
        return float((distances[self.rows] <= self.reach[:, None]).mean())

    def recalls_within(self, candidates: Ints, away: Array, widths: list[int]) -> list[float]:
        """Compute the recall among so many first candidates of each sampled row."""
        true = (away <= self.reach[:, None]) & (candidates != self.rows[:, None])
        found = np.minimum(np.cumsum(true, axis=1), self.n_neighbors)
        return [float(found[:, width - 1].mean()) / self.n_neighbors for width in widths]


def draw_sample(searcher: Searcher, n_neighbors: int, seed: int) -> Sample:
    """Draw random rows, and find their true neighbors."""
    n = len(searcher.rows)
    rows = np.sort(np.random.default_rng([seed, 1]).choice(n, min(n, SAMPLE), replace=False))
    ranking = searcher.rank_exactly(searcher.rows[rows], n_neighbors + 1)
    return Sample(rows, without_self(ranking, rows)[1][:, -1], n_neighbors)


@dataclass(frozen=True)
class Tuned:
    """An index with its effort, its number of candidates, and the recall they give."""

    recall: float
    index: Index
    effort: int
    width: int


def tune(searcher: Searcher, index: Index, sample: Sample) -> Tuned:
    """Find the least effort that reaches the target recall, or else the best."""
    count = sample.n_neighbors + 1
    widths = [min(len(searcher.rows), factor * count + SLACK) for factor in index.widths]
    queries = searcher.rows[sample.rows]
    targets = searcher.space.searchable(queries, np.float32)

    def measured(effort: int) -> Tuned:
        index.exert(effort)
        with faiss_threads(1):  # so that the choice does not depend on their number
            candidates = index.search(targets, widths[-1])[1]
        recalls = sample.recalls_within(
            candidates, searcher.distances_to(queries, candidates), widths
        )
        enough = int(np.searchsorted(recalls, TARGET_RECALL))  # more candidates find no fewer
        place = min(enough, int(np.argmax(recalls)))
        return Tuned(recalls[place], index, effort, widths[place])

    best, below = Tuned(-1.0, index, 0, 0), 0
    for effort in index.efforts:
        found = measured(effort)
        if found.recall >= TARGET_RECALL:
            return _least(measured, below, found)
        missed, below = 1 - best.recall, effort
        best = max(best, found, key=lambda tuned: tuned.recall)
        if 1 - best.recall > (1 - GAIN) * missed:
            break
    return best


def _least(measured: Callable[[int], Tuned], below: int, enough: Tuned) -> Tuned:
    """Halve the interval between an effort that is too small and one that is enough."""
    for _ in range(HALVINGS):
        middle = (below + enough.effort) // 2
        if middle == below:
            break
        tuned = measured(middle)
        if tuned.recall >= TARGET_RECALL:
            enough = tuned
        else:
            below = middle
    return enough


def best_index(searcher: Searcher, method: str, sample: Sample, seed: int) -> Tuned:
    """Return the first index of a method that reaches the target recall, or else the best."""
    tuned: list[Tuned] = []
    with faiss_threads(searcher.n_jobs):
        for index in INDICES[method](searcher.points, searcher.space.inner_product, seed):
            tuned.append(tune(searcher, index, sample))
            if tuned[-1].recall >= TARGET_RECALL:
                break
    return max(tuned, key=lambda each: each.recall)


def rank_by_index(
    searcher: Searcher, tuned: Tuned, sample: Sample, progress: Progress | None = None
) -> tuple[Ranking, float]:
    """Find each row's nearest other rows by the index, and measure the recall on the sample."""
    tuned.index.exert(tuned.effort)
    count = sample.n_neighbors + 1
    ranking = searcher.rank_found(tuned.index.search, tuned.width, count, progress)
    ranking = without_self(ranking, np.arange(len(searcher.rows)))
    recall = sample.recall_of(ranking[1])
    logger.info(
        "knn_graph: effort %d, %d candidates per row, recall %.4f on %d rows",
        tuned.effort,
        tuned.width,
        recall,
        len(sample.rows),
    )
    return ranking, recall
