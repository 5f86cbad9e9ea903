"""The loss of a DeepSSDML step against a slow derivation."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from ssdml.deep.alternation import N_NEGATIVES, AlternationTrainer
from ssdml.losses.angular import batch_triplets
from tests.deep import small_model


class Pushed:
    """Known views: the samples, shifted by some pixels and brighter."""

    def __init__(self, pixels=2):
        self.pixels = pixels

    def __call__(self, samples, generator):
        return samples.roll(self.pixels, dims=3) + 0.05 * self.pixels

    def weaker(self, share):
        return Pushed(self.pixels - 1)


def seen_steps(monkeypatch, digits, **options):
    """Record batch, network, random state and loss of each step of a short fit."""
    X, _, labels = digits
    steps, loss = [], AlternationTrainer._loss

    def spy(run, batch):
        before = copy.deepcopy(run.network).eval(), run.draws.generator().get_state()
        value = loss(run, batch)
        steps.append((batch, *before, float(value.detach())))
        return value

    monkeypatch.setattr(AlternationTrainer, "_loss", spy)
    small_model(epochs=2, augment=Pushed(), **options).fit(X, labels)
    return steps


def parts_by_hand(images, batch, network, state, angle, threshold):
    """Compute cross-entropy, angular loss and consistency loss in numpy."""

    def embedded(rows, pixels):
        with torch.no_grad():
            views = Pushed(pixels)(torch.from_numpy(images[rows])[:, None], None)
            return network(views).numpy().astype(np.float64)

    proxies = network.proxies.detach().numpy().astype(np.float64)
    proxies /= np.linalg.norm(proxies, axis=1, keepdims=True)

    def logs(embedding):
        return log_softmax(embedding @ proxies.T / network.temperature, axis=1)

    seen, strong, weak = (
        embedded(rows, pixels)
        for rows, pixels in ((batch.rows, 2), (batch.others, 2), (batch.others, 1))
    )
    classes = -np.mean([line[c] for line, c in zip(logs(seen), batch.classes, strict=True)])
    torch.random.set_rng_state(state)  # a random positive of each anchor
    ends = batch_triplets(
        torch.from_numpy(seen).float(), torch.from_numpy(batch.classes), N_NEGATIVES
    )
    factor, angular = 4 * np.tan(np.radians(angle)) ** 2, []
    for a, p, n in zip(*(seen[places] for places in ends), strict=True):
        margin = ((a - p) ** 2).sum() - factor * ((n - (a + p) / 2) ** 2).sum()
        angular.append(np.log1p(np.exp(margin)))
    agreed = [
        -asked[told.argmax()] if np.exp(told.max()) > threshold else 0.0
        for asked, told in zip(logs(strong), logs(weak), strict=True)
    ]
    return classes, np.mean(angular), np.mean(agreed)


@pytest.mark.parametrize(
    ("triplets", "consistency", "threshold"), [(0.7, 0.3, 0.4), (0.0, 2.0, 0.0), (1.5, 0.0, 0.9)]
)
def test_loss_adds_classes_triplets_and_consistency(
    digits, monkeypatch, triplets, consistency, threshold
):
    options = {"triplets": triplets, "consistency": consistency, "threshold": threshold}
    steps = seen_steps(monkeypatch, digits, angle=35.0, **options)
    agreeing = []
    for batch, network, state, found in steps:
        classes, angular, agreed = parts_by_hand(digits[0], batch, network, state, 35.0, threshold)
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
