"""Fit SSDML to a dask array of more rows than one machine's memory holds.

A partition is a group of chunks with all labeled rows added. On a worker it builds its own graph,
finds the classes and mines its share of the triplets. The calling process pools the moments of
the classes, the triplets with the rows at their ends, and the reference rows, and learns L.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.classification.forms import Form, forms_with_graphs
from ssdml.classification.learning import DirectMembers, HeldOut
from ssdml.graphs.neighbors.knn import knn_graph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.graphs.triplets import Triplets
from ssdml.metric.alternation import (
    N_TRIPLETS,
    ONE_CLASS,
    Classes,
    column_scale,
    combine,
    input_weight,
    learn_classes,
    mine,
    rescaled,
    update_metric,
)
from ssdml.metric.features import Whitening
from ssdml.metric.selection import fall_back, fewer_columns, labeled_rows
from ssdml.metric.state import Classified, Learned, State
from ssdml.utils.dask_arrays import check_block, rows_dtype
from ssdml.utils.labels import in_precision
from ssdml.utils.linalg import check_spread, graph_rows
from ssdml.utils.parallel import one_blas_thread
from ssdml.utils.progress import Stages
from ssdml.utils.scatter import (
    ClassMoments,
    ClassScatter,
    class_moments,
    pool_moments,
    pooled_scatter,
)
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import UNLABELED, warn

if TYPE_CHECKING:
    from ssdml.metric.estimator import SSDML

PARTITION_ROWS = 50_000
PARTITION_ENTRIES = 2**27  # limit for wide rows: half a GB in float32
MOMENTS_AT_ONCE = 8  # pooled by one task: d² numbers each
REFERENCE_ROWS = 15_000  # beside the labeled ones


class Labeled(NamedTuple):
    """The labeled rows, which every partition receives."""

    numbers: Indices  # among all rows, ascending
    labels: Ints
    X: Array


class Task(NamedTuple):
    """Parameters that all partitions share."""

    model: SSDML  # its parameters alone
    n_neighbors: int
    seed: int

    @property
    def who(self) -> str:
        """Beginning of messages."""
        return type(self.model).__name__


class Share(NamedTuple):
    """Rows of a partition and its part of the work."""

    number: int
    start: int
    stop: int
    sizes: tuple[int, ...]  # of its chunks
    n_triplets: int
    n_references: int


class Summary(NamedTuple):
    """Result of a partition; "chosen" rows are ends of triplets and reference rows."""

    distributions: Array  # (n, n_classes), of its own rows
    numbers: Indices  # of the chosen rows, among all rows
    X: Array  # of the chosen rows
    triplets: Triplets  # their ends are places among the chosen rows
    references: Indices  # places among the chosen rows
    history: tuple[dict[str, Any], ...]
    held_out: HeldOut | None  # rows are places among the labeled ones
    direct: DirectMembers | None  # of the pool of the first partition, without rows


def learn_out_of_core(
    X: Any, labels: Ints, n_neighbors: int, model: SSDML, seed: int, stages: Stages
) -> tuple[Learned, Indices, Array]:
    """Learn the metric; return it with the numbers and values of the reference rows.

    X is a dask array (n, d) of known chunk sizes. Reference rows, with which new rows are compared,
    are the labeled ones and at most 15,000 random ones.
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
        # What was fitted, and callbacks, do not travel.
        task = Task(type(model)(**model.get_params(deep=False)), n_neighbors, seed)
        with stages("partitions"):
            ask = dask.delayed(summarize, nout=2)
            results = [ask(list(blocks[chunks]), kept, share, task) for chunks, share in parts]
            moments = _pool_as_tree([moments for moments, _ in results])
            moments, *summaries = dask.compute(moments, *[summary for _, summary in results])
    finally:
        _release(kept)
    return _learn(pool_summaries(summaries), moments, labeled, task, stages)


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
    """Chunks of each partition, and its share of the rows, triplets and reference rows.

    In total there are as many triplets as in a fit in memory.
    """
    ends = np.concatenate([[0], np.cumsum(chunks)])
    groups = chunk_groups(chunks, n_features)
    bounds = [(int(ends[group[0]]), int(ends[group[-1] + 1])) for group in groups]
    rows = [stop - start for start, stop in bounds]
    quotas = zip(
        apportion(N_TRIPLETS, rows),
        apportion(min(REFERENCE_ROWS, len(labels)), rows),
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
        warn(
            f"{who}: labeled rows must be fewer than the rows of a partition, because every "
            f"partition receives them all; got {n_labeled} for {largest}. Set some labels to -1, "
            "or use X.rechunk for larger chunks."
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


@one_blas_thread()  # or sums would depend on the load of the process
def summarize(
    blocks: Sequence[Any], labeled: Labeled, share: Share, task: Task
) -> tuple[ClassMoments, Summary]:
    """Summarize the chunks of a partition; the moments are of its own rows.

    Draws depend on the seed and the number of the partition alone, so that it can be repeated when
    a worker dies. Memory: at most three copies of the rows, beside the graph.
    """
    # Number 0 leaves the seed unchanged.
    rng = np.random.default_rng([task.seed, share.number])
    state, numbers, classes = _partition_state(blocks, labeled, share, task, rng)
    weight = input_weight(classes, task.model)
    held_out = direct = None
    if classes is not None:
        direct = classes.evidence.direct.of(state.X[:0]) if share.number == 0 else None
        held_out = classes.evidence.held_out
        among_labeled = np.searchsorted(labeled.numbers, numbers[held_out.rows])
        held_out = held_out._replace(rows=among_labeled)
    n_own, n_classes = share.stop - share.start, state.distributions.shape[1]
    moments = class_moments(state.X[:n_own], state.classes[:n_own], n_classes)
    triplets = _mine_share(state, share, task, rng)
    references = np.sort(rng.permutation(n_own)[: share.n_references])
    chosen = np.unique(np.concatenate([references, *triplets[:3]]))
    report = {
        "rows": (share.start, share.stop),
        "n_triplets": len(triplets.anchor),
        "recall": state.graph.recall_,
        "input_weight": weight,
        "form": 0 if classes is None else classes.evidence.form,
    }

    def places(rows: Indices) -> Indices:
        return np.searchsorted(chosen, rows)

    return moments, Summary(
        distributions=in_precision(state.distributions[:n_own], state.X.dtype),
        numbers=numbers[chosen],
        X=state.X[chosen],
        triplets=_renumbered(triplets, places),
        references=places(references),
        history=(report,),
        held_out=held_out,
        direct=direct,
    )


def _partition_state(
    blocks: Sequence[Any], labeled: Labeled, share: Share, task: Task, rng: np.random.Generator
) -> tuple[State, Indices, Classes | None]:
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
    model, k = task.model, min(task.n_neighbors, len(X) - 1)
    if model.propagation == "one-sided":
        graph = knn_graph(graph_rows(X), k, n_jobs=model.n_jobs, random_state=rng)
        distributions = propagate_labels(graph, labels, decay=model.decay, n_jobs=model.n_jobs)
        return State(X, labels, graph, distributions), numbers, None
    forms = forms_with_graphs(X, k, labels=labels, rng=rng, n_jobs=model.n_jobs)
    classes, distributions = learn_classes(forms, labels, n_jobs=model.n_jobs)
    return State(X, labels, classes.form.graph, distributions), numbers, classes


def _mine_share(state: State, share: Share, task: Task, rng: np.random.Generator) -> Triplets:
    if share.n_triplets == 0 or len(np.unique(state.classes)) < 2:
        none = np.empty(0, dtype=np.int64)
        return Triplets(none, none, none, np.empty(0))
    return mine(state, task.model, share.n_triplets, rng)


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
    """Concatenate the summaries of all partitions; held-out labels are those of the first."""
    offsets = np.cumsum([0, *(len(summary.numbers) for summary in summaries[:-1])])

    def joined(places: Sequence[Indices]) -> Indices:
        return np.concatenate([p + offset for p, offset in zip(places, offsets, strict=True)])

    *ends, weights = zip(*(summary.triplets for summary in summaries), strict=True)
    return Summary(
        distributions=np.concatenate([summary.distributions for summary in summaries]),
        numbers=np.concatenate([summary.numbers for summary in summaries]),
        X=np.concatenate([summary.X for summary in summaries]),
        triplets=Triplets._make([*map(joined, ends), np.concatenate(weights)]),
        references=joined([summary.references for summary in summaries]),
        history=tuple(chain.from_iterable(summary.history for summary in summaries)),
        held_out=summaries[0].held_out,
        direct=summaries[0].direct,
    )


def _covariance(moments: ClassMoments, who: str) -> Floats:
    """Covariance of all rows, divided by their number."""
    with np.errstate(over="ignore", invalid="ignore"):
        scatter = pooled_scatter(moments)
    covariance = scatter.within + scatter.between
    if not np.isfinite(covariance).all():
        raise ValueError(f"{who}: X must have a finite variance; it overflows. Scale X down.")
    return covariance


def _learn(
    pool: Summary,
    moments: ClassMoments,
    labeled: Labeled,
    task: Task,
    stages: Stages,
) -> tuple[Learned, Indices, Array]:
    """Learn L on the pool, and combine it with classes and input, as a fit in memory does."""
    model = task.model
    numbers, places = np.unique(
        np.concatenate([labeled.numbers, pool.numbers[pool.references]]), return_index=True
    )
    X = np.concatenate([labeled.X, pool.X[pool.references]])[places]
    spread_of_all, d = _covariance(moments, task.who), labeled.X.shape[1]
    alone_components = fewer_columns(np.eye(d), model.n_components or d, lambda: spread_of_all)
    alone = Learned(alone_components, np.inf, pool.distributions, history=pool.history)
    if (moments.counts > 0).sum() < 2:
        return alone._replace(fallback_reason=ONE_CLASS), numbers, X
    form = _reference_form(pool, numbers, X, task)
    scale = column_scale(form)
    with stages("round 1"):
        feature_map, scatter = Whitening(), pooled_scatter(moments)
        if scale is not None:
            within = np.outer(scale, scale) * scatter.within
            scatter = ClassScatter(scale * scatter.mean, within, scale * scatter.offsets)
        feature_map.learn_from(scatter, int((moments.counts > 0).sum()))
        details = _update_metric(feature_map, pool._replace(X=rescaled(pool.X, form)), model)
    with stages("embedding"):
        weight = float(np.mean([report["input_weight"] for report in pool.history]))
        direct = None if pool.direct is None else pool.direct.of(X).scores(len(X))
        rows = Classified(X, pool.distributions[numbers], form, direct)
        learned = combine(rows, feature_map, weight, model.n_components)
        learned = learned._replace(distributions=pool.distributions)
    if model.guard:
        held_out = pool.held_out or labeled_rows(labeled.labels)
        learned = fall_back(learned, alone, held_out, labeled.X.__getitem__)
    if pool.held_out is not None:
        held_out = pool.held_out._replace(rows=labeled.numbers[pool.held_out.rows])
        learned = learned._replace(held_out=held_out)
    history = [dict(report) for report in pool.history]
    history[-1] |= details
    triplets = _renumbered(pool.triplets, pool.numbers.take)
    return learned._replace(triplets=triplets, history=tuple(history)), numbers, X


def _reference_form(pool: Summary, numbers: Indices, X: Array, task: Task) -> Form | None:
    """Form of the reference rows X, the one that most partitions trust; None if one-sided."""
    if task.model.propagation == "one-sided":
        return None
    k, rng = min(task.n_neighbors, len(X) - 1), np.random.default_rng(task.seed)
    labels = pool.distributions[numbers].argmax(axis=1)
    forms = forms_with_graphs(X, k, labels=labels, rng=rng, n_jobs=task.model.n_jobs)
    trusted = np.bincount([report["form"] for report in pool.history]).argmax()
    return forms[min(int(trusted), len(forms) - 1)]


def _update_metric(feature_map: Whitening, pool: Summary, model: SSDML) -> dict[str, Any]:
    """Update L on the rows at the ends of the triplets."""
    used, ends = np.unique(np.stack(pool.triplets[:3]), return_inverse=True)
    local = Triplets._make([*ends.reshape(3, -1), pool.triplets.weight])
    details = update_metric(feature_map, pool.X[used], local, model)
    return {name: value for name, value in details.items() if name != "n_triplets"}
