"""What a learned network offers once it is learned: embedding, classes, save and load."""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ssdml.input_side import InputSide, flat_items
from ssdml.offered import ClassScore, SearchableEmbedding
from ssdml.persistence import load_state, save_state
from ssdml.utils.typing import Array

SAVED = ("components_", "classes_", "label_distributions_", "transduction_")


class DeepMetric(ClassScore, SearchableEmbedding):
    """Mixin of estimators that learn ``network_``, and what stands beside its embedding."""

    network_: Any
    classes_: Array
    input_weight_: float
    input_side_: InputSide | None
    item_shape_: tuple[int, ...]
    triplets_: Any
    history_: list[dict[str, Any]]
    stage_seconds_: dict[str, float]
    backbone: Any
    batch_size: int

    def transform(self, dataset: Any) -> Array:
        """Unit embedding of items, and the weighted input beside it.

        Returns
        -------
        embedding : ndarray of shape (n, n_components + m), float32
            m principal components of the input; 0 if ``input_weight_`` is 0.
        """
        from ssdml.journal import memory_hints

        check_is_fitted(self)
        with memory_hints(self):
            return self._embed(self.network_, self._items(dataset, "transform"))

    def _embed(self, network: Any, items: Any) -> Array:
        from ssdml.training import embed_items

        embedding = embed_items(network, items, batch_size=self.batch_size)
        if not self.input_weight_:
            return embedding
        assert self.input_side_ is not None
        return np.hstack([embedding, self.input_weight_ * self.input_side_(flat_items(items))])

    def predict_proba(self, dataset: Any) -> Array:
        """Distribution of the classes at each item, by its proxies of them; not calibrated.

        Returns
        -------
        distributions : ndarray of shape (n, n_classes)
            Columns in the order of ``classes_``.
        """
        import torch

        from ssdml.journal import memory_hints
        from ssdml.training import embed_items

        check_is_fitted(self)
        with memory_hints(self):
            items = self._items(dataset, "predict_proba")
            embedding = embed_items(self.network_, items, batch_size=self.batch_size)
        with torch.no_grad():
            rows = torch.from_numpy(embedding).to(self.network_.proxies.device)
            distributions: Array = torch.softmax(self.network_.logits(rows), 1).cpu().numpy()
        return distributions

    def predict(self, dataset: Any) -> Array:
        """Likeliest class of each item, (n,)."""
        check_is_fitted(self)
        if not len(self.classes_):
            raise ValueError(
                f"{type(self).__name__}.predict: classes must be known; got a fit without labels. "
                "Give it some: they are carried along the graph of what was learned."
            )
        likeliest: Array = self.classes_[self.predict_proba(dataset).argmax(axis=1)]
        return likeliest

    def to_onnx(self, path: str | Path, *, method: str = "transform") -> None:
        """Write :meth:`transform` into a file that runs without Python: ONNX.

        Parameters
        ----------
        path : path
            The graph takes ``X``, float32 of shape (n, ...): items as the network has them, images
            with their channels first, bytes divided by 255. It gives ``embedding``, float32, for
            any n.
        method : {"transform"}

        Raises
        ------
        ImportError
            Where onnx or onnxscript is not installed: ``pip install 'ssdml[onnx]'``.
        ValueError
            If another method is asked for, torch cannot export the backbone, or its weights take
            2 GB.
        OSError
            Where the file cannot be written.
        """
        from ssdml.onnx_export import EmbeddingOfItems, write_onnx

        check_is_fitted(self)
        module = EmbeddingOfItems(self.network_, self.input_side_, self.input_weight_)
        write_onnx(module, self.item_shape_, path, f"{type(self).__name__}.to_onnx", method)

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator into a folder: safetensors and JSON, no code.

        Of a module of one's own the weights are kept, and :meth:`load` wants such a module again.
        ``augment`` is kept if it is "auto" or None, ``random_state`` if it is a number; ``losses``,
        triplets and history stay behind.
        """
        check_is_fitted(self)
        params = self.get_params(deep=False)
        for name in params.keys() & {"backbone", "augment", "losses"}:
            if not isinstance(params[name], str | None):
                params[name] = None
        if not isinstance(params["random_state"], Integral | None):
            params["random_state"] = None
        if params["checkpoint_dir"] is not None:
            params["checkpoint_dir"] = str(params["checkpoint_dir"])
        arrays = {name: getattr(self, name) for name in SAVED}
        state = self.network_.state_dict()
        arrays |= {f"network_{name}": value.cpu().numpy() for name, value in state.items()}
        if self.input_side_ is not None:
            arrays |= {"input_center": self.input_side_.center, "input_axes": self.input_side_.axes}
        side = self.input_side_
        save_state(
            folder,
            type(self).__name__,
            params,
            arrays,
            item_shape=list(self.item_shape_),
            input_weight=self.input_weight_,
            input_mean=None if side is None else side.mean,
            input_unit=None if side is None else side.unit,
            input_scale=None if side is None else side.scale,
        )

    @classmethod
    def load(cls, folder: str | Path, *, backbone: Any = None) -> Self:
        """Estimator that :meth:`save` wrote, its network on the CPU.

        ``network_.to("cuda")`` takes it to a GPU, where it then embeds what it is given.

        Parameters
        ----------
        folder : path
        backbone : Module or None
            A module like the one that was fitted; None where it was given by name.
        """
        config, arrays = load_state(folder, cls.__name__)
        if backbone is None and config["params"]["backbone"] is None:
            raise ValueError(
                f"{cls.__name__}.load: backbone must be a module like the one that was fitted; got "
                f"None, and {folder} names none."
            )
        try:
            return cls._restored(config, arrays, backbone)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{cls.__name__}.load: {folder} is damaged: {error}. Save it again."
            ) from error

    @classmethod
    def _restored(cls, config: dict[str, Any], arrays: dict[str, Array], backbone: Any) -> Self:
        from ssdml.deep_network import restored_network

        model = cls(**config["params"])
        if backbone is not None:
            model.backbone = backbone
        for name in SAVED:
            setattr(model, name, arrays[name])
        model.item_shape_ = tuple(config["item_shape"])
        model.input_weight_, model.input_side_ = config["input_weight"], None
        if config["input_mean"] is not None:
            parts = arrays["input_center"], arrays["input_axes"]
            more = config["input_unit"], config["input_scale"]
            model.input_side_ = InputSide(config["input_mean"], *parts, *more)
        model.triplets_, model.history_, model.stage_seconds_ = None, [], {}
        prefix = "network_"
        weights = {n[len(prefix) :]: v for n, v in arrays.items() if n.startswith(prefix)}
        model.network_ = restored_network(model.backbone, model.item_shape_, weights)
        return model

    @property
    def _n_features_out(self) -> int:
        n_components = int(self.network_.metric.shape[1])
        if not self.input_weight_ or self.input_side_ is None:
            return n_components
        return n_components + self.input_side_.axes.shape[1]

    def _items(self, dataset: Any, method: str) -> Any:
        """Items of new data, once they are known to have the shape of those that were fitted."""
        from ssdml.items import as_items, warn_of_scale

        check_is_fitted(self)
        who = f"{type(self).__name__}.{method}"
        items = as_items(dataset, who, str(self.network_.proxies.device))
        if items.shape != self.item_shape_:
            raise ValueError(
                f"{who}: items must have the shape {self.item_shape_} of those that were fitted; "
                f"got {items.shape}."
            )
        warn_of_scale(items, self.network_.backbone.scale, who)
        return items

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")
