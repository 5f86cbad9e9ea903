"""DeepSSDML: each of its parts can be switched off, and what a number of one's own does."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from ssdml.deep.alternation import AlternationTrainer
from ssdml.deep.estimator import BESIDE
from ssdml.deep.input_graph import project_input
from ssdml.graphs import knn_graph
from ssdml.metric import alternation
from ssdml.networks.backbones import ResidualHead
from ssdml.networks.data import as_samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.training import Stepper, embed_samples, mixed_precision
from ssdml.utils.linalg import unit_rows
from tests.deep import small_model


@pytest.fixture(scope="module")
def short(digits):
    """Embedding of a fit with two short partitions."""
    X, _, labels = digits
    return small_model(epochs=2, epochs_per_partition=1).fit(X, labels).transform(X)[:, :16]


class TestSwitches:
    @pytest.mark.parametrize(
        "options",
        [
            {"consistency": 0.0},
            {"consistency_ratio": 2},
            {"learn_from": "labeled"},
            {"triplets": 0.0},
            {"orthogonal": False},
            {"pretrain_epochs": 1},
            {"metric_steps": 0},
            {"augment": None},
            {"augment": "handwriting"},
            {"input_edges": 0.0},
            {"input_edges": 1.0},
            {"partition_size": None},
            {"propagation": "one-sided"},
            {"threshold": 0.0},
        ],
        ids=lambda options: next(f"{k}={v}" for k, v in options.items()),
    )
    def test_every_switch_changes_the_fit(self, short, digits, options):
        X, _, labels = digits
        other = small_model(epochs=2, epochs_per_partition=1, **options).fit(X, labels)
        assert np.abs(other.transform(X)[:, :16] - short).max() > 1e-3

    def test_one_sided_affinities_use_the_partitions_graph(self, digits, monkeypatch):
        X, _, labels = digits
        found, graphs = [], []
        mined, propagate = AlternationTrainer._mine, alternation.propagate_affinities

        def of_run(run, state, rng):
            triplets = mined(run, state, rng)
            part = run.parts[len(run.history)]
            found.append((part, triplets, graphs[-1], unit_rows(state.X[part] @ run.network.L)))
            return triplets

        def of_graph(graph, *args, **options):
            graphs.append(graph)
            return propagate(graph, *args, **options)

        monkeypatch.setattr(AlternationTrainer, "_mine", of_run)
        monkeypatch.setattr(alternation, "propagate_affinities", of_graph)
        small_model(epochs=4, propagation="one-sided").fit(X, labels)
        assert len(found) == 2
        for part, triplets, graph, _ in found:
            assert graph.n_samples == len(part) < len(X)
            assert len(triplets.anchor) > 1000
            assert np.isin(triplets[:3], part).all()
        (part, _, first, _), (_, _, second, embedding) = found
        images = project_input(as_samples(X, "test"))[1][part]
        np.testing.assert_array_equal(first.indices, knn_graph(images, 10).indices)
        np.testing.assert_array_equal(second.indices, knn_graph(embedding, 10).indices)

    @pytest.mark.parametrize(
        ("option", "value", "place"),
        [
            ("angle", 25.0, "ssdml.deep.alternation.learn_metric"),
            ("angle", 25.0, "ssdml.deep.alternation.batch_angular_loss"),
            ("n_neighbors", 6, "ssdml.graphs.neighbors.copies.knn_graph"),
            ("decay", 0.875, "ssdml.deep.trainer.propagate_labels"),
        ],
    )
    def test_parameters_reach_their_functions(self, digits, monkeypatch, option, value, place):
        X, _, labels = digits
        calls, (module, name) = [], place.rsplit(".", 1)
        real = getattr(importlib.import_module(module), name)

        def spy(*args, **named):
            calls.append([n for n in (*args, *named.values()) if isinstance(n, int | float)])
            return real(*args, **named)

        monkeypatch.setattr(place, spy)
        small_model(epochs=2, epochs_per_partition=1, **{option: value}).fit(X, labels)
        assert calls
        assert all(value in numbers for numbers in calls)

    def test_learning_rate_spans_all_partitions(self, digits, monkeypatch):
        X, _, labels = digits
        rates, decays, step = [], set(), Stepper.step

        def spy(trainer, loss, rate):
            rates.append(rate)
            decays.update(group["weight_decay"] for group in trainer.optimizer.param_groups)
            return step(trainer, loss, rate)

        monkeypatch.setattr(Stepper, "step", spy)
        small_model(epochs=3, epochs_per_partition=1, learning_rate=0.004, weight_decay=0.03).fit(
            X, labels
        )
        n_steps = len(rates)
        assert n_steps >= 3 * 200 // 40  # an epoch on each of three partitions
        done = np.arange(n_steps) / n_steps
        rise = np.minimum(1, (done + 1 / n_steps) / 0.1)
        fall = (1 + np.cos(np.pi * np.maximum(0, done - 0.1) / 0.9)) / 2
        np.testing.assert_allclose(rates, 0.004 * rise * fall, rtol=1e-12)
        assert decays == {0.03}

    def test_metric_stays_without_steps(self, digits):
        X, _, labels = digits
        short = [
            small_model(epochs=e, epochs_per_partition=1, metric_steps=0).fit(X, labels)
            for e in (1, 2)
        ]
        np.testing.assert_array_equal(*(model.components_ for model in short))

    def test_stops_early_when_classes_settle(self, fitted, digits):
        X, _, labels = digits
        changes = [entry["changed"] for entry in fitted.history_[1:]]
        model = small_model(tol=(changes[0] + 1) / 2).fit(X, labels)
        assert len(model.history_) == 2
        assert model.history_[-1]["changed"] == changes[0]

    def test_warns_when_classes_do_not_settle(self, digits):
        X, _, labels = digits
        message = r"of the samples changed class in the last partition, more than tol=1e-06"
        with pytest.warns(ConvergenceWarning, match=message) as caught:
            small_model(epochs=2, epochs_per_partition=1, tol=1e-6).fit(X, labels)
        assert caught[0].filename == __file__

    def test_input_weight_is_used(self, digits):
        X, _, labels = digits
        model = small_model(epochs=2, input_weight=0.0).fit(X, labels)
        assert model.transform(X).shape == (len(X), 16)
        assert small_model(epochs=2, input_weight=0.3).fit(X, labels).input_weight_ == 0.3

    @pytest.mark.parametrize(("edges", "expected"), [(0.0, 0.0), (0.2, BESIDE)])
    def test_auto_input_weight_follows_the_input_graph(self, digits, edges, expected):
        X, _, labels = digits
        model = small_model(epochs=1, epochs_per_partition=1, input_edges=edges).fit(X, labels)
        assert model.input_weight_ == expected

    @pytest.mark.parametrize(
        "make",
        [
            lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)),
            lambda: ResidualHead(64, n_hidden=64),
        ],
        ids=["layers", "residual head"],
    )
    def test_fits_features(self, digits, make):
        X, y, labels = digits
        torch.manual_seed(0)
        head, rows = make(), X.reshape(-1, 64)
        model = small_model().set_params(backbone=head).fit(rows, labels)
        assert (model.transduction_ == y).mean() > 0.7

    def test_mixed_precision_fits_as_well(self, fitted, digits):
        X, y, labels = digits
        mixed = small_model(mixed_precision=True).fit(X, labels)
        assert mixed.network_.proxies.dtype == torch.float32
        assert np.abs(mixed.transform(X) - fitted.transform(X)).max() > 1e-5
        ours, theirs = ((model.transduction_ == y).mean() for model in (mixed, fitted))
        assert ours > theirs - 0.1
        ours, theirs = (model.history_[-1]["loss"] for model in (mixed, fitted))
        assert ours == pytest.approx(theirs, rel=0.05)

    def test_mixed_precision_sees_the_weights_change(self, fitted, digits):
        """Although a block around all steps would keep their first copies in bfloat16."""
        network, samples = copy.deepcopy(fitted.network_), as_samples(digits[0], "fit")
        rows = samples.batch(np.arange(9))
        with torch.autocast("cpu", enabled=False), mixed_precision(network, True):
            before = network.outputs(rows)
            with torch.no_grad():
                for weights in network.backbone.parameters():
                    weights.zero_()
            assert (before != 0).any()
            assert (network.outputs(rows) == 0).all()

    def test_embeds_in_float32_during_mixed_precision(self, fitted, digits):
        """As DeepCluster does between epochs."""
        network, samples = fitted.network_, as_samples(digits[0], "fit")
        expected = embed_samples(network, samples)
        with mixed_precision(network, True):
            np.testing.assert_array_equal(embed_samples(network, samples), expected)
            assert network.mixed
            assert (
                np.abs(network(samples.batch(np.arange(9))).detach().numpy() - expected[:9]).max()
                > 1e-4
            )

    @pytest.mark.parametrize("has_it", [False, True])
    def test_auto_precision_follows_the_device(self, digits, monkeypatch, has_it):
        X, _, labels = digits
        seen, outputs = set(), MetricNetwork.outputs

        def spy(network, samples):
            seen.add(network.mixed)
            return outputs(network, samples)

        monkeypatch.setattr(MetricNetwork, "outputs", spy)
        monkeypatch.setattr("ssdml.utils.torch_tools.has_bfloat16", lambda device: has_it)
        small_model(epochs=1, epochs_per_partition=1).fit(X, labels)
        assert seen == {False, has_it}  # False: the features of the graph
