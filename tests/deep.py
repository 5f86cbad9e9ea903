"""Small images, a small network and short fits for the tests of networks."""

from __future__ import annotations

import os

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from ssdml import DeepSSDML

N_TRIPLETS = 5_000  # per partition, of 50,000 otherwise
PARTITION_SIZE = 300
DEVICE = os.environ.get("SSDML_DEVICE", "cpu")  # that networks train on


def small_images(per_class=5, n=600):
    """Digits of 8 x 8 pixels, their classes, and a few labels per class."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:n].reshape(-1, 8, 8).astype(np.float32) / 16, y[:n]
    labels = np.full(n, -1)
    for c in range(10):
        labels[np.flatnonzero(y == c)[:per_class]] = c
    return X, y, labels


def small_network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 32)
        )


def small_model(**options):
    recipe = {
        "backbone": small_network(),
        "n_components": 16,
        "partition_size": PARTITION_SIZE,
        "epochs": 6,
        "epochs_per_partition": 2,
        "batch_size": 40,
        "learning_rate": 3e-3,
        "random_state": 0,
        "device": DEVICE,
    }
    return DeepSSDML(**(recipe | options))


def small_published_model(**options):
    recipe = {
        "backbone": small_network(),
        "n_components": 16,
        "partition_size": PARTITION_SIZE,
        "epochs": 2,
        "epochs_per_partition": 1,
        "random_state": 0,
        "device": DEVICE,
    }
    return DeepSSDML.paper(**(recipe | options))


def weights(model):
    return {name: value.cpu().numpy() for name, value in model.network_.state_dict().items()}


def assert_same_weights(one, two):
    for (name, a), (other, b) in zip(weights(one).items(), weights(two).items(), strict=True):
        assert name == other
        np.testing.assert_array_equal(a, b)
