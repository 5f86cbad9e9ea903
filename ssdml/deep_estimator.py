"""The fit of whatever learns a network by partitions: input, network, partitions, labels."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.deep_metric import DeepMetric
from ssdml.evaluation import evaluate
from ssdml.graphs._checks import UNLABELED
from ssdml.induction import neighbors_among
from ssdml.labels import likeliest, read_labels
from ssdml.progress import CallbackSupportMixin, Stages, with_callbacks
from ssdml.utils.typing import Array

if TYPE_CHECKING:
    from ssdml.input_side import InputGraph
    from ssdml.partition_run import PartitionRun


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
            See :func:`ssdml.items.as_items`; labels that a Dataset yields are not read.
        y : array of shape (n,), int
            -1 where unlabelled; None for those that learn without labels.
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
            If no item is labelled where labels are needed, they are of another length, the backbone
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
        from ssdml.items import as_items, held_items
        from ssdml.journal import memory_hints
        from ssdml.ranks import join_group, rank
        from ssdml.run_folder import RunFolder
        from ssdml.training import find_device

        self._validate_params()
        with memory_hints(self):
            device = join_group(find_device(self.device))
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
        from ssdml.deep_network import new_network

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
        from ssdml.ranks import from_first_rank

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
