"""Consistency: targets are confident predictions on weak views."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.datasets import load_digits
from torch import nn

from ssdml.deep.alternation import AlternationTrainer
from ssdml.experiments.analysis.statistics import paired_difference
from ssdml.networks.metric_network import TEMPERATURE
from tests.deep import assert_same_weights, small_model, small_network


@pytest.fixture
def asked(digits, monkeypatch):
    """Fit, and record targets and class probabilities of the weak views."""

    def fit(threshold):
        X, _, labels = digits
        steps, targets = [], AlternationTrainer._targets

        def spy(run, weak):
            classes, trusted = targets(run, weak)
            assert run.network.training
            run.network.eval()
            with torch.no_grad():
                embedding, proxies = run.network(weak).numpy(), run.network.proxies.numpy()
            run.network.train()
            cosines = embedding @ (proxies / np.linalg.norm(proxies, axis=1, keepdims=True)).T
            known = softmax(cosines / TEMPERATURE, axis=1)
            steps.append((classes.numpy(), trusted.numpy(), known))
            return classes, trusted

        monkeypatch.setattr(AlternationTrainer, "_targets", spy)
        network = small_network().append(nn.Dropout(0.2))  # off for targets
        options = {"backbone": network, "epochs": 3, "epochs_per_partition": 3}
        small_model(**options, threshold=threshold).fit(X, labels)
        return [np.concatenate(part) for part in zip(*steps, strict=True)]

    return fit


def test_targets_are_confident_predictions(asked):
    classes, trusted, known = asked(0.6)
    np.testing.assert_array_equal(classes, known.argmax(axis=1))
    clear = np.abs(known.max(axis=1) - 0.6) > 1e-4
    np.testing.assert_array_equal(trusted[clear], known.max(axis=1)[clear] > 0.6)
    assert 0.1 < trusted.mean() < 0.9


def brightened(samples, generator):
    return samples * (1 + torch.rand(len(samples), 1, 1, 1, generator=generator))


def brightened_in_place(samples, generator):
    return samples.mul_(1 + torch.rand(len(samples), 1, 1, 1, generator=generator))


def test_views_may_be_made_in_place(digits):
    """Without a weaker form the weak view is the samples themselves."""
    X, _, labels = digits
    plain, in_place = (
        small_model(augment=augment, epochs=2).fit(X, labels)
        for augment in (brightened, brightened_in_place)
    )
    assert_same_weights(plain, in_place)


class Plain(nn.Module):
    """A transform without a generator."""

    def forward(self, samples):
        return samples


@pytest.mark.parametrize("transform", [Plain(), lambda samples: samples])
def test_rejects_transforms_without_a_generator(digits, transform):
    X, _, labels = digits
    message = r"augment must take samples and a generator; got .* Wrap it: lambda samples, gen"
    with pytest.raises(TypeError, match=message):
        small_model(augment=transform).fit(X, labels)


def test_views_get_the_precision_of_the_samples(digits):
    X, _, labels = digits
    plain, wide = (
        small_model(augment=augment, epochs=2).fit(X, labels)
        for augment in (brightened, lambda *given: brightened(*given).double())
    )
    assert_same_weights(plain, wide)


def test_rejects_views_of_another_shape(digits):
    X, _, labels = digits
    model = small_model(augment=lambda samples, generator: samples.flatten(1), epochs=1)
    with pytest.raises(ValueError, match=r"views of shape \(40, 1, 8, 8\), .*; got \(40, 64\)"):
        model.fit(X, labels)


def test_a_first_loss_of_nan_does_not_blame_the_learning_rate(digits):
    X, _, labels = digits
    model = small_model(augment=lambda samples, generator: samples * np.nan, epochs=1)
    with pytest.raises(FloatingPointError, match=r"got nan at step 1 .* Look for a division"):
        model.fit(X, labels)


def test_rejects_a_wrong_number_of_views(digits):
    X, _, labels = digits
    model = small_model(augment=lambda samples, generator: samples[1:], epochs=1)
    with pytest.raises(
        ValueError, match=r"must return one view per sample; got shape \(39, .* for 40 samples"
    ):
        model.fit(X, labels)


def test_threshold_0_trusts_every_sample(asked):
    _, trusted, _ = asked(0.0)
    assert trusted.all()


@pytest.mark.slow
def test_threshold_improves_a_short_fit():
    """On held-out digits, after six epochs on 1,500 with 50 labels."""
    X, y = load_digits(return_X_y=True)
    X = X.reshape(-1, 8, 8).astype(np.float32) / 16
    right = {0.0: [], 0.9: []}
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(X))
        learned, others = order[:1500], order[1500:]
        labels = np.full(1500, -1)
        for c in range(10):
            labels[np.flatnonzero(y[learned] == c)[:5]] = c
        for threshold, shares in right.items():
            model = small_model(threshold=threshold, random_state=seed).fit(X[learned], labels)
            shares.append(100 * (model.predict(X[others]) == y[others]).mean())
    change = paired_difference(np.array(right[0.0]), np.array(right[0.9]))
    assert change.mean < -2
    assert change.excludes_zero
