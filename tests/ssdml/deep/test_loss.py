"""The loss of a DeepSSDML step against a slow derivation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import nn
from torch.utils.checkpoint import checkpoint

from ssdml.deep.alternation import N_NEGATIVES, AlternationTrainer
from ssdml.networks.metric_network import TEMPERATURE
from tests.deep import assert_same_weights, small_model, small_network


class Pushed:
    """Known views: the samples, shifted by some pixels and brighter."""

    def __init__(self, pixels=2):
        self.pixels = pixels

    def __call__(self, samples, generator):
        return samples.roll(self.pixels, dims=3) + 0.05 * self.pixels

    def weaker(self, share):
        return Pushed(self.pixels - 1)


def seen_steps(monkeypatch, digits, **options):
    """Record batch, network and loss of each step of a short fit."""
    X, _, labels = digits
    steps, loss = [], AlternationTrainer._loss

    def spy(run, batch):
        before = copy.deepcopy(run.network).eval()
        value = loss(run, batch)
        steps.append((batch, before, float(value.detach())))
        return value

    monkeypatch.setattr(AlternationTrainer, "_loss", spy)
    small_model(epochs=2, augment=Pushed(), **options).fit(X, labels)
    return steps


def triplets_by_hand(rows, classes, drawn):
    """Choose the positive with the largest number, and the negatives nearest to the midpoint."""
    ends: list[tuple[int, int, int]] = []
    if not len(drawn):
        return ends
    for anchor, c in enumerate(classes):
        alike = [p for p in np.flatnonzero(classes == c) if p != anchor]
        others = np.flatnonzero(classes != c)
        if not alike or not len(others):
            continue
        positive = max(alike, key=lambda p: drawn[anchor, p])
        away = np.linalg.norm(rows[others] - (rows[anchor] + rows[positive]) / 2, axis=1)
        ends += [(anchor, positive, n) for n in others[np.argsort(away)[:N_NEGATIVES]]]
    return ends


def parts_by_hand(images, batch, network, angle, threshold):
    """Compute cross-entropy, angular loss and consistency loss in numpy."""

    def embedded(rows, pixels):
        with torch.no_grad():
            views = Pushed(pixels)(torch.from_numpy(images[rows])[:, None], None)
            return network(views).numpy().astype(np.float64)

    proxies = network.proxies.detach().numpy().astype(np.float64)
    proxies /= np.linalg.norm(proxies, axis=1, keepdims=True)

    def logs(embedding):
        return log_softmax(embedding @ proxies.T / TEMPERATURE, axis=1)

    seen, strong, weak = (
        embedded(rows, pixels)
        for rows, pixels in ((batch.rows, 2), (batch.others, 2), (batch.others, 1))
    )
    classes = -np.mean([line[c] for line, c in zip(logs(seen), batch.classes, strict=True)])
    triplets = triplets_by_hand(seen, batch.classes.numpy(), batch.positives.numpy())
    factor, angular = 4 * np.tan(np.radians(angle)) ** 2, []
    for a, p, n in (seen[places] for places in map(list, triplets)):
        margin = ((a - p) ** 2).sum() - factor * ((n - (a + p) / 2) ** 2).sum()
        angular.append(np.log1p(np.exp(margin)))
    agreed = [
        -asked[told.argmax()] if np.exp(told.max()) > threshold else 0.0
        for asked, told in zip(logs(strong), logs(weak), strict=True)
    ]
    angular, agreed = (np.mean(part) if len(part) else 0.0 for part in (angular, agreed))
    return classes, angular, agreed


@pytest.mark.parametrize(
    ("triplets", "consistency", "threshold", "ratio"),
    [(0.7, 0.3, 0.4, 1), (0.0, 2.0, 0.0, 3), (1.5, 0.0, 0.9, 1)],
)
def test_loss_adds_classes_triplets_and_consistency(
    digits, monkeypatch, triplets, consistency, threshold, ratio
):
    options = {"triplets": triplets, "consistency": consistency, "threshold": threshold}
    options["consistency_ratio"] = ratio
    steps = seen_steps(monkeypatch, digits, angle=35.0, **options)
    agreeing = []
    for batch, network, found in steps:
        classes, angular, agreed = parts_by_hand(digits[0], batch, network, 35.0, threshold)
        expected = classes + triplets * angular + consistency * agreed
        assert found == pytest.approx(expected, rel=2e-5)
        agreeing.append(agreed)
    assert len(steps) > 10
    assert consistency == 0 or sum(agreed > 0.01 for agreed in agreeing) > 5


def test_consistency_samples_come_from_the_partition(digits, monkeypatch):
    run_parts = []
    begin = AlternationTrainer.__init__

    def spy(run, *args, **options):
        begin(run, *args, **options)
        run_parts.append(run.parts)

    monkeypatch.setattr(AlternationTrainer, "__init__", spy)
    steps = seen_steps(monkeypatch, digits, partition_size=100)
    (first, *_), *_ = run_parts
    for batch, *_ in steps:
        assert np.isin(batch.others, first).all()
        assert np.isin(batch.rows, first).all()
        assert len(batch.others) == len(batch.rows)


def test_labeled_samples_alone_are_learned_from_beside_more_others(digits, monkeypatch):
    _, _, labels = digits
    steps = seen_steps(
        monkeypatch, digits, learn_from="labeled", consistency_ratio=3, partition_size=300
    )
    for batch, *_ in steps:
        assert np.array_equal(labels[batch.rows], batch.classes)
        assert len(batch.others) == 3 * len(batch.rows)
    others = np.concatenate([batch.others for batch, *_ in steps])
    assert (labels[others] == -1).mean() > 0.8  # 300 of the 350 samples of the partition


class Brighter:
    """Strong views are brighter by 5, weak ones are the samples."""

    def __call__(self, samples, generator):
        return samples + 5.0


@pytest.mark.parametrize("consistency", [1.0, 0.0])
def test_batch_normalization_evaluates_with_the_statistics_of_weak_views(digits, consistency):
    X, _, labels = digits
    backbone = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 32))
    options = {"consistency": consistency, "input_edges": 0.0, "input_weight": 0.0}
    model = small_model(backbone=backbone, augment=Brighter(), epochs=8, **options)
    layer = model.fit(X, labels).network_.backbone.backbone[0]
    assert layer.training is False
    assert layer.track_running_stats
    scale = model.network_.backbone.scale.item()  # images are standardized first
    brighter = 0.0 if consistency else 5.0 / scale
    assert layer.running_mean.item() == pytest.approx(brighter, abs=0.1)


class Repeated(nn.Sequential):
    """Layers whose forward pass is repeated in the backward pass, to save memory."""

    def forward(self, samples):
        return checkpoint(super().forward, samples, use_reentrant=False)


def test_gradient_checkpointing_changes_nothing(digits):
    X, _, labels = digits
    plain, repeated = (
        small_model(backbone=kind(*small_network(), nn.BatchNorm1d(32)), epochs=2).fit(X, labels)
        for kind in (nn.Sequential, Repeated)
    )
    assert_same_weights(plain, repeated)
