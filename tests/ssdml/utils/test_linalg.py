"""Dense linear algebra and sums over rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from ssdml.utils import linalg
from ssdml.utils.linalg import (
    covariance,
    float64_blocks,
    inverse_sqrt,
    nearest_orthonormal,
    product,
    shrink,
    symmetrize,
    top_eigenvectors,
    total_variance,
    unit_rows,
)
from ssdml.utils.scatter import class_means, class_scatter


def positive_definite(rng, d):
    A = rng.standard_normal((d, 2 * d))
    return A @ A.T


def test_symmetric_and_antisymmetric_parts_add_up(rng):
    A = rng.standard_normal((5, 5))
    S = symmetrize(A)
    np.testing.assert_array_equal(S, S.T)
    np.testing.assert_allclose((A - S), -(A - S).T, atol=1e-15)


@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 1.0])
def test_shrinkage_keeps_trace_and_eigenvectors(rng, shrinkage):
    S = positive_definite(rng, 6)
    shrunk = shrink(S, shrinkage)
    values, vectors = np.linalg.eigh(S)
    expected = (1 - shrinkage) * values + shrinkage * values.mean()
    np.testing.assert_allclose(vectors.T @ shrunk @ vectors, np.diag(expected), atol=1e-11)
    np.testing.assert_allclose(np.trace(shrunk), np.trace(S))


def test_shrinkage_makes_zeros_positive_definite():
    np.testing.assert_array_equal(shrink(np.zeros((3, 3)), 0.25), 0.25 * np.eye(3))


def test_inverse_root_inverts_and_is_symmetric(rng):
    S = positive_definite(rng, 7)
    root = inverse_sqrt(S)
    np.testing.assert_allclose(root @ S @ root, np.eye(7), atol=1e-10)
    np.testing.assert_allclose(root, root.T, atol=1e-12)
    assert np.linalg.eigvalsh(root).min() > 0


@pytest.mark.parametrize("matrix", [np.diag([1.0, 0.0]), np.zeros((2, 2)), np.diag([1.0, -1e-17])])
def test_inverse_root_of_singular_matrix_is_finite(matrix):
    root = inverse_sqrt(matrix)
    assert np.isfinite(root).all()
    if matrix[0, 0]:
        np.testing.assert_allclose(root[0, 0], 1)


def test_top_eigenvectors_are_ordered(rng):
    S = positive_definite(rng, 8)
    V = top_eigenvectors(S, 3)
    np.testing.assert_allclose(V.T @ V, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(S @ V, V * np.sort(np.linalg.eigvalsh(S))[::-1][:3], atol=1e-10)


def test_signs_of_eigenvectors_are_fixed(rng):
    V = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    for signs in (1, -1):
        found = top_eigenvectors((signs * V * np.arange(6, 0, -1)) @ (signs * V).T, 6)
        assert (found[np.abs(found).argmax(axis=0), np.arange(6)] > 0).all()
        np.testing.assert_allclose(np.abs(np.sum(found * V, axis=0)), 1)


def test_polar_factor_is_the_nearest_orthonormal_matrix(rng):
    A = rng.standard_normal((6, 3))
    Q = nearest_orthonormal(A)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(Q.T @ A, (Q.T @ A).T, atol=1e-14)  # the other factor is symmetric
    others = [np.linalg.qr(A)[0]]
    others += [np.linalg.qr(Q + 0.1 * rng.standard_normal((6, 3)))[0] for _ in range(20)]
    distance = np.linalg.norm(A - Q)
    assert all(distance < np.linalg.norm(A - other * s) for other in others for s in (1, -1))


def test_orthonormal_matrix_is_its_polar_factor(rng):
    Q = np.linalg.qr(rng.standard_normal((5, 2)))[0]
    np.testing.assert_allclose(nearest_orthonormal(Q), Q, atol=1e-14)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_unit_rows_of_any_length_in_single_precision(rng, scale):
    X = rng.standard_normal((6, 4)).astype(np.float32)
    np.testing.assert_allclose(unit_rows(X * np.float32(scale)), unit_rows(X), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_unit_rows_keep_direction_and_precision(rng, dtype):
    X = rng.standard_normal((9, 4)).astype(dtype)
    X[4] = 0
    X.flags.writeable = False
    Z = unit_rows(X)
    assert Z.dtype == dtype
    lengths = np.linalg.norm(Z, axis=1)
    np.testing.assert_allclose(np.delete(lengths, 4), 1, rtol=4 * np.finfo(dtype).eps)
    assert lengths[4] == 0
    np.testing.assert_allclose(Z * np.linalg.norm(X, axis=1, keepdims=True), X, rtol=1e-6)


@pytest.fixture(params=[1, 40, 10**6], ids=["rows-one-by-one", "blocks-of-10-rows", "one-block"])
def tall(request, rng, monkeypatch):
    """43 rows in 4 columns, far from the origin, taken some at a time."""
    monkeypatch.setattr(linalg, "BLOCK_ENTRIES", request.param)
    rows = rng.standard_normal((43, 4)) * [1, 2, 3, 4] + 1000
    rows.flags.writeable = False
    return rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float64_blocks_cover_each_row_once(tall, dtype):
    rows = tall.astype(dtype)
    blocks = list(float64_blocks(rows))
    np.testing.assert_array_equal(np.vstack([block for _, block in blocks]), rows)
    assert all(block.dtype == np.float64 for _, block in blocks)
    for place, block in blocks:
        np.testing.assert_array_equal(rows[place], block)


def test_covariance_matches_numpy(tall):
    np.testing.assert_allclose(covariance(tall), np.cov(tall, rowvar=False), atol=1e-11)


def test_covariance_of_one_column_or_row(rng):
    x = rng.standard_normal((9, 1))
    np.testing.assert_allclose(covariance(x), [[x.var(ddof=1)]])
    np.testing.assert_array_equal(covariance(x.T), np.zeros((9, 9)))


def test_total_variance_sums_over_columns(tall):
    assert total_variance(tall) == pytest.approx(tall.var(axis=0).sum(), rel=1e-12)
    trace = np.trace(covariance(tall))
    assert total_variance(tall, ddof=1) == pytest.approx(trace, rel=1e-12)
    assert total_variance(tall[:1], ddof=1) == 0


def test_total_variance_of_images_needs_no_images(tall, rng):
    components = rng.standard_normal((5, tall.shape[1]))
    expected = total_variance(tall @ components.T)
    assert total_variance(tall, components=components) == pytest.approx(expected, rel=1e-12)


def test_product_matches_matmul(tall, rng):
    matrix = rng.standard_normal((4, 3))
    np.testing.assert_allclose(product(tall, matrix), tall @ matrix, rtol=1e-13)


def test_sums_over_float32_are_in_float64(tall, rng):
    single, matrix = tall.astype(np.float32), rng.standard_normal((4, 3))
    double = single.astype(np.float64)
    np.testing.assert_array_equal(covariance(single), covariance(double))
    assert total_variance(single) == total_variance(double)
    np.testing.assert_array_equal(product(single, matrix), product(double, matrix))


@pytest.mark.parametrize(
    "summed",
    [
        covariance,
        total_variance,
        lambda X: product(X, np.ones((40, 2))),
        lambda X: class_means(X, np.arange(len(X)) % 3),
        lambda X: class_scatter(X, np.arange(len(X)) % 3),
    ],
    ids=["covariance", "total_variance", "product", "class_means", "class_scatter"],
)
def test_no_copy_of_all_rows(summed, rng, monkeypatch):
    monkeypatch.setattr(linalg, "BLOCK_ENTRIES", 2**12)
    X = rng.standard_normal((20_000, 40)).astype(np.float32)
    tracemalloc.start()
    summed(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < X.nbytes / 2
