"""Predict the time and memory of a fit from a small pilot fit on this machine."""

from __future__ import annotations

import time
import warnings
from numbers import Integral
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from ssdml.classification.forms import MAX_COLUMNS, TABLE_COLUMNS, linear_forms
from ssdml.classification.pool import MAX_PROPAGATED, N_FOLDS, PROPAGATIONS, REGRESSIONS
from ssdml.graphs.neighbors.knn import EXACT_WORK, exact_work, knn_graph
from ssdml.graphs.propagation.deflation import N_MODES
from ssdml.graphs.propagation.solvers import BLOCK_ENTRIES
from ssdml.metric.alternation import N_TRIPLETS, count_rounds
from ssdml.metric.estimator import SSDML, check_is_ssdml
from ssdml.metric.selection import FEWEST_COLUMNS
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
    >>> FitPlan((StagePlan("neighbors", 2.0, 300.0), StagePlan("classes", 1.0, 400.0)))
    FitPlan: 3.0 s, 400 MB at the peak
      neighbors            2.0 s     300 MB
      classes              1.0 s     400 MB
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
    n_searched: int  # columns of a form of the rows, in which neighbors are searched
    n_neighbors: int
    itemsize: int  # bytes per entry of X
    n_forms: int = 1
    partition_size: int | None = None
    one_sided: bool = False  # affinities, by a walk from each row
    n_components: int | None = None
    input_weight: bool = True  # whether the input is kept

    @property
    def n_learned(self) -> int:
        """Columns of L."""
        return max(1, min(self.n_features, self.n_classes - 1))

    @property
    def n_beside(self) -> int:
        """Columns of class probabilities, learned metric and input side by side."""
        return self.n_classes + self.n_learned + self.n_features

    @property
    def n_beside_searched(self) -> int:
        """Columns in which later rounds search neighbors, at most."""
        return self.n_beside if self.n_beside <= TABLE_COLUMNS else min(self.n_beside, MAX_COLUMNS)

    @property
    def n_represented(self) -> int:
        """Columns of the representation."""
        return self.n_features + self.n_classes * (self.input_weight and not self.one_sided)

    @property
    def n_embedded(self) -> int:
        """Columns of the embedding."""
        if not self.input_weight:
            return self.n_learned
        most = self.n_components or max(self.n_features, FEWEST_COLUMNS)
        return min(most, self.n_beside)

    @property
    def propagates_folds(self) -> bool:
        """Whether the pool propagates labels, without each fold in turn."""
        return self.n_samples * self.n_classes * (N_FOLDS + 1) <= MAX_PROPAGATED

    @property
    def may_grow_trees(self) -> bool:
        """Whether the pool has trees, if the rows are a table."""
        return self.propagates_folds and not self.one_sided

    @property
    def searches_by_index(self) -> bool:
        """Whether the neighbor search is approximate."""
        return exact_work(self.n_samples, self.n_searched) > EXACT_WORK


def pilot_size(n_samples: int) -> int:
    """Return the number of rows of the pilot fit of n_samples.

    Examples
    --------
    >>> pilot_size(60_000)
    20000
    """
    return min(n_samples, PILOT_ROWS, max(FEWEST_ROWS, int(PILOT_SHARE * n_samples)))


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
    ['neighbors', 'classes', 'round 1', 'round 2', 'embedding']
    """
    check_is_ssdml(estimator, "plan_fit")
    counts = {"n_samples": n_samples, "n_features": n_features, "n_classes": n_classes}
    for name, number in counts.items():
        if not isinstance(number, Integral):
            raise TypeError(
                f"plan_fit: {name} must be a whole number; got {type(number).__name__}. Pass those "
                "of X.shape, and X as rows."
            )
    n_samples, n_features, n_classes = map(index, counts.values())
    rows = None if rows is None else np.asanyarray(rows)  # a memory map stays one
    size = pilot_size(n_samples)
    _check_shape(n_samples, n_features, n_classes, rows, size)
    try:
        dtype = np.dtype(dtype)
    except TypeError:
        raise TypeError(
            f"plan_fit: dtype must be that of X; got {dtype!r}. Pass X.dtype."
        ) from None
    X, classes = pilot_data(rows, size, n_features, n_classes, dtype)
    # By its own rows, the pilot would have fewer partitions and more rounds.
    rounds = count_rounds(estimator, n_samples, n_samples)
    pilot = clone(estimator).set_params(verbose=0, random_state=0, max_rounds=rounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pilot may be too small to learn from
        _stage_seconds(pilot, X[:WARM_UP_ROWS], classes)  # imports and compiles
        resident = _resident_bytes(rows, X)
        seconds = _stage_seconds(pilot, X, classes)
    few, searched = _pilot_shape(pilot, X, n_classes)
    many = few._replace(n_samples=n_samples)
    few = few._replace(n_classes=min(n_classes, size // 2))  # classes with a label
    by_index = many.searches_by_index
    if by_index and not few.searches_by_index:
        seconds["neighbors"] = few.n_forms * _index_seconds(searched, pilot)
    held = stage_bytes(many)
    work, at_pilot = (stage_work(shape, by_index=by_index) for shape in (many, few))
    kinds = {name: stage_kind(name) for name in seconds}
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


def _pilot_shape(pilot: SSDML, X: Array, n_classes: int) -> tuple[FitShape, Array]:
    """The numbers that determine the cost of the pilot, and the rows that its graph is made of."""
    one_sided = pilot.propagation == "one-sided"
    searched, n_forms = graph_rows(X), 1
    if not one_sided:
        forms = linear_forms(X, few=False)
        searched, n_forms = forms[0](X), len(forms)
    shape = FitShape(
        n_samples=len(X),
        n_features=X.shape[1],
        n_classes=n_classes,
        n_searched=searched.shape[1],
        n_neighbors=min(pilot.n_neighbors, len(X) - 1),
        itemsize=X.dtype.itemsize,
        n_forms=n_forms,
        partition_size=pilot.partition_size,
        one_sided=one_sided,
        n_components=pilot.n_components,
        input_weight=pilot.input_weight != 0,
    )
    return shape, searched


def _stage_seconds(estimator: SSDML, X: Array, classes: Array) -> dict[str, float]:
    """Fit the rows, a few of them labeled; return the seconds of each stage."""
    y = classes[: len(X)].copy()
    y[min(len(X) // 2, LABELS_PER_CLASS * (int(classes.max()) + 1)) :] = UNLABELED
    return estimator.fit(X, y).stage_seconds_


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


def stage_kind(name: str) -> str:
    """Kind of a stage: rounds after the first search neighbors again.

    Examples
    --------
    >>> [stage_kind(name) for name in ("classes", "round 1", "round 3", "partition 2")]
    ['classes', 'round', 'later round', 'partition']
    """
    kind, _, number = name.partition(" ")
    return f"later {kind}" if kind == "round" and number != "1" else kind


def stage_bytes(shape: FitShape) -> dict[str, float]:
    """Peak bytes of each kind of stage, including X and the results of earlier stages.

    Examples
    --------
    >>> held = stage_bytes(FitShape(10**6, 64, 100, 64, 10, 4))
    >>> {stage: round(number / 1e9, 1) for stage, number in list(held.items())[:3]}
    {'neighbors': 1.1, 'classes': 3.4, 'round': 3.1}
    """
    n, d, n_classes, searched, k, itemsize = shape[:6]
    rows = n * d * itemsize
    edges, distributions = SYMMETRIC * n * k, n * n_classes * SINGLE
    graph = n * k * (INDEX + SINGLE)
    forms = shape.n_forms * (n * searched * SINGLE + graph)

    found = 3 * n * (k + 1) * (INDEX + SINGLE)  # blocks, their concatenation, without self
    coded = n * (searched / 2 + INDEX)
    neighbors = rows + forms + found + coded

    def solved(columns: int) -> float:
        """Sources, solution, and the block of columns that is solved for."""
        block = BLOCK_ENTRY * min(n * columns, max(n, BLOCK_ENTRIES))
        return 2 * n * columns * SINGLE + block

    shared = edges * (INDEX / 2 + SINGLE)  # the matrix of a diffusion
    made = 3 * edges * (INDEX / 2 + FLOAT)  # while it is made
    views = (len(REGRESSIONS) - 2) * n * searched * SINGLE  # smoothed
    scores = len(PROPAGATIONS) * distributions * shape.propagates_folds
    pool = shape.n_forms * (shared + views + scores) + distributions * shape.may_grow_trees
    classes = pool + max(made, solved(searched), solved(n_classes), 3 * distributions)
    if shape.one_sided:
        classes = edges * (INDEX + FLOAT + SINGLE) + solved(n_classes)

    scaled = rows * (shape.n_forms > 1)
    kept = rows + scaled + forms + 2 * distributions  # with the evidence
    ends = min(n, 3 * N_TRIPLETS) * d * FLOAT
    projected = 2 * n * shape.n_learned * FLOAT
    triplets = N_TRIPLETS * (6 * shape.n_learned * FLOAT + 5 * (INDEX / 2 + FLOAT))
    step = n * d * FLOAT + ends + projected + triplets
    beside = 2 * n * shape.n_beside * itemsize + n * shape.n_beside_searched * SINGLE
    later = max(beside + found, beside / 2 + graph + made, graph + shared + solved(n_classes))
    if shape.one_sided:
        step = later = max(step, 4 * n * N_MODES * itemsize)
    part = min(1.0, (shape.partition_size or n) / n)
    represented = n * shape.n_represented * itemsize * (shape.n_represented > d)
    embedded = n * shape.n_embedded * itemsize
    return {
        "neighbors": neighbors,
        "classes": rows + forms + classes + distributions,
        "round": kept + step,
        "later round": kept + distributions + max(step, later),
        "embedding": kept + distributions + graph + 2 * represented + embedded,
        "partition": kept + part * (step + graph),
    }


def stage_work(shape: FitShape, *, by_index: bool) -> dict[str, float]:
    """Work of each kind of stage, roughly in nanoseconds of one core.

    Only ratios are used: the time itself is measured on the pilot. The coefficients weight the
    parts of a stage, as measured on a machine of 2025.

    Examples
    --------
    >>> shapes = [FitShape(n, 64, 10, 64, 10, 4) for n in (20_000, 100_000)]
    >>> few, many = (stage_work(shape, by_index=False) for shape in shapes)
    >>> {stage: round(many[stage] / few[stage], 1) for stage in list(many)[:3]}
    {'neighbors': 23.1, 'classes': 4.8, 'round': 2.8}
    """
    n, d, n_classes, searched, k = shape[:5]

    def search(columns: int, by_index: bool) -> float:
        # The exponent of the approximate search was measured, from 50,000 to 1,000,000 rows.
        return 2e4 * n**1.15 if by_index else 0.05 * exact_work(n, columns) + 1e4 * n

    def solved(columns: float) -> float:
        return 40 * n * columns * k

    neighbors = shape.n_forms * search(searched, by_index)
    columns = 2 * searched + len(PROPAGATIONS) * (N_FOLDS + 1) * n_classes * shape.propagates_folds
    classes = 1e8 + shape.n_forms * solved(columns) + solved(n_classes)
    classes += 1e4 * n * shape.may_grow_trees
    if shape.one_sided:
        classes = solved(n_classes)
    step = 2e8 + 100 * n * (d + shape.n_learned + n_classes)
    beside = shape.n_beside_searched
    later = step + search(beside, exact_work(n, beside) > EXACT_WORK) + solved(n_classes)
    if shape.one_sided:
        step = later = step + 1e6 * n
    embedding = 1e7 + 0.3 * n * (searched**2 + shape.n_represented * shape.n_embedded)
    return {
        "neighbors": neighbors,
        "classes": classes,
        "round": step,
        "later round": later,
        "embedding": embedding,
        "partition": min(n, shape.partition_size or n),
    }
