"""faiss: nearest points by matrix products, and indices for approximate searches.

An index is built with little effort in mind; how hard it then searches is set before each search.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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

CODE_BITS = 4  # of a coordinate: faiss compares 32 such codes by one instruction
ROWS_PER_CENTER = 64  # that the centers of the lists are learned on
FEWEST_PROBES, MORE_EFFORT = 4, 1.25
HNSW_LINKS, HNSW_BREADTH = 16, 64


@dataclass(frozen=True)
class Index:
    """Points in an order that lets a search leave most of them out.

    Parameters
    ----------
    search : callable
        Scores and candidates of queries, for ``(queries, width)``, by faiss.
    exert : callable
        Sets the effort of the searches that follow.
    efforts : list of int
        From little to much.
    widths : list of int
        Candidates that are worth ranking, in multiples of the neighbors wanted.
    """

    search: Callable[[Array, int], tuple[Array, Ints]]
    exert: Callable[[int], None]
    efforts: list[int]
    widths: list[int]


def inverted_lists(points: Rows, inner_product: bool, seed: int) -> Iterator[Index]:
    """Lists of points around sqrt(n) centers; a search looks into those nearest to the query.

    First with coordinates as codes of 4 bits, which are cheap enough to look into many lists. Codes
    are of no use where the lists are small beside the whole, in few dimensions or tight clusters.
    There a second index serves, with coordinates as they are: few of its lists are enough.
    """
    import faiss

    n, d = len(points), points.n_features
    metric = faiss_metric(inner_product)
    n_lists = int(n**0.5)
    quantizer = faiss.IndexFlat(d, metric)
    codes = faiss.IndexIVFPQFastScan(quantizer, d, n_lists, d, CODE_BITS, metric)
    codes.by_residual = False
    codes.cp.seed = seed
    codes.cp.min_points_per_centroid = codes.pq.cp.min_points_per_centroid = 1  # hushes faiss
    chosen = np.random.default_rng(seed).permutation(n)[: n_lists * ROWS_PER_CENTER]
    with faiss_threads(1):  # steps so small that threads would mostly wait for each other
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
            # A row of zeros has cosine 0 with every row. Codes would find none: it takes any.
            queries = np.where(queries.any(axis=1, keepdims=True), queries, np.float32(1))
        found: tuple[Array, Ints] = index.search(queries, width)
        return found

    return Index(search, exert, efforts, widths)


def _efforts(most: int) -> list[int]:
    efforts = [FEWEST_PROBES]
    while efforts[-1] < most:
        efforts.append(min(most, round(MORE_EFFORT * efforts[-1])))
    return efforts


def linked_points(points: Rows, inner_product: bool, seed: int) -> Iterator[Index]:
    """Points linked to near ones on several scales (HNSW); a search walks along the links."""
    import faiss

    del seed  # faiss draws the layers from a seed of its own, the same each time
    index = faiss.IndexHNSWFlat(points.n_features, HNSW_LINKS, faiss_metric(inner_product))
    index.hnsw.efConstruction = HNSW_BREADTH
    with faiss_threads(1):  # links laid by several threads differ from run to run
        for block in points.blocks():
            index.add(points[block])

    def exert(breadth: int) -> None:
        index.hnsw.efSearch = breadth

    yield Index(index.search, exert, [HNSW_BREADTH << i for i in range(5)], [1])


INDICES = {"ivf": inverted_lists, "hnsw": linked_points}


# Approximate searches that check themselves: the share of true neighbors found on a sample.
#
# The sample is searched exactly, once; then an index is asked for it with growing effort, until
# enough is found. Only then the index searches for all rows, with that effort.

logger = logging.getLogger("ssdml.graphs")

SAMPLE = 1024  # rows; recall is known to some 0.003
TARGET_RECALL = 0.985
GAIN = 0.003  # of the misses that a little more effort must find, or it is given up


@dataclass(frozen=True)
class Sample:
    """Some rows, and how far their true neighbors reach.

    Parameters
    ----------
    rows : ndarray of shape (n_sampled,), int64
    reach : ndarray of shape (n_sampled,)
        Distance of the last of the ``n_neighbors`` nearest other rows. What is found at this
        distance or below is a true neighbor, whichever of equals it is.
    n_neighbors : int
    """

    rows: Ints
    reach: Array
    n_neighbors: int

    def recall_of(self, distances: Array) -> float:
        """Share of true neighbors in distances of all rows, shape (n_samples, n_neighbors)."""
        return float((distances[self.rows] <= self.reach[:, None]).mean())

    def recalls_within(self, candidates: Ints, away: Array, widths: list[int]) -> list[float]:
        """Share of true neighbors among so many first candidates of each sampled row."""
        true = (away <= self.reach[:, None]) & (candidates != self.rows[:, None])
        found = np.minimum(np.cumsum(true, axis=1), self.n_neighbors)
        return [float(found[:, width - 1].mean()) / self.n_neighbors for width in widths]


def draw_sample(searcher: Searcher, n_neighbors: int, seed: int) -> Sample:
    """Random rows with their true neighbors, by the exact search."""
    n = len(searcher.rows)
    rows = np.sort(np.random.default_rng([seed, 1]).choice(n, min(n, SAMPLE), replace=False))
    ranking = searcher.rank_exactly(searcher.rows[rows], n_neighbors + 1)
    return Sample(rows, without_self(ranking, rows)[1][:, -1], n_neighbors)


@dataclass(frozen=True)
class Tuned:
    """An index with the effort that it needs: how many candidates, and what recall they give."""

    recall: float
    index: Index
    effort: int
    width: int


def tune(searcher: Searcher, index: Index, sample: Sample) -> Tuned:
    """Least effort of an index that reaches the recall wanted, or else the best that it has."""
    n = len(searcher.rows)
    count = sample.n_neighbors + 1
    widths = [min(n, factor * count + SLACK) for factor in index.widths]
    queries = searcher.rows[sample.rows]
    targets = searcher.space.searchable(queries, np.float32)
    best = Tuned(-1.0, index, 0, 0)
    for effort in index.efforts:
        index.exert(effort)
        with faiss_threads(1):  # so that the choice does not depend on their number
            candidates = index.search(targets, widths[-1])[1]
        away = searcher.distances_to(queries, candidates)
        before = best.recall
        for width, recall in zip(
            widths, sample.recalls_within(candidates, away, widths), strict=True
        ):
            best = max(best, Tuned(recall, index, effort, width), key=lambda tuned: tuned.recall)
            if recall >= TARGET_RECALL:
                return best
        if 1 - best.recall > (1 - GAIN) * (1 - before):
            break
    return best


def best_index(searcher: Searcher, method: str, sample: Sample, seed: int) -> Tuned:
    """The first index of a method that reaches the recall wanted, or else the best."""
    best: Tuned | None = None
    with faiss_threads(searcher.n_jobs):
        for index in INDICES[method](searcher.points, searcher.space.inner_product, seed):
            tuned = tune(searcher, index, sample)
            if best is None or tuned.recall > best.recall:
                best = tuned
            if best.recall >= TARGET_RECALL:
                break
    assert best is not None  # a method has an index
    return best


def rank_by_index(
    searcher: Searcher, tuned: Tuned, sample: Sample, progress: Progress | None = None
) -> tuple[Ranking, float]:
    """Each row's nearest other rows by the index, and their recall on the sample."""
    tuned.index.exert(tuned.effort)
    count = sample.n_neighbors + 1
    ranking = searcher.rank_found(tuned.index.search, tuned.width, count, progress)
    ranking = without_self(ranking, np.arange(len(searcher.rows)))
    recall = sample.recall_of(ranking[1])
    logger.info(
        "knn_graph: effort %d, %d candidates a row, recall %.4f on %d rows",
        tuned.effort,
        tuned.width,
        recall,
        len(sample.rows),
    )
    return ranking, recall
