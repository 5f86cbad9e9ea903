"""The features on which L is learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

from ssdml.metric.features import RESIDUAL_COMPONENTS, Identity, Residual, Whitening
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
    """Training of a few steps, where the default has hundreds."""
    monkeypatch.setattr(
        "ssdml.metric.residual.schedule_for", lambda n_rows: Schedule(n_steps=15, batch_size=32)
    )


def residual(X, **options):
    return Residual(X, angle=40.0, device="cpu", **options)


def made(name, X, classes):
    backbone = {
        "identity": lambda: Identity(np.linalg.qr(np.ones((6, 1)) + np.eye(6, 3))[0]),
        "whitening": Whitening,
        "residual": lambda: residual(X),
    }[name]()
    backbone.learn(X, classes, 0)
    return backbone


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["identity", "whitening", "residual"])
class TestEveryBackbone:
    def test_the_metric_is_orthonormal_on_its_features(self, name, blobs):
        backbone = made(name, *blobs)
        d, n_components = backbone.L.shape
        assert d == backbone.features(blobs[0]).shape[1]
        np.testing.assert_allclose(backbone.L.T @ backbone.L, np.eye(n_components), atol=1e-12)

    def test_the_embedding_is_what_representation_and_components_give(self, name, blobs):
        X, classes = blobs
        backbone = made(name, X, classes)
        before = X if backbone.representation is None else backbone.representation.embed(X)
        np.testing.assert_allclose(before @ backbone.components.T, backbone.embed(X), atol=1e-10)

    def test_the_embedding_follows_a_new_metric(self, name, blobs):
        X, classes = blobs
        backbone = made(name, X, classes)
        backbone.L = np.linalg.qr(np.ones((6, 2)) - np.eye(6, 2))[0]
        projected = backbone.features(X) @ backbone.L
        if backbone.representation is not None:
            projected /= np.linalg.norm(projected, axis=1, keepdims=True)
        np.testing.assert_allclose(backbone.embed(X), projected, atol=1e-9)

    def test_rows_are_left_as_they_are(self, name, blobs):
        X, classes = blobs
        X.flags.writeable = classes.flags.writeable = False
        backbone = made(name, X, classes)
        backbone.embed(X)
        backbone.features(X)


def test_no_features_are_the_rows():
    X = np.eye(3)
    assert Identity(np.eye(3, 2)).features(X) is X


def test_whitened_features_shrink_the_scatter_within_classes_and_undo_it(blobs):
    X, classes = blobs
    features = made("whitening", X, classes).features(X)
    np.testing.assert_allclose(features, X @ whitening(class_scatter(X, classes)))
    # Shrinkage lets the narrow directions fall below 1, and the wide ones rise to 1 / 0.9.
    spectrum = np.linalg.eigvalsh(class_scatter(features, classes).within)
    assert spectrum.min() < 1 < spectrum.max() < 1 / 0.9


@pytest.mark.parametrize(("n_classes", "expected"), [(2, 1), (4, 3), (40, 6)])
def test_there_is_a_discriminant_less_than_classes_and_no_more_than_columns(
    rng, n_classes, expected
):
    backbone = Whitening()
    backbone.learn(rng.standard_normal((80, 6)), np.arange(80) % n_classes, 0)
    assert backbone.L.shape == (6, expected)


def test_discriminants_leave_the_means_as_far_apart_as_all_features_do(blobs):
    X, classes = blobs
    backbone = made("whitening", X, classes)
    means = np.array([X[classes == c].mean(axis=0) for c in range(4)])
    np.testing.assert_allclose(pdist(backbone.embed(means)), pdist(backbone.features(means)))


def test_whitening_does_not_see_a_linear_change_of_the_columns(blobs, rng, monkeypatch):
    X, classes = blobs
    monkeypatch.setattr(
        "ssdml.metric.features.whitening", lambda scatter: whitening(scatter, shrinkage=0.0)
    )
    turned = X @ rng.standard_normal((6, 6))
    one, two = (pdist(made("whitening", rows, classes).embed(rows)) for rows in (X, turned))
    np.testing.assert_allclose(one, two, rtol=1e-6)


def test_the_residual_metric_starts_at_the_principal_axes(rng):
    X = rng.standard_normal((100, 70)) * np.linspace(3, 1, 70)
    backbone = residual(X)
    expected = top_eigenvectors(np.cov(X, rowvar=False), RESIDUAL_COMPONENTS)
    np.testing.assert_allclose(backbone.L, expected, atol=1e-9)


@pytest.mark.usefixtures("short")
def test_an_untrained_residual_head_standardizes_as_a_whole(blobs, monkeypatch):
    X, classes = blobs
    monkeypatch.setattr("ssdml.metric.residual.schedule_for", lambda n_rows: Schedule(n_steps=0))
    features = made("residual", X, classes).features(X)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(features.var(axis=0, ddof=1).mean(), 1)
    np.testing.assert_allclose(np.corrcoef(features.T), np.corrcoef(X.T), atol=1e-9)


@pytest.mark.usefixtures("short")
def test_residual_features_follow_the_seed_and_leave_torchs_generator(blobs):
    X, classes = blobs
    state = torch.get_rng_state()
    one, two, other = (residual(X) for _ in range(3))
    for backbone, seed in ((one, 1), (two, 1), (other, 2)):
        backbone.learn(X, classes, seed)
        torch.rand(3)
    np.testing.assert_array_equal(one.embed(X), two.embed(X))
    assert not np.array_equal(one.embed(X), other.embed(X))
    torch.set_rng_state(state)
    residual(X).learn(X, classes, 1)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("short")
def test_a_residual_head_learns_on_from_where_it_is(blobs, monkeypatch):
    X, classes = blobs
    backbone = made("residual", X, classes)
    learned = backbone.features(X)
    monkeypatch.setattr("ssdml.metric.residual.schedule_for", lambda n_rows: Schedule(n_steps=0))
    backbone.learn(X, classes, 1)
    np.testing.assert_array_equal(backbone.features(X), learned)


@pytest.mark.usefixtures("short")
def test_a_residual_head_lowers_its_loss_and_keeps_every_step(blobs, monkeypatch):
    X, classes = blobs
    monkeypatch.setattr(
        "ssdml.metric.residual.schedule_for", lambda n_rows: Schedule(n_steps=60, batch_size=64)
    )
    backbone = residual(X)
    backbone.learn(X, classes, 0)
    assert len(backbone.losses) == 60
    assert np.mean(backbone.losses[-10:]) < 0.8 * np.mean(backbone.losses[:10])


@pytest.mark.usefixtures("short")
def test_columns_that_do_not_vary_are_no_obstacle(rng):
    X = np.ones((60, 3))
    backbone = residual(X)
    backbone.learn(X, np.arange(60) % 2, 0)
    assert np.isfinite(backbone.embed(X)).all()
    one = residual(rng.standard_normal((60, 1)))
    assert one.L.shape == (1, 1)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_residual_features_keep_the_precision_of_the_rows(blobs, dtype):
    X, classes = blobs
    backbone = residual(X.astype(dtype))
    backbone.learn(X.astype(dtype), classes, 0)
    assert backbone.embed(X.astype(dtype)).dtype == dtype
