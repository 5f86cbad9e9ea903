"""The fit of whatever learns a network by partitions: input, network, partitions, labels."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ssdml.deep.input_graph import InputSide, flat_items
from ssdml.evaluation.scores import evaluate
from ssdml.metric.base import ClassScore, SearchableEmbedding
from ssdml.metric.prediction import neighbors_among
from ssdml.utils.labels import likeliest, read_labels
from ssdml.utils.persistence import load_state, save_state
from ssdml.utils.progress import CallbackSupportMixin, Stages, with_callbacks
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED

if TYPE_CHECKING:
    from ssdml.deep.input_graph import InputGraph
    from ssdml.deep.trainer import PartitionRun


# What a learned network offers once it is learned: embedding, classes, save and load.

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
        from ssdml.utils.torch_tools import memory_hints

        check_is_fitted(self)
        with memory_hints(self):
            return self._embed(self.network_, self._items(dataset, "transform"))

    def _embed(self, network: Any, items: Any) -> Array:
        from ssdml.networks.training import embed_items

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

        from ssdml.networks.training import embed_items
        from ssdml.utils.torch_tools import memory_hints

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
        from ssdml.deep.onnx import EmbeddingOfItems
        from ssdml.metric.onnx import write_onnx

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
        from ssdml.networks.metric_network import restored_network

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
        from ssdml.networks.data import as_items, warn_of_scale

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


# The fit of whatever learns a network by partitions: input, network, partitions, labels.


class DeepEstimator(DeepMetric, CallbackSupportMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of estimators that learn ``network_``; what they add is :meth:`_new_run`."""

    n_components: int | None
    orthogonal: bool
    pretrain_epochs: int
    epochs: int
    epochs_per_partition: int
    checkpoint_dir: Any
    device: str
    random_state: Any
    verbose: int

    # What all have; each adds its own.
    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "backbone": [str, callable],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "decay": [Interval(Real, 0, 1, closed="neither")],
        "pretrain_epochs": [Interval(Integral, 0, None, closed="left")],
        "partition_size": [Interval(Integral, 1, None, closed="left"), None],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "epochs_per_partition": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "mixed_precision": ["boolean", StrOptions({"auto"})],
        "checkpoint_dir": [str, Path, None],
        "device": [str],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def _new_run(
        self, items: Any, labels: Array, network: Any, seed: int, device: str
    ) -> PartitionRun:
        """The run, which has not begun."""

    def _labels(self, y: Any, n_samples: int) -> Array:
        """Labels of the items, -1 where there is none."""
        return read_labels(y, n_samples, type(self).__name__, "Label some items.")

    def _inputs(
        self, items: Any, labels: Array, device: str, rng: np.random.Generator
    ) -> InputGraph | None:
        """What the run has of the items as they are, and what stands beside the embedding."""
        self.input_side_, self.input_weight_ = None, 0.0
        return None

    @with_callbacks
    def fit(self, dataset: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Learn network and metric.

        Parameters
        ----------
        dataset : array or tensor of shape (n, ...), or torch Dataset
            See :func:`ssdml.networks.data.as_items`; labels that a Dataset yields are not read.
        y : array of shape (n,), int
            -1 where unlabeled; None for those that learn without labels.
        validation : tuple (items, labels), optional
            Scored after each partition, in ``history_``; nothing is learned or chosen by them.

        Returns
        -------
        self : estimator

        Raises
        ------
        TypeError
            If items are neither tensors nor arrays, or ``backbone`` is no module.
        ValueError
            If no item is labeled where labels are needed, they are of another length, the backbone
            does not take the items, makes no finite rows or leaves nothing to learn, ``validation``
            is no pair of such items and labels, checkpoints belong to a run with other settings or
            data, or ``device`` is not there, or another process's.
        FloatingPointError
            If loss or features are no longer finite, or all features are zero.
        MemoryError
            If memory runs out, on the device or without one.

        Warns
        -----
        RuntimeWarning
            For a partition without a triplet, as one class alone has them, for a checkpoint that is
            damaged or began with other weights, and where the backbone makes zeros of some items.
        UserWarning
            If there are no more items than ``n_neighbors``, of which fewer are taken.
        ConvergenceWarning
            If ``tol`` is set, and after the last partition more items change class than that.
        """
        from ssdml.deep.run_folder import RunFolder
        from ssdml.networks.data import as_items, held_items
        from ssdml.utils.distributed import join_group, rank
        from ssdml.utils.torch_tools import find_device, memory_hints

        self._validate_params()
        with memory_hints(self):
            device = join_group(find_device(self.device, type(self).__name__))
            items = as_items(dataset, type(self).__name__, device)
            labels = self._labels(y, len(items))
            neighbors_among(self.n_neighbors, len(items), type(self).__name__, stacklevel=4)
            held = None if validation is None else held_items(validation, items.shape, device)
            folder = RunFolder(self, items, labels)
            verbose = self.verbose if rank() == 0 else 0  # one bar for all processes
            stages = Stages(self, self._n_stages(folder.n_done), verbose=verbose)
            run = self._begun(items, labels, folder.seed, device)
            with stages.all(dataset, y):
                with stages("input"):
                    rng = np.random.default_rng(folder.seed)
                    run.input_graph = self._inputs(items, labels, device, rng)
                folder.resume(run)
                if self.pretrain_epochs and not run.history:
                    with stages("pretraining") as show:
                        run.pretrain(show)
                while len(run.history) < run.n_partitions and not run.has_settled:
                    with stages(f"partition {len(run.history) + 1}") as show:
                        entry = run.partition(show)
                        if held is not None:
                            entry["validation"] = self._scores(run.network, *held, folder.seed)
                        folder.keep(run)
                with stages("end"):
                    run.conclude()
                    self._keep(run, labels)
        self.stage_seconds_ = stages.seconds
        return self

    def _n_stages(self, n_done: int) -> int:
        """Stages that are left where so many partitions are done."""
        n_partitions = -(-self.epochs // self.epochs_per_partition)
        return 2 + bool(self.pretrain_epochs and not n_done) + n_partitions - n_done

    def _begun(self, items: Any, labels: Array, seed: int, device: str) -> PartitionRun:
        """The run, with a network that has learned nothing."""
        from ssdml.networks.metric_network import new_network

        network = new_network(
            self.backbone,
            items,
            self.n_components,
            len(np.unique(labels[labels != UNLABELED])),
            seed,
            device,
            orthogonal=self.orthogonal,
        )
        return self._new_run(items, labels, network, seed, device)

    def _scores(self, network: Any, items: Any, y: Array, seed: int) -> dict[str, float]:
        from ssdml.utils.distributed import from_first_rank

        return from_first_rank(lambda: evaluate(self._embed(network, items), y, random_state=seed))

    def _keep(self, run: Any, labels: Array) -> None:
        self.classes_ = np.unique(labels[labels != UNLABELED])
        self.label_distributions_ = run.distributions
        codes = likeliest(run.distributions)
        self.transduction_ = self.classes_[codes] if len(self.classes_) else codes
        self.history_, self.triplets_ = run.history, run.triplets
        self.item_shape_ = run.items.shape
        self.components_ = run.network.L.T
        self.network_ = run.network.eval()
