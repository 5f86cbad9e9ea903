"""Deep methods for photographs in files, by the protocol of a paper."""

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
from ssdml.experiments.methods.deep import DeepMethod
from ssdml.experiments.methods.protocols import DUTTA2021, Protocol
from ssdml.experiments.methods.registry import DEEP_METHODS, DeepFactory
from ssdml.utils.files import as_path
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED


class OfPhotographs(DeepMethod):
    """A deep estimator of photographs, resized, with a backbone that is made in ``fit``."""

    def __init__(
        self,
        estimator: Any,
        architecture: str = DUTTA2021.architecture,
        pooling: str = DUTTA2021.pooling,
        weights: str | None = None,
        image_size: int = DUTTA2021.image_size,
        input_scales: Any = DUTTA2021.input_scales,
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
        """Return an unfitted copy of the estimator with its backbone."""
        from ssdml.networks.fine_grained import fine_grained_backbone

        backbone = fine_grained_backbone(
            self.architecture,
            self.pooling,
            weights=self.weights,
            input_scales=self.input_scales,
            frozen_norms=self.frozen_norms,
        )
        return super().new_estimator().set_params(backbone=backbone)

    def prepare(self, X: Any) -> ImageFiles:
        """Return the files, to be read at the image size."""
        return X.resized(self.image_size)

    def fingerprint(self) -> str:
        """Scales and SHA-256 of the weights, which the parameters do not identify."""
        if self.weights is None:
            return f"{list(self.input_scales)}"
        with as_path(self.weights).open("rb") as file:
            return f"{list(self.input_scales)} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def photograph_methods(
    dataset: Dataset,
    *,
    weights: str | Path | None = None,
    protocol: Protocol = DUTTA2021,
    methods: Mapping[str, DeepFactory] = DEEP_METHODS,
) -> dict[str, Factory]:
    """Deep methods for the photographs of a data set.

    Parameters
    ----------
    dataset : Dataset
    weights : path, optional
        File with the weights of the network; None: random weights, unless a package brings some
        (EfficientNet-Lite0).
    protocol : Protocol
    methods : dict
        By name, made from a network and the dimension of the embedding.

    Notes
    -----
    Not stated by Dutta et al. (2021), and ours: images are center crops whose shorter side was
    scaled to 8/7 of the image size; the graph is rebuilt and triplets are mined every 10 epochs;
    the baselines' graphs have as many neighbors, and SUML the same angle; DeepCluster has ten
    clusters per training class (as its paper on ImageNet), but at most one per five images.
    Different from them: torchvision's GoogLeNet has batch normalization, and the last network is
    kept, since the choice of the best one needs the labels of 15% of the images.

    The other papers' protocols set network, image size, dimension, batch size, rate, weight decay
    and epochs; losses, optimizers and crops stay those of the methods.
    """
    from ssdml.networks.fine_grained import packaged_weights

    protocol = resolved(protocol, dataset)
    weights = weights or packaged_weights(protocol.architecture)
    return {
        name: partial(
            _of_photographs, method(protocol.architecture, protocol.n_components), weights, protocol
        )
        for name, method in methods.items()
    }


def resolved(protocol: Protocol, dataset: Dataset) -> Protocol:
    """Resolve the values of a protocol for a data set, and add the number of clusters."""
    y = dataset.y if dataset.test is None else dataset.y[~dataset.test]
    protocol = protocol.on(dataset.name, len(y))
    learning = {"n_components": protocol.n_components, "n_clusters": _n_clusters(y)}
    return replace(protocol, learning=learning | dict(protocol.learning))


def _of_photographs(
    method: Factory,
    weights: str | Path | None,
    protocol: Protocol,
    random_state: int,
    n_jobs: int | None,
) -> OfPhotographs:
    """Make the estimator of a factory with the settings and the network of a resolved protocol."""
    return OfPhotographs(
        with_settings(method(random_state, n_jobs), protocol.learning),
        protocol.architecture,
        protocol.pooling,
        None if weights is None else str(weights),
        protocol.image_size,
        protocol.input_scales,
        bool(protocol.frozen_norms),
    )


def with_settings(estimator: Any, learning: Mapping[str, Any]) -> Any:
    """Set the parameters that the estimator, or the method in it, has."""
    known = estimator.get_params(deep=False)
    settings = {name: value for name, value in learning.items() if name in known}
    if "method_params" in known:
        inner = estimator.method_defaults.keys() - known.keys()
        settings["method_params"] = {k: v for k, v in learning.items() if k in inner}
    return estimator.set_params(**settings)


def _n_clusters(y: Array) -> int:
    """Ten clusters per class, with five images or more on average.

    Examples
    --------
    >>> _n_clusters(np.repeat(np.arange(100), 59)), _n_clusters(np.repeat(np.arange(100), 6))
    (1000, 120)
    """
    return max(2, min(10 * len(np.unique(y[y != UNLABELED])), len(y) // 5))
