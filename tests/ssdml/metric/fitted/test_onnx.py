"""ONNX export: agrees with ``transform`` for any number of samples; errors."""

from __future__ import annotations

import sys
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from torch import nn
from torch.onnx._internal.exporter._registration import ONNXRegistry

from ssdml import SSDML, DeepSSDML
from ssdml.baselines import LRML
from ssdml.classification.forms import Form, LinearForm, principal_form
from ssdml.classification.new_rows import DirectScores, interpolator
from ssdml.classification.trees import Columns, Trees, grow_trees
from ssdml.deep.onnx import SampleEmbedding
from ssdml.graphs import knn_graph
from ssdml.graphs.neighbors.copies import first_equal_rows, graph_of_distinct
from ssdml.metric.features import ClassRepresentation
from ssdml.metric.fitted import onnx as export
from ssdml.metric.fitted.onnx import RowEmbedding, write_onnx
from ssdml.networks.backbones import CifarNet, MnistNet, Standardized
from ssdml.networks.metric_network import MetricNetwork
from tests.deep import small_images, small_model

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SIZES = (1, 2, 37)
# Sums of some hundred products in float32, in another order than NumPy's or torch's.
TOL = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module", autouse=True)
def one_table_of_operators():
    """Of torch's exporter, which makes it anew in each call, in a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib))
        )
        yield


@pytest.fixture(scope="module")
def rows():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300]
    labels = np.where(np.arange(300) < 60, y, -1)
    X.flags.writeable = labels.flags.writeable = False
    return X, labels


@pytest.fixture(scope="module")
def linear(rows):
    """The default, fitted."""
    return SSDML(random_state=0).fit(*rows)


@pytest.fixture(scope="module")
def deep():
    """A small trained network with the input beside its embedding."""
    X, _, labels = small_images(n=300)
    return X, small_model(epochs=1, epochs_per_partition=1, input_weight=0.7).fit(X, labels)


def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def run(path, X):
    (embedding,) = session(path).run(["embedding"], {"X": X})
    return embedding


# Like an SSDML without input, a baseline is a matrix alone.
@pytest.mark.parametrize("name", ["default", "a baseline"])
def test_export_agrees_with_transform(rows, linear, name, tmp_path):
    X, labels = rows
    model = linear if name == "default" else LRML(5, random_state=0).fit(X, labels)
    assert (model.representation_ is not None) == (name == "default")
    model.to_onnx(str(tmp_path / "model.onnx"))
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    (given,), (made,) = (
        getattr(session(tmp_path / "model.onnx"), f"get_{end}")() for end in ("inputs", "outputs")
    )
    assert (given.name, given.shape, given.type) == ("X", ["n", 64], "tensor(float)")
    assert (made.name, made.shape) == ("embedding", ["n", len(model.components_)])
    for n in SIZES:
        single = X[:n].astype(np.float32)
        found = run(tmp_path / "model.onnx", single)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, model.transform(single), **TOL)


def test_deep_export_agrees_with_transform_and_changes_nothing(deep, tmp_path, capfd):
    X, model = deep
    before, state = model.transform(X), torch.get_rng_state()
    model.to_onnx(tmp_path / "model.onnx")
    np.testing.assert_array_equal(model.transform(X), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")
    assert model.input_weight_ == 0.7
    for n in SIZES:
        found = run(tmp_path / "model.onnx", X[:n, None])  # with the axis of the channels
        np.testing.assert_allclose(found, before[:n], **TOL)


def test_export_keeps_the_input_of_features(rows, tmp_path):
    X, labels = rows
    head = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout())
    schedule = {"epochs": 1, "epochs_per_partition": 1, "random_state": 0, "device": "cpu"}
    model = DeepSSDML(head, 8, input_weight=2.0, **schedule).fit(X, labels)
    model.to_onnx(tmp_path / "model.onnx")
    single = X[:9].astype(np.float32)
    assert not model.input_projection_.unit
    np.testing.assert_allclose(run(tmp_path / "model.onnx", single), model.transform(X[:9]), **TOL)


def test_module_without_the_input(deep):
    """The next test exports such modules."""
    X, model = deep
    module = SampleEmbedding(model.network_, model.input_projection_, 0.0)
    with torch.no_grad():
        found = module(torch.from_numpy(X[:4, None])).numpy()
    np.testing.assert_allclose(found, model.transform(X[:4])[:, :16], **TOL)


@pytest.mark.parametrize(("network", "shape"), [(MnistNet, (1, 28, 28)), (CifarNet, (3, 32, 32))])
def test_networks_of_the_paper_export(network, shape, tmp_path):
    torch.manual_seed(0)
    standardized = Standardized(network(), torch.tensor(0.5), torch.tensor(0.3))
    metric = torch.linalg.qr(torch.randn(network.n_features, 16))[0]
    module = MetricNetwork(standardized, metric, 10, unit_features=True).eval()
    write_onnx(
        SampleEmbedding(module, None, 0.0), shape, tmp_path / "model.onnx", "who", "transform"
    )
    images = torch.rand(3, *shape)
    with torch.no_grad():
        expected = module(images).numpy()
    np.testing.assert_allclose(run(tmp_path / "model.onnx", images.numpy()), expected, **TOL)


@pytest.mark.parametrize("center", [None, np.linspace(-0.2, 0.2, 6)], ids=["rows", "directions"])
def test_exported_classes_are_those_of_the_interpolator(center, rng):
    """A duplicate and far rows as well."""
    X = rng.standard_normal((30, 6))
    X[29] = X[0]
    linear = principal_form(X)._replace(center=center)
    form = Form(linear, linear(X), knn_graph(linear(X), 5))
    representation = ClassRepresentation(interpolator(form, rng.dirichlet(np.ones(3), 30)))
    rows = np.vstack([X[:3], 100 * X[:2]]).astype(np.float32)
    found = RowEmbedding(np.eye(9), representation)(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(found, representation(rows), **TOL)


def test_trees_are_exported(rng, tmp_path):
    """Rows at the thresholds as well, and any number of them."""
    X = rng.standard_normal((60, 4)).astype(np.float32)
    form = Form(LinearForm(np.zeros(4), np.eye(4)), X, knn_graph(X, 5))
    columns, codes = Columns(np.zeros(4), np.ones(4)), np.arange(30) % 3
    nodes = grow_trees(X[:30], codes, 7)
    trees = Trees(columns, nodes, nodes.find_leaves(X[:30]), codes, 3, 0.8)
    scores = DirectScores(X[:, :3], trees, trees.scores(X), 0.5)
    classifier = interpolator(form, rng.dirichlet(np.ones(3), 60), scores)
    representation, path = ClassRepresentation(classifier), tmp_path / "x.onnx"
    write_onnx(RowEmbedding(np.eye(7), representation), (4,), path, "SSDML", "transform")
    rows = np.vstack([X, np.repeat(nodes.thresholds[:50, None], 4, axis=1)])
    for queries in (rows, rows[:1]):
        np.testing.assert_allclose(run(path, queries), representation(queries), **TOL)


@pytest.mark.parametrize("n_copies", [0, 20])
def test_of_equally_near_rows_the_first_are_taken(rng, tmp_path, n_copies):
    """Points of a grid far from 0, and between them: float32 holds their distances, not squares."""
    grid = 1000 + np.stack(np.meshgrid(*[np.arange(4.0)] * 3), axis=-1).reshape(-1, 3)
    grid = np.vstack([grid, grid[:1].repeat(n_copies, axis=0)])
    linear = LinearForm(np.zeros(3), np.eye(3))
    form = Form(linear, linear(grid), graph_of_distinct(linear(grid), 5, first_equal_rows(grid)))
    classes = rng.dirichlet(np.ones(3), len(grid))
    representation = ClassRepresentation(interpolator(form, classes))
    module = RowEmbedding(np.eye(6), representation)
    write_onnx(module, (3,), tmp_path / "grid.onnx", "SSDML.to_onnx", "transform")
    rows = np.vstack([grid, (grid[:-1] + grid[1:]) / 2]).astype(np.float32)
    np.testing.assert_allclose(run(tmp_path / "grid.onnx", rows), representation(rows), rtol=1e-4)


class Branching(nn.Module):
    def forward(self, X):
        return X if X.sum() > 0 else -X


class Eigenvalues(nn.Module):
    def forward(self, X):
        return torch.linalg.eigvalsh(X[:, :, None] * X[:, None])


class FixedBatch(nn.Module):
    """Its length is a number to the exporter, that of the batch it is traced with."""

    def forward(self, X):
        return X.reshape(len(X), 4)


UNTRACEABLE = [Branching(), Eigenvalues(), FixedBatch()]


@pytest.mark.parametrize("module", UNTRACEABLE, ids=lambda m: type(m).__name__)
def test_untraceable_module_raises_and_writes_nothing(module, tmp_path, capfd):
    path = tmp_path / "model.onnx"
    path.write_text("of another model")
    with pytest.raises(ValueError, match=r"backbone must be a module that torch\.export can trace"):
        write_onnx(module, (4,), path, "DeepSSDML.to_onnx", "transform")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [
        (path.name, "of another model")
    ]
    assert capfd.readouterr() == ("", "")


def test_prediction_cannot_be_exported(linear, deep, tmp_path):
    for model in (linear, deep[1]):
        who = rf"{type(model).__name__}\.to_onnx"
        with pytest.raises(ValueError, match=rf"{who}: method must be 'transform'; got 'predict'"):
            model.to_onnx(tmp_path / "model.onnx", method="predict")


@pytest.mark.parametrize("missing", ["onnx", "onnxscript"])
def test_missing_package_raises(linear, missing, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"needs onnx and onnxscript: pip install 'ssdml\[onnx\]"):
        linear.to_onnx(tmp_path / "model.onnx")


def test_weights_beyond_2_gb_raise(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match=r"weights must take less than 2 GB, .* got 0\.0 GB"):
        write_onnx(nn.Linear(10, 10), (10,), tmp_path / "model.onnx", "who", "transform")


def test_missing_folder_raises(tmp_path):
    with pytest.raises(OSError, match="cannot be written"):
        write_onnx(nn.Identity(), (2,), tmp_path / "missing" / "model.onnx", "who", "transform")


@pytest.mark.parametrize("model", [SSDML(), DeepSSDML(nn.Identity(), 2), LRML()], ids=repr)
def test_unfitted_model_raises(model, tmp_path):
    with pytest.raises(NotFittedError):
        model.to_onnx(tmp_path / "model.onnx")
