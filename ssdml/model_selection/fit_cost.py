"""Predict the time and memory of a fit from a small pilot fit on this machine."""

from __future__ import annotations

import time
import warnings
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ssdml.graphs.neighbors.knn import EXACT_WORK, exact_work, knn_graph
from ssdml.graphs.propagation.deflation import N_MODES
from ssdml.graphs.propagation.labels import BLOCK_ENTRIES
from ssdml.metric.alternation import N_TRIPLETS, count_rounds
from ssdml.metric.estimator import SSDML, check_is_ssdml
from ssdml.metric.features import RESIDUAL_COMPONENTS
from ssdml.metric.selection import REFERENCE_ROWS, n_held_out
from ssdml.utils.dask_arrays import rows_dtype
from ssdml.utils.linalg import graph_rows
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED

PILOT_ROWS = 50_000  # at most; larger arrays do not fit the caches either
PILOT_SHARE = 1 / 3  # of n_samples at most: the plan must be cheaper than the fit
FEWEST_ROWS, WARM_UP_ROWS = 600, 300
LABELS_PER_CLASS = 5
SPREAD = 1.5  # of the synthetic clusters, relative to their centers: they overlap

INDEX, FLOAT, SINGLE = 8, 8, 4  # bytes of a row number, a float64, a float32
SYMMETRIC = 1.7  # edges of the symmetric graph per edge of the directed one; at most 2
# Conjugate gradients hold steps, residual, direction, its image and seeds, and a float64 sum.
BLOCK_ENTRY = 5 * SINGLE + FLOAT


class StagePlan(NamedTuple):
    """Expected cost of one stage of a fit."""

    name: str
    seconds: float
    megabytes: float  # 10^6 bytes resident in the whole process during the stage


class FitPlan(NamedTuple):
    """Expected cost of a fit on this machine, by stage.

    Examples
    --------
    >>> FitPlan((StagePlan("neighbors", 2.0, 300.0), StagePlan("labels", 1.0, 400.0)))
    FitPlan: 3.0 s, 400 MB at the peak
      neighbors            2.0 s     300 MB
      labels               1.0 s     400 MB
    """

    stages: tuple[StagePlan, ...]

    @property
    def seconds(self) -> float:
        """Total time."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def megabytes(self) -> float:
        """Peak memory."""
        return max(stage.megabytes for stage in self.stages)

    def __repr__(self) -> str:
        lines = [
            f"{type(self).__name__}: {self.seconds:.1f} s, {self.megabytes:.0f} MB at the peak"
        ]
        for name, seconds, megabytes in self.stages:
            lines.append(f"  {name:16} {seconds:7.1f} s {megabytes:7.0f} MB")
        return "\n".join(lines)


class FitShape(NamedTuple):
    """The numbers that determine the cost of a fit."""

    n_samples: int
    n_features: int
    n_classes: int
    n_searched: int  # columns of the neighbor search
    n_neighbors: int
    itemsize: int  # bytes per entry of X
    residual: bool = False
    partition_size: int | None = None
    one_sided: bool = False  # affinities, by a walk from each row

    @property
    def n_learned(self) -> int:
        """Columns of L."""
        if self.residual:
            return min(self.n_features, RESIDUAL_COMPONENTS)
        return max(1, min(self.n_features, self.n_classes - 1))

    @property
    def searches_by_index(self) -> bool:
        """Whether the neighbor search is approximate."""
        return exact_work(self.n_samples, self.n_searched) > EXACT_WORK


def plan_fit(
    estimator: SSDML,
    n_samples: int,
    n_features: int,
    *,
    n_classes: int = 10,
    rows: Any = None,
    dtype: npt.DTypeLike = np.float32,
) -> FitPlan:
    """Predict the time and memory of each stage of a fit in memory.

    Time is measured on a pilot fit (at most 50,000 rows and a third of ``n_samples``) and scaled
    by the growth of each stage; memory is counted array by array. Expect both within a factor of
    2, on a machine under the same load.

    Parameters
    ----------
    estimator : SSDML
        Need not be fitted, and is not changed.
    n_samples, n_features : int
        Shape of X.
    n_classes : int
        Number of classes in y.
    rows : array of shape (m, n_features), or None
        Sample of X (a memory-mapped X will do) with at least a third of ``n_samples`` or 50,000
        rows: the cost of the neighbor search depends on the data. None: overlapping clusters.
    dtype : dtype
        Of X, where ``rows`` is None: float32 or float64.

    Returns
    -------
    plan : FitPlan
        ``seconds``, ``megabytes`` at the peak, and ``stages`` with both per stage.

    Examples
    --------
    >>> plan = plan_fit(SSDML(), 2000, 8)
    >>> [stage.name for stage in plan.stages]
    ['neighbors', 'labels', 'round 1', 'round 2']
    """
    check_is_ssdml(estimator, "plan_fit")
    n_samples, n_features, n_classes = map(index, (n_samples, n_features, n_classes))
    rows = None if rows is None else np.asanyarray(rows)  # a memory map stays one
    size = min(n_samples, PILOT_ROWS, max(FEWEST_ROWS, int(PILOT_SHARE * n_samples)))
    _check_shape(n_samples, n_features, n_classes, rows, size)
    X, classes = pilot_data(rows, size, n_features, n_classes, np.dtype(dtype))
    rounds = count_rounds(estimator, n_samples)  # the pilot alone would have fewer partitions
    pilot = clone(estimator).set_params(verbose=0, random_state=0, max_rounds=rounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pilot may be too small to learn from
        _stage_seconds(pilot, X[:WARM_UP_ROWS], classes)  # imports and compiles
        resident = _resident_bytes(rows, X)
        seconds = _stage_seconds(pilot, X, classes)
    searched = graph_rows(X)
    few = FitShape(
        size,
        n_features,
        n_classes,
        searched.shape[1],
        min(pilot.n_neighbors, size - 1),
        X.dtype.itemsize,
        pilot.backbone is not None,
        pilot.partition_size,
        pilot.propagation == "one-sided",
    )
    many = few._replace(n_samples=n_samples)
    few = few._replace(n_classes=min(n_classes, size // 2))  # classes with a label
    by_index = many.searches_by_index
    if by_index and not few.searches_by_index:
        seconds["neighbors"] = _index_seconds(searched, pilot)
    held = stage_bytes(many)
    work, at_pilot = (stage_work(shape, by_index=by_index) for shape in (many, few))
    kinds = {name: name.partition(" ")[0] for name in seconds}
    return FitPlan(
        tuple(
            StagePlan(
                name, seconds[name] * work[kind] / at_pilot[kind], (resident + held[kind]) / 1e6
            )
            for name, kind in kinds.items()
        )
    )


def _check_shape(n_samples: int, n_features: int, n_classes: int, rows: Any, size: int) -> None:
    least = {"n_samples": (n_samples, 2), "n_features": (n_features, 1)}
    for name, (value, fewest) in (least | {"n_classes": (n_classes, 1)}).items():
        if value < fewest:
            raise ValueError(f"plan_fit: {name} must be at least {fewest}; got {value}.")
    if rows is None:
        return
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise ValueError(
            f"plan_fit: rows must have shape (m, n_features = {n_features}); got {rows.shape}."
        )
    if len(rows) < size:
        raise ValueError(
            f"plan_fit: rows must be at least {size}; got {len(rows)}. Pass more, or omit rows to "
            "plan for overlapping clusters."
        )


def pilot_data(
    rows: Any, size: int, n_features: int, n_classes: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Sample the given rows, or draw overlapping clusters; in random order, with classes."""
    rng = np.random.default_rng(0)
    classes = np.arange(size) % n_classes
    if rows is not None:
        chosen = np.sort(rng.choice(len(rows), size, replace=False))
        X = np.asarray(rows[chosen])[rng.permutation(size)]
        return X.astype(rows_dtype(X), copy=False), classes
    X = rng.standard_normal((n_classes, n_features))[classes]
    X += SPREAD * rng.standard_normal(X.shape)
    return X.astype(dtype), classes


def _stage_seconds(estimator: SSDML, X: Array, classes: Array) -> dict[str, float]:
    """Fit the rows, a few of them labeled; return the seconds of each stage."""
    y = classes[: len(X)].copy()
    y[min(len(X) // 2, LABELS_PER_CLASS * (int(classes.max()) + 1)) :] = UNLABELED
    seconds: dict[str, float] = estimator.fit(X, y).stage_seconds_
    return seconds


def _index_seconds(rows: Array, estimator: SSDML) -> float:
    start = time.perf_counter()
    knn_graph(rows, estimator.n_neighbors, method="ivf", n_jobs=estimator.n_jobs, random_state=0)
    return time.perf_counter() - start


def _resident_bytes(*arrays: Any) -> float:
    """Memory of this process, except the given arrays."""
    import psutil

    within = sum(
        a.nbytes for a in arrays if isinstance(a, np.ndarray) and not isinstance(a, np.memmap)
    )
    return max(0.0, float(psutil.Process().memory_info().rss - within))


def stage_bytes(shape: FitShape) -> dict[str, float]:
    """Peak bytes of each kind of stage, including X and the results of earlier stages.

    Examples
    --------
    >>> held = stage_bytes(FitShape(10**6, 64, 100, 60, 10, 4))
    >>> {stage: round(number / 1e9, 1) for stage, number in held.items()}
    {'neighbors': 0.9, 'labels': 3.1, 'round': 2.2, 'partition': 2.6}
    """
    n, d, n_classes, searched, k, itemsize, residual, partition_size, one_sided = shape
    rows = n * d * itemsize
    projected = n * searched * itemsize if searched < d else 0
    graph = n * k * (INDEX + itemsize) + projected
    distributions = n * n_classes * itemsize

    found = 3 * n * (k + 1) * (INDEX + itemsize)  # blocks, their concatenation, without self
    coded = n * (searched / 2 + INDEX)
    neighbors = projected + max(rows if projected else 0, found + coded)

    edge = 4 * (INDEX / 2 + FLOAT) - SINGLE  # plain, scaled, by row blocks, those in float32
    block = BLOCK_ENTRY * min(n * n_classes, max(n, BLOCK_ENTRIES))
    labels = SYMMETRIC * n * k * edge + block + 2 * distributions  # scores are as large

    triplets = 6 * N_TRIPLETS * d * FLOAT
    step: float = n * (d + shape.n_learned) * FLOAT + triplets
    if residual:  # standardized rows; the graph of the embedding beside that of the input
        step = n * d * FLOAT + max(step, graph + labels)
    if one_sided:
        step = max(step, 4 * n * N_MODES * itemsize)
    part = min(1.0, (partition_size or n) / n)
    return {
        "neighbors": rows + neighbors,
        "labels": rows + graph + labels,
        "round": rows + graph + distributions + step,
        "partition": rows + graph + distributions + part * (step + graph),
    }


def stage_work(shape: FitShape, *, by_index: bool) -> dict[str, float]:
    """Work of each kind of stage, roughly in nanoseconds of one core.

    Only ratios are used: the time itself is measured on the pilot. The coefficients weight the
    parts of a stage, as measured on a machine of 2025.

    Examples
    --------
    >>> shapes = [FitShape(n, 64, 10, 64, 10, 4) for n in (20_000, 100_000)]
    >>> few, many = (stage_work(shape, by_index=False) for shape in shapes)
    >>> {stage: round(many[stage] / few[stage], 1) for stage in many}
    {'neighbors': 18.1, 'labels': 5.9, 'round': 1.4, 'partition': 5.0}
    """
    n, d, n_classes, searched, k, _, residual, partition_size, one_sided = shape
    # The exponent of the approximate search was measured, from 50,000 to 1,000,000 rows.
    neighbors = 2e4 * n**1.15 if by_index else 0.02 * exact_work(n, searched) + 2e4 * n
    labels = 50 * n**1.1 * n_classes * k  # superlinear: more rows, more cache misses
    validated = n_held_out(n)
    step = 2e8 + 6 * validated * min(n, validated + REFERENCE_ROWS)
    step += 20 * n * (d + shape.n_learned + n_classes)
    if residual:  # training steps, the head on all rows, and the graph of the embedding
        from ssdml.metric.residual import schedule_for

        step += 4e4 * schedule_for(n).n_steps * (d + 100)
        step += 200 * n * d + neighbors + labels
    if one_sided:
        step += 1e6 * n
    partition = min(n, partition_size or n)
    return {"neighbors": neighbors, "labels": labels, "round": step, "partition": partition}
