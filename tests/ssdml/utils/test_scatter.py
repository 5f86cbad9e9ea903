"""Scatter within and between classes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from ssdml.utils import linalg
from ssdml.utils.scatter import (
    class_means,
    class_moments,
    class_scatter,
    discriminants,
    pool_moments,
    pooled_scatter,
    whitening,
)


@pytest.fixture
def data(rng):
    """300 rows in 6 correlated columns, 4 classes of different size, far from the origin."""
    classes = rng.choice(4, 300, p=[0.1, 0.2, 0.3, 0.4])
    X = rng.standard_normal((4, 6))[classes] * 2 + rng.standard_normal((300, 6))
    return X @ rng.standard_normal((6, 6)) + 100, classes


@pytest.mark.parametrize("entries", [1, 42, 10**6])
def test_class_means(data, monkeypatch, entries):
    X, classes = data
    monkeypatch.setattr(linalg, "BLOCK_ENTRIES", entries)
    means = class_means(X, classes)
    np.testing.assert_allclose(means, [X[classes == c].mean(axis=0) for c in range(4)], rtol=1e-13)


def test_empty_class_has_zero_mean(data):
    X, classes = data
    means = class_means(X, 2 * classes)
    np.testing.assert_array_equal(means[1::2], 0)
    np.testing.assert_array_equal(means[::2], class_means(X, classes))


def test_means_of_float32_are_in_float64():
    rows = np.repeat(np.float32([[1.0], [2.0**-24]]), [1, 2**12], axis=0)
    means = class_means(rows, np.zeros(len(rows), int))
    np.testing.assert_array_equal(means, [[rows.mean(dtype=np.float64)]])


@pytest.mark.parametrize("entries", [1, 42])
def test_scatter_does_not_depend_on_block_size(data, monkeypatch, entries):
    whole = class_scatter(*data)
    monkeypatch.setattr(linalg, "BLOCK_ENTRIES", entries)
    for one, two in zip(class_scatter(*data), whole, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-10)


def test_within_and_between_equal_sums_over_rows(data):
    X, classes = data
    scatter = class_scatter(X, classes)
    within, between = np.zeros((6, 6)), np.zeros((6, 6))
    for x, c in zip(X, classes, strict=True):
        own = X[classes == c].mean(axis=0)
        within += np.outer(x - own, x - own) / len(X)
        between += np.outer(own - X.mean(axis=0), own - X.mean(axis=0)) / len(X)
    np.testing.assert_allclose(scatter.mean, X.mean(axis=0))
    np.testing.assert_allclose(scatter.within, within, atol=1e-9)
    np.testing.assert_allclose(scatter.between, between, atol=1e-9)


def test_within_and_between_add_up_to_the_covariance(data):
    X, classes = data
    scatter = class_scatter(X, classes)
    total = np.cov(X, rowvar=False, bias=True)
    np.testing.assert_allclose(scatter.within + scatter.between, total, atol=1e-9)


def test_scatter_ignores_class_names_and_row_order(data, rng):
    X, classes = data
    order = rng.permutation(len(X))
    first, other = class_scatter(X, classes), class_scatter(X[order], 9 - 2 * classes[order])
    for name in ("mean", "within", "between"):
        np.testing.assert_allclose(getattr(first, name), getattr(other, name), atol=1e-9)


def test_one_class_has_no_scatter_between(data):
    scatter = class_scatter(data[0], np.zeros(300, int))
    np.testing.assert_allclose(scatter.between, 0, atol=1e-12)


def test_identical_rows_have_no_scatter_within(rng):
    classes = np.repeat(np.arange(3), 7)
    X = rng.standard_normal((3, 5))[classes] * 1e3
    scatter = class_scatter(X, classes)
    np.testing.assert_allclose(scatter.within, 0, atol=1e-20)
    assert np.isfinite(whitening(scatter)).all()


def test_scatter_of_float32_is_in_float64(data):
    X, classes = data
    single = X.astype(np.float32)
    exact = class_scatter(single.astype(np.float64), classes)
    for one, two in zip(class_scatter(single, classes), exact, strict=True):
        np.testing.assert_array_equal(one, two)


def test_whitening_gives_identity_scatter_within(data):
    X, classes = data
    transform = whitening(class_scatter(X, classes), shrinkage=0.0)
    np.testing.assert_allclose(class_scatter(X @ transform, classes).within, np.eye(6), atol=1e-8)


def test_whitening_includes_shrinkage(data):
    scatter = class_scatter(*data)
    transform = whitening(scatter, shrinkage=0.3)
    shrunk = 0.7 * scatter.within + 0.3 * np.trace(scatter.within) / 6 * np.eye(6)
    np.testing.assert_allclose(transform.T @ shrunk @ transform, np.eye(6), atol=1e-10)


def test_discriminants_match_scikit_learn(data):
    X, classes = data
    scatter = class_scatter(X, classes)
    transform = whitening(scatter, shrinkage=0.0)
    ours = transform @ discriminants(scatter, transform, 3)
    lda = LinearDiscriminantAnalysis(solver="eigen", n_components=3).fit(X, classes)
    assert subspace_angles(ours, lda.scalings_[:, :3]).max() < 1e-6
    first = np.corrcoef(X @ ours[:, 0], X @ lda.scalings_[:, 0])[0, 1]
    np.testing.assert_allclose(abs(first), 1)


def test_discriminants_of_equal_means_are_orthonormal(data):
    X, classes = data
    scatter = class_scatter(X, classes)
    L = discriminants(scatter, np.zeros((6, 6)), 4)
    np.testing.assert_allclose(L.T @ L, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("n_parts", [1, 2, 9])
def test_pooled_moments_equal_those_of_all_rows(data, rng, n_parts):
    """However rows are split: the scatter, and each of the moments; one class has no rows."""
    X, classes = data
    homes = rng.integers(0, n_parts, 300)
    moments = pool_moments(
        [class_moments(X[homes == i], classes[homes == i], 5) for i in range(n_parts)]
    )
    np.testing.assert_array_equal(moments.counts, np.bincount(classes, minlength=5))
    for pooled, whole in zip(moments, class_moments(X, classes, 5), strict=True):
        np.testing.assert_allclose(pooled, whole, rtol=1e-12, atol=1e-9)
    pooled, whole = pooled_scatter(moments), class_scatter(X, classes)
    for name in ("mean", "within", "between"):
        np.testing.assert_allclose(
            getattr(pooled, name), getattr(whole, name), rtol=1e-12, atol=1e-11
        )


def test_pooling_is_associative_and_commutative(data):
    X, classes = data
    parts = [class_moments(X[i::4], classes[i::4], 4) for i in range(4)]
    in_pairs = pool_moments([pool_moments(parts[2:]), pool_moments(parts[:2])])
    for one, two in zip(in_pairs, pool_moments(parts), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-9)


def test_moments_of_no_rows_are_neutral(data):
    X, classes = data
    some, none = class_moments(X, classes, 4), class_moments(X[:0], classes[:0], 4)
    for one, two in zip(pool_moments([none, some]), some, strict=True):
        np.testing.assert_array_equal(one, two)


def test_pooling_is_stable_far_from_the_origin(data):
    """Squares about the means, not differences of large squares."""
    X, classes = data
    far = X + 1e7
    moments = pool_moments([class_moments(far[i::3], classes[i::3], 4) for i in range(3)])
    np.testing.assert_allclose(
        pooled_scatter(moments).within, class_scatter(X, classes).within, rtol=1e-6, atol=1e-7
    )
