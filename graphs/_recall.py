"""Approximate searches that check themselves: the share of true neighbours found on a sample.

The sample is searched exactly, once; then an index is asked for it with growing effort, until
enough is found. Only then the index searches for all rows, with that effort.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from ssdml.graphs._indices import INDICES, Index, faiss_threads
from ssdml.graphs._search import SLACK, Progress, Ranking, Searcher, without_self
from ssdml.utils.typing import Array, Ints

logger = logging.getLogger("ssdml.graphs")

SAMPLE = 1024  # rows; recall is known to some 0.003
TARGET_RECALL = 0.985
GAIN = 0.003  # of the misses that a little more effort must find, or it is given up


@dataclass(frozen=True)
class Sample:
    """Some rows, and how far their true neighbours reach.

    Parameters
    ----------
    rows : ndarray of shape (n_sampled,), int64
    reach : ndarray of shape (n_sampled,)
        Distance of the last of the ``n_neighbors`` nearest other rows. What is found at this
        distance or below is a true neighbour, whichever of equals it is.
    n_neighbors : int
    """

    rows: Ints
    reach: Array
    n_neighbors: int

    def recall_of(self, distances: Array) -> float:
        """Share of true neighbours in distances of all rows, shape (n_samples, n_neighbors)."""
        return float((distances[self.rows] <= self.reach[:, None]).mean())

    def recalls_within(self, candidates: Ints, away: Array, widths: list[int]) -> list[float]:
        """Share of true neighbours among so many first candidates of each sampled row."""
        true = (away <= self.reach[:, None]) & (candidates != self.rows[:, None])
        found = np.minimum(np.cumsum(true, axis=1), self.n_neighbors)
        return [float(found[:, width - 1].mean()) / self.n_neighbors for width in widths]


def draw_sample(searcher: Searcher, n_neighbors: int, seed: int) -> Sample:
    """Random rows with their true neighbours, by the exact search."""
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
