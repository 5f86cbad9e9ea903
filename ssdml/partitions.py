"""The partitions of rows that no machine holds: which rows each has, and what it tells of them.

A partition is some chunks of rows with all the labelled rows beside them (seed 003's idea of
partitions). What it does is a pure function of arrays: it builds a graph of its own, propagates
the labels, mines triplets, and returns what is small: the moments of its classes, its triplets
with the rows at their ends, and some rows that judge. What it draws depends on the seed and its
number alone, so that a partition whose worker was lost gives the same when it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from ssdml.alternation import N_TRIPLETS, mine
from ssdml.conclusion import JUDGED_ROWS, REFERENCE_ROWS, State, n_held_out
from ssdml.dask_arrays import check_block
from ssdml.graphs._blocks import BLAS
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.neighbors import KNNGraph, knn_graph
from ssdml.graphs.propagation import propagate_labels
from ssdml.graphs.triplets import Triplets
from ssdml.linalg import check_spread
from ssdml.projections import graph_rows
from ssdml.scatter import ClassMoments, class_moments
from ssdml.utils.typing import Array, Indices, Ints

PARTITION_ROWS = 50_000
PARTITION_ENTRIES = 2**27  # where rows are long, fewer: half a GB in float32


class Labelled(NamedTuple):
    """The labelled rows, which every partition gets."""

    numbers: Indices  # among all rows, ascending
    labels: Ints
    X: Array


class Task(NamedTuple):
    """What every partition is to do."""

    who: str
    n_neighbors: int
    decay: float
    propagation: str
    mining: str
    n_jobs: int | None
    rounds: int
    seed: int
    held_out: bool  # whether the rows that judge sit out the first round


class Share(NamedTuple):
    """Which rows a partition has, and its part of what is done in all."""

    number: int
    start: int
    stop: int
    sizes: tuple[int, ...]  # of its chunks
    n_triplets: int
    n_judged: int
    n_references: int


class Summary(NamedTuple):
    """What a partition tells. Chosen are the rows at the ends of triplets and those that judge."""

    distributions: Array  # (n, n_classes), of its own rows
    numbers: Indices  # of the chosen rows, among all
    X: Array  # of the chosen rows
    classes: Indices  # of the chosen rows, as columns of the distributions
    triplets: tuple[Triplets, ...]  # one a round; their ends are places among the chosen rows
    judged: Indices  # places among the chosen rows
    samples: tuple[Indices, ...]  # the judged and those they are searched among, for two verdicts
    history: tuple[dict[str, Any], ...]


def chunk_groups(chunks: Sequence[int], n_features: int) -> list[list[int]]:
    """Consecutive chunks, by number, that make a partition each.

    They are merged up to 50,000 rows, or half a GB in float32 if that is less, and beyond where a
    partition would have less than half of that. No chunk is split.

    Examples
    --------
    >>> chunk_groups([30_000, 20_000, 40_000, 20_000, 9_000], 10)
    [[0, 1], [2], [3, 4]]
    """
    most = max(1, min(PARTITION_ROWS, PARTITION_ENTRIES // n_features))
    groups: list[list[int]] = [[]]
    rows = 0
    for chunk, size in enumerate(chunks):
        if 2 * rows >= most and rows + size > most:
            groups.append([])
            rows = 0
        groups[-1].append(chunk)
        rows += size
    if len(groups) > 1 and 2 * rows < most:
        rest = groups.pop()
        groups[-1] += rest
    return groups


def apportioned(total: int, sizes: npt.ArrayLike) -> list[int]:
    """Whole numbers in proportion to the sizes, which sum to ``total``.

    Examples
    --------
    >>> apportioned(10, [5, 5, 20])
    [1, 2, 7]
    """
    running = np.cumsum(sizes)
    steps = np.concatenate([[0], running * total // max(1, running[-1])])
    return [int(share) for share in np.diff(steps)]


def shares(chunks: Sequence[int], n_features: int, labels: Ints) -> list[tuple[list[int], Share]]:
    """Chunks of each partition, and its share of the rows, the triplets and the judges.

    There are as many triplets and judges in all as in a fit in memory.
    """
    ends = np.concatenate([[0], np.cumsum(chunks)])
    groups = chunk_groups(chunks, n_features)
    bounds = [(int(ends[group[0]]), int(ends[group[-1] + 1])) for group in groups]
    rows = [stop - start for start, stop in bounds]
    unlabeled = [int((labels[start:stop] == UNLABELED).sum()) for start, stop in bounds]
    held_out = n_held_out(sum(unlabeled))
    quotas = zip(
        apportioned(N_TRIPLETS, rows),
        apportioned(held_out, unlabeled)
        if held_out
        else apportioned(min(JUDGED_ROWS, len(labels)), rows),
        apportioned(min(REFERENCE_ROWS, len(labels)), rows),
        strict=True,
    )
    return [
        (group, Share(i, *bounds[i], tuple(int(chunks[c]) for c in group), *quota))
        for i, (group, quota) in enumerate(zip(groups, quotas, strict=True))
    ]


def fewest_rows(chunks: Sequence[int], n_features: int, labels: Ints) -> int:
    """Rows of the smallest partition, the labelled rows of the others among them.

    Examples
    --------
    >>> fewest_rows([40_000, 30_000], 10, np.r_[0, np.full(69_998, -1), 1])
    30001
    """
    known = labels != UNLABELED
    bounds = [slice(s.start, s.stop) for _, s in shares(chunks, n_features, labels)]
    return int(known.sum()) + min(int((~known[rows]).sum()) for rows in bounds)


@BLAS.one_thread()  # or sums would depend on what else the process does meanwhile
def summarize(
    blocks: Sequence[Any], labelled: Labelled, share: Share, task: Task
) -> tuple[ClassMoments, Summary]:
    """What a partition tells; the moments are of its own rows, less those that are held out.

    Parameters
    ----------
    blocks : sequence of arrays of shape (n_rows, n_features)
        The chunks of the partition.
    labelled : Labelled
    share : Share
    task : Task

    Notes
    -----
    O(n d + n k + n C) memory: three times the rows at the most. Random numbers are drawn in the
    order of a fit in memory, so that one partition of all rows comes to the same metric.
    """
    # The number 0 leaves the seed as it is.
    rng = np.random.default_rng([task.seed, share.number])
    state, numbers = _state(blocks, labelled, share, task, rng)
    n_own, classes = share.stop - share.start, state.classes
    judged = rng.permutation(np.flatnonzero(state.labels == UNLABELED))[: share.n_judged]
    seen = np.setdiff1d(np.arange(n_own), judged)
    if not task.held_out:
        judged, seen = np.sort(rng.permutation(n_own)[: share.n_judged]), np.arange(n_own)
    moments = class_moments(state.X[seen], classes[seen], state.distributions.shape[1])

    triplets, references = [], []
    for number in range(task.rounds):
        rng.integers(2**31)  # in memory, the seed of a backbone
        triplets.append(_mined(state, share, task, rng))
        if number == 0:
            references.append(rng.permutation(n_own)[: share.n_references])
    references.append(rng.permutation(n_own)[: share.n_references])

    ends = [end for mined in triplets for end in mined[:3]]
    chosen = np.unique(np.concatenate([judged, *references, *ends]))
    report = {
        "rows": (share.start, share.stop),
        "n_triplets": len(triplets[-1].anchor),
        "unreached": _n_unreached(state.graph, state.labels),
        "recall": state.graph.recall_,
    }

    def places(rows: Indices) -> Indices:
        return np.searchsorted(chosen, rows)

    return moments, Summary(
        state.distributions[:n_own].astype(state.X.dtype),
        numbers[chosen],
        state.X[chosen],
        classes[chosen],
        tuple(with_ends(mined, places) for mined in triplets),
        places(judged),
        tuple(places(np.union1d(judged, others)) for others in references),
        (report,),
    )


def _state(
    blocks: Sequence[Any],
    labelled: Labelled,
    share: Share,
    task: Task,
    rng: np.random.Generator,
) -> tuple[State, Indices]:
    """The partition's rows, and below them the labelled rows of the others; their numbers."""
    n_features, dtype = labelled.X.shape[1], labelled.X.dtype
    starts = share.start + np.cumsum([0, *share.sizes[:-1]])
    own = [
        check_block(block, (size, n_features), dtype, task.who, int(start))
        for block, size, start in zip(blocks, share.sizes, starts, strict=True)
    ]
    inside = (share.start <= labelled.numbers) & (labelled.numbers < share.stop)
    X = np.concatenate([*own, labelled.X[~inside]])
    check_spread(X, task.who)
    numbers = np.concatenate([np.arange(share.start, share.stop), labelled.numbers[~inside]])
    labels = np.full(len(X), UNLABELED, dtype=np.int64)
    labels[labelled.numbers[inside] - share.start] = labelled.labels[inside]
    labels[share.stop - share.start :] = labelled.labels[~inside]
    k = min(task.n_neighbors, len(X) - 1)
    graph = knn_graph(graph_rows(X), k, n_jobs=task.n_jobs, random_state=rng)
    return State(
        X, labels, graph, propagate_labels(graph, labels, decay=task.decay, n_jobs=task.n_jobs)
    ), numbers


def _mined(state: State, share: Share, task: Task, rng: np.random.Generator) -> Triplets:
    if share.n_triplets == 0 or len(np.unique(state.classes)) < 2:
        nobody = np.empty(0, dtype=np.int64)
        return Triplets(nobody, nobody, nobody, np.empty(0))
    return mine(state, task, share.n_triplets, rng)


def _n_unreached(graph: KNNGraph, labels: Ints) -> int:
    """Rows in those parts of the graph where none is labelled."""
    parts = connected_components(graph.to_csr(), directed=False)[1]
    return int((~np.isin(parts, parts[labels != UNLABELED])).sum())


def with_ends(triplets: Triplets, change: Callable[[Indices], Indices]) -> Triplets:
    """The triplets, with other numbers for their rows."""
    anchor, positive, negative = (change(end) for end in triplets[:3])
    return Triplets(anchor, positive, negative, triplets.weight)
