"""Forms of the rows: scaled as a whole, column by column, or on principal components."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize, scale

from ssdml.classification.forms import (
    CENTERING,
    MAX_COLUMNS,
    LinearForm,
    forms_with_graphs,
    linear_forms,
    principal_axes,
    principal_form,
)
from ssdml.graphs import knn_graph
from ssdml.utils.linalg import random_orthonormal


@pytest.fixture
def table(rng):
    """Five correlated columns in different units."""
    return (rng.standard_normal((200, 1)) + rng.standard_normal((200, 5))) * [1, 1, 1, 50, 0.1]


@pytest.fixture
def wide(rng):
    """130 columns, of which few hold the variance."""
    return rng.standard_normal((200, 130)) * np.linspace(1, 0, 130) ** 4 + 0.1


def test_form_is_an_affine_map(rng):
    X, mean, matrix = rng.standard_normal((30, 4)), rng.standard_normal(4), rng.random((4, 2))
    rows = LinearForm(mean, matrix)(X)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, (X - mean) @ matrix, rtol=1e-5, atol=1e-6)


def test_whole_rows_have_unit_variance(rng):
    (form,) = linear_forms(7 * rng.standard_normal((300, 4)) + 5, few=False)
    rows = form(7 * rng.standard_normal((300, 4)) + 5)
    assert form.column_scale is None
    assert np.trace(np.cov(rows, rowvar=False)) == pytest.approx(1, rel=0.2)


def test_table_is_also_scaled_by_column(table):
    whole, each = linear_forms(table, few=False)
    np.testing.assert_allclose(whole(table).var(axis=0).sum(), 1, rtol=1e-2)
    np.testing.assert_allclose(each(table).var(axis=0), 1 / 5, rtol=1e-2)
    assert whole.column_scale is None
    np.testing.assert_array_equal(each.column_scale, np.diag(each.matrix))


def test_table_with_few_labels_is_only_scaled_by_column(table):
    (form,) = linear_forms(table, few=True)
    np.testing.assert_allclose(form(table).var(axis=0), 1 / 5, rtol=1e-2)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X / X.std(axis=0),  # in equal units
        lambda X: PCA().fit_transform(X),  # uncorrelated
        lambda X: X[:, :1],
    ],
    ids=["equal units", "principal components", "one column"],
)
def test_other_rows_have_one_form(table, change):
    assert len(linear_forms(change(table), few=False)) == 1


def test_units_of_a_column_do_not_matter_to_the_scaled_form(table):
    one, other = (linear_forms(X, few=True)[0](X) for X in (table, table * [9, 1, 1, 1, 1]))
    np.testing.assert_allclose(one, other, atol=1e-5)


def test_constant_columns_get_no_weight(table):
    X = np.column_stack([table, np.full(200, 7.0)])
    (form,) = linear_forms(X, few=True)
    rows = form(X)
    np.testing.assert_array_equal(rows[:, 5], 0)
    np.testing.assert_allclose(rows.var(axis=0)[:5], 1 / 5, rtol=1e-2)


@pytest.mark.parametrize("few", [True, False])
def test_constant_rows_are_finite(few):
    for form in linear_forms(np.full((9, 3), 2.0), few=few):
        np.testing.assert_array_equal(form(np.full((9, 3), 2.0)), 0)


@pytest.mark.parametrize("columns", [12, 120])
def test_a_column_that_hides_the_others_gives_a_warning(rng, columns):
    X, labels = rng.standard_normal((60, columns)), np.arange(60) % 2
    X[:, 1] = 1000 * np.arange(60)
    message = rf"SSDML: X must have columns of similar scales; 1 of {columns} \(1\) hold 99% of"
    with pytest.warns(UserWarning, match=message):
        forms_with_graphs(X, 5, labels=labels, rng=rng)
    forms_with_graphs(scale(X), 5, labels=labels, rng=rng)  # warnings are errors
    X[:, 1] = 0
    X[7, 1] = 1e6  # a row far from all others, of which fits warn
    forms_with_graphs(X, 5, labels=labels, rng=rng)


def test_wide_rows_become_principal_components(wide):
    (form,) = linear_forms(wide, few=False)
    rows = form(wide)
    seen = normalize(normalize(wide) - CENTERING * normalize(wide).mean(axis=0))
    pca = PCA(0.99, svd_solver="full").fit(seen)
    assert rows.shape == (200, pca.n_components_)
    np.testing.assert_allclose(pdist(rows), pdist(pca.transform(seen)), rtol=1e-4, atol=1e-5)
    assert form.column_scale is None


def test_lengths_of_wide_rows_do_not_matter(wide):
    longer = wide * np.linspace(0.5, 9, 200)[:, None]
    (one,), (two,) = linear_forms(wide, few=False), linear_forms(longer, few=False)
    np.testing.assert_allclose(pdist(one(wide)), pdist(two(longer)), rtol=1e-4, atol=1e-5)


def test_rows_of_equal_length_are_taken_as_they_are(wide):
    rows = normalize(wide)
    (form,) = linear_forms(rows, few=False)
    assert form.center is None
    factor = 1 / np.sqrt(np.trace(np.cov(rows, rowvar=False)))
    pca = PCA(0.99, svd_solver="full").fit(rows)
    np.testing.assert_allclose(
        pdist(form(rows)), factor * pdist(pca.transform(rows)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("told", [True, False])
def test_lengths_count_where_they_tell_the_classes(told, wide, rng):
    classes = np.arange(200) % 2
    labels = np.where(np.arange(200) < 20, classes, -1)
    bright = wide * (1 + 2 * (classes if told else rng.permutation(classes)))[:, None]
    lengths = np.linalg.norm(bright, axis=1)
    (form,) = forms_with_graphs(normalize(wide) * lengths[:, None], 5, labels=labels, rng=rng)
    assert (form.linear.center is None) == told


def test_wide_rows_of_zeros_are_finite(wide):
    wide[:3] = 0
    (form,) = linear_forms(wide, few=False)
    assert np.isfinite(form(wide)).all()
    np.testing.assert_array_equal(form(wide)[0], form(wide)[2])


def test_components_are_bounded(rng):
    axes = principal_axes(rng.standard_normal((2000, MAX_COLUMNS + 50)))
    assert axes.shape == (MAX_COLUMNS + 50, MAX_COLUMNS)
    np.testing.assert_allclose(axes.T @ axes, np.eye(MAX_COLUMNS), atol=1e-12)


def test_columns_of_a_narrow_table_stay(rng):
    table = rng.random((50, 100))
    np.testing.assert_array_equal(principal_axes(table), np.eye(100))


@pytest.mark.parametrize("n", [40, 120])
def test_components_of_few_rows_equal_those_of_the_covariance(rng, n):
    """From inner products of the rows; both have the same sign."""
    X = rng.standard_normal((n, 30)) @ rng.standard_normal((30, 150)) + 7
    of_few, whole = principal_axes(X), principal_axes(np.tile(X, (4, 1)))
    assert of_few.shape == whole.shape
    np.testing.assert_allclose(of_few, whole, atol=1e-9)


def test_equal_wide_rows_have_one_axis():
    X = np.full((5, 150), 2.0)
    np.testing.assert_array_equal(principal_axes(X), np.eye(150, 1))


def test_rotation_of_wide_rows_does_not_matter(wide, rng):
    turned = wide @ random_orthonormal(130, 130, rng)
    one, two = (linear_forms(X, few=False)[0](X) for X in (wide, turned))
    np.testing.assert_allclose(pdist(one), pdist(two), rtol=1e-4, atol=1e-5)


def test_principal_form_keeps_the_scale(wide):
    rows = principal_form(wide)(wide)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-5)
    variance = rows.var(axis=0, dtype=np.float64).sum()
    assert 0.99 * wide.var(axis=0).sum() <= variance <= wide.var(axis=0).sum()


def test_each_form_has_the_graph_of_its_rows(table, rng):
    shown, labels = [], np.where(np.arange(200) < 8, np.arange(200) % 2, -1)
    forms = forms_with_graphs(table, 5, labels=labels, rng=rng, progress=shown.append)
    assert len(forms) == 2
    for form in forms:
        np.testing.assert_array_equal(form.rows, form.linear(table))
        np.testing.assert_array_equal(form.graph.indices, knn_graph(form.rows, 5).indices)
    assert shown == sorted(shown)


def test_one_label_per_class_leaves_one_form(table, rng):
    labels = np.where(np.arange(200) < 2, np.arange(200), -1)
    assert len(forms_with_graphs(table, 5, labels=labels, rng=rng)) == 1
