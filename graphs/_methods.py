"""How a graph's rows are searched: which method, by whose products, with what recall."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ssdml.graphs._checks import as_generator
from ssdml.graphs._recall import SAMPLE, TARGET_RECALL, best_index, draw_sample, rank_by_index
from ssdml.graphs._rows import Rows
from ssdml.graphs._search import (
    Progress,
    Ranking,
    Searcher,
    float32_points,
    part_of,
    without_self,
)
from ssdml.graphs._spaces import SPACES

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
    from ssdml.graphs._torch_search import torch_find

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
    """Work of an exact search for the neighbours of n rows of d columns, in products of entries.

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
            f"knn_graph: {method!r} found {recall:.1%} of the true neighbours of {SAMPLE} random "
            "rows; method='auto' or 'exact' finds more.",
            RuntimeWarning,
            stacklevel=4,
        )
