"""Methods that train a network on the images of a data set, which arrive as flat rows."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone

from ssdml.datasets.base import Dataset
from ssdml.experiments.methods.base import Factory
from ssdml.experiments.methods.estimators import EstimatorWrapper
from ssdml.experiments.methods.registry import DEEP_METHODS
from ssdml.networks.backbones import PAPER_NETWORKS
from ssdml.utils.labels import class_codes
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED

# Network and embedding dimension by image size: those of Dutta et al. (2021), or ours.
NETWORKS: dict[tuple[int, ...], tuple[str, int]] = {
    network.image_size: (name, network.n_components) for name, network in PAPER_NETWORKS.items()
}
OTHER_NETWORK = "wide-resnet", 64


class DeepMethod(EstimatorWrapper):
    """A deep estimator on samples as :meth:`prepare` converts them."""

    estimator: Any

    def fit(self, X: Any, y: Array) -> Self:
        """Fit on the images."""
        self.estimator_ = self.new_estimator().fit(self.prepare(X), y)
        return self

    def new_estimator(self) -> Any:
        """Return an unfitted copy of the estimator."""
        return clone(self.estimator)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of the estimator need no prefix."""
        own = self.get_params(deep=False)
        super().set_params(
            **{
                name if name.partition("__")[0] in own else f"estimator__{name}": value
                for name, value in params.items()
            }
        )
        return self


class OfImages(DeepMethod):
    """A deep estimator of images, given as flat rows (height, width, channels)."""

    def __init__(self, estimator: Any, item_shape: tuple[int, ...]) -> None:
        self.estimator = estimator
        self.item_shape = item_shape

    def prepare(self, X: Array) -> Array:
        """Reshape rows to images with the channels first."""
        images = X.reshape(len(X), *self.item_shape)
        return images if images.ndim == 3 else images.transpose(0, 3, 1, 2)


def deep_methods(dataset: Dataset) -> dict[str, Factory]:
    """Deep methods for the images of a data set.

    Raises
    ------
    ValueError
        If the samples are not images.
    """
    shape = dataset.item_shape
    if shape is None:
        raise ValueError(
            f"compare: deep must be False for {dataset.name}, whose samples are not images; got "
            "True. Omit --deep, or use DeepSSDML with a network of your own."
        )
    network = NETWORKS.get(shape[:2], OTHER_NETWORK)
    return {
        name: partial(_of_images, method(*network), shape) for name, method in DEEP_METHODS.items()
    }


def _of_images(
    method: Factory, shape: tuple[int, ...], random_state: int, n_jobs: int | None
) -> OfImages:
    return OfImages(method(random_state, n_jobs), shape)


class InitialFeatures(TransformerMixin, BaseEstimator):
    """Unit-length features of an untrained or pretrained backbone, "Initial" in the papers.

    Parameters
    ----------
    backbone : str or Module
        As :class:`ssdml.DeepSSDML` takes it.
    pretrain_epochs : int
        Epochs of softmax on the labeled images; Dutta et al. (2021) take 30 on CIFAR-10.
    batch_size : int
        Images embedded at a time.
    random_state : int or None
        Seed of random weights and of the images that estimate mean and scale.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.random.default_rng(0).random((5, 28, 28))
    >>> InitialFeatures("mnist").fit(images).transform(images).shape
    (5, 128)
    """

    def __init__(
        self,
        backbone: Any,
        pretrain_epochs: int = 0,
        batch_size: int = 16,
        random_state: int | None = None,
    ) -> None:
        self.backbone = backbone
        self.pretrain_epochs = pretrain_epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Array | None = None) -> Self:
        """Estimate mean and scale of the channels, and pretrain if asked to."""
        from ssdml.networks.data import as_samples
        from ssdml.networks.metric_network import new_network
        from ssdml.networks.training import pretrain
        from ssdml.utils.torch_tools import find_device

        self.device_ = find_device("auto", "InitialFeatures")
        items = as_samples(X, "InitialFeatures", self.device_)
        seed = self.random_state or 0
        codes, n_classes = class_codes(np.full(len(items), UNLABELED) if y is None else y)
        self.network_ = new_network(self.backbone, items, 1, max(n_classes, 1), seed, self.device_)
        rows, rng = np.flatnonzero(codes != UNLABELED), np.random.default_rng([seed, 0, 0])
        epochs = self.pretrain_epochs if len(rows) else 0
        self.losses_ = [*pretrain(self.network_, items, rows, codes[rows], epochs=epochs, rng=rng)]
        return self

    def transform(self, X: Any) -> Array:
        """Return the unit-length features of images."""
        from ssdml.networks.data import as_samples
        from ssdml.networks.training import embed_samples

        items = as_samples(X, "InitialFeatures", self.device_)
        return embed_samples(self.network_, items, "features", batch_size=self.batch_size)
