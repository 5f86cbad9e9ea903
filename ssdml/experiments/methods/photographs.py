"""Methods that learn networks of photographs, which stay in their files, by a paper's protocol."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ssdml.datasets.base import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.methods.base import Factory
from ssdml.experiments.methods.deep import DeepMethod, Maker
from ssdml.experiments.methods.protocols import SEED_003, Protocol
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED


class OfPhotographs(DeepMethod):
    """A deep estimator of photographs: images of a size, and a backbone made when it is fitted."""

    def __init__(
        self,
        estimator: Any,
        architecture: str = SEED_003.architecture,
        pooling: str = SEED_003.pooling,
        weights: str | None = None,
        image_size: int = SEED_003.image_size,
        input_scales: Any = SEED_003.input_scales,
        frozen_norms: bool = False,
    ) -> None:
        self.estimator = estimator
        self.architecture = architecture
        self.pooling = pooling
        self.weights = weights
        self.image_size = image_size
        self.input_scales = input_scales
        self.frozen_norms = frozen_norms

    def new_estimator(self) -> Any:
        """The estimator with its backbone."""
        from ssdml.networks.fine_grained import fine_grained_backbone

        backbone = fine_grained_backbone(
            self.architecture,
            self.pooling,
            weights=self.weights,
            input_scales=self.input_scales,
            frozen_norms=self.frozen_norms,
        )
        return super().new_estimator().set_params(backbone=backbone)

    def given(self, X: Any) -> ImageFiles:
        """The files, read at the protocol's size."""
        resized: ImageFiles = X.resized(self.image_size)
        return resized

    def fingerprint(self) -> str:
        """What the parameters do not tell: the scales, and the SHA-256 of the weights."""
        if self.weights is None:
            return f"{list(self.input_scales)}"
        with Path(self.weights).expanduser().open("rb") as file:
            return f"{list(self.input_scales)} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def photograph_methods(
    dataset: Dataset,
    makers: Mapping[str, Maker],
    *,
    weights: str | Path | None = None,
    protocol: Protocol = SEED_003,
) -> dict[str, Factory]:
    """Deep methods for photographs by a protocol.

    Parameters
    ----------
    dataset : Dataset
        Of photographs in files; how many classes are learned is read from it, which none is.
    makers : dict
        Of deep estimators by name, those of `ssdml.experiments.methods.registry.DEEP_METHODS`.
    weights : path, optional
        File of the network's weights; None: random ones.
    protocol : Protocol

    Notes
    -----
    Ours, where seed 003 is silent: a square is cut from the middle of each image, its shorter side
    8/7 as long; without partitions the graph is built and triplets are mined anew every 10 epochs,
    as with them; the baselines' graphs have as many neighbors, and Synthetic the same angle.
    DeepCluster finds ten times as many clusters as there are classes to learn, as its paper does on
    ImageNet, but no more than a fifth of the images. And where we do otherwise:
    torchvision's GoogLeNet has batch normalization, which MatConvNet's has not, and the last
    network is kept, for the choice of the best wants the labels of 15 % of the images.

    Of the other seeds' protocols the methods take the network, the size of the images, the columns,
    the batch, the rate, the weight decay and the length; losses, optimizers and how a square is cut
    stay their own (seed 000 squeezes images to a square before it crops).
    """
    learned = dataset.y if dataset.test is None else dataset.y[~dataset.test]
    protocol = protocol.on(dataset.name, len(learned))
    learning = {"n_clusters": _n_clusters(learned)} | dict(protocol.learning)
    protocol = replace(protocol, learning=learning)
    return {
        name: partial(_of_photographs, make, weights, protocol) for name, make in makers.items()
    }


def _of_photographs(
    make: Maker,
    weights: str | Path | None,
    protocol: Protocol,
    random_state: int,
    n_jobs: int | None,
) -> OfPhotographs:
    estimator = make(protocol.architecture, protocol.n_components, random_state, n_jobs)
    learning = {"n_components": protocol.n_components} | dict(protocol.learning)
    return OfPhotographs(
        estimator.set_params(**_settings(estimator, learning)),
        protocol.architecture,
        protocol.pooling,
        None if weights is None else str(weights),
        protocol.image_size,
        protocol.input_scales,
        bool(protocol.frozen_norms),
    )


def _settings(estimator: Any, learning: Mapping[str, Any]) -> dict[str, Any]:
    """What of a protocol the estimator has a parameter for, or else its method."""
    known = estimator.get_params(deep=False)
    settings = {name: value for name, value in learning.items() if name in known}
    if "method_params" in known:
        inner = estimator.method_defaults.keys() - known.keys()
        settings["method_params"] = {k: v for k, v in learning.items() if k in inner}
    return settings


def _n_clusters(labels: Array) -> int:
    """Ten times as many as classes, of five items or more on average.

    Examples
    --------
    >>> _n_clusters(np.repeat(np.arange(100), 59)), _n_clusters(np.repeat(np.arange(100), 6))
    (1000, 120)
    """
    known = labels[labels != UNLABELED]
    return max(2, min(10 * len(np.unique(known)), len(labels) // 5))
