"""Fit SSDML to a dask array of more rows than one machine's memory holds.

A partition is a group of chunks with all labeled rows added. On a worker it builds its own graph,
propagates the labels and mines its share of the triplets. The calling process pools the moments of
the classes, the triplets with the rows at their ends, and the validation rows, and learns L.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.graphs.triplets import Triplets
from ssdml.metric.alternation import N_TRIPLETS, ONE_CLASS, mine, update_metric
from ssdml.metric.features import Whitening
from ssdml.metric.selection import (
    REFERENCE_ROWS,
    VALIDATION_ROWS,
    InputWeight,
    beside_input,
    candidate_weights,
    choose_input_weight,
    fall_back,
    fewer_columns,
    n_held_out,
    relative_spread,
)
from ssdml.metric.state import Learned, State
from ssdml.utils.dask_arrays import check_block, rows_dtype
from ssdml.utils.linalg import check_spread, graph_rows, product
from ssdml.utils.parallel import BLAS
from ssdml.utils.progress import Stages
from ssdml.utils.scatter import ClassMoments, class_moments, pool_moments, pooled_scatter
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED

if TYPE_CHECKING:
    from ssdml.metric.estimator import SSDML

PARTITION_ROWS = 50_000
PARTITION_ENTRIES = 2**27  # limit for wide rows: half a GB in float32
MOMENTS_AT_ONCE = 8  # pooled by one task: d² numbers each


class Labeled(NamedTuple):
    """The labeled rows, which every partition receives."""

    numbers: Indices  # among all rows, ascending
    labels: Ints
    X: Array


class Task(NamedTuple):
    """Parameters that all partitions share."""

    who: str
    n_neighbors: int
    decay: float
    propagation: str
    mining: str
    n_jobs: int | None
    rounds: int
    seed: int
    holds_out: bool  # whether the validation rows are left out of the first round


class Share(NamedTuple):
    """Rows of a partition and its part of the work."""

    number: int
    start: int
    stop: int
    sizes: tuple[int, ...]  # of its chunks
    n_triplets: int
    n_validation: int
    n_references: int


class Summary(NamedTuple):
    """Result of a partition; "chosen" rows are ends of triplets, validation and reference rows."""

    distributions: Array  # (n, n_classes), of its own rows
    numbers: Indices  # of the chosen rows, among all rows
    X: Array  # of the chosen rows
    classes: Indices  # of the chosen rows, as columns of the distributions
    triplets: tuple[Triplets, ...]  # per round; their ends are places among the chosen rows
    validation: Indices  # places among the chosen rows
    samples: tuple[Indices, ...]  # validation and reference rows, for each of two validations
    history: tuple[dict[str, Any], ...]


def learn_out_of_core(
    X: Any, labels: Ints, n_neighbors: int, rounds: int, model: SSDML, seed: int, stages: Stages
) -> tuple[Learned, Indices, Array]:
    """Learn the metric; return it with the numbers and values of the reference rows.

    X is a dask array (n, d) of known chunk sizes. Reference rows, with which new rows are compared,
    are the labeled ones and at most 15,000 random ones that validated the metric.
    """
    import dask

    who = type(model).__name__
    parts = shares(X.chunks[0], X.shape[1], labels)
    blocks = X.to_delayed().ravel()
    kept = _labeled_rows(blocks, X, labels, who)
    try:
        with stages("labeled rows"):
            kept = kept.persist()
            # Wait here: partitions submitted earlier would make the cluster keep all blocks.
            labeled: Labeled = kept.compute()
        _warn_many_labels(len(labeled.numbers), parts, who)
        task = Task(
            who,
            n_neighbors,
            model.decay,
            model.propagation,
            model.mining,
            model.n_jobs,
            min(rounds, 2),  # nothing changes after the second
            seed,
            n_held_out(len(labels) - len(labeled.numbers)) > 0,
        )
        with stages("partitions"):
            ask = dask.delayed(summarize, nout=2)
            results = [ask(list(blocks[chunks]), kept, share, task) for chunks, share in parts]
            moments = _pool_as_tree([moments for moments, _ in results])
            moments, *summaries = dask.compute(moments, *[summary for _, summary in results])
    finally:
        _release(kept)
    pool = pool_summaries(summaries)
    _warn_unreached(pool.history, who)
    learned = _learn(pool, moments, labeled, task, model, stages)
    sample = pool.samples[-1]
    numbers, places = np.unique(
        np.concatenate([labeled.numbers, pool.numbers[sample]]), return_index=True
    )
    return learned, numbers, np.concatenate([labeled.X, pool.X[sample]])[places]


# Divide rows and work among partitions


def chunk_groups(chunks: Sequence[int], n_features: int) -> list[list[int]]:
    """Group consecutive chunks, by number, into partitions.

    Chunks are merged up to 50,000 rows, or half a GB in float32 if that is less, and beyond if a
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


def apportion(total: int, sizes: npt.ArrayLike) -> list[int]:
    """Divide ``total`` into integers in proportion to the sizes.

    Examples
    --------
    >>> apportion(10, [5, 5, 20])
    [1, 2, 7]
    """
    running = np.cumsum(sizes)
    steps = np.concatenate([[0], running * total // max(1, running[-1])])
    return [int(share) for share in np.diff(steps)]


def shares(chunks: Sequence[int], n_features: int, labels: Ints) -> list[tuple[list[int], Share]]:
    """Chunks of each partition, and its share of the rows, triplets and validation rows.

    In total there are as many triplets and validation rows as in a fit in memory.
    """
    ends = np.concatenate([[0], np.cumsum(chunks)])
    groups = chunk_groups(chunks, n_features)
    bounds = [(int(ends[group[0]]), int(ends[group[-1] + 1])) for group in groups]
    rows = [stop - start for start, stop in bounds]
    unlabeled = [int((labels[start:stop] == UNLABELED).sum()) for start, stop in bounds]
    held_out, n = n_held_out(sum(unlabeled)), len(labels)
    quotas = zip(
        apportion(N_TRIPLETS, rows),
        apportion(held_out, unlabeled) if held_out else apportion(min(VALIDATION_ROWS, n), rows),
        apportion(min(REFERENCE_ROWS, n), rows),
        strict=True,
    )
    return [
        (group, Share(i, *bounds[i], tuple(int(chunks[c]) for c in group), *quota))
        for i, (group, quota) in enumerate(zip(groups, quotas, strict=True))
    ]


def smallest_partition(chunks: Sequence[int], n_features: int, labels: Ints) -> int:
    """Rows of the smallest partition, including the labeled rows of the others.

    Examples
    --------
    >>> smallest_partition([40_000, 30_000], 10, np.r_[0, np.full(69_998, -1), 1])
    30001
    """
    known = labels != UNLABELED
    bounds = [slice(s.start, s.stop) for _, s in shares(chunks, n_features, labels)]
    return int(known.sum()) + min(int((~known[rows]).sum()) for rows in bounds)


def _labeled_rows(blocks: Array, X: Any, labels: Ints, who: str) -> Any:
    """Delayed labeled rows of all blocks."""
    import dask

    numbers = np.flatnonzero(labels != UNLABELED)
    ends = np.cumsum(X.chunks[0])
    homes = np.searchsorted(ends, numbers, side="right")
    pick, dtype = dask.delayed(_pick_rows), rows_dtype(X)
    first = np.flatnonzero(np.diff(homes, prepend=-1))  # labeled row of each block
    rows = []
    for home, own in zip(homes[first], np.split(numbers, first[1:]), strict=True):
        size = int(X.chunks[0][home])
        start = int(ends[home]) - size
        rows.append(pick(blocks[home], own - start, (size, X.shape[1]), dtype, who, start))
    return dask.delayed(_stack_rows)(rows, numbers, labels[numbers])


def _pick_rows(
    block: Any, places: Indices, shape: tuple[int, int], dtype: Any, who: str, start: int
) -> Array:
    return check_block(block, shape, dtype, who, start)[places]


def _stack_rows(rows: Sequence[Array], numbers: Indices, labels: Ints) -> Labeled:
    return Labeled(numbers, labels, np.concatenate(rows))


def _warn_many_labels(n_labeled: int, parts: Sequence[tuple[list[int], Share]], who: str) -> None:
    largest = max(share.stop - share.start for _, share in parts)
    if len(parts) > 1 and n_labeled > largest:
        warnings.warn(
            f"{who}: labeled rows must be fewer than the rows of a partition, because every "
            f"partition receives them all; got {n_labeled} for {largest}. Set some labels to -1, "
            "or use X.rechunk for larger chunks.",
            stacklevel=2,
        )


def _release(kept: Any) -> None:
    """Release the futures of a cluster.

    A traceback would keep them alive, with any error of the blocks below: the next fit of the same
    array would receive that error without running a task.
    """
    if "distributed" in sys.modules:
        from dask.distributed import futures_of

        for future in futures_of(kept):
            future.release()


# On the worker: summarize a partition


@BLAS.one_thread()  # or sums would depend on the load of the process
def summarize(
    blocks: Sequence[Any], labeled: Labeled, share: Share, task: Task
) -> tuple[ClassMoments, Summary]:
    """Summarize the chunks of a partition; the moments are of its own rows not held out.

    Draws depend on the seed and the number of the partition alone, so that it can be repeated when
    a worker dies, and come in the order of a fit in memory, so that a single partition gives the
    same metric. Memory: at most three copies of the rows, beside the graph.
    """
    # Number 0 leaves the seed unchanged.
    rng = np.random.default_rng([task.seed, share.number])
    state, numbers = _partition_state(blocks, labeled, share, task, rng)
    n_own, classes = share.stop - share.start, state.classes
    validation = rng.permutation(np.flatnonzero(state.labels == UNLABELED))[: share.n_validation]
    training = np.setdiff1d(np.arange(n_own), validation)
    if not task.holds_out:
        validation = np.sort(rng.permutation(n_own)[: share.n_validation])
        training = np.arange(n_own)
    moments = class_moments(state.X[training], classes[training], state.distributions.shape[1])

    triplets, references = [], []
    for number in range(task.rounds):
        rng.integers(2**31)  # in memory, the seed of a backbone
        triplets.append(_mine_share(state, share, task, rng))
        if number == 0:
            references.append(rng.permutation(n_own)[: share.n_references])
    references.append(rng.permutation(n_own)[: share.n_references])

    ends = [end for mined in triplets for end in mined[:3]]
    chosen = np.unique(np.concatenate([validation, *references, *ends]))
    report = {
        "rows": (share.start, share.stop),
        "n_triplets": len(triplets[-1].anchor),
        "unreached": _count_unreached(state.graph, state.labels),
        "recall": state.graph.recall_,
    }

    def places(rows: Indices) -> Indices:
        return np.searchsorted(chosen, rows)

    return moments, Summary(
        state.distributions[:n_own].astype(state.X.dtype),
        numbers[chosen],
        state.X[chosen],
        classes[chosen],
        tuple(_renumbered(mined, places) for mined in triplets),
        places(validation),
        tuple(places(np.union1d(validation, others)) for others in references),
        (report,),
    )


def _partition_state(
    blocks: Sequence[Any], labeled: Labeled, share: Share, task: Task, rng: np.random.Generator
) -> tuple[State, Indices]:
    """The partition's rows, the labeled rows of the others below them, and their numbers."""
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
    distributions = propagate_labels(graph, labels, decay=task.decay, n_jobs=task.n_jobs)
    return State(X, labels, graph, distributions), numbers


def _mine_share(state: State, share: Share, task: Task, rng: np.random.Generator) -> Triplets:
    if share.n_triplets == 0 or len(np.unique(state.classes)) < 2:
        none = np.empty(0, dtype=np.int64)
        return Triplets(none, none, none, np.empty(0))
    return mine(state, task, share.n_triplets, rng)


def _count_unreached(graph: KNNGraph, labels: Ints) -> int:
    """Count the rows in components of the graph without a labeled row."""
    parts = connected_components(graph.to_csr(), directed=False)[1]
    return int((~np.isin(parts, parts[labels != UNLABELED])).sum())


def _renumbered(triplets: Triplets, renumber: Callable[[Indices], Indices]) -> Triplets:
    return Triplets._make([*map(renumber, triplets[:3]), triplets.weight])


# In the calling process: pool the summaries and learn


def _pool_as_tree(parts: list[Any]) -> Any:
    """Delayed sum of the moments, a few per task."""
    import dask

    pool = dask.delayed(_pool_moments)
    while len(parts) > 1:
        groups = range(0, len(parts), MOMENTS_AT_ONCE)
        parts = [pool(parts[start : start + MOMENTS_AT_ONCE]) for start in groups]
    return parts[0]


def _pool_moments(parts: Sequence[ClassMoments]) -> ClassMoments:
    with np.errstate(over="ignore", invalid="ignore"):  # _covariance reports overflow
        return pool_moments(parts)


def pool_summaries(summaries: Sequence[Summary]) -> Summary:
    """Concatenate the summaries of all partitions."""
    offsets = np.cumsum([0, *(len(summary.numbers) for summary in summaries[:-1])])

    def joined(places: Sequence[Indices]) -> Indices:
        return np.concatenate([p + offset for p, offset in zip(places, offsets, strict=True)])

    def joined_triplets(mined: Sequence[Triplets]) -> Triplets:
        *ends, weights = zip(*mined, strict=True)
        return Triplets._make([*map(joined, ends), np.concatenate(weights)])

    return Summary(
        np.concatenate([summary.distributions for summary in summaries]),
        np.concatenate([summary.numbers for summary in summaries]),
        np.concatenate([summary.X for summary in summaries]),
        np.concatenate([summary.classes for summary in summaries]),
        tuple(map(joined_triplets, zip(*(s.triplets for s in summaries), strict=True))),
        joined([summary.validation for summary in summaries]),
        tuple(map(joined, zip(*(s.samples for s in summaries), strict=True))),
        tuple(chain.from_iterable(summary.history for summary in summaries)),
    )


def _warn_unreached(reports: Sequence[dict[str, Any]], who: str) -> None:
    """Repeat the warnings of the workers here."""
    counts = [report["unreached"] for report in reports if report["unreached"]]
    if counts:
        warnings.warn(
            f"{who}: no label reaches {sum(counts)} rows, in {len(counts)} of {len(reports)} "
            "partitions; they get the class prior. Label a row in each part of the graph, raise "
            "n_neighbors, or use X.rechunk for larger partitions.",
            RuntimeWarning,
            stacklevel=2,
        )


def _covariance(moments: ClassMoments, who: str) -> Floats:
    """Covariance of all rows, divided by their number."""
    with np.errstate(over="ignore", invalid="ignore"):
        scatter = pooled_scatter(moments)
    covariance = scatter.within + scatter.between
    if not np.isfinite(covariance).all():
        raise ValueError(f"{who}: X must have a finite variance; it overflows. Scale X down.")
    return covariance


def _relative_spread(components: Floats, covariance: Floats) -> float:
    of_embedding = np.einsum("ij,jk,ik", components, covariance, components, optimize=True)
    return relative_spread(float(of_embedding), float(np.trace(covariance)))


def _learn(
    pool: Summary,
    training: ClassMoments,
    labeled: Labeled,
    task: Task,
    model: SSDML,
    stages: Stages,
) -> Learned:
    """Learn L on the pool, and combine it with the input, as a fit in memory does."""
    everything = training
    if task.holds_out:
        rows = pool.validation
        late = class_moments(pool.X[rows], pool.classes[rows], len(training.counts))
        everything = _pool_moments([training, late])
    covariance, n = _covariance(everything, task.who), int(everything.counts.sum())

    def finished(blocks: Floats, weight: float) -> Learned:
        most = model.n_components or len(covariance)
        components = fewer_columns(blocks, most, lambda: covariance * n / (n - 1))
        return Learned(components, None, weight, pool.distributions)

    alone = finished(np.eye(len(covariance)), np.inf)
    if (everything.counts > 0).sum() < 2:
        return alone._replace(fallback_reason=ONE_CLASS, history=pool.history)
    feature_map, choices, details = Whitening(), [], {}
    weights = candidate_weights(model.input_weight)
    for number, triplets in enumerate(pool.triplets):
        with stages(f"round {number + 1}"):
            moments = training if number == 0 else everything
            feature_map.learn_from(pooled_scatter(moments), int((moments.counts > 0).sum()))
            details = _update_metric(feature_map, pool, triplets, model)
            if number == 0:
                choices.append(_validate(pool, 0, feature_map, covariance, weights))
    weight = choices[0].weight
    choices.append(_validate(pool, 1, feature_map, covariance, (weight,)))

    scale = _relative_spread(feature_map.components, covariance) if weight > 0 else 1.0
    learned = finished(beside_input(feature_map.components / scale, weight), weight)
    if model.guard:
        learned = fall_back(learned, alone, labeled.X, labeled.labels, tuple(choices))
    history = [dict(report) for report in pool.history]
    history[0] |= choices[0]._asdict()
    history[-1] |= details | {"agreement": choices[1].agreement}
    triplets = _renumbered(pool.triplets[-1], pool.numbers.take)
    return learned._replace(triplets=triplets, history=tuple(history))


def _update_metric(
    feature_map: Whitening, pool: Summary, triplets: Triplets, model: SSDML
) -> dict[str, Any]:
    """Update L on the rows at the ends of the triplets."""
    used, ends = np.unique(np.stack(triplets[:3]), return_inverse=True)
    local = Triplets._make([*ends.reshape(3, -1), triplets.weight])
    details = update_metric(feature_map, pool.X[used], local, model)
    return {name: value for name, value in details.items() if name != "n_triplets"}


def _validate(
    pool: Summary, number: int, feature_map: Whitening, covariance: Floats, weights: Sequence[float]
) -> InputWeight:
    rows, components = pool.samples[number], feature_map.components
    return choose_input_weight(
        product(pool.X[rows], components.T) / _relative_spread(components, covariance),
        pool.X[rows],
        pool.classes[rows],
        np.searchsorted(rows, pool.validation),
        weights=weights,
    )
