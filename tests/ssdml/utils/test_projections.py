"""Projections that preserve distances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from ssdml.utils.linalg import best_factor, factor_of_few, graph_rows


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


@pytest.mark.parametrize("count", [1, 2, 4])
def test_projection_is_optimal_for_squared_distances(rows, rng, count):
    blocks = np.vstack([rng.standard_normal((4, 6)), np.eye(6)])
    full = pdist(rows @ blocks.T, "sqeuclidean")

    def lost(components):
        return np.mean(full - pdist(rows @ components.T, "sqeuclidean"))

    ours = lost(best_factor(blocks, np.cov(rows, rowvar=False), count))
    bases = [np.linalg.qr(rng.standard_normal((10, count)))[0] for _ in range(50)]
    assert 0 < ours < min(lost(basis.T @ blocks) for basis in bases)


@pytest.mark.parametrize("count", [5, 6])
def test_few_rows_keep_their_distances_and_no_new_row_gains(rng, count):
    """Four rows of six columns: one direction, or none, that they do not vary in is dropped."""
    blocks, rows = np.vstack([rng.standard_normal((4, 6)), np.eye(6)]), rng.random((4, 6)) + 5
    components = factor_of_few(blocks, rows, count)
    assert components.shape == (count, 6)
    np.testing.assert_allclose(pdist(rows @ components.T), pdist(rows @ blocks.T))
    unseen = rng.standard_normal((30, 6))
    kept, full = pdist(unseen @ components.T), pdist(unseen @ blocks.T)
    assert (kept <= full * (1 + 1e-12)).all()
    np.testing.assert_allclose(kept, full, rtol=0.9 if count < 6 else 1e-9)


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
