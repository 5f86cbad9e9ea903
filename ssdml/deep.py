"""DeepSSDML: a network and an orthonormal metric, learned in turn from a handful of labels."""

from __future__ import annotations

from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.deep_metric import DeepMetric
from ssdml.evaluation import evaluate
from ssdml.graphs._checks import UNLABELED
from ssdml.input_side import InputGraph, InputSide, input_graph, input_side
from ssdml.labels import read_labels
from ssdml.progress import CallbackSupportMixin, Stages, with_callbacks

Array = npt.NDArray[Any]

BESIDE = 1.0  # weight of an input whose edges are trusted, beside the embedding


class DeepSSDML(DeepMetric, CallbackSupportMixin, BaseEstimator):
    """Network and metric learned from many items and a handful of labels.

    Partition after partition: a kNN graph of the current embedding carries the labels to all
    items, triplets are mined on it, an orthonormal L is learned from them, and the network learns
    under L from the propagated classes and from itself: what its averaged weights believe of an
    item, together with the graph, it is to say of a distorted view too.

    Parameters
    ----------
    backbone : {"mnist", "cifar"} or Module
        Seed 003's networks, or any that makes (n, d) features of a batch; it is copied.
    n_components : int
        Columns of L, at most d.
    n_neighbors : int
    decay : float
        How far labels reach along the graph, between 0 and 1.
    propagation : {"two-sided", "one-sided"}
    mining : {"propagated", "neighborhood"}
        "neighborhood" is the seed's way, with all that belongs to it: network and L learn from
        triplets alone, 100 at a time, L by 10 steps; ``propagation``, ``augment``, ``consistency``,
        ``triplets``, ``averaging``, ``metric_steps`` and ``batch_size`` are not read. See
        :meth:`paper`.
    angle : float
        Of the angular losses, in degrees.
    augment : "auto", None or callable
        Views of a batch, ``augment(items, generator)``. "auto": affine maps of images of one
        channel; a flip, colours and holes besides for others; nothing for features.
    consistency : float
        Weight of the consistency between views; 0 leaves it out.
    threshold : float
        Belief beyond which an item takes part in it.
    triplets : float
        Weight of the angular loss of triplets in the batch beside the classes' proxies.
    averaging : float
        Of the weights over the steps; 0 keeps the last.
    metric_steps : int
        Of conjugate gradients on the Stiefel manifold in each partition; 0: L stays as it began.
    orthogonal : bool
        Whether L keeps orthonormal columns; otherwise it is a layer like any other.
    input_edges : float or "auto"
        Weight of the input's edges beside those of the embedding; in the first partition they are
        alone. 0: the first partition learns from the labelled items and from consistency. "auto":
        0.2 if half of the labels foretell the other half along them, more often than not, else 0.
    input_weight : float or "auto"
        Weight of the input beside the embedding, both of length about 1: it decides among near
        neighbours. "auto": 1 where ``input_edges`` are used, else 0.
    pretrain_epochs : int
        Passes over the labelled items by softmax, before anything else; seed 003 has 30 of them
        for CIFAR-10.
    partition_size : int or None
        Unlabelled items that a partition trains on; None: all. Labels are carried to all anyway.
    epochs, epochs_per_partition : int
        Passes over partitions, and over each of them; the last partition has what is left.
    tol : float
        Stop early where a smaller share of the items changes class from one partition to the next;
        the learning rate has not come down by then.
    batch_size : int
        Items of known or propagated class in a step, and as many others under consistency.
    learning_rate, weight_decay : float
        Of AdamW; the rate rises over the first tenth of all steps, and falls to 0. Of SGD at this
        rate with ``mining="neighborhood"``.
    mixed_precision : bool or "auto"
        Whether the network computes in bfloat16; "auto": on a GPU.
    checkpoint_dir : path or None
        Where each partition leaves a checkpoint, and a line in ``history.jsonl``; scalars for
        TensorBoard too where that is installed. A fit with the same settings and data goes on from
        the last checkpoint.
    device : str
        "auto" is a GPU where torch finds one.
    n_jobs : int or None
        Threads of the neighbour search and of the propagation.
    random_state : int, RandomState or None
    verbose : int
        From 1 on a progress bar is drawn, if standard error is a terminal.

    Attributes
    ----------
    network_ : Module
        With averaged weights; calling it gives the unit embedding.
    components_ : ndarray of shape (n_components, d)
        L, transposed.
    classes_ : ndarray of shape (n_classes,)
    transduction_ : ndarray of shape (n,)
        Class of each item that was fitted.
    label_distributions_ : ndarray of shape (n, n_classes)
    input_weight_ : float
    history_ : list of dict
        A partition each.
    stage_seconds_ : dict of str to float

    Notes
    -----
    Departures from [1]_: labels are propagated to pairs of unlabelled items as well and along a
    graph of all items; the network learns from classes and triplets of each batch as the graph has
    them; consistency [2]_ and averaged weights [3]_; the input is kept beside.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021.
    .. [2] Sohn et al., "FixMatch: simplifying semi-supervised learning with consistency and
       confidence", NeurIPS 2020.
    .. [3] Tarvainen, Valpola, "Mean teachers are better role models", NeurIPS 2017.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
    >>> _ = torch.manual_seed(0)
    >>> layers = torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)
    >>> head = torch.nn.Sequential(*layers)
    >>> model = DeepSSDML(head, 16, epochs=10, epochs_per_partition=5, random_state=0)
    >>> Z = model.fit(X / 16, labels).transform(X / 16)
    >>> bool((model.transduction_ == y).mean() > 0.8)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "backbone": [str, callable],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "decay": [Interval(Real, 0, 1, closed="neither")],
        "propagation": [StrOptions({"two-sided", "one-sided"})],
        "mining": [StrOptions({"propagated", "neighborhood"})],
        "angle": [Interval(Real, 0, 90, closed="neither")],
        "augment": [StrOptions({"auto"}), callable, None],
        "consistency": [Interval(Real, 0, None, closed="left")],
        "threshold": [Interval(Real, 0, 1, closed="both")],
        "triplets": [Interval(Real, 0, None, closed="left")],
        "averaging": [Interval(Real, 0, 1, closed="left")],
        "metric_steps": [Interval(Integral, 0, None, closed="left")],
        "orthogonal": ["boolean"],
        "input_edges": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "input_weight": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "pretrain_epochs": [Interval(Integral, 0, None, closed="left")],
        "partition_size": [Interval(Integral, 1, None, closed="left"), None],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "epochs_per_partition": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, 1, closed="both")],
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

    def __init__(
        self,
        backbone: Any = "mnist",
        n_components: int = 64,
        *,
        n_neighbors: int = 10,
        decay: float = 0.99,
        propagation: str = "two-sided",
        mining: str = "propagated",
        angle: float = 40.0,
        augment: Any = "auto",
        consistency: float = 1.0,
        threshold: float = 0.9,
        triplets: float = 1.0,
        averaging: float = 0.995,
        metric_steps: int = 3,
        orthogonal: bool = True,
        input_edges: float | str = "auto",
        input_weight: float | str = "auto",
        pretrain_epochs: int = 0,
        partition_size: int | None = 9000,
        epochs: int = 50,
        epochs_per_partition: int = 10,
        tol: float = 0.0,
        batch_size: int = 160,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-2,
        mixed_precision: bool | str = "auto",
        checkpoint_dir: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.backbone = backbone
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.decay = decay
        self.propagation = propagation
        self.mining = mining
        self.angle = angle
        self.augment = augment
        self.consistency = consistency
        self.threshold = threshold
        self.triplets = triplets
        self.averaging = averaging
        self.metric_steps = metric_steps
        self.orthogonal = orthogonal
        self.input_edges = input_edges
        self.input_weight = input_weight
        self.pretrain_epochs = pretrain_epochs
        self.partition_size = partition_size
        self.epochs = epochs
        self.epochs_per_partition = epochs_per_partition
        self.tol = tol
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.mixed_precision = mixed_precision
        self.checkpoint_dir = checkpoint_dir
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(cls, backbone: Any = "mnist", n_components: int = 64, **params: Any) -> Self:
        """Seed 003 to the letter: one-sided affinities, neighbourhood triplets, L by the batch.

        Descent by SGD at rate 10⁻⁴ on partitions of 9,000 unlabelled items, 10 epochs each, 50 in
        all; neither views, nor averaged weights, nor the input beside. Every item of a batch has
        been mined on a graph of the partition's features before L.

        Ours, where the seed is silent: items are standardised by channel, the weight decay is
        5·10⁻⁴, the momentum 0.9. And where we do otherwise: the last network is kept, for the
        seed's choice of the best wants the labels of 15 % of the items.
        """
        literal: dict[str, Any] = {
            "propagation": "one-sided",
            "mining": "neighborhood",
            "augment": None,
            "consistency": 0.0,
            "averaging": 0.0,
            "input_edges": 0.0,
            "input_weight": 0.0,
            "learning_rate": 1e-4,
            "weight_decay": 5e-4,
        }
        return cls(backbone, n_components, **(literal | params))

    @with_callbacks
    def fit(self, dataset: Any, y: Any, *, validation: Any = None) -> Self:
        """Learn network and metric.

        Parameters
        ----------
        dataset : array or tensor of shape (n, ...), or torch Dataset
            See :func:`ssdml.items.as_items`; labels that a Dataset yields are not read.
        y : array of shape (n,), int
            -1 where unlabelled.
        validation : tuple (items, labels), optional
            Scored after each partition, in ``history_``; nothing is learned or chosen by them.

        Returns
        -------
        self : DeepSSDML

        Raises
        ------
        TypeError
            If items are neither tensors nor arrays, or ``backbone`` is no module.
        ValueError
            If no item is labelled, the labels are of another length, the backbone makes no finite
            rows, or checkpoints belong to a run with other settings or data.
        FloatingPointError
            If the loss is no longer finite.
        MemoryError
            If a step does not fit on the device.

        Warns
        -----
        RuntimeWarning
            For one class alone, and for a checkpoint that is damaged.
        """
        from ssdml.augmentation import strong_and_weak
        from ssdml.checkpoints import load_checkpoint, save_checkpoint
        from ssdml.deep_config import run_config, run_seed
        from ssdml.deep_literal import LiteralRun
        from ssdml.deep_network import new_network
        from ssdml.deep_run import DeepRun
        from ssdml.items import as_items, held_items
        from ssdml.journal import memory_hints, write_history
        from ssdml.ranks import from_first_rank, join_group, rank
        from ssdml.training import find_device

        self._validate_params()
        device = join_group(find_device(self.device))
        items = as_items(dataset, "DeepSSDML", device)
        labels = read_labels(y, len(items), "DeepSSDML", "Label some items.")
        held = None if validation is None else held_items(validation, items.shape, device)
        folder = None if self.checkpoint_dir is None else Path(self.checkpoint_dir)
        seed = from_first_rank(lambda: run_seed(self.random_state, folder))
        rng = np.random.default_rng(seed)
        n_partitions = -(-self.epochs // self.epochs_per_partition)
        stages = Stages(self, 2 + n_partitions, verbose=self.verbose)
        with stages.all(dataset, y):
            with stages("input"):
                self.input_side_, rows = self._input(items)
                inputs = from_first_rank(lambda: self._input_graph(rows, labels, rng))
                self.input_weight_ = self._beside(inputs)
            n_classes = len(np.unique(labels[labels != UNLABELED]))
            network = new_network(
                self.backbone,
                items,
                self.n_components,
                n_classes,
                seed,
                device,
                orthogonal=self.orthogonal,
            )
            run: DeepRun | LiteralRun
            if self.mining == "neighborhood":
                run = LiteralRun(items, labels, network, self, seed, device)
            else:
                views = strong_and_weak(self.augment, items.shape)
                run = DeepRun(items, labels, network, inputs, *views, self, seed, device)
            config = run_config(self, items.shape, labels, seed, network.backbone)
            if folder is not None:
                found = from_first_rank(lambda: load_checkpoint(folder, config, "DeepSSDML"))
                if found is not None:
                    run.resume(found)
            if not run.history:
                run.pretrain()
            while len(run.history) < n_partitions and not run.has_settled:
                with stages(f"partition {len(run.history) + 1}") as show, memory_hints(self):
                    entry = run.partition(show)
                    if held is not None:
                        entry["validation"] = self._scores(run.average, *held, seed)
                    if folder is not None and rank() == 0:
                        save_checkpoint(folder, run.checkpoint(), config)
                        write_history(folder, run.history)
            with stages("end"):
                run.conclude()
                self._keep(run, labels)
        self.stage_seconds_ = stages.seconds
        return self

    def _input(self, items: Any) -> tuple[InputSide | None, Array | None]:
        """The items as they are, if the graph or the embedding is to have them."""
        if not self.input_edges and not self.input_weight:
            return None, None
        return input_side(items, self) or (None, None)

    def _input_graph(
        self, rows: Array | None, labels: Array, rng: np.random.Generator
    ) -> InputGraph | None:
        if rows is None or not self.input_edges:
            return None
        return input_graph(rows, labels, self, rng)

    def _beside(self, inputs: InputGraph | None) -> float:
        """Weight of the input beside the embedding."""
        if self.input_side_ is None:
            return 0.0
        if self.input_weight != "auto":
            return float(self.input_weight)
        return BESIDE if inputs is not None and inputs.weight else 0.0

    def _scores(self, network: Any, items: Any, y: Array, seed: int) -> dict[str, float]:
        from ssdml.ranks import from_first_rank

        return from_first_rank(lambda: evaluate(self._embed(network, items), y, random_state=seed))

    def _keep(self, run: Any, labels: Array) -> None:
        self.classes_ = np.unique(labels[labels != UNLABELED])
        self.label_distributions_ = run.distributions
        self.transduction_ = self.classes_[run.distributions.argmax(axis=1)]
        self.history_, self.triplets_ = run.history, run.triplets
        self.item_shape_ = run.items.shape
        self.components_ = run.average.L.T
        self.network_ = run.average.eval()
