"""Cost of the metric relative to its building blocks, timed in the same run.

Limits are on ratios, which do not depend on the machine; the minimum of several rounds excludes
other load.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ssdml.experiments.runs.resources import PeakMemory
from ssdml.graphs.triplets import Triplets
from ssdml.metric.estimator import SSDML
from ssdml.metric.stiefel import angular_objective, minimize_on_stiefel
from ssdml.model_selection import suggest_parameters
from ssdml.utils.linalg import random_orthonormal

STEPS = 10


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def ratio(
    benchmark: BenchmarkFixture,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    rounds: int,
) -> float:
    """Minimum time of ``ours`` over that of ``theirs``, run alternately."""
    times: list[float] = []
    references: list[float] = []

    def turn() -> None:
        references.append(seconds(theirs))
        times.append(seconds(ours))

    benchmark.pedantic(turn, rounds=rounds, warmup_rounds=1)
    benchmark.extra_info["seconds"] = min(times)
    benchmark.extra_info["ratio"] = min(times) / min(references)
    return min(times) / min(references)


def clustered_rows(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 10 classes of five clusters each, 10 labels per class, float32."""
    rng = np.random.default_rng(0)
    truth = rng.integers(10, size=n)
    centers = 0.5 * rng.standard_normal((10, 5, d))
    X = centers[truth, rng.integers(5, size=n)] + rng.standard_normal((n, d))
    y = np.full(n, -1)
    for c in range(10):
        y[np.flatnonzero(truth == c)[:10]] = c
    return X.astype(np.float32), y


# The first: its memory is that of the whole process.
def test_fit_takes_at_most_twice_label_spreading(benchmark):
    from sklearn.semi_supervised import LabelSpreading

    X, y = clustered_rows(60_000, 64)
    spreading = LabelSpreading(kernel="knn")
    start = time.perf_counter()
    with PeakMemory() as memory:
        benchmark.pedantic(lambda: SSDML(random_state=0).fit(X, y), rounds=1)
    ours = time.perf_counter() - start
    theirs = seconds(lambda: spreading.fit(X, y))
    benchmark.extra_info |= {"ratio": ours / theirs, "peak MB": memory.megabytes}
    assert ours <= 2 * theirs, f"SSDML: {ours:.1f} s, LabelSpreading: {theirs:.1f} s"
    assert memory.megabytes < 1500


def test_wide_rows_take_a_few_eigendecompositions(benchmark):
    """500 rows of 1,536 columns, as embeddings have; seven decompositions and more before."""
    X, y = clustered_rows(500, 1536)
    spread = np.cov(X, rowvar=False)
    of_fit = ratio(
        benchmark,
        lambda: SSDML(random_state=0).fit(X, y),
        lambda: np.linalg.eigh(spread),
        rounds=2,
    )
    assert of_fit < 4


def test_manifold_steps_over_their_gradients(benchmark):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((9_100, 128))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    ends = rng.integers(len(rows), size=(3, 45_500))
    objective = angular_objective(rows, Triplets(*ends, np.ones(ends.shape[1])))
    L = random_orthonormal(128, 64, rng)

    def bare_gradients() -> None:
        for _ in range(STEPS):
            objective(L)

    found = ratio(
        benchmark,
        lambda: minimize_on_stiefel(objective, L, max_iter=STEPS),
        bare_gradients,
        rounds=5,
    )
    assert found < 3.0, "a step is about two evaluations, for the line search tries two lengths"


@pytest.mark.parametrize("d", [64, 784])
def test_transform_over_the_bare_product(benchmark, d):
    X, y = clustered_rows(60_000, d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 500 rows may be too few to beat the input
        model = SSDML(input_weight=1.0, guard=False, random_state=0).fit(X[:500], y[:500])
    components = model.components_

    found = ratio(benchmark, lambda: model.transform(X), lambda: X @ components.T, rounds=15)
    assert found <= 1.2


def test_suggestion_costs_at_most_ten_fits(benchmark):
    """Twelve graphs, each solved for a hundred labels as well, and one fit."""
    X, y = clustered_rows(10_000, 64)

    found = ratio(
        benchmark,
        lambda: suggest_parameters(SSDML(random_state=0), X, y),
        lambda: SSDML(random_state=0).fit(X, y),
        rounds=3,
    )
    assert found <= 10
