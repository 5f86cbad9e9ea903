"""What is measured on: enlarged digits for short checks, MNIST and CIFAR-10 for recipes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

Array = npt.NDArray[Any]


class Images(NamedTuple):
    """Images with few labels, and images to score on."""

    X: Array  # (n, channels, side, side), float32 from 0 to 1
    labels: Array  # (n,), -1 where unlabeled
    y: Array  # (n,)
    X_test: Array
    y_test: Array

    @property
    def labeled(self) -> Array:
        """Numbers of the labeled images."""
        return np.flatnonzero(self.labels != -1)


def enlarged_digits(n: int, shape: tuple[int, ...], labels_per_class: int) -> Images:
    """scikit-learn's digits as images of this shape; the rest of the 1,797 are to score on."""
    X, y = load_digits(return_X_y=True)
    channels, side, _ = shape
    factor = side // 8
    large = np.kron(X.reshape(-1, 8, 8) / 16, np.ones((factor, factor)))
    edge = side - 8 * factor
    large = np.pad(large, ((0, 0), (edge // 2, edge - edge // 2), (edge // 2, edge - edge // 2)))
    images = np.repeat(large[:, None], channels, axis=1).astype(np.float32)
    labels = np.full(n, -1)
    for c in range(10):
        labels[np.flatnonzero(y[:n] == c)[:labels_per_class]] = c
    return Images(images[:n], labels, y[:n], images[n:], y[n:])


def data_set(name: str, labels_per_class: int, seed: int) -> Images:
    """A known data set by its standard split, with so many labels per class."""
    from ssdml.datasets import label_scarce_split, load_dataset

    data = load_dataset(name)
    split = label_scarce_split(data, labels_per_class=labels_per_class, seed=seed)
    images = data.X.reshape(len(data.X), *data.item_shape)
    images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
    labels = split.partial_labels(data.y)
    train, test = split.train, split.test
    return Images(images[train], labels, data.y[train], images[test], data.y[test])


def clusters(n: int, d: int, n_labels: int) -> tuple[Array, Array]:
    """Rows around ten centers, float32, and labels of the first rows."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=n)
    X = rng.standard_normal((10, d), dtype=np.float32)[y]
    X += rng.standard_normal((n, d), dtype=np.float32)
    return X, np.where(np.arange(n) < n_labels, y, -1)
