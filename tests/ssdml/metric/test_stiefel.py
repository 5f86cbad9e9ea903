"""Minimization over matrices of orthonormal columns."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from itertools import pairwise

import numpy as np
import pytest

from ssdml.graphs.triplets import Triplets
from ssdml.metric.stiefel import angular_objective, minimize_freely, minimize_on_stiefel
from ssdml.utils.linalg import random_orthonormal


def quadratic(A, offset=0.0):
    """``tr(Lᵀ A L) + offset``: its minimum is the sum of the least eigenvalues."""

    def objective(L):
        return float(np.trace(L.T @ A @ L)) + offset, 2 * A @ L

    return objective


@pytest.fixture
def A(rng):
    B = rng.standard_normal((8, 8))
    return (B + B.T) / 2


@pytest.fixture
def start(rng):
    L = random_orthonormal(8, 3, rng)
    L.flags.writeable = False
    return L


@pytest.fixture
def angular(rng):
    """An angular objective on 60 rows."""
    ends = np.array([rng.choice(60, 3, replace=False) for _ in range(200)]).T
    return angular_objective(rng.standard_normal((60, 8)), Triplets(*ends, np.ones(200)))


def test_random_columns_are_orthonormal_and_reproducible():
    L, again = (random_orthonormal(7, 3, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_allclose(L.T @ L, np.eye(3), atol=1e-14)
    np.testing.assert_array_equal(L, again)


def test_random_columns_are_isotropic(rng):
    sample = np.array([random_orthonormal(3, 1, rng)[:, 0] for _ in range(4000)])
    # mean of x xᵀ is I/3; an entry's standard error is at most sqrt(4/45 / 4000) = 0.005
    np.testing.assert_allclose(sample.T @ sample / 4000, np.eye(3) / 3, atol=0.025)
    np.testing.assert_allclose(sample.mean(axis=0), 0, atol=0.05)


def test_quadratic_minimum_is_the_smallest_eigenvalues(A, start):
    result = minimize_on_stiefel(quadratic(A), start, max_iter=200)
    values, vectors = np.linalg.eigh(A)
    assert result.value == pytest.approx(values[:3].sum(), abs=1e-9)
    least = vectors[:, :3] @ vectors[:, :3].T
    np.testing.assert_allclose(result.point @ result.point.T, least, atol=1e-5)
    assert result.converged
    assert result.n_iter < 200


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 1)])
def test_square_and_vector_shapes(rng, shape):
    B = np.diag(np.arange(1.0, shape[0] + 1))
    result = minimize_on_stiefel(quadratic(B), random_orthonormal(*shape, rng), max_iter=200)
    assert result.value == pytest.approx(np.arange(1, shape[1] + 1).sum(), abs=1e-8)


@pytest.mark.parametrize("max_iter", [1, 3, 10])
def test_point_is_orthonormal_and_below_the_start(angular, start, max_iter):
    result = minimize_on_stiefel(angular, start, max_iter=max_iter)
    assert np.abs(result.point.T @ result.point - np.eye(3)).max() < 1e-8
    assert result.initial_value == angular(start)[0]
    assert result.value == angular(result.point)[0]
    assert result.value < result.initial_value


def test_more_steps_never_end_higher(angular, start):
    values = [minimize_on_stiefel(angular, start, max_iter=n).value for n in range(8)]
    assert (np.diff(values) < 0).all()


@pytest.mark.parametrize("max_iter", [0, 1, 4])
def test_steps_are_limited(angular, start, max_iter):
    result = minimize_on_stiefel(angular, start, max_iter=max_iter)
    assert result.n_iter == max_iter
    assert not result.converged


def test_zero_steps_return_the_start(angular, start):
    result = minimize_on_stiefel(angular, start, max_iter=0)
    np.testing.assert_array_equal(result.point, start)
    assert result.value == result.initial_value == angular(start)[0]


def test_gradient_norm_is_of_the_tangent_part(A, start):
    result = minimize_on_stiefel(quadratic(A), start, max_iter=0)
    G = 2 * A @ start
    tangent = G - start @ (start.T @ G + G.T @ start) / 2
    assert result.gradient_norm == pytest.approx(np.linalg.norm(tangent))


def test_looser_tolerance_stops_earlier(A, start):
    loose, tight = (
        minimize_on_stiefel(quadratic(A), start, max_iter=200, min_gradient_norm=tol)
        for tol in (1e-1, 1e-6)
    )
    assert loose.n_iter < tight.n_iter
    assert tight.gradient_norm <= 1e-6 < loose.gradient_norm <= 1e-1
    assert loose.converged


def test_zero_gradient_returns_the_start(start):
    result = minimize_on_stiefel(lambda L: (2.0, np.zeros_like(L)), start)
    np.testing.assert_array_equal(result.point, start)
    assert (result.value, result.n_iter, result.gradient_norm) == (2.0, 0, 0.0)
    assert result.converged


def test_minimum_is_kept(A):
    least = np.linalg.eigh(A)[1][:, :3]
    result = minimize_on_stiefel(quadratic(A), least, max_iter=20)
    np.testing.assert_array_equal(result.point, least)
    assert result.converged


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_values_are_never_accepted(A, start, bad):
    """The first trial steps cross a border beyond which the objective has no value."""
    border = quadratic(A)(start)[0] - 0.5
    crossed = []

    def objective(L):
        value, gradient = quadratic(A)(L)
        if value < border:
            crossed.append(value)
            return bad, gradient
        return value, gradient

    result = minimize_on_stiefel(objective, start, max_iter=30)
    assert crossed
    assert border <= result.value <= result.initial_value
    assert np.abs(result.point.T @ result.point - np.eye(3)).max() < 1e-8


def test_nonfinite_gradient_leaves_an_orthonormal_point(A, start):
    calls = []

    def objective(L):
        value, gradient = quadratic(A)(L)
        calls.append(value)
        return value, gradient if len(calls) < 3 else np.full_like(gradient, np.nan)

    result = minimize_on_stiefel(objective, start, max_iter=10)
    assert np.abs(result.point.T @ result.point - np.eye(3)).max() < 1e-8
    assert result.value <= result.initial_value


def test_objective_without_descent_returns_the_start(A, start):
    def objective(L):
        value, gradient = quadratic(A)(L)
        return value if np.array_equal(L, start) else np.nan, gradient

    result = minimize_on_stiefel(objective, start)
    np.testing.assert_allclose(result.point, start, atol=1e-12)
    assert result.value == result.initial_value


def test_searches_are_independent(A, start):
    """An optimizer that kept the last value would stop after one step."""
    first = minimize_on_stiefel(quadratic(A), start, max_iter=5)
    higher = quadratic(-A, offset=1e3)
    second = minimize_on_stiefel(higher, first.point, max_iter=100)
    assert second.initial_value > first.value + 900
    assert second.value == pytest.approx(1e3 - np.linalg.eigvalsh(A)[-3:].sum(), abs=1e-6)
    alone = minimize_on_stiefel(higher, first.point, max_iter=100)
    np.testing.assert_array_equal(second.point, alone.point)


def test_no_global_state_and_no_output(angular, start, capsys):
    np.random.seed(7)  # noqa: NPY002 - the global generator is what must stay as it is
    before = np.random.get_state()  # noqa: NPY002
    minimize_on_stiefel(angular, start)
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(one, two) for one, two in zip(before, after, strict=True))
    assert capsys.readouterr() == ("", "")


def test_value_and_gradient_come_from_one_evaluation(angular, start):
    seen = []

    def objective(L):
        seen.append(L.copy())
        return angular(L)

    minimize_on_stiefel(objective, start, max_iter=10)
    assert not any(np.array_equal(one, two) for one, two in pairwise(seen))
    # about two trial points a step of the line search, the start and the last, projected point
    assert len(seen) <= 32


def test_first_step_is_invariant_to_rotations(angular, start, rng):
    """Later steps are not, slightly: the retraction rotates the conjugate directions."""
    R = random_orthonormal(3, 3, rng)
    one, two = (minimize_on_stiefel(angular, L, max_iter=1) for L in (start, start @ R))
    assert one.value == pytest.approx(two.value, rel=1e-10)
    np.testing.assert_allclose(one.point @ one.point.T, two.point @ two.point.T, atol=1e-9)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 2)])
def test_start_of_wrong_shape_raises(shape, A):
    message = r"minimize_on_stiefel: initial must be of shape \(d, l\) with l <= d; got shape"
    with pytest.raises(ValueError, match=message):
        minimize_on_stiefel(quadratic(A), np.ones(shape))


@pytest.mark.parametrize("spoilt", [2.0, 1 + 1e-6, np.nan])
def test_start_must_be_orthonormal(A, start, spoilt):
    message = (
        "initial must have orthonormal columns; got .*Apply ssdml.utils.linalg.nearest_orthonormal"
    )
    with pytest.raises(ValueError, match=message):
        minimize_on_stiefel(quadratic(A), spoilt * start)


@pytest.mark.parametrize(
    "result",
    [(np.nan, np.zeros((8, 3))), (np.inf, np.zeros((8, 3))), (1.0, np.full((8, 3), np.nan))],
)
def test_nonfinite_start_raises(start, result):
    message = "objective must be finite at the initial point; got value .* Scale X down"
    with pytest.raises(ValueError, match=message):
        minimize_on_stiefel(lambda L: result, start)


def test_float32_start_is_searched_in_float64(A):
    start = np.eye(8, 3, dtype=np.float32)
    assert minimize_on_stiefel(quadratic(A), start).point.dtype == np.float64


def test_objective_is_released(A, start):
    """Without the garbage collector: it holds rows as large as the data."""
    objective = quadratic(A)
    alive = weakref.ref(objective)
    gc.disable()
    try:
        minimize_on_stiefel(objective, start)
        del objective
        assert alive() is None
    finally:
        gc.enable()


def test_free_search_leaves_the_manifold_for_a_lower_value(angular, start):
    bound, free = (search(angular, start) for search in (minimize_on_stiefel, minimize_freely))
    assert free.value < bound.value < bound.initial_value == free.initial_value
    assert np.abs(np.linalg.svd(free.point, compute_uv=False) - 1).max() > 0.2
    _, gradient = angular(free.point)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("option", ["-O", "-OO"])
def test_python_without_docstrings_is_named(option):
    code = (
        "import numpy as np; from ssdml.metric.stiefel import minimize_on_stiefel; "
        "minimize_on_stiefel(lambda L: (L.sum(), np.ones_like(L)), np.eye(3, 1))"
    )
    run = subprocess.run(
        [sys.executable, option, "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == (option == "-OO"), run.stderr
    assert ("RuntimeError: fit: python must keep docstrings" in run.stderr) == (option == "-OO")
