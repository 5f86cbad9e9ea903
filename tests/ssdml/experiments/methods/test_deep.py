"""Deep methods in a comparison."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from ssdml import baselines
from ssdml.datasets import Dataset, load_dataset
from ssdml.experiments.compare import available_methods, compare
from ssdml.experiments.methods.deep import InitialFeatures, OfImages, deep_methods
from ssdml.experiments.methods.registry import DEEP_METHODS
from ssdml.experiments.runs.results import RESULTS, read_rows
from ssdml.networks.data import as_samples
from ssdml.networks.metric_network import new_network
from ssdml.networks.training import embed_samples
from tests.deep import small_images, small_model


class Recorder:
    """Estimator that records its input."""

    def get_params(self, deep=True):
        return {}

    def fit(self, X, y):
        self.seen_, self.triplets_ = X, None
        return self

    def transform(self, X):
        return X.reshape(len(X), -1)[:, :2]


@pytest.mark.parametrize(
    ("shape", "expected"), [((4, 5), (4, 5)), ((4, 5, 3), (3, 4, 5)), ((4, 5, 1), (1, 4, 5))]
)
def test_flat_rows_become_images_with_channels_first(rng, shape, expected):
    images = rng.random((6, *shape))
    model = OfImages(Recorder(), shape).fit(images.reshape(6, -1), np.zeros(6))
    seen = model.estimator_.seen_
    assert seen.shape == (6, *expected)
    back = seen if len(shape) == 2 else seen.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(back, images)


def test_deep_methods_need_images():
    data = Dataset("mine", np.zeros((4, 3), np.float32), np.zeros(4, np.int64), ("a",))
    with pytest.raises(
        ValueError,
        match="deep must be False for mine, whose samples are not images; got True",
    ):
        available_methods(data, deep=True)
    assert "deep-ssdml" not in available_methods(data, deep=False)


def test_deep_methods_need_the_deep_flag(tmp_path):
    data = load_dataset("digits")
    with pytest.raises(ValueError, match=r"deep must be True for deep-ssdml.*Pass --deep"):
        compare(data, ["input", "deep-ssdml[epochs=1]"], seeds=[0], out=tmp_path)
    with pytest.raises(ValueError, match="features must be 'raw' or 'unit' when networks learn"):
        compare(data, ["input"], seeds=[0], out=tmp_path, deep=True, features="components")


def test_compare_runs_deep_and_shallow_methods(tmp_path, monkeypatch):
    X, y, _ = small_images(n=200)
    data = Dataset("digits8", X.reshape(200, -1), y, tuple("0123456789"), item_shape=(8, 8))
    factory = lambda seed, n_jobs: small_model(epochs=2, random_state=seed)  # noqa: E731
    monkeypatch.setitem(DEEP_METHODS, "deep-ssdml", lambda *network: factory)
    rows = compare(data, ["input", "deep-ssdml"], seeds=[0], out=tmp_path, deep=True)
    assert [(row["method"], row["status"], row["error"]) for row in rows] == [
        ("input", "ok", None),
        ("deep-ssdml", "ok", None),
    ]
    assert read_rows(tmp_path / RESULTS) == rows


def test_network_and_dimension_follow_the_image_size():
    for shape, (name, columns) in {
        (28, 28): ("mnist", 64),
        (32, 32, 3): ("cifar", 32),
        (12, 16, 3): ("wide-resnet", 64),
    }.items():
        X = np.zeros((4, int(np.prod(shape))), np.float32)
        data = Dataset("mine", X, np.zeros(4, np.int64), ("a",), item_shape=shape)
        for key, method in deep_methods(data).items():
            assert isinstance(method, partial)
            model = method(0, None).estimator
            assert model.backbone == name
            if key != "initial":
                is_full = key.removeprefix("deep-").upper() in baselines.__all__
                assert model.n_components == (None if is_full else columns)


def test_initial_is_the_untrained_network_of_the_seed(rng):
    X = rng.random((6, 784), np.float32)
    data = Dataset("mine", X, np.zeros(6, np.int64), ("a",), item_shape=(28, 28))
    factory = available_methods(data, deep=True)["initial"]
    found = [factory(seed, None).fit(X, data.y).transform(X) for seed in (3, 3, 4)]
    items = as_samples(X.reshape(6, 28, 28), "test")
    learned = new_network("mnist", items, 64, 10, 3, "cpu")  # as DeepSSDML begins with it
    np.testing.assert_array_equal(found[0], embed_samples(learned, items, "features"))
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 0.01


@pytest.fixture
def rows(rng):
    """Two classes that no linear map separates."""
    X = rng.standard_normal((60, 2)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    return X, np.where(np.arange(60) < 40, y, -1)


@pytest.fixture
def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 16))


def test_initial_features_have_unit_length(rows, network):
    X, labels = rows
    standardized = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0))
    with torch.no_grad():
        expected = nn.functional.normalize(network(standardized), dim=1).numpy()
    found = InitialFeatures(network).fit(X, labels)
    np.testing.assert_allclose(found.transform(X), expected, atol=1e-5)
    assert not found.losses_


def test_pretraining_learns_the_labels(rows, network):
    X, labels = rows
    model = InitialFeatures(network, pretrain_epochs=200, random_state=0).fit(X, labels)
    assert len(model.losses_) == 200
    assert model.losses_[0] > 0.5 > 0.1 > model.losses_[-1]
    Z, known = model.transform(X), labels >= 0
    means = np.stack([Z[labels == c].mean(axis=0) for c in range(2)])
    assert ((Z @ means.T).argmax(axis=1)[known] == labels[known]).mean() > 0.95
    before = InitialFeatures(network).fit(X).transform(X)
    means = np.stack([before[labels == c].mean(axis=0) for c in range(2)])
    assert ((before @ means.T).argmax(axis=1)[known] == labels[known]).mean() < 0.9


def test_pretraining_without_labels_changes_nothing(rows, network):
    X, _ = rows
    plain = InitialFeatures(network).fit(X).transform(X)
    model = InitialFeatures(network, pretrain_epochs=5).fit(X, np.full(60, -1))
    assert not model.losses_
    np.testing.assert_array_equal(model.transform(X), plain)
