"""Features of CIFAR-10 images from EfficientNet-Lite0, computed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from ssdml.datasets.base import Dataset
from ssdml.datasets.known.layouts import data_folders
from ssdml.datasets.loading import load_dataset
from ssdml.experiments.labeling.features import SIDE, efficientnet_lite0
from ssdml.utils.persistence import atomic_write
from tools.robust.progress import progress

BATCH = 50
N_TRAIN, N_TEST = 12_000, 3_000


def cifar10_features() -> Dataset:
    """CIFAR-10 as 1,280 features each of 12,000 training and 3,000 test images.

    They are drawn at random, once. The features are kept in the cache folder of ssdml; one thread
    computes them in about twenty minutes.
    """
    path = data_folders(None)[-1] / "features" / "cifar10-efficientnet-lite0.npz"
    if not path.is_file():
        network = efficientnet_lite0()
        images = subset(load_dataset("cifar10"), N_TRAIN, N_TEST)
        save_features(path, images, network)
    return load_dataset(path)


def subset(dataset: Dataset, n_train: int, n_test: int) -> Dataset:
    """Random training and test rows of a data set with a standard split, in its order."""
    rng = np.random.default_rng(0)
    sizes = ((~dataset.test, n_train), (dataset.test, n_test))
    rows = [rng.permutation(np.flatnonzero(part))[:size] for part, size in sizes]
    return dataset.of_rows(np.sort(np.concatenate(rows)))


def save_features(
    path: Path, images: Dataset, network: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Write the features of images, their labels and the test mask for `load_dataset`."""
    pixels = torch.from_numpy(images.X.reshape(-1, *images.item_shape)).permute(0, 3, 1, 2)
    batches = pixels.split(BATCH)
    with torch.inference_mode():
        resized = (
            torch.nn.functional.interpolate(b, size=(SIDE, SIDE), mode="bicubic").clamp(0, 1)
            for b in progress(batches, "features of CIFAR-10", len(batches))
        )
        X = torch.cat([network(batch) for batch in resized]).numpy()
    y = np.array(images.class_names)[images.y]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, X=X, y=y, test=images.test)
