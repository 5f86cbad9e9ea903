"""Preprocessing of a comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ssdml.experiments.preprocessing import preprocess, resolve_features, warn_of_scales


@pytest.fixture
def with_test_rows(blobs):
    return replace(blobs, test=np.arange(120) % 3 == 0)


def test_raw_features_are_unchanged(blobs):
    assert preprocess(blobs, "raw") is blobs


def test_unit_features_are_centered_and_normalized(blobs):
    X = preprocess(blobs, "unit").X
    expected = blobs.X - blobs.X.mean(dtype=np.float64)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(X, expected, rtol=1e-5, atol=1e-6)
    assert X.dtype == np.float32


def test_components_are_fitted_without_test_samples(with_test_rows, rng):
    from sklearn.decomposition import PCA

    dataset = replace(with_test_rows, X=rng.standard_normal((120, 80)).astype(np.float32))
    unit, test = preprocess(dataset, "unit").X, dataset.test
    expected = PCA(64, svd_solver="full").fit(unit[~test]).transform(unit)
    X = preprocess(dataset, "components").X
    np.testing.assert_allclose(np.abs(X), np.abs(expected), atol=1e-4)  # up to the signs
    assert preprocess(with_test_rows, "components").X.shape == with_test_rows.X.shape


def test_columns_are_standardized_by_training_samples(with_test_rows):
    X = with_test_rows.X * [1, 1000, 1, 0]
    test = with_test_rows.test
    found = preprocess(replace(with_test_rows, X=X), "standardized").X
    expected = (X - X[~test].mean(axis=0)) / np.where(X[0] == 0, 1, X[~test].std(axis=0))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32


@pytest.mark.parametrize("scale", [1, 1000])
def test_columns_of_different_scales_are_warned_of(blobs, scale, recwarn):
    warn_of_scales(replace(blobs, X=blobs.X * [scale, 1, 1, 1]))
    assert ["--form standardized" in str(w.message) for w in recwarn] == [True] * (scale > 1)


def test_mean_excludes_given_test_samples(with_test_rows):
    test = with_test_rows.test
    other = with_test_rows.X + 7 * test[:, None].astype(np.float32)
    before, after = (
        preprocess(replace(with_test_rows, X=X), "unit").X for X in (with_test_rows.X, other)
    )
    np.testing.assert_array_equal(after[~test], before[~test])
    assert (after[test] != before[test]).any()


def test_mean_includes_all_samples_otherwise(blobs):
    other = blobs.X.copy()
    other[0] += 7
    before, after = (preprocess(replace(blobs, X=X), "unit").X for X in (blobs.X, other))
    assert (after[1:] != before[1:]).any()


@pytest.mark.parametrize(("name", "kind"), [("mnist", "unit"), ("mine", "raw")])
def test_named_data_sets_default_to_unit(blobs, name, kind):
    dataset = replace(blobs, name=name)
    assert resolve_features(dataset) == kind
    np.testing.assert_array_equal(preprocess(dataset).X, preprocess(dataset, kind).X)


def test_unknown_form_is_named(blobs):
    with pytest.raises(ValueError, match=r"features must be one of .*; got 'units'.*'unit'\?"):
        preprocess(blobs, "units")
