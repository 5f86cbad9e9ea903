"""A network as it comes, for every other to be compared with."""

from __future__ import annotations

from typing import Any, Self

import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

Array = npt.NDArray[Any]


class InitialFeatures(TransformerMixin, BaseEstimator):
    """Unit features of a backbone as it comes, before any metric: the papers' "Initial".

    Parameters
    ----------
    backbone : str or Module
        As :class:`ssdml.DeepSSDML` takes it. Its weights are random where none are given.
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
        self, backbone: Any, batch_size: int = 16, random_state: int | None = None
    ) -> None:
        self.backbone = backbone
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Array | None = None) -> Self:
        """Nothing is learned but the mean and the scale of the channels."""
        from ssdml.deep_network import new_network
        from ssdml.items import as_items
        from ssdml.training import find_device

        self.device_ = find_device("auto")
        items = as_items(X, "InitialFeatures", self.device_)
        seed = self.random_state or 0
        self.network_ = new_network(self.backbone, items, 1, 1, seed, self.device_)
        return self

    def transform(self, X: Any) -> Array:
        """Features of images, of unit length, before any metric."""
        from ssdml.items import as_items
        from ssdml.training import embed_items

        items = as_items(X, "InitialFeatures", self.device_)
        return embed_items(self.network_, items, "features", batch_size=self.batch_size)
