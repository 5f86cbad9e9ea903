"""Methods that learn a network: rows of the comparison are images, laid flat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from sklearn.base import clone

from ssdml.datasets import Dataset
from ssdml.experiments.initial import InitialFeatures
from ssdml.experiments.methods import AroundEstimator, Factory
from ssdml.paper_networks import PAPER_NETWORKS
from ssdml.utils.typing import Array

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

    For other sizes a :class:`ssdml.wide_resnet.WideResNet`.

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
    from ssdml.deep import DeepSSDML

    return DeepSSDML(network, n_components, random_state=random_state, n_jobs=n_jobs)


def _deep_paper(
    network: str, n_components: int | None, random_state: int, n_jobs: int | None
) -> Any:
    from ssdml.deep import DeepSSDML

    return DeepSSDML.paper(network, n_components, random_state=random_state, n_jobs=n_jobs)


DEEP: dict[str, Maker] = {
    "initial": _initial,
    "deep-ssdml": _deep_ssdml,
    "deep-ssdml-paper": _deep_paper,
}
