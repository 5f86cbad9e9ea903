"""Features of images: which take part, and how they are joined and kept."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import PCA

from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.labeling.features import ImageFeatures, pixels_tell_classes


@pytest.fixture
def images(rng):
    """Sixty images of three layouts, as bytes, and half of their labels."""
    y = np.repeat([0, 1, 2], 20)
    images = rng.integers(0, 60, (60, 12, 12))
    for layout in range(3):
        images[y == layout, 4 * layout : 4 * layout + 4] += 150
    return images.astype(np.uint8), np.where(np.arange(60) % 2, y, -1)


@pytest.fixture
def network(monkeypatch, tmp_path):
    """A network whose features are the mean brightness of rows of pixels."""
    module = "ssdml.experiments.labeling.features"
    monkeypatch.setattr(f"{module}.find_spec", lambda name: name)
    monkeypatch.setattr(f"{module}.efficientnet_lite0", lambda: lambda b: b[:, 0].mean(dim=2))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.usefixtures("network")
def test_pixels_join_the_network_with_the_same_variance(images, tmp_path):
    X, y = images
    features, rows = ImageFeatures.of(X, y)
    alone = ImageFeatures()(X)
    np.testing.assert_array_equal(rows, features(X))
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows[:, :224], alone)
    components = PCA(59).fit_transform(X.reshape(60, -1) / 255)
    scale = np.sqrt(alone.var(axis=0).sum() / components.var(axis=0).sum())
    products = rows[:, 224:] @ rows[:, 224:].T  # do not depend on the signs of the axes
    np.testing.assert_allclose(products, scale**2 * components @ components.T, atol=1e-4)
    assert "224" not in str(features)
    features.save(tmp_path / "pixels.npz")
    again = ImageFeatures.load(tmp_path / "pixels.npz")(X[:7])
    np.testing.assert_allclose(again, rows[:7], atol=1e-5)
    with pytest.raises(ValueError, match=r"must have 144 pixel values, as in the fit; got 64\."):
        features(X[:, :8, :8])


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("size", [(30, 30), (20, 50, 3), (50, 20), (300, 260, 3), (40, 40, 4)])
def test_arrays_have_the_features_of_their_files(size, rng, tmp_path):
    X = rng.integers(0, 256, (3, *size)).astype(np.uint8)
    for row, image in enumerate(X):
        Image.fromarray(image).save(tmp_path / f"{row}.png")
    files = ImageFiles(tmp_path, ["0.png", "1.png", "2.png"])
    of_files, of_bytes, of_numbers = (ImageFeatures()(images) for images in (files, X, X / 255))
    np.testing.assert_allclose(of_bytes, of_files, atol=1e-6)
    np.testing.assert_allclose(of_numbers, of_files, atol=1e-6)
    assert np.abs(of_files[0] - of_files[1]).max() > 0.01
    if max(size) > 32:
        pixels = ImageFeatures(False, np.zeros(3072), np.eye(3072))
        np.testing.assert_array_equal(pixels(X), pixels(files))


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize("dtype", [int, np.float32])
def test_whole_numbers_are_bytes(images, dtype):
    X, y = images
    of_bytes, of_numbers = (ImageFeatures.of(rows, y)[0] for rows in (X, X.astype(dtype)))
    np.testing.assert_array_equal(of_numbers(X.astype(dtype)), of_bytes(X))
    np.testing.assert_allclose(ImageFeatures()(X / 255), ImageFeatures()(X), atol=1e-5)


@pytest.mark.usefixtures("network")
def test_transparent_pixels_are_white(images):
    gray = np.repeat(images[0][:4, :, :, None], 3, axis=3)
    opaque = np.concatenate([gray, np.full_like(gray[..., :1], 255)], axis=3)
    opaque[1:, ..., 3] = 0
    found, white = ImageFeatures()(opaque), ImageFeatures()(np.full_like(gray[1:], 255))
    np.testing.assert_allclose(found[1:], white, atol=1e-5)
    np.testing.assert_allclose(found[:1], ImageFeatures()(gray[:1]), atol=1e-5)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((4, 6, 6, 7)), r"1, 3 or 4 channels; got samples of shape \(6, 6, 7\)\. If"),
        (np.eye(4)[:, None] - 0.5, r"fractions from 0 to 1; got numbers from -0\.5 to 0\.5\."),
        (300 * np.eye(4)[:, None], "whole numbers from 0 to 255, .* from 0 to 300"),
    ],
)
def test_numbers_that_are_no_images_are_refused(samples, message):
    with pytest.raises(ValueError, match=message):
        ImageFeatures(False, np.zeros(4), np.eye(4))(samples)
    with pytest.raises(ValueError, match=message):
        ImageFeatures.of(samples, np.array([0, 0, 1, 1]))


@pytest.mark.usefixtures("network")
def test_pixels_need_labels_of_several_per_class(images):
    X, y = images
    one_each = np.where(np.isin(np.arange(60), [1, 21, 41]), y, -1)
    assert ImageFeatures.of(X)[0] == ImageFeatures() == ImageFeatures.of(X, one_each)[0]


def test_pixels_must_tell_half_as_much(rng):
    """Areas under the curve go from that of noise to that of the network."""
    y = np.repeat(np.arange(4), 10)
    network, noise = rng.normal(size=(40, 4)) + 3 * np.eye(4)[y], rng.normal(size=(40, 4))
    shares = np.linspace(0, 1, 11)
    found = [pixels_tell_classes(s * network + (1 - s) * noise, network, y) for s in shares]
    assert found == sorted(found)
    assert not found[2]
    assert found[-3]
    turned = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    assert found == [
        pixels_tell_classes(7 * (s * network + (1 - s) * noise) @ turned, network @ turned, y)
        for s in shares
    ]
