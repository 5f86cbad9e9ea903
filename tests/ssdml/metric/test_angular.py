"""The angular triplet objective and its gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ssdml.graphs.triplets import Triplets
from ssdml.metric.stiefel import angular_objective
from ssdml.utils.linalg import angular_factor


@pytest.fixture
def rows(rng):
    X = rng.standard_normal((20, 5))
    X.flags.writeable = False
    return X


@pytest.fixture
def triplets(rng):
    """30 triplets on 20 rows with unequal weights; rows occur several times, in any role."""
    ends = np.array([rng.choice(20, 3, replace=False) for _ in range(30)]).T
    return Triplets(*ends, rng.random(30))


@pytest.fixture
def L(rng):
    return np.linalg.qr(rng.standard_normal((5, 3)))[0]


def slow(X, triplets, L, angle):
    """Value and gradient, triplet by triplet, as in the paper."""
    factor = 4 * math.tan(math.pi * angle / 180) ** 2
    value, gradient = 0.0, np.zeros_like(L)
    for i, j, k, weight in zip(*triplets, strict=True):
        a, p, n = X[i], X[j], X[k]
        c = (a + p) / 2
        m = (a - p) @ L @ L.T @ (a - p) - factor * (n - c) @ L @ L.T @ (n - c)
        sigma = 1 / (1 + math.exp(-m))
        value += weight * math.log(1 + math.exp(m))
        outer = np.outer(a - p, a - p) - factor * np.outer(n - c, n - c)
        gradient += weight * 2 * sigma * outer @ L
    return value / triplets.weight.sum(), gradient / triplets.weight.sum()


@pytest.mark.parametrize(
    ("angle", "factor"), [(30, 1.3333), (35, 1.9612), (40, 2.8164), (45, 4.0), (55, 8.1584)]
)
def test_factor_has_the_published_values(angle, factor):
    assert angular_factor(angle) == pytest.approx(factor, abs=5e-5)


@pytest.mark.parametrize("angle", [0.0, 90.0, -40.0, math.nan])
def test_angle_out_of_range_raises(angle, rows, triplets):
    message = f"angular_factor: angle must lie between 0 and 90 degrees; got {angle}"
    with pytest.raises(ValueError, match=message):
        angular_factor(angle)
    with pytest.raises(ValueError, match=message):
        angular_objective(rows, triplets, angle=angle)


@pytest.mark.parametrize("angle", [20.0, 40.0, 55.0])
def test_value_and_gradient_agree_with_the_formula(rows, triplets, L, angle):
    value, gradient = angular_objective(rows, triplets, angle=angle)(L)
    expected, expected_gradient = slow(rows, triplets, L, angle)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-12)


def test_gradient_agrees_with_finite_differences(rows, triplets, rng):
    objective, L = angular_objective(rows, triplets), rng.standard_normal((5, 3))
    _, gradient = objective(L)
    h, numeric = 1e-5, np.zeros_like(L)
    for i in np.ndindex(*L.shape):
        step = np.zeros_like(L)
        step[i] = h
        numeric[i] = (objective(L + step)[0] - objective(L - step)[0]) / (2 * h)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-8)


def test_taylor_remainder_is_of_second_order(rows, triplets, L, rng):
    objective, direction = angular_objective(rows, triplets), rng.standard_normal((5, 3))
    value, gradient = objective(L)
    steps = (1e-2, 1e-3)
    rests = [
        abs(objective(L + h * direction)[0] - value - h * np.sum(gradient * direction))
        for h in steps
    ]
    assert np.log10(rests[0] / rests[1]) > 1.9


def test_rotation_of_columns_rotates_the_gradient(rows, triplets, L, rng):
    objective, R = angular_objective(rows, triplets), np.linalg.qr(rng.standard_normal((3, 3)))[0]
    value, gradient = objective(L)
    rotated, rotated_gradient = objective(L @ R)
    assert rotated == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(rotated_gradient, gradient @ R, atol=1e-13)
    np.testing.assert_allclose(L.T @ gradient, gradient.T @ L, atol=1e-13)


def test_order_of_triplets_does_not_matter(rows, triplets, L, rng):
    order = rng.permutation(30)
    shuffled = Triplets(*(part[order] for part in triplets))
    for one, two in zip(
        angular_objective(rows, triplets)(L), angular_objective(rows, shuffled)(L), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-12)


def test_anchor_and_positive_are_exchangeable(rows, triplets, L):
    swapped = Triplets(triplets.positive, triplets.anchor, triplets.negative, triplets.weight)
    one, two = (angular_objective(rows, t)(L) for t in (triplets, swapped))
    assert one[0] == pytest.approx(two[0], rel=1e-13)
    np.testing.assert_allclose(one[1], two[1], atol=1e-13)


def test_translation_does_not_matter(rows, triplets, L):
    one, two = (angular_objective(X, triplets)(L) for X in (rows, rows + 10))
    assert one[0] == pytest.approx(two[0], rel=1e-12)
    np.testing.assert_allclose(one[1], two[1], atol=1e-12)


def test_anchor_as_its_own_positive_only_repels(rows, L):
    triplet = Triplets(*map(np.array, ([3], [3], [8], [1.0])))
    squared = float((((rows[3] - rows[8]) @ L) ** 2).sum())
    value, gradient = angular_objective(rows, triplet, angle=40.0)(L)
    margin = -angular_factor(40.0) * squared
    assert value == pytest.approx(math.log1p(math.exp(margin)), rel=1e-12)
    assert np.sum(gradient * L) < 0  # a longer L pushes further


def test_weights_are_normalized(rows, triplets, L):
    one = angular_objective(rows, triplets)(L)
    doubled = angular_objective(rows, triplets._replace(weight=2 * triplets.weight))(L)
    assert one[0] == pytest.approx(doubled[0], rel=1e-13)
    np.testing.assert_allclose(one[1], doubled[1], atol=1e-14)


def test_weight_two_equals_the_triplet_twice(rows, triplets, L):
    weighted = triplets._replace(weight=np.where(np.arange(30) < 5, 2.0, 1.0))
    repeated = Triplets(*(np.concatenate([part, part[:5]]) for part in triplets[:3]), np.ones(35))
    one, two = (angular_objective(rows, t)(L) for t in (weighted, repeated))
    assert one[0] == pytest.approx(two[0], rel=1e-13)
    np.testing.assert_allclose(one[1], two[1], atol=1e-13)


def test_zero_weight_removes_a_triplet(rows, triplets, L):
    silent = triplets._replace(weight=np.where(np.arange(30) < 20, triplets.weight, 0.0))
    without = Triplets(*(part[:20] for part in triplets))
    one, two = (angular_objective(rows, t)(L) for t in (silent, without))
    assert one[0] == pytest.approx(two[0], rel=1e-13)
    np.testing.assert_allclose(one[1], two[1], atol=1e-13)


@pytest.mark.parametrize("scale", [1e3, 1e-3])
def test_extreme_margins_stay_finite(rows, triplets, L, scale):
    value, gradient = angular_objective(scale * rows, triplets)(L)
    assert math.isfinite(value)
    assert np.isfinite(gradient).all()
    if scale < 1:
        assert value == pytest.approx(math.log(2), abs=1e-4)


def test_float32_rows_are_summed_in_float64(rows, triplets, L):
    single = rows.astype(np.float32)
    value, gradient = angular_objective(single, triplets)(L)
    expected, _ = angular_objective(single.astype(np.float64), triplets)(L)
    assert value == expected
    assert gradient.dtype == np.float64


def test_unused_rows_do_not_matter(rows, triplets, L):
    more = np.vstack([rows, np.full((3, 5), np.nan)])
    assert angular_objective(more, triplets)(L)[0] == angular_objective(rows, triplets)(L)[0]
