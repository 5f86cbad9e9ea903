"""Projections that preserve distances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from ssdml.utils.linalg import best_factor, block_reflector, graph_rows, span


@pytest.fixture
def rows(rng):
    return rng.standard_normal((40, 6)) @ rng.standard_normal((6, 6)) + 5


def test_rank_many_columns_keep_distances(rows, rng):
    blocks = np.vstack([rng.standard_normal((4, 6)), np.eye(6)])
    components = best_factor(blocks, np.cov(rows, rowvar=False), 6)
    assert components.shape == (6, 6)
    np.testing.assert_allclose(pdist(rows @ components.T), pdist(rows @ blocks.T))


def test_fewer_columns_suffice_for_lower_rank(rows, rng):
    blocks = rng.standard_normal((9, 3)) @ rng.standard_normal((3, 6))
    components = best_factor(blocks, np.cov(rows, rowvar=False), 3)
    np.testing.assert_allclose(pdist(rows @ components.T), pdist(rows @ blocks.T))


def test_constant_columns_are_kept_for_new_rows(rng):
    rows = rng.standard_normal((30, 5))
    rows[:, 1:3] = 7.0
    blocks = np.vstack([2 * np.eye(5), np.eye(5)])
    components = best_factor(blocks, np.cov(rows, rowvar=False), 5)
    unseen = rng.standard_normal((30, 5))
    np.testing.assert_allclose(pdist(unseen @ components.T), pdist(unseen @ blocks.T))


def test_constant_rows_keep_the_map():
    components = best_factor(np.diag([3.0, 2.0]), np.zeros((2, 2)), 2)
    np.testing.assert_array_equal(components, np.diag([3.0, 2.0]))


@pytest.mark.parametrize("unit", [1e-140, 1e140])
def test_best_factor_does_not_depend_on_the_unit(rng, unit):
    blocks, rows = rng.standard_normal((7, 4)), rng.standard_normal((30, 4))
    expected = best_factor(blocks, np.cov(rows, rowvar=False), 2)
    for scaled in (unit * blocks, blocks):
        found = best_factor(scaled, unit**2 * np.cov(rows, rowvar=False), 2)
        found *= np.linalg.norm(expected) / np.linalg.norm(found)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_projection_is_optimal_for_squared_distances(rows, rng, count):
    blocks = np.vstack([rng.standard_normal((4, 6)), np.eye(6)])
    full = pdist(rows @ blocks.T, "sqeuclidean")

    def lost(components):
        return np.mean(full - pdist(rows @ components.T, "sqeuclidean"))

    ours = lost(best_factor(blocks, np.cov(rows, rowvar=False), count))
    bases = [np.linalg.qr(rng.standard_normal((10, count)))[0] for _ in range(50)]
    assert 0 < ours < min(lost(basis.T @ blocks) for basis in bases)


@pytest.mark.parametrize("columns", [np.eye(6)[:, ::-1][:, :2], np.eye(6)[:, :2], None])
def test_block_reflector_is_orthogonal_and_starts_with_the_span(rng, columns):
    axes = span(rng.random((2, 6))) if columns is None else columns
    Y, Z = block_reflector(axes)
    reflector = np.eye(6) - Z @ Y.T
    np.testing.assert_allclose(reflector @ reflector, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(reflector, reflector.T, atol=1e-12)
    np.testing.assert_allclose(axes.T @ reflector[:, 2:], 0, atol=1e-12)


def test_span_contains_rows_that_repeat(rng):
    rows = rng.random((2, 6))[[0, 0, 1]].astype(np.float32)
    axes = span(rows)
    np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(rows @ axes @ axes.T, rows, atol=1e-12)


def test_projection_never_lengthens_distances(rows, rng):
    blocks = rng.standard_normal((8, 6))
    short = best_factor(blocks, np.cov(rows, rowvar=False), 3)
    assert (pdist(rows @ short.T) <= pdist(rows @ blocks.T) * (1 + 1e-12)).all()


def test_few_columns_are_not_reduced(rng):
    X = rng.standard_normal((10, 32))
    assert graph_rows(X) is X


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [200, 25])
def test_graph_rows_keep_95_percent_of_variance(rng, n, dtype):
    X = (rng.standard_normal((n, 40)) * 0.8 ** np.arange(40) + 3).astype(dtype)
    kept = graph_rows(X)
    variances = np.linalg.eigvalsh(np.cov(X, rowvar=False))[::-1]
    shares = np.cumsum(variances) / variances.sum()
    count = kept.shape[1]
    assert shares[count - 2] < 0.95 <= shares[count - 1]
    assert kept.dtype == dtype
    np.testing.assert_allclose(kept.var(axis=0, ddof=1), variances[:count], rtol=1e-4)


def test_constant_rows_are_not_reduced():
    X = np.ones((5, 40))
    assert graph_rows(X) is X
