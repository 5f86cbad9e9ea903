"""A network as it comes, for every other to be compared with."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.masses import class_codes
from ssdml.utils.typing import Array


class InitialFeatures(TransformerMixin, BaseEstimator):
    """Unit features of a backbone as it comes, before any metric: the papers' "Initial".

    Parameters
    ----------
    backbone : str or Module
        As :class:`ssdml.DeepSSDML` takes it. Its weights are random where none are given.
    pretrain_epochs : int
        Of softmax on the labelled items, by which seed 003 begins on CIFAR-10: 30 there.
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
        from ssdml.deep_network import new_network
        from ssdml.items import as_items
        from ssdml.training import find_device, pretrain

        self.device_ = find_device("auto")
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
        from ssdml.items import as_items
        from ssdml.training import embed_items

        items = as_items(X, "InitialFeatures", self.device_)
        return embed_items(self.network_, items, "features", batch_size=self.batch_size)
