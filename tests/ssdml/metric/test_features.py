"""Feature maps on which L is learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

from ssdml.metric.features import RESIDUAL_COMPONENTS, FeatureMap, Residual, Whitening
from ssdml.networks.training import Schedule
from ssdml.utils.linalg import top_eigenvectors
from ssdml.utils.scatter import class_scatter, whitening


@pytest.fixture
def blobs(rng):
    """120 rows in 6 correlated columns, four classes."""
    classes = np.repeat(np.arange(4), 30)
    X = 2 * rng.standard_normal((4, 6))[classes] + rng.standard_normal((120, 6))
    return X @ rng.standard_normal((6, 6)) + 50, classes


@pytest.fixture
def short(monkeypatch):
    """Training of a few steps."""
    monkeypatch.setattr(
        "ssdml.metric.residual.schedule_for", lambda n_rows: Schedule(n_steps=15, batch_size=32)
    )


def residual(X, **options):
    return Residual(X, angle=40.0, device="cpu", **options)


def made(name, X, classes):
    feature_map = {
        "identity": lambda: FeatureMap(np.linalg.qr(np.ones((6, 1)) + np.eye(6, 3))[0]),
        "whitening": Whitening,
        "residual": lambda: residual(X),
    }[name]()
    feature_map.learn(X, classes, 0)
    return feature_map


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["identity", "whitening", "residual"])
class TestEveryFeatureMap:
    def test_metric_is_orthonormal(self, name, blobs):
        feature_map = made(name, *blobs)
        d, n_components = feature_map.L.shape
        assert d == feature_map.features(blobs[0]).shape[1]
        np.testing.assert_allclose(
            feature_map.L.T @ feature_map.L, np.eye(n_components), atol=1e-12
        )

    def test_embedding_is_representation_times_components(self, name, blobs):
        X, classes = blobs
        feature_map = made(name, X, classes)
        before = X if feature_map.representation is None else feature_map.representation.embed(X)
        np.testing.assert_allclose(
            before @ feature_map.components.T, feature_map.embed(X), atol=1e-10
        )

    def test_embedding_follows_a_new_metric(self, name, blobs):
        X, classes = blobs
        feature_map = made(name, X, classes)
        feature_map.L = np.linalg.qr(np.ones((6, 2)) - np.eye(6, 2))[0]
        projected = feature_map.features(X) @ feature_map.L
        if feature_map.representation is not None:
            projected /= np.linalg.norm(projected, axis=1, keepdims=True)
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


@pytest.mark.parametrize(("n_classes", "expected"), [(2, 1), (4, 3), (40, 6)])
def test_number_of_discriminants(rng, n_classes, expected):
    feature_map = Whitening()
    feature_map.learn(rng.standard_normal((80, 6)), np.arange(80) % n_classes, 0)
    assert feature_map.L.shape == (6, expected)


def test_discriminants_keep_distances_between_means(blobs):
    X, classes = blobs
    feature_map = made("whitening", X, classes)
    means = np.array([X[classes == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(pdist(feature_map.embed(means)), pdist(feature_map.features(means)))


def test_whitening_is_invariant_to_linear_maps(blobs, rng, monkeypatch):
    X, classes = blobs
    monkeypatch.setattr(
        "ssdml.metric.features.whitening", lambda scatter: whitening(scatter, shrinkage=0.0)
    )
    turned = X @ rng.standard_normal((6, 6))
    one, two = (pdist(made("whitening", rows, classes).embed(rows)) for rows in (X, turned))
    np.testing.assert_allclose(one, two, rtol=1e-6)


def test_residual_metric_starts_at_principal_axes(rng):
    X = rng.standard_normal((100, 70)) * np.linspace(3, 1, 70)
    feature_map = residual(X)
    expected = top_eigenvectors(np.cov(X, rowvar=False), RESIDUAL_COMPONENTS)
    np.testing.assert_allclose(feature_map.L, expected, atol=1e-9)


@pytest.mark.usefixtures("short")
def test_untrained_residual_head_standardizes(blobs, monkeypatch):
    X, classes = blobs
    monkeypatch.setattr("ssdml.metric.residual.schedule_for", lambda n_rows: Schedule(n_steps=0))
    features = made("residual", X, classes).features(X)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(features.var(axis=0, ddof=1).mean(), 1)
    np.testing.assert_allclose(np.corrcoef(features.T), np.corrcoef(X.T), atol=1e-9)


@pytest.mark.usefixtures("short")
def test_residual_features_depend_on_the_seed_alone(blobs):
    X, classes = blobs
    state = torch.get_rng_state()
    one, two, other = (residual(X) for _ in range(3))
    for feature_map, seed in ((one, 1), (two, 1), (other, 2)):
        feature_map.learn(X, classes, seed)
        torch.rand(3)
    np.testing.assert_array_equal(one.embed(X), two.embed(X))
    assert not np.array_equal(one.embed(X), other.embed(X))
    torch.set_rng_state(state)
    residual(X).learn(X, classes, 1)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("short")
def test_residual_head_continues_training(blobs, monkeypatch):
    X, classes = blobs
    feature_map = made("residual", X, classes)
    learned = feature_map.features(X)
    monkeypatch.setattr("ssdml.metric.residual.schedule_for", lambda n_rows: Schedule(n_steps=0))
    feature_map.learn(X, classes, 1)
    np.testing.assert_array_equal(feature_map.features(X), learned)


@pytest.mark.usefixtures("short")
def test_residual_head_lowers_its_loss(blobs, monkeypatch):
    X, classes = blobs
    monkeypatch.setattr(
        "ssdml.metric.residual.schedule_for", lambda n_rows: Schedule(n_steps=60, batch_size=64)
    )
    feature_map = residual(X)
    feature_map.learn(X, classes, 0)
    assert len(feature_map.losses) == 60
    assert np.mean(feature_map.losses[-10:]) < 0.8 * np.mean(feature_map.losses[:10])


@pytest.mark.usefixtures("short")
def test_constant_columns_are_allowed(rng):
    X = np.ones((60, 3))
    feature_map = residual(X)
    feature_map.learn(X, np.arange(60) % 2, 0)
    assert np.isfinite(feature_map.embed(X)).all()
    one = residual(rng.standard_normal((60, 1)))
    assert one.L.shape == (1, 1)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_residual_features_keep_the_dtype(blobs, dtype):
    X, classes = blobs
    feature_map = residual(X.astype(dtype))
    feature_map.learn(X.astype(dtype), classes, 0)
    assert feature_map.embed(X.astype(dtype)).dtype == dtype
