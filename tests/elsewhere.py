"""Fits on another device equal those on the CPU.

``SSDML_DEVICE=cuda pytest tests/elsewhere.py`` needs a GPU; ``contracts/test_another_device.py``
runs the file on a fake device.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone

from ssdml.deep.alternation import AlternationTrainer
from ssdml.graphs import Triplets, knn_graph, propagate_affinities
from ssdml.losses import GraphConsistency, ProxyGMLLoss
from ssdml.metric.stiefel import angular_objective
from tests.contracts.test_networks import every_estimator, few_triplets  # noqa: F401
from tests.deep import DEVICE, assert_same_weights, small_images, small_model, small_network
from tests.losses import LOSSES, batch, gradient, make

pytestmark = pytest.mark.usefixtures("one_thread", "exactly", "known_to_threads")


@pytest.fixture
def exactly():
    """Deterministic convolutions in float32."""
    with torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    ):
        yield


class InPlace(ThreadPoolExecutor):
    """Work in the calling thread."""

    def map(self, work, blocks):
        return map(work, blocks)


@pytest.fixture
def known_to_threads(monkeypatch):
    """Only the registering thread knows a fake device."""
    if DEVICE == "pretended":
        monkeypatch.setattr("ssdml.graphs.neighbors.exact.ThreadPoolExecutor", InPlace)


def assert_close(there, here):
    np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-3)


def test_device_tensors_do_not_mix_with_cpu():
    tensor = torch.ones(3, device=DEVICE)
    assert tensor.device.type == torch.device(DEVICE).type != "cpu"
    with pytest.raises(RuntimeError, match=r"device|CPU"):
        tensor + torch.ones(3)
    with pytest.raises((RuntimeError, TypeError), match="numpy"):
        tensor.numpy()


@every_estimator
def test_fits_and_resumes_on_the_device(estimator, tmp_path):
    """Two steps: some methods amplify the smallest difference."""
    X, _, labels = small_images(n=140)
    few = {"batch_size": 140, "random_state": 0, "mixed_precision": False}
    here = clone(estimator).set_params(device="cpu", **few).fit(X, labels)
    there = clone(estimator).set_params(checkpoint_dir=tmp_path, **few).fit(X, labels)
    assert {part.device.type for part in there.network_.state_dict().values()} == {
        torch.device(DEVICE).type
    }
    assert_close(there.transform(X), here.transform(X))
    assert_close(there.predict_proba(X), here.predict_proba(X))
    (tmp_path / "partition-0002.safetensors").unlink()
    assert_same_weights(clone(there).fit(X, labels), there)
    there.save(tmp_path / "model")
    loaded = type(there).load(tmp_path / "model", backbone=small_network())
    assert_close(loaded.transform(X), here.transform(X))
    loaded.network_.to(DEVICE)
    assert_close(loaded.transform(X), here.transform(X))


@pytest.mark.skipif(not DEVICE.startswith("cuda"), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize(("backbone", "edge"), [("mnist", 10), ("cifar", 12)])
def test_captured_steps_equal_single_kernels(monkeypatch, backbone, edge):
    """Two steps of 60 images, then a second partition: the graph goes on with new L and proxies."""
    X, _, labels = small_images(n=140)
    images = np.pad(X, ((0, 0), (edge, edge), (edge, edge)))
    if backbone == "cifar":  # whose views change tones, too
        images = np.stack([images] * 3, axis=1)
    few = {"batch_size": 60, "mixed_precision": False, "epochs": 2, "epochs_per_partition": 1}
    captured = small_model(backbone=backbone, **few).fit(images, labels)
    monkeypatch.setattr(AlternationTrainer, "_can_capture", False)
    alone = small_model(backbone=backbone, **few).fit(images, labels)
    for part, other in zip(captured.history_, alone.history_, strict=True):
        np.testing.assert_allclose(part["losses"], other["losses"], rtol=1e-3)
    assert_close(captured.transform(images), alone.transform(images))


def test_graphs_are_searched_on_the_device(monkeypatch):
    searches = []

    def spy(rows, k, **options):
        searches.append((options["method"], options["device"]))
        return knn_graph(rows, k, **options)

    monkeypatch.setattr("ssdml.graphs.neighbors.copies.knn_graph", spy)
    X, _, labels = small_images(n=140)
    small_model(epochs=2, epochs_per_partition=1, batch_size=140).fit(X, labels)
    assert searches == 3 * [("torch", DEVICE)]  # input, second partition, end


def test_datasets_bytes_and_validation_follow():
    X, y, labels = small_images(n=140)
    images = torch.from_numpy((255 * X).astype(np.uint8))[:, None]
    short = {"epochs": 1, "pretrain_epochs": 1, "batch_size": 70, "mixed_precision": False}
    stored = small_model(**short).fit(images, labels, validation=(images[:50], y[:50]))
    loaded = small_model(**short).fit([*images], labels)
    assert_close(loaded.transform(images), stored.transform([*images]))
    assert stored.history_[0]["validation"]["R@1"] > 50


def test_custom_losses_follow():
    X, _, labels = small_images(n=140)
    losses = [(0.01, GraphConsistency()), ProxyGMLLoss(10, 16, ratio=0.5)]
    short = {"epochs": 1, "losses": losses, "batch_size": 70, "mixed_precision": False}
    here, there = (small_model(device=device, **short) for device in ("cpu", DEVICE))
    assert_close(there.fit(X, labels).transform(X), here.fit(X, labels).transform(X))


@pytest.mark.parametrize("name", LOSSES)
def test_losses_equal_those_on_the_cpu(name):
    here, there = make(name), make(name).to(DEVICE)
    z, labels, weights = batch()
    given = {} if name == "sum" else {"weights": weights}
    expected = gradient(here, z, labels, **given)
    found = gradient(there, z.to(DEVICE), labels, **given)  # weights follow the embeddings
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad)


def test_metric_objective_equals_the_cpus(rng):
    rows, L = rng.standard_normal((40, 7)), np.linalg.qr(rng.standard_normal((7, 3)))[0]
    ends = np.array([rng.choice(40, 3, replace=False) for _ in range(90)]).T
    triplets = Triplets(*ends, rng.random(90))
    here, there = (
        angular_objective(rows, triplets, scale=0.1, device=device)(L) for device in ("cpu", DEVICE)
    )
    assert there[0] == pytest.approx(here[0], rel=1e-12)
    np.testing.assert_allclose(there[1], here[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_graph_and_affinities_equal_the_cpus(metric, rng):
    X = rng.standard_normal((1100, 7))
    here = knn_graph(X, 6, metric=metric)
    there = knn_graph(X, 6, metric=metric, method="torch", device=DEVICE)
    np.testing.assert_array_equal(there.indices, here.indices)
    labels = np.where(np.arange(len(X)) < 30, np.arange(len(X)) % 3, -1)
    expected = propagate_affinities(here, labels, solver="dense")
    found = propagate_affinities(here, labels, solver="torch", device=DEVICE, tol=1e-4)
    assert abs(found - expected).max() <= 1e-4
