"""SSDML on rows beyond one machine's memory: partitions learn apart, L is learned on their pool.

The tasks are plain ones of dask, and run wherever the user's scheduler runs them. Here, where fit
was called, are the labels and the classes of all rows, and of the rows themselves the pool: the
ends of the triplets, and those that judge.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ssdml.agreement import InputWeight
from ssdml.alternation import turn
from ssdml.conclusion import (
    Learned,
    Settings,
    beside_input,
    fewer_columns,
    guarded,
    n_held_out,
    relative_spread,
    verdict,
)
from ssdml.dask_arrays import check_block, rows_dtype
from ssdml.features import Whitening
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.triplets import Triplets
from ssdml.linalg import product
from ssdml.partitions import Labelled, Share, Summary, Task, shares, summarize, with_ends
from ssdml.progress import Stages
from ssdml.scatter import ClassMoments, class_moments, pool_moments, pooled_scatter
from ssdml.utils.typing import Array, Floats, Indices, Ints

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

    These are the labelled rows, and at most 15,000 random ones that judged the metric.

    Parameters
    ----------
    X : dask array of shape (n, d)
    labels : array of shape (n,)
        -1 where unlabelled.
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
        with stages("labelled rows"):
            kept = kept.persist()
            # Waits: were the partitions known meanwhile, all the blocks would be kept for them.
            labelled: Labelled = kept.compute()
        _check_number(len(labelled.numbers), parts, who)
        task = Task(
            who,
            n_neighbors,
            settings.decay,
            settings.propagation,
            settings.mining,
            settings.n_jobs,
            min(rounds, 2),  # nothing changes after the second
            seed,
            n_held_out(len(labels) - len(labelled.numbers)) > 0,
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
    learned = _learn(pool, moments, labelled, task, settings, stages)
    sample = pool.samples[-1]
    numbers, places = np.unique(
        np.concatenate([labelled.numbers, pool.numbers[sample]]), return_index=True
    )
    return learned, numbers, np.concatenate([labelled.X, pool.X[sample]])[places]


def _gathered(blocks: Array, X: Any, labels: Ints, who: str) -> Any:
    """Delayed labelled rows of all blocks."""
    import dask

    numbers = np.flatnonzero(labels != UNLABELED)
    ends = np.cumsum(X.chunks[0])
    homes = np.searchsorted(ends, numbers, side="right")
    pick, dtype = dask.delayed(_picked), rows_dtype(X)
    first = np.flatnonzero(np.diff(homes, prepend=-1))  # of the labelled rows of a block
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


def _stacked(rows: Sequence[Array], numbers: Indices, labels: Ints) -> Labelled:
    return Labelled(numbers, labels, np.concatenate(rows))


def _release(kept: Any) -> None:
    """Let a cluster forget what it holds for us.

    A traceback would go on holding it, and with it an error of the blocks below: the next fit of
    the same array would get that error, without a task being run.
    """
    if "distributed" in sys.modules:
        from dask.distributed import futures_of

        for future in futures_of(kept):
            future.release()


def _check_number(n_labelled: int, parts: Sequence[tuple[list[int], Share]], who: str) -> None:
    largest = max(share.stop - share.start for _, share in parts)
    if len(parts) > 1 and n_labelled > largest:
        warnings.warn(
            f"{who}: labelled rows should be fewer than the rows of a partition, since each "
            f"partition gets them all; got {n_labelled} for {largest}. Set some labels to -1, or "
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
    labelled: Labelled,
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
        learned = guarded(learned, alone, labelled.X, labelled.labels, tuple(verdicts))
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
