"""Methods that learn a network: rows of the comparison are images, laid flat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone

from ssdml.datasets.base import Dataset
from ssdml.experiments.methods.base import AroundEstimator, Factory
from ssdml.networks.backbones import PAPER_NETWORKS
from ssdml.utils.labels import class_codes
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED

NETWORKS: dict[tuple[int, ...], tuple[str, int]] = {
    network.image_size: (name, network.n_components) for name, network in PAPER_NETWORKS.items()
}  # seed 003's, and the columns of L
OF_OTHER_SIZES = "wide-resnet", 64


class DeepMethod(AroundEstimator):
    """A deep estimator of what the rows of a comparison stand for, as :meth:`given` makes it."""

    estimator: Any

    def fit(self, X: Any, y: Array) -> Self:
        """Fit on the images."""
        self.estimator_ = self.new_estimator().fit(self.given(X), y)
        return self

    def new_estimator(self) -> Any:
        """The estimator that is fitted."""
        return clone(self.estimator)

    def set_params(self, **params: Any) -> Self:
        """Parameters of the estimator go by their own names."""
        own = self.get_params(deep=False)
        super().set_params(
            **{
                name if name.partition("__")[0] in own else f"estimator__{name}": v
                for name, v in params.items()
            }
        )
        return self


class OfImages(DeepMethod):
    """A deep estimator of images, given as flat rows (height, width, channels)."""

    def __init__(self, estimator: Any, item_shape: tuple[int, ...]) -> None:
        self.estimator = estimator
        self.item_shape = item_shape

    def given(self, X: Array) -> Array:
        """Rows as images, their channels first."""
        images = X.reshape(len(X), *self.item_shape)
        return images if images.ndim == 3 else images.transpose(0, 3, 1, 2)


# From a network's name, the columns of L (None: as many as features), a seed and the number of jobs
# to an estimator.
Maker = Callable[[str, int | None, int, int | None], Any]


def deep_methods(dataset: Dataset, makers: Mapping[str, Maker]) -> dict[str, Factory]:
    """Deep methods for the images of a data set: seed 003's network if it has one for their size.

    For other sizes a :class:`ssdml.networks.wide_resnet.WideResNet`.

    Raises
    ------
    ValueError
        If the items are no images.
    """
    shape = dataset.item_shape
    if shape is None:
        raise ValueError(
            f"compare: deep methods are for images; got items of no shape in {dataset.name}. Leave "
            "--deep out, or use DeepSSDML with a network of your own."
        )
    return {name: partial(_of_images, make, shape) for name, make in makers.items()}


def _of_images(
    make: Maker, shape: tuple[int, ...], random_state: int, n_jobs: int | None
) -> OfImages:
    network = NETWORKS.get(shape[:2], OF_OTHER_SIZES)
    return OfImages(make(*network, random_state, n_jobs), shape)


def _initial(network: str, n_components: int | None, random_state: int, n_jobs: int | None) -> Any:
    return InitialFeatures(network, random_state=random_state)


def _deep_ssdml(
    network: str, n_components: int | None, random_state: int, n_jobs: int | None
) -> Any:
    from ssdml.deep.estimator import DeepSSDML

    return DeepSSDML(network, n_components, random_state=random_state, n_jobs=n_jobs)


def _deep_paper(
    network: str, n_components: int | None, random_state: int, n_jobs: int | None
) -> Any:
    from ssdml.deep.estimator import DeepSSDML

    return DeepSSDML.paper(network, n_components, random_state=random_state, n_jobs=n_jobs)


DEEP: dict[str, Maker] = {
    "initial": _initial,
    "deep-ssdml": _deep_ssdml,
    "deep-ssdml-paper": _deep_paper,
}


# A network as it comes, for every other to be compared with.


class InitialFeatures(TransformerMixin, BaseEstimator):
    """Unit features of a backbone as it comes, before any metric: the papers' "Initial".

    Parameters
    ----------
    backbone : str or Module
        As :class:`ssdml.DeepSSDML` takes it. Its weights are random where none are given.
    pretrain_epochs : int
        Of softmax on the labeled items, by which seed 003 begins on CIFAR-10: 30 there.
    batch_size : int
        Items that are embedded at a time.
    random_state : int or None
        Of random weights, and of the items whose mean and scale stand for all.

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
        """Nothing is learned but the mean and the scale of the channels, and what is asked for."""
        from ssdml.networks.data import as_items
        from ssdml.networks.metric_network import new_network
        from ssdml.networks.training import pretrain
        from ssdml.utils.torch_tools import find_device

        self.device_ = find_device("auto", "InitialFeatures")
        items = as_items(X, "InitialFeatures", self.device_)
        seed = self.random_state or 0
        codes, n_classes = class_codes(np.full(len(items), UNLABELED) if y is None else y)
        self.network_ = new_network(self.backbone, items, 1, max(n_classes, 1), seed, self.device_)
        rows, rng = np.flatnonzero(codes != UNLABELED), np.random.default_rng([seed, 0, 0])
        epochs = self.pretrain_epochs if len(rows) else 0
        self.losses_ = [*pretrain(self.network_, items, rows, codes[rows], epochs=epochs, rng=rng)]
        return self

    def transform(self, X: Any) -> Array:
        """Features of images, of unit length, before any metric."""
        from ssdml.networks.data import as_items
        from ssdml.networks.training import embed_items

        items = as_items(X, "InitialFeatures", self.device_)
        return embed_items(self.network_, items, "features", batch_size=self.batch_size)
