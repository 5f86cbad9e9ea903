"""Feature maps on which L is learned."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from ssdml.metric.features import FeatureMap, Whitening
from ssdml.utils.scatter import class_scatter, whitening


@pytest.fixture
def blobs(rng):
    """120 rows in 6 correlated columns, four classes."""
    classes = np.repeat(np.arange(4), 30)
    X = 2 * rng.standard_normal((4, 6))[classes] + rng.standard_normal((120, 6))
    return X @ rng.standard_normal((6, 6)) + 50, classes


def made(name, X, classes):
    feature_map = {
        "identity": lambda: FeatureMap(np.linalg.qr(np.ones((6, 1)) + np.eye(6, 3))[0]),
        "whitening": Whitening,
    }[name]()
    feature_map.learn(X, classes)
    return feature_map


@pytest.mark.parametrize("name", ["identity", "whitening"])
class TestEveryFeatureMap:
    def test_metric_is_orthonormal(self, name, blobs):
        feature_map = made(name, *blobs)
        d, n_components = feature_map.L.shape
        assert d == feature_map.features(blobs[0]).shape[1]
        np.testing.assert_allclose(
            feature_map.L.T @ feature_map.L, np.eye(n_components), atol=1e-12
        )

    def test_embedding_is_rows_times_components(self, name, blobs):
        X, classes = blobs
        feature_map = made(name, X, classes)
        np.testing.assert_allclose(X @ feature_map.components.T, feature_map.embed(X), atol=1e-10)

    def test_embedding_follows_a_new_metric(self, name, blobs):
        X, classes = blobs
        feature_map = made(name, X, classes)
        feature_map.L = np.linalg.qr(np.ones((6, 2)) - np.eye(6, 2))[0]
        projected = feature_map.features(X) @ feature_map.L
        np.testing.assert_allclose(feature_map.embed(X), projected, atol=1e-9)

    def test_input_is_not_modified(self, name, blobs):
        X, classes = blobs
        X.flags.writeable = classes.flags.writeable = False
        feature_map = made(name, X, classes)
        feature_map.embed(X)
        feature_map.features(X)


def test_identity_returns_the_rows():
    X = np.eye(3)
    assert FeatureMap(np.eye(3, 2)).features(X) is X


def test_whitening_shrinks_the_within_class_scatter(blobs):
    X, classes = blobs
    features = made("whitening", X, classes).features(X)
    np.testing.assert_allclose(features, X @ whitening(class_scatter(X, classes)))
    # Shrinkage lets the narrow directions fall below 1, and the wide ones rise to 1 / 0.9.
    spectrum = np.linalg.eigvalsh(class_scatter(features, classes).within)
    assert spectrum.min() < 1 < spectrum.max() < 1 / 0.9


def test_fewer_rows_than_columns_are_whitened_in_their_span(rng):
    """As by the scatter of all columns, which is never formed."""
    classes = np.arange(20) % 3
    X = rng.standard_normal((20, 50)) + classes[:, None]
    ours, twin = made("whitening", X, classes), Whitening()
    twin.learn_from(class_scatter(X, classes), 3)
    np.testing.assert_allclose(pdist(ours.features(X)), pdist(twin.features(X)))
    assert ours.components.shape == twin.components.shape == (2, 50)
    new = rng.standard_normal((9, 50))
    np.testing.assert_allclose(pdist(ours.embed(new)), pdist(twin.embed(new)))


def test_memory_of_few_rows_does_not_grow_with_the_square_of_the_columns(rng):
    X, feature_map = rng.standard_normal((20, 4000)), Whitening()
    tracemalloc.start()
    feature_map.learn(X, np.arange(20) % 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * X.nbytes


@pytest.mark.parametrize(("n_classes", "expected"), [(2, 1), (4, 3), (40, 6)])
def test_number_of_discriminants(rng, n_classes, expected):
    feature_map = Whitening()
    feature_map.learn(rng.standard_normal((80, 6)), np.arange(80) % n_classes)
    assert feature_map.L.shape == (6, expected)


def test_discriminants_keep_distances_between_means(blobs):
    X, classes = blobs
    feature_map = made("whitening", X, classes)
    means = np.array([X[classes == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(pdist(feature_map.embed(means)), pdist(feature_map.features(means)))


def test_whitening_is_invariant_to_linear_maps(blobs, rng, monkeypatch):
    X, classes = blobs
    monkeypatch.setattr(
        "ssdml.metric.features.whitening",
        lambda scatter, n_features: whitening(scatter, shrinkage=0.0),
    )
    turned = X @ rng.standard_normal((6, 6))
    one, two = (pdist(made("whitening", rows, classes).embed(rows)) for rows in (X, turned))
    np.testing.assert_allclose(one, two, rtol=1e-6)
