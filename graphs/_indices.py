"""faiss: nearest points by matrix products, and indices for approximate searches.

An index is built with little effort in mind; how hard it then searches is set before each search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ssdml.graphs._rows import Rows
from ssdml.utils.typing import Array, Ints

CODE_BITS = 4  # of a coordinate: faiss compares 32 such codes by one instruction
ROWS_PER_CENTER = 64  # that the centres of the lists are learned on
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
        Candidates that are worth ranking, in multiples of the neighbours wanted.
    """

    search: Callable[[Array, int], tuple[Array, Ints]]
    exert: Callable[[int], None]
    efforts: list[int]
    widths: list[int]


def inverted_lists(points: Rows, inner_product: bool, seed: int) -> Iterator[Index]:
    """Lists of points around sqrt(n) centres; a search looks into those nearest to the query.

    First with coordinates as codes of 4 bits, which are cheap enough to look into many lists. Codes
    are of no use where the lists are small beside the whole, in few dimensions or tight clusters.
    There a second index serves, with coordinates as they are: few of its lists are enough.
    """
    import faiss

    n, d = len(points), points.n_features
    metric = _metric(inner_product)
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
        if index.metric_type == _metric(True):
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
    index = faiss.IndexHNSWFlat(points.n_features, HNSW_LINKS, _metric(inner_product))
    index.hnsw.efConstruction = HNSW_BREADTH
    with faiss_threads(1):  # links laid by several threads differ from run to run
        for block in points.blocks():
            index.add(points[block])

    def exert(breadth: int) -> None:
        index.hnsw.efSearch = breadth

    yield Index(index.search, exert, [HNSW_BREADTH << i for i in range(5)], [1])


INDICES = {"ivf": inverted_lists, "hnsw": linked_points}


def nearest_points(
    queries: Array, points: Array, width: int, inner_product: bool
) -> tuple[Array, Ints]:
    """Scores, which grow with the distance, and numbers of the points nearest to each query."""
    import faiss

    metric = _metric(inner_product)
    scores, candidates = faiss.knn(queries, points, min(width, len(points)), metric=metric)
    return (1 - scores if inner_product else scores), candidates


def _metric(inner_product: bool) -> int:
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
