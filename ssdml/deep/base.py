"""Base class of the estimators that train a network on partitions of the data."""

from __future__ import annotations

import math
from abc import ABCMeta, abstractmethod
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from ssdml.deep.held_out import HeldOut, held_out_rows
from ssdml.deep.input_graph import InputGraph, InputProjection, flat_samples
from ssdml.deep.onnx import SampleEmbedding
from ssdml.deep.run_folder import RunFolder
from ssdml.deep.trainer import PartitionTrainer
from ssdml.evaluation.scores import evaluate, few_label_accuracy
from ssdml.graphs.neighbors.knn import limit_neighbors
from ssdml.metric.fitted.base import (
    COUNT,
    DECAY,
    FRACTION,
    N_JOBS,
    NOT_NEGATIVE,
    POSITIVE,
    EmbeddingMixin,
)
from ssdml.metric.fitted.onnx import write_onnx
from ssdml.metric.fitted.saving import LABEL_SHAPES, check_class_names, restore_names, saved_names
from ssdml.networks.data import Samples, as_samples, validation_samples, warn_of_scale
from ssdml.networks.metric_network import MetricNetwork, new_network, restored_network
from ssdml.networks.training import embed_samples
from ssdml.utils.distributed import from_first_rank, init_process_group, rank
from ssdml.utils.files import check_memory
from ssdml.utils.labels import check_order, class_codes, likeliest
from ssdml.utils.persistence import Refusal, check_arrays, load_state, restoring, save_state
from ssdml.utils.progress import CallbackSupportMixin, Stages, with_callbacks
from ssdml.utils.torch_tools import (
    as_numpy,
    batch_norm_hints,
    device_hints,
    find_device,
    own_settings,
    whole_state,
)
from ssdml.utils.typing import Array, Indices
from ssdml.utils.validation import UNLABELED

SAVED = ("components_", "label_distributions_")
SHAPES = {"components_": "f l d", "label_distributions_": "f n c"}
PROJECTION = ("mean", "unit", "scale")  # numbers of the input projection


class DeepEstimator(EmbeddingMixin, CallbackSupportMixin, BaseEstimator, metaclass=ABCMeta):
    """Fit, apply, save and load a network; subclasses define :meth:`_new_trainer`."""

    # Parameters that subclasses have, as arguments or as constants.
    backbone: Any
    n_components: int | None
    orthogonal: bool
    pretrain_epochs: int
    validation_fraction: float
    epochs: int
    epochs_per_partition: int
    batch_size: int
    checkpoint_dir: Any
    device: str | torch.device
    random_state: Any
    verbose: int

    network_: Any

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "backbone": [object],  # metric_network names the fix
        "n_components": [*COUNT, None],
        "decay": DECAY,
        "pretrain_epochs": [Interval(Integral, 0, None, closed="left")],
        "validation_fraction": FRACTION,
        "partition_size": [*COUNT, None],
        "epochs": COUNT,
        "epochs_per_partition": COUNT,
        "batch_size": COUNT,
        "learning_rate": POSITIVE,
        "weight_decay": NOT_NEGATIVE,
        "mixed_precision": ["boolean", StrOptions({"auto"})],
        "checkpoint_dir": [str, Path, None],
        "device": [str, torch.device],
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @abstractmethod
    def _new_trainer(
        self, samples: Any, labels: Array, network: Any, seed: int, device: str
    ) -> PartitionTrainer:
        """Return a trainer that has not started."""

    @property
    def _has_metric_layer(self) -> bool:
        """Whether L is a layer of the network; otherwise it is learned apart."""
        return not self.orthogonal

    def _labels(self, y: Any, n_samples: int) -> Array:
        """Read the labels, -1 where unlabeled."""
        return self._read_labels(y, n_samples, "Label some samples.")

    def _read_input(
        self, samples: Any, labels: Array, device: str, rng: np.random.Generator
    ) -> InputGraph | None:
        """Set the input projection and its weight, and return the input graph."""
        self.input_projection_: InputProjection | None = None
        self.input_weight_ = 0.0
        return None

    @with_callbacks
    def fit(self, dataset: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Fit network and metric.

        Parameters
        ----------
        dataset : array or tensor of shape (n, ...), or torch Dataset
            See :func:`ssdml.networks.data.as_samples`; labels in a Dataset are ignored.
        y : array-like of shape (n,)
            Integers, -1 where unlabeled; or names or booleans, with None, NaN or another mark of
            :func:`ssdml.datasets.encode_partial_labels` where unlabeled. None for estimators that
            need no labels.
        validation : tuple (samples, labels), optional
            Scored after each partition, in ``history_``. With ``validation_fraction``, they choose
            the network in place of held-out labels; without, they have no effect on the fit.

        Returns
        -------
        self : estimator

        Raises
        ------
        TypeError
            If samples are neither tensors nor arrays, or ``backbone`` is not a module.
        ValueError
            If labels are missing or of another length, ``validation_fraction`` does not hold out
            two labels of any class, the backbone rejects the samples, its features are not finite
            or it has no trainable parameter, ``validation`` does not match, ``checkpoint_dir``
            belongs to another run, or ``device`` is not available.
        FloatingPointError
            If the loss or the features are not finite, or all features become zero.
        MemoryError
            If memory runs out, on the device or in main memory.

        Warns
        -----
        RuntimeWarning
            If a partition has no triplets, because only one class has labels; if a checkpoint is
            damaged or began with other weights; if many features are all zero; if the embedding is
            almost constant, the loss at chance, or all samples are predicted as one class.
        UserWarning
            If ``n_neighbors`` is not below the number of samples.
        ConvergenceWarning
            If ``tol`` is set, and more samples changed class in the last partition.
        """
        self._validate_params()
        self._forget()
        who = type(self).__name__
        check_order(dataset, y, who, ("dataset", "y"))
        self._check_columns(dataset, reset=True)
        with (
            device_hints(self),
            batch_norm_hints(self),
            own_settings(device := find_device(self.device, who)),
        ):
            device = init_process_group(device)
            samples = as_samples(dataset, who, device)
            labels = self._labels(y, len(samples))
            limit_neighbors(self.n_neighbors, len(samples), who)
            folder = RunFolder(self, samples, labels)
            held_out, known = self._hold_out(samples, labels, validation, folder.seed, device)
            verbose = self.verbose if rank() == 0 else 0
            stages = Stages(self, self._n_stages(folder.n_done), verbose=verbose)
            network = new_network(
                self.backbone,
                samples,
                self.n_components,
                class_codes(labels)[1],
                folder.seed,
                device,
                orthogonal=not self._has_metric_layer,
            )
            if validation is not None and held_out is not None:
                scale: Any = network.backbone.scale
                warn_of_scale(held_out.samples, scale, "validation")
            trainer = self._new_trainer(samples, known, network, folder.seed, device)
            if held_out is not None and self.validation_fraction:
                trainer.validation = partial(self._score, network, held_out, folder.seed)
            with stages.all(dataset, y):
                with stages("input"):
                    rng = np.random.default_rng(folder.seed)
                    trainer.input_graph = self._read_input(samples, known, device, rng)
                self._train(trainer, held_out, folder, stages)
                with stages("end"):
                    trainer.labels = labels  # those that were held out join the last propagation
                    trainer.finish()
                    self._store(trainer)
        self.stage_seconds_ = stages.seconds
        return self

    def _hold_out(
        self, samples: Samples, labels: Array, validation: Any, seed: int, device: str
    ) -> tuple[HeldOut | None, Array]:
        """Return held-out samples, if any, and the labels to learn from."""
        who, fraction = type(self).__name__, self.validation_fraction
        if validation is not None:
            held_out = HeldOut(*validation_samples(validation, samples.shape, device))
            self._check_columns(validation[0], reset=False)
            held_out.check(who, fraction)
            return held_out, labels
        if not fraction:
            return None, labels
        rows, known = held_out_rows(labels, fraction, seed, who), labels.copy()
        known[rows] = UNLABELED
        return HeldOut(samples, labels[rows], rows), known

    def _train(
        self, trainer: PartitionTrainer, held_out: HeldOut | None, folder: RunFolder, stages: Stages
    ) -> None:
        """Train on the partitions that are left, and keep a checkpoint of each."""
        folder.resume(trainer)
        if self.pretrain_epochs and not trainer.history:
            with stages("pretraining") as show:
                trainer.pretrain(show)
        while len(trainer.history) < trainer.n_partitions and not trainer.has_settled:
            with stages(f"partition {len(trainer.history) + 1}") as show:
                entry = trainer.partition(show)
                if held_out is not None:
                    entry["validation"] = self._scores(trainer, held_out)
                folder.keep(trainer)

    def _n_stages(self, n_done: int) -> int:
        """Count the stages left when some partitions are done."""
        n_partitions = -(-self.epochs // self.epochs_per_partition)
        return 2 + bool(self.pretrain_epochs and not n_done) + n_partitions - n_done

    def _scores(self, trainer: PartitionTrainer, held_out: HeldOut) -> dict[str, float]:
        """Scores of held-out samples, with the accuracy of the nearest mean of the labels."""

        def scores() -> dict[str, float]:
            Z = self._embed(trainer.network, held_out.samples, held_out.rows)
            found = evaluate(Z, held_out.y, random_state=trainer.seed)
            labeled = np.flatnonzero(trainer.labels != UNLABELED)
            if held_out.rows is not None:  # the labels are in the same codes
                means = self._embed(trainer.network, trainer.samples, labeled)
                found["accuracy"] = few_label_accuracy(
                    means, trainer.labels[labeled], Z, held_out.y
                )
            return found

        return from_first_rank(scores)

    def _score(self, network: MetricNetwork, held_out: HeldOut, seed: int) -> float:
        """R@1 of held-out samples, which chooses the network."""

        def score() -> float:
            Z = self._embed(network, held_out.samples, held_out.rows)
            return evaluate(Z, held_out.y, random_state=seed, scores=["R@1"])["R@1"]

        return from_first_rank(score)

    def _store(self, trainer: PartitionTrainer) -> None:
        """Set the fitted attributes."""
        labels = trainer.labels
        self.classes_ = self._classes(labels)
        self.label_distributions_ = trainer.distributions
        codes = likeliest(trainer.distributions)
        self.transduction_ = self.classes_[codes] if len(self.classes_) else codes
        self.history_, self.triplets_ = trainer.history, trainer.triplets
        self.item_shape_ = trainer.samples.shape
        self.components_ = trainer.network.L.T
        self.network_ = trainer.network.eval()

    def transform(self, dataset: Any) -> Array:
        """Embed samples.

        Returns
        -------
        embedding : ndarray of shape (n, n_components + m), float32
            The unit embedding; then the m principal components of the input times
            ``input_weight_``, unless that is 0.
        """
        check_is_fitted(self)
        with device_hints(self), own_settings(self.network_.proxies.device):
            return self._embed(self.network_, self._samples(dataset, "transform"))

    def _embed(
        self, network: MetricNetwork, samples: Samples, rows: Indices | None = None
    ) -> Array:
        embedding = embed_samples(network, samples, rows=rows, batch_size=self.batch_size)
        if not self.input_weight_:
            return embedding
        assert self.input_projection_ is not None
        flat = flat_samples(samples)
        projected = self.input_projection_(flat if rows is None else flat[rows])
        return np.hstack([embedding, self.input_weight_ * projected])

    def predict_proba(self, dataset: Any) -> Array:
        """Compute class probabilities from the network's class proxies; they are not calibrated.

        Returns
        -------
        probabilities : ndarray of shape (n, n_classes)
            Columns in the order of ``classes_``.
        """
        check_is_fitted(self)
        device = self.network_.proxies.device
        with device_hints(self), own_settings(device), torch.no_grad():
            samples = self._samples(dataset, "predict_proba")
            embedding = embed_samples(self.network_, samples, batch_size=self.batch_size)
            logits = self.network_.logits(torch.from_numpy(embedding).to(device))
            probabilities: Array = torch.softmax(logits, 1).cpu().numpy()
        return probabilities

    def predict(self, dataset: Any) -> Array:
        """Predict the most probable class of each sample, (n,)."""
        check_is_fitted(self)
        if not len(self.classes_):
            raise ValueError(
                f"{type(self).__name__}.predict: classes must be known; got a fit without labels. "
                "Pass labels to fit: they propagate over the graph of the embedding."
            )
        return self.classes_[self.predict_proba(dataset).argmax(axis=1)]

    def to_onnx(self, path: str | Path, *, method: str = "transform") -> None:
        """Export :meth:`transform` to ONNX.

        Parameters
        ----------
        path : path
            The graph maps ``X``, float32 of shape (n, ...), to ``embedding``, float32, for any n.
            Images have their channels first and values between 0 and 1.
        method : {"transform"}

        Raises
        ------
        ImportError
            If onnx or onnxscript is not installed: ``pip install 'ssdml[onnx]'``.
        ValueError
            If torch cannot export the backbone, its weights exceed 2 GB, or ``method`` is another.
        OSError
            If the file cannot be written.
        """
        check_is_fitted(self)
        module = SampleEmbedding(self.network_, self.input_projection_, self.input_weight_)
        write_onnx(module, self.item_shape_, path, f"{type(self).__name__}.to_onnx", method)

    def save(self, folder: str | Path) -> None:
        """Save the fitted estimator to a folder: safetensors and JSON, no code.

        A custom module is saved by its weights alone: :meth:`load` needs a module like it.
        ``augment`` is kept if it is a name or None, and ``random_state`` if it is an int;
        ``checkpoint_dir``, ``losses``, triplets and history are not saved.
        """
        check_is_fitted(self)
        params = self.get_params(deep=False)
        for name in params.keys() & {"backbone", "augment", "losses"}:
            if not isinstance(params[name], str | None):
                params[name] = None
        if not isinstance(params["random_state"], Integral | None):
            params["random_state"] = None
        params["checkpoint_dir"] = None  # a path on this machine
        params["device"] = str(params["device"])
        labels, names = saved_names(self)
        arrays = {name: getattr(self, name) for name in SAVED} | labels
        state = whole_state(self.network_)
        arrays |= {f"network_{name}": as_numpy(value) for name, value in state.items()}
        projection = self.input_projection_
        if projection is not None:
            arrays |= {"input_center": projection.center, "input_axes": projection.axes}
        more = {f"input_{name}": getattr(projection, name, None) for name in PROJECTION}
        more |= {"item_shape": list(self.item_shape_), "input_weight": self.input_weight_}
        save_state(folder, type(self).__name__, params, arrays, **more, **names)

    @classmethod
    def load(cls, folder: str | Path, *, backbone: Any = None) -> Self:
        """Load an estimator saved by :meth:`save`, with its network on the CPU.

        Use ``model.network_.to("cuda")`` to embed on a GPU.

        Parameters
        ----------
        folder : path
        backbone : Module or None
            A module like the fitted one; None if the backbone was given by name.
        """
        config, arrays = load_state(folder, cls.__name__)
        if backbone is None and config["params"]["backbone"] is None:
            raise ValueError(
                f"{cls.__name__}.load: backbone must be a module like the fitted one; got None, "
                f"and {folder} names no backbone. Pass your network in Python: "
                f"{cls.__name__}.load({str(folder)!r}, backbone=network).predict(X). On the "
                "command line, use a model of `ssdml fit DATA --network NAME --out MODEL/`."
            )
        try:
            with restoring(folder, cls.__name__, config):
                return cls._restored(config, arrays, backbone)
        except Refusal as error:
            raise ValueError(f"{cls.__name__}.load: {folder}: {error}") from error

    @classmethod
    def _restored(cls, config: dict[str, Any], arrays: dict[str, Array], backbone: Any) -> Self:
        chosen = {} if backbone is None else {"backbone": backbone}
        model = cls(**config["params"] | chosen)
        model._validate_params()
        _check_saved(config, arrays)
        for name in SAVED:
            setattr(model, name, arrays[name])
        restore_names(model, config, arrays)
        model.item_shape_ = tuple(config["item_shape"])
        model.input_weight_, model.input_projection_ = config["input_weight"], None
        if config["input_mean"] is not None:
            numbers = {name: config[f"input_{name}"] for name in PROJECTION}
            center, axes = arrays["input_center"], arrays["input_axes"]
            model.input_projection_ = InputProjection(center=center, axes=axes, **numbers)
        model.triplets_, model.history_, model.stage_seconds_ = None, [], {}
        prefix = "network_"
        weights = {n[len(prefix) :]: v for n, v in arrays.items() if n.startswith(prefix)}
        with own_settings("cpu"):
            model.network_ = restored_network(model.backbone, model.item_shape_, weights)
        return model

    @property
    def _n_features_out(self) -> int:
        n_components = int(self.network_.metric.shape[1])
        if not self.input_weight_ or self.input_projection_ is None:
            return n_components
        return n_components + self.input_projection_.axes.shape[1]

    def _check_columns(self, dataset: Any, *, reset: bool) -> None:
        """Keep the names of a table's columns, or compare them with those of the fit."""
        # Samples may have more axes, or be a torch Dataset: names alone are checked.
        validate_data(self, dataset, reset=reset, skip_check_array=True, ensure_2d=False)

    def _samples(self, dataset: Any, method: str) -> Samples:
        """Read new samples: shape, scale and names of columns must be those of the fit."""
        who = f"{type(self).__name__}.{method}"
        self._check_columns(dataset, reset=False)
        samples = as_samples(dataset, who, str(self.network_.proxies.device))
        if samples.shape != self.item_shape_:
            shape = tuple(getattr(dataset, "shape", ()))
            is_one = self.item_shape_ in (shape, (1, *shape))
            raise ValueError(
                f"{who}: samples must have the shape {self.item_shape_} of the fitted ones; got "
                f"{samples.shape}.{' Pass X[None] for one sample.' * is_one}"
            )
        warn_of_scale(samples, self.network_.backbone.scale, who)
        return samples

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")


def _check_saved(config: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Raise ValueError, KeyError or TypeError unless the parts of a saved model fit together."""
    shape, weight, shapes = config["item_shape"], config["input_weight"], SHAPES | LABEL_SHAPES
    if not shape or not all(type(length) is int and length > 0 for length in shape):
        raise ValueError(f"item_shape must be positive integers; got {shape!r}")
    numbers = [weight]
    if config["input_mean"] is not None:
        numbers += [config["input_mean"], config["input_scale"]]
        shapes |= {"input_center": f"f {math.prod(shape)}", "input_axes": f"f {math.prod(shape)} m"}
    if not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"input_weight and the input projection must be numbers; got {numbers}")
    # The network is tried on zeros of this shape: 64 maps of two of them.
    check_memory("item_shape", 512 * math.prod(shape), sum(a.nbytes for a in arrays.values()))
    # Masks of a backbone may be infinite.
    own = {name: part for name, part in arrays.items() if not name.startswith("network_backbone.")}
    check_arrays(own, shapes)
    check_class_names(config, arrays)
