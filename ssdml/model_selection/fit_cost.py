"""What a fit will take, told beforehand: a fit to few rows, carried on to as many as asked for."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from operator import index
from types import MethodType
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ssdml.graphs.neighbors.knn import EXACT_WORK, exact_work, knn_graph
from ssdml.graphs.propagation.deflation import N_MODES
from ssdml.graphs.propagation.labels import BLOCK_ENTRIES
from ssdml.metric.alternation import N_TRIPLETS
from ssdml.metric.features import RESIDUAL_COMPONENTS
from ssdml.metric.selection import REFERENCE_ROWS, n_held_out
from ssdml.utils.dask_arrays import rows_dtype
from ssdml.utils.linalg import graph_rows
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED

PILOT_ROWS = 50_000  # at most; arrays of more do not fit the caches either
PILOT_SHARE = 1 / 3  # of the rows to be planned for: the plan is to be cheaper than the fit
FEWEST_ROWS, WARM_UP_ROWS = 600, 300
LABELS_PER_CLASS = 5
SPREAD = 1.5  # of the clusters, in units of that of their centers: they overlap


class StagePlan(NamedTuple):
    """One stage of a fit."""

    name: str
    seconds: float
    megabytes: float  # of 10^6 bytes, resident in the whole process while it runs


class FitPlan(NamedTuple):
    """What a fit is expected to take on this machine.

    Examples
    --------
    >>> FitPlan((StagePlan("neighbors", 2.0, 300.0), StagePlan("labels", 1.0, 400.0)))
    FitPlan: 3.0 s, 400 MB at the peak
      neighbors           2.0 s     300 MB
      labels               1.0 s     400 MB
    """

    stages: tuple[StagePlan, ...]

    @property
    def seconds(self) -> float:
        """Of all stages."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def megabytes(self) -> float:
        """Of the stage that needs most."""
        return max(stage.megabytes for stage in self.stages)

    def __repr__(self) -> str:
        lines = [
            f"{type(self).__name__}: {self.seconds:.1f} s, {self.megabytes:.0f} MB at the peak"
        ]
        for name, seconds, megabytes in self.stages:
            lines.append(f"  {name:16} {seconds:7.1f} s {megabytes:7.0f} MB")
        return "\n".join(lines)


class OfClassOrInstance:
    """Method that its class may call as well: then for an instance with default parameters."""

    def __init__(self, function: Callable[..., FitPlan]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> Callable[..., FitPlan]:
        return MethodType(self._function, owner() if instance is None else instance)


class PlannedFit:
    """Mixin of estimators that tell what a fit will take."""

    @OfClassOrInstance
    def plan(
        self,
        n_samples: int,
        n_features: int,
        *,
        n_classes: int = 10,
        rows: Any = None,
        dtype: npt.DTypeLike = np.float32,
        **params: Any,
    ) -> FitPlan:
        """Time and memory of each stage of a fit in memory, before it is run.

        A small fit is timed on this machine (up to 50,000 rows, at most a third of those planned
        for) and carried on by how each stage grows; memory is counted array by array. Both are
        meant to come within a factor of 2 of the fit, on a machine that does as much else as now.

        Parameters
        ----------
        n_samples, n_features : int
            Shape of X.
        n_classes : int
            Classes that y will hold.
        rows : array of shape (m, n_features), or None
            Rows like those of X, at least a third as many or 50,000: how hard their neighbors are
            to find depends on them. A memory-mapped X itself will do. None: rows in overlapping
            clusters.
        dtype : dtype
            Of X where ``rows`` are not given: float32 or float64.
        **params
            Of the estimator, in place of its own: ``n_neighbors=15``, ``backbone="residual"``,
            ``n_jobs=-1``.

        Returns
        -------
        plan : FitPlan
            ``seconds``, ``megabytes`` at the peak, and ``stages`` with those of each.

        Raises
        ------
        ValueError, TypeError
            Where the shape is none, or the rows do not suit it.

        Notes
        -----
        May be called on the class, for default parameters, or on an estimator.

        Examples
        --------
        >>> from ssdml import SSDML
        >>> plan = SSDML.plan(2000, 8)
        >>> [stage.name for stage in plan.stages]
        ['neighbors', 'labels', 'round 1', 'round 2']
        """
        estimator: Any = clone(cast("Any", self)).set_params(**params)
        return plan_fit(
            estimator,
            index(n_samples),
            index(n_features),
            n_classes=index(n_classes),
            rows=None if rows is None else np.asanyarray(rows),  # a mapped array stays one
            dtype=dtype,
        )


def plan_fit(
    estimator: Any,
    n_samples: int,
    n_features: int,
    *,
    n_classes: int,
    rows: Any = None,
    dtype: npt.DTypeLike = np.float32,
) -> FitPlan:
    """:meth:`PlannedFit.plan` of an estimator with its parameters."""
    size = min(n_samples, PILOT_ROWS, max(FEWEST_ROWS, int(PILOT_SHARE * n_samples)))
    _check(n_samples, n_features, n_classes, rows, size)
    X, classes = pilot_data(rows, size, n_features, n_classes, np.dtype(dtype))
    rounds = estimator._n_rounds(n_samples)  # fewer rows would have fewer partitions
    pilot = clone(estimator).set_params(verbose=0, random_state=0, max_rounds=rounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few rows may be too few to learn from
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
    few = few._replace(n_classes=min(n_classes, size // 2))  # that have a label
    by_index = many.searches_by_index
    if by_index and not few.searches_by_index:
        seconds["neighbors"] = _index_seconds(searched, pilot)
    held = stage_bytes(many)
    work, at_pilot = (stage_work(shape, by_index=by_index) for shape in (many, few))
    kinds = {name: name.partition(" ")[0] for name in seconds}
    return FitPlan(
        tuple(
            StagePlan(
                name,
                seconds[name] * work[kind] / at_pilot[kind],
                (resident + held[kind]) / 1e6,
            )
            for name, kind in kinds.items()
        )
    )


def _check(n_samples: int, n_features: int, n_classes: int, rows: Any, size: int) -> None:
    least = {
        "n_samples": (n_samples, 2),
        "n_features": (n_features, 1),
        "n_classes": (n_classes, 1),
    }
    for name, (value, fewest) in least.items():
        if value < fewest:
            raise ValueError(f"SSDML.plan: {name} must be at least {fewest}; got {value}.")
    if rows is None:
        return
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise ValueError(
            f"SSDML.plan: rows must have {n_features} columns; got shape {rows.shape}."
        )
    if len(rows) < size:
        raise ValueError(
            f"SSDML.plan: rows must be at least {size}; got {len(rows)}. Leave them out, and rows "
            "in overlapping clusters take their place."
        )


def pilot_data(
    rows: Any, size: int, n_features: int, n_classes: int, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """So many of the rows given, or else rows in overlapping clusters, in random order.

    With them the class of each, which those of given rows are not asked for.
    """
    rng = np.random.default_rng(0)
    classes = np.arange(size) % n_classes
    if rows is not None:
        chosen = np.sort(rng.choice(len(rows), size, replace=False))
        X = np.asarray(rows[chosen])[rng.permutation(size)]
        return X.astype(rows_dtype(X), copy=False), classes
    X = rng.standard_normal((n_classes, n_features))[classes]
    X += SPREAD * rng.standard_normal(X.shape)
    return X.astype(dtype), classes


def _stage_seconds(estimator: Any, X: Array, classes: Array) -> dict[str, float]:
    """Seconds of the stages of a fit to the rows, of which a few are labeled."""
    y = classes[: len(X)].copy()
    y[min(len(X) // 2, LABELS_PER_CLASS * (int(classes.max()) + 1)) :] = UNLABELED
    seconds: dict[str, float] = estimator.fit(X, y).stage_seconds_
    return seconds


def _index_seconds(rows: Array, estimator: Any) -> float:
    start = time.perf_counter()
    knn_graph(rows, estimator.n_neighbors, method="ivf", n_jobs=estimator.n_jobs, random_state=0)
    return time.perf_counter() - start


def _resident_bytes(*arrays: Any) -> float:
    """Memory of this process without those of the arrays that are in it."""
    import psutil

    within = sum(
        a.nbytes for a in arrays if isinstance(a, np.ndarray) and not isinstance(a, np.memmap)
    )
    return max(0.0, float(psutil.Process().memory_info().rss - within))


# What the stages of a fit cost: memory counted array by array, work in rough units of time.

INDEX, FLOAT, SINGLE = 8, 8, 4  # bytes of a row number, of a double, of a float32
SYMMETRIC = 1.7  # edges of a symmetric graph for one of the directed graph; at most 2
# Of conjugate gradients: steps, residual, direction, its image and seeds; what steps add up to.
BLOCK_ENTRY = 5 * SINGLE + FLOAT


class FitShape(NamedTuple):
    """The numbers that decide what a fit costs."""

    n_samples: int
    n_features: int
    n_classes: int
    n_searched: int  # columns that the neighbors are searched in
    n_neighbors: int
    itemsize: int  # bytes of an entry of X
    residual: bool = False
    partition_size: int | None = None
    one_sided: bool = False  # affinities, from a walk from each row

    @property
    def n_learned(self) -> int:
        """Columns of L."""
        if self.residual:
            return min(self.n_features, RESIDUAL_COMPONENTS)
        return max(1, min(self.n_features, self.n_classes - 1))

    @property
    def searches_by_index(self) -> bool:
        """Whether the neighbors of all rows are too many to be searched exactly."""
        return exact_work(self.n_samples, self.n_searched) > EXACT_WORK


def stage_bytes(shape: FitShape) -> dict[str, float]:
    """Bytes at the peak of each kind of stage, X itself and what earlier stages leave included.

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

    found = 3 * n * (k + 1) * (INDEX + itemsize)  # in parts, as a whole, without the row itself
    coded = n * (searched / 2 + INDEX)
    neighbors = projected + max(rows if projected else 0, found + coded)

    edge = 4 * (INDEX / 2 + FLOAT) - SINGLE  # plain, scaled, in parts by rows, the latter rounded
    block = BLOCK_ENTRY * min(n * n_classes, max(n, BLOCK_ENTRIES))
    labels = SYMMETRIC * n * k * edge + block + 2 * distributions  # scores are as large

    triplets = 6 * N_TRIPLETS * d * FLOAT
    turn: float = n * (d + shape.n_learned) * FLOAT + triplets
    if residual:  # the rows standardized; the embedding's graph beside that of the input
        turn = n * d * FLOAT + max(turn, graph + labels)
    if one_sided:
        turn = max(turn, 4 * n * N_MODES * itemsize)
    part = min(1.0, (partition_size or n) / n)
    return {
        "neighbors": rows + neighbors,
        "labels": rows + graph + labels,
        "round": rows + graph + distributions + turn,
        "partition": rows + graph + distributions + part * (turn + graph),
    }


def stage_work(shape: FitShape, *, by_index: bool) -> dict[str, float]:
    """Work of each kind of stage, roughly in nanoseconds of one core.

    Only its growth matters: what a stage takes is measured on few rows. The coefficients are of a
    machine of 2025; they say how the parts of a stage stand to each other.

    Examples
    --------
    >>> shapes = [FitShape(n, 64, 10, 64, 10, 4) for n in (20_000, 100_000)]
    >>> few, many = (stage_work(shape, by_index=False) for shape in shapes)
    >>> {stage: round(many[stage] / few[stage], 1) for stage in many}
    {'neighbors': 18.1, 'labels': 5.9, 'round': 1.4, 'partition': 5.0}
    """
    n, d, n_classes, searched, k, _, residual, partition_size, one_sided = shape
    # Of an approximate search the exponent was measured, from 50,000 to 1,000,000 rows.
    neighbors = 2e4 * n**1.15 if by_index else 0.02 * exact_work(n, searched) + 2e4 * n
    # Neighbors lie far apart in memory: the more rows, the farther.
    labels = 50 * n**1.1 * n_classes * k
    judged = n_held_out(n)
    turn = 2e8 + 6 * judged * min(n, judged + REFERENCE_ROWS)
    turn += 20 * n * (d + shape.n_learned + n_classes)
    if residual:  # steps of training, the head on all rows, and a graph of their embedding
        from ssdml.metric.residual import schedule_for

        turn += 4e4 * schedule_for(n).n_steps * (d + 100)
        turn += 200 * n * d + neighbors + labels
    if one_sided:
        turn += 1e6 * n
    partition = min(n, partition_size or n)
    return {"neighbors": neighbors, "labels": labels, "round": turn, "partition": partition}
