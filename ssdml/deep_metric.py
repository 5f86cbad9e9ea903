"""What a learned network offers once it is learned: embedding, classes, save and load."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ssdml.input_side import InputSide, flat_items

Array = npt.NDArray[Any]


class DeepMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Mixin of estimators that learn ``network_``, and what stands beside its embedding."""

    network_: Any
    classes_: Array
    input_weight_: float
    input_side_: InputSide | None
    item_shape_: tuple[int, ...]

    def transform(self, dataset: Any) -> Array:
        """Unit embedding of items, and the weighted input beside it.

        Returns
        -------
        embedding : ndarray of shape (n, n_components + m), float32
            m principal components of the input; 0 if ``input_weight_`` is 0.
        """
        from ssdml.training import embed_items

        items = self._items(dataset, "transform")
        embedding = embed_items(self.network_, items)
        if not self.input_weight_:
            return embedding
        assert self.input_side_ is not None
        return np.hstack([embedding, self.input_weight_ * self.input_side_(flat_items(items))])

    def predict_proba(self, dataset: Any) -> Array:
        """Distribution of the classes at each item, as its proxies have it.

        Returns
        -------
        distributions : ndarray of shape (n, n_classes)
            Columns in the order of ``classes_``.
        """
        import torch

        from ssdml.training import embed_items

        items = self._items(dataset, "predict_proba")
        proxies = self.network_.proxies
        with torch.no_grad():
            embedding = torch.from_numpy(embed_items(self.network_, items)).to(proxies.device)
            distributions: Array = torch.softmax(self.network_.logits(embedding), 1).cpu().numpy()
        return distributions

    def predict(self, dataset: Any) -> Array:
        """Likeliest class of each item, (n,)."""
        likeliest: Array = self.classes_[self.predict_proba(dataset).argmax(axis=1)]
        return likeliest

    @property
    def _n_features_out(self) -> int:
        n_components = int(self.network_.metric.shape[1])
        if not self.input_weight_ or self.input_side_ is None:
            return n_components
        return n_components + self.input_side_.axes.shape[1]

    def _items(self, dataset: Any, method: str) -> Any:
        """Items of new data, once they are known to have the shape of those that were fitted."""
        from ssdml.items import as_items

        check_is_fitted(self)
        who = f"{type(self).__name__}.{method}"
        items = as_items(dataset, who, str(self.network_.proxies.device))
        if items.shape != self.item_shape_:
            raise ValueError(
                f"{who}: items must have the shape {self.item_shape_} of those that were fitted; "
                f"got {items.shape}."
            )
        return items

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")
