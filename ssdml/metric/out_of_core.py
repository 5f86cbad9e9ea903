"""SSDML on rows beyond one machine's memory: partitions learn apart, L is learned on their pool.

The tasks are plain ones of dask, and run wherever the user's scheduler runs them. Here, where fit
was called, are the labels and the classes of all rows, and of the rows themselves the pool: the
ends of the triplets, and those that judge.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.graphs.triplets import Triplets
from ssdml.metric.alternation import N_TRIPLETS, mine, turn
from ssdml.metric.features import Whitening
from ssdml.metric.selection import (
    REFERENCE_ROWS,
    VALIDATION_ROWS,
    InputWeight,
    beside_input,
    fewer_columns,
    guarded,
    n_held_out,
    relative_spread,
    verdict,
)
from ssdml.metric.state import Learned, Settings, State
from ssdml.utils.dask_arrays import check_block, rows_dtype
from ssdml.utils.linalg import check_spread, graph_rows, product
from ssdml.utils.parallel import BLAS
from ssdml.utils.progress import Stages
from ssdml.utils.scatter import ClassMoments, class_moments, pool_moments, pooled_scatter
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED

MOMENTS_AT_ONCE = 8  # that one task pools: d² numbers each


def learn_from_partitions(
    X: Any,
    labels: Ints,
    n_neighbors: int,
    rounds: int,
    settings: Settings,
    seed: int,
    stages: Stages,
) -> tuple[Learned, Indices, Array]:
    """The metric, with the numbers and the rows that new rows are to be compared with.

    These are the labeled rows, and at most 15,000 random ones that judged the metric.

    Parameters
    ----------
    X : dask array of shape (n, d)
    labels : array of shape (n,)
        -1 where unlabeled.
    n_neighbors, rounds : int
    settings : Settings
    seed : int
    stages : Stages
    """
    import dask

    who = type(settings).__name__
    parts = shares(X.chunks[0], X.shape[1], labels)
    blocks = X.to_delayed().ravel()
    kept = _gathered(blocks, X, labels, who)
    try:
        with stages("labeled rows"):
            kept = kept.persist()
            # Waits: were the partitions known meanwhile, all the blocks would be kept for them.
            labeled: Labeled = kept.compute()
        _check_number(len(labeled.numbers), parts, who)
        task = Task(
            who,
            n_neighbors,
            settings.decay,
            settings.propagation,
            settings.mining,
            settings.n_jobs,
            min(rounds, 2),  # nothing changes after the second
            seed,
            n_held_out(len(labels) - len(labeled.numbers)) > 0,
        )
        with stages("partitions"):
            ask = dask.delayed(summarize, nout=2)
            told = [ask(list(blocks[chunks]), kept, share, task) for chunks, share in parts]
            moments = _pooled_in_turn([moments for moments, _ in told])
            moments, *summaries = dask.compute(moments, *[summary for _, summary in told])
    finally:
        _release(kept)
    pool = pooled(summaries)
    _tell_of_unreached(pool.history, who)
    learned = _learn(pool, moments, labeled, task, settings, stages)
    sample = pool.samples[-1]
    numbers, places = np.unique(
        np.concatenate([labeled.numbers, pool.numbers[sample]]), return_index=True
    )
    return learned, numbers, np.concatenate([labeled.X, pool.X[sample]])[places]


def _gathered(blocks: Array, X: Any, labels: Ints, who: str) -> Any:
    """Delayed labeled rows of all blocks."""
    import dask

    numbers = np.flatnonzero(labels != UNLABELED)
    ends = np.cumsum(X.chunks[0])
    homes = np.searchsorted(ends, numbers, side="right")
    pick, dtype = dask.delayed(_picked), rows_dtype(X)
    first = np.flatnonzero(np.diff(homes, prepend=-1))  # of the labeled rows of a block
    rows = []
    for home, own in zip(homes[first], np.split(numbers, first[1:]), strict=True):
        size = int(X.chunks[0][home])
        start = int(ends[home]) - size
        rows.append(pick(blocks[home], own - start, (size, X.shape[1]), dtype, who, start))
    return dask.delayed(_stacked)(rows, numbers, labels[numbers])


def _picked(
    block: Any, places: Indices, shape: tuple[int, int], dtype: Any, who: str, start: int
) -> Array:
    return check_block(block, shape, dtype, who, start)[places]


def _stacked(rows: Sequence[Array], numbers: Indices, labels: Ints) -> Labeled:
    return Labeled(numbers, labels, np.concatenate(rows))


def _release(kept: Any) -> None:
    """Let a cluster forget what it holds for us.

    A traceback would go on holding it, and with it an error of the blocks below: the next fit of
    the same array would get that error, without a task being run.
    """
    if "distributed" in sys.modules:
        from dask.distributed import futures_of

        for future in futures_of(kept):
            future.release()


def _check_number(n_labeled: int, parts: Sequence[tuple[list[int], Share]], who: str) -> None:
    largest = max(share.stop - share.start for _, share in parts)
    if len(parts) > 1 and n_labeled > largest:
        warnings.warn(
            f"{who}: labeled rows should be fewer than the rows of a partition, since each "
            f"partition gets them all; got {n_labeled} for {largest}. Set some labels to -1, or "
            "use X.rechunk for larger chunks.",
            stacklevel=2,
        )


def _pooled_in_turn(parts: list[Any]) -> Any:
    """Delayed moments of all, so that no task holds those of many partitions."""
    import dask

    pool = dask.delayed(_moments_of)
    while len(parts) > 1:
        groups = range(0, len(parts), MOMENTS_AT_ONCE)
        parts = [pool(parts[start : start + MOMENTS_AT_ONCE]) for start in groups]
    return parts[0]


def _moments_of(parts: Sequence[ClassMoments]) -> ClassMoments:
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is told by _totals
        return pool_moments(parts)


def _tell_of_unreached(reports: Sequence[dict[str, Any]], who: str) -> None:
    """Warn here as well: what a worker warns of stays with the worker."""
    counts = [report["unreached"] for report in reports if report["unreached"]]
    if counts:
        warnings.warn(
            f"{who}: no label reaches {sum(counts)} rows, in {len(counts)} of {len(reports)} "
            "partitions; they get the class prior. Label a row in each part of the graph, raise "
            "n_neighbors, or use X.rechunk for larger partitions.",
            RuntimeWarning,
            stacklevel=2,
        )


def pooled(summaries: Sequence[Summary]) -> Summary:
    """What all partitions tell, as if one had told it."""
    offsets = np.cumsum([0, *(len(summary.numbers) for summary in summaries[:-1])])

    def joined(places: Sequence[Indices]) -> Indices:
        return np.concatenate([p + offset for p, offset in zip(places, offsets, strict=True)])

    def joined_triplets(mined: Sequence[Triplets]) -> Triplets:
        anchors, positives, negatives, weights = zip(*mined, strict=True)
        return Triplets(
            joined(anchors), joined(positives), joined(negatives), np.concatenate(weights)
        )

    return Summary(
        np.concatenate([summary.distributions for summary in summaries]),
        np.concatenate([summary.numbers for summary in summaries]),
        np.concatenate([summary.X for summary in summaries]),
        np.concatenate([summary.classes for summary in summaries]),
        tuple(map(joined_triplets, zip(*(s.triplets for s in summaries), strict=True))),
        joined([summary.judged for summary in summaries]),
        tuple(map(joined, zip(*(s.samples for s in summaries), strict=True))),
        tuple(chain.from_iterable(summary.history for summary in summaries)),
    )


class Totals(NamedTuple):
    """Number and covariance of all rows, and what follows from it."""

    n: int
    covariance: Floats  # over n

    def spread(self, components: Floats) -> float:
        """Spread of the embedding relative to that of the rows."""
        of_embedding = np.einsum("ij,jk,ik", components, self.covariance, components, optimize=True)
        return relative_spread(float(of_embedding), float(np.trace(self.covariance)))

    def fewer_columns(self, components: Floats, settings: Settings) -> Floats:
        """As many columns as were asked for."""
        most = settings.n_components or len(self.covariance)
        return fewer_columns(components, most, lambda: self.covariance * self.n / (self.n - 1))


def _learn(
    pool: Summary,
    seen: ClassMoments,
    labeled: Labeled,
    task: Task,
    settings: Settings,
    stages: Stages,
) -> Learned:
    """The rounds of the alternation and their conclusion, on what was pooled."""
    everything = seen
    if task.held_out:
        late = class_moments(pool.X[pool.judged], pool.classes[pool.judged], len(seen.counts))
        everything = _moments_of([seen, late])
    totals = _totals(everything, task.who)
    identity = np.eye(len(totals.covariance))
    alone = Learned(totals.fewer_columns(identity, settings), None, np.inf, pool.distributions)
    if _n_classes(everything) < 2:
        complaint = "its labels lead to one class alone. Label others."
        return alone._replace(complaint=complaint, history=pool.history)
    backbone, verdicts, details = Whitening(), [], {}
    for number, triplets in enumerate(pool.triplets):
        with stages(f"round {number + 1}"):
            moments = seen if number == 0 else everything
            backbone.learn_from(pooled_scatter(moments), _n_classes(moments))
            details = _turn(backbone, pool, triplets, settings)
            if number == 0:
                verdicts.append(_judge(pool, 0, backbone, totals, settings.input_weight))
    weight = verdicts[0].weight
    verdicts.append(_judge(pool, 1, backbone, totals, weight))

    scale = totals.spread(backbone.components) if weight > 0 else 1.0
    components = totals.fewer_columns(beside_input(backbone.components / scale, weight), settings)
    learned = Learned(components, None, weight, pool.distributions)
    if settings.guard:
        learned = guarded(learned, alone, labeled.X, labeled.labels, tuple(verdicts))
    history = [dict(report) for report in pool.history]
    history[0] |= verdicts[0]._asdict()
    history[-1] |= details | {"agreement": verdicts[1].agreement}
    triplets = with_ends(pool.triplets[-1], pool.numbers.take)
    return learned._replace(triplets=triplets, history=tuple(history))


def _totals(moments: ClassMoments, who: str) -> Totals:
    with np.errstate(over="ignore", invalid="ignore"):
        scatter = pooled_scatter(moments)
    covariance = scatter.within + scatter.between
    if not np.isfinite(covariance).all():
        raise ValueError(f"{who}: X must have a finite variance; it overflows. Scale X down.")
    return Totals(int(moments.counts.sum()), covariance)


def _n_classes(moments: ClassMoments) -> int:
    """How many classes have rows."""
    return int((moments.counts > 0).sum())


def _turn(
    backbone: Whitening, pool: Summary, triplets: Triplets, settings: Settings
) -> dict[str, Any]:
    """Learn L on the rows at the ends of the triplets; what it did."""
    used, ends = np.unique(np.stack(triplets[:3]), return_inverse=True)
    anchor, positive, negative = ends.reshape(3, -1)
    local = Triplets(anchor, positive, negative, triplets.weight)
    details = turn(backbone, pool.X[used], local, settings)
    return {name: value for name, value in details.items() if name != "n_triplets"}


def _judge(
    pool: Summary, number: int, backbone: Whitening, totals: Totals, input_weight: float | str
) -> InputWeight:
    rows, components = pool.samples[number], backbone.components
    return verdict(
        product(pool.X[rows], components.T) / totals.spread(components),
        pool.X[rows],
        pool.classes[rows],
        np.searchsorted(rows, pool.judged),
        input_weight,
    )


# The partitions of rows that no machine holds: which rows each has, and what it tells of them.
#
# A partition is some chunks of rows with all the labeled rows beside them (seed 003's idea of
# partitions). What it does is a pure function of arrays: it builds a graph of its own, propagates
# the labels, mines triplets, and returns what is small: the moments of its classes, its triplets
# with the rows at their ends, and some rows that judge. What it draws depends on the seed and its
# number alone, so that a partition whose worker was lost gives the same when it is computed again.

PARTITION_ROWS = 50_000
PARTITION_ENTRIES = 2**27  # where rows are long, fewer: half a GB in float32


class Labeled(NamedTuple):
    """The labeled rows, which every partition gets."""

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
        else apportioned(min(VALIDATION_ROWS, len(labels)), rows),
        apportioned(min(REFERENCE_ROWS, len(labels)), rows),
        strict=True,
    )
    return [
        (group, Share(i, *bounds[i], tuple(int(chunks[c]) for c in group), *quota))
        for i, (group, quota) in enumerate(zip(groups, quotas, strict=True))
    ]


def fewest_rows(chunks: Sequence[int], n_features: int, labels: Ints) -> int:
    """Rows of the smallest partition, the labeled rows of the others among them.

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
    blocks: Sequence[Any], labeled: Labeled, share: Share, task: Task
) -> tuple[ClassMoments, Summary]:
    """What a partition tells; the moments are of its own rows, less those that are held out.

    Parameters
    ----------
    blocks : sequence of arrays of shape (n_rows, n_features)
        The chunks of the partition.
    labeled : Labeled
    share : Share
    task : Task

    Notes
    -----
    O(n d + n k + n C) memory: three times the rows at the most. Random numbers are drawn in the
    order of a fit in memory, so that one partition of all rows comes to the same metric.
    """
    # The number 0 leaves the seed as it is.
    rng = np.random.default_rng([task.seed, share.number])
    state, numbers = _state(blocks, labeled, share, task, rng)
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
    labeled: Labeled,
    share: Share,
    task: Task,
    rng: np.random.Generator,
) -> tuple[State, Indices]:
    """The partition's rows, and below them the labeled rows of the others; their numbers."""
    n_features, dtype = labeled.X.shape[1], labeled.X.dtype
    starts = share.start + np.cumsum([0, *share.sizes[:-1]])
    own = [
        check_block(block, (size, n_features), dtype, task.who, int(start))
        for block, size, start in zip(blocks, share.sizes, starts, strict=True)
    ]
    inside = (share.start <= labeled.numbers) & (labeled.numbers < share.stop)
    X = np.concatenate([*own, labeled.X[~inside]])
    check_spread(X, task.who)
    numbers = np.concatenate([np.arange(share.start, share.stop), labeled.numbers[~inside]])
    labels = np.full(len(X), UNLABELED, dtype=np.int64)
    labels[labeled.numbers[inside] - share.start] = labeled.labels[inside]
    labels[share.stop - share.start :] = labeled.labels[~inside]
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
    """Rows in those parts of the graph where none is labeled."""
    parts = connected_components(graph.to_csr(), directed=False)[1]
    return int((~np.isin(parts, parts[labels != UNLABELED])).sum())


def with_ends(triplets: Triplets, change: Callable[[Indices], Indices]) -> Triplets:
    """The triplets, with other numbers for their rows."""
    anchor, positive, negative = (change(end) for end in triplets[:3])
    return Triplets(anchor, positive, negative, triplets.weight)
