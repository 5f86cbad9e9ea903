"""DeepSSDML: learn a network and an orthonormal metric from few labels."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.deep.alternation import AlternationTrainer
from ssdml.deep.base import DeepEstimator
from ssdml.deep.input_graph import InputGraph, input_graph, project_input
from ssdml.deep.published import PublishedDeepSSDML
from ssdml.metric.fitted.base import ANGLE, COUNT, NOT_NEGATIVE
from ssdml.networks.augmentation import HANDWRITING, strong_and_weak
from ssdml.networks.backbones import paper_network
from ssdml.networks.data import Samples
from ssdml.utils.distributed import broadcast_weights, from_first_rank
from ssdml.utils.torch_tools import check_state
from ssdml.utils.typing import Array

if TYPE_CHECKING:
    from ssdml.losses.base import LossSum

BESIDE = 1.0  # input_weight="auto" if the input graph is used


@dataclass(eq=False, repr=False)
class DeepSSDML(DeepEstimator):
    """Semi-supervised metric learning with a neural network.

    For each partition of the data, labels propagate to all samples on a kNN graph of the current
    embedding, triplets are mined on the graph, and a map L with orthonormal columns is learned from
    them. Then the network learns under L, from the propagated classes and from its own confident
    predictions, which augmented views must reproduce.

    Parameters
    ----------
    backbone : {"mnist", "cifar", "wide-resnet"} or Module
        The networks of [1]_, :class:`ssdml.networks.wide_resnet.WideResNet` for images of any size,
        or any module that returns (n, d) features of a batch; it is copied. Its input is
        standardized per channel or feature. The whole module is in training mode during fit, and in
        evaluation mode afterwards.
    n_components : int or None
        Columns of L, at most d; None: d. The embedding has as many columns, plus those of the input
        unless ``input_weight_`` is 0.
    n_neighbors : int
    decay : float
        How far labels propagate along the graph, between 0 and 1.
    propagation : {"two-sided", "one-sided"}
        Affinities for mining the triplets of L. "two-sided": of all samples. "one-sided": of the
        samples of the partition on its own graph, because they take one solve per sample.
    angle : float
        Of the angular losses, in degrees.
    augment : {"auto", "handwriting"}, None or callable
        Function that returns views of a batch, ``augment(samples, generator)``. "auto": affine
        transformations of images, for color images also flips, color jitter, tone operations, and
        cutout; feature vectors are unchanged. "handwriting": smooth warps, too.
    learn_from : {"propagated", "labeled"}
        Samples of the class loss and of the triplets within the batch. "propagated": of the
        partition, by their propagated classes. "labeled": the labeled samples alone, for long
        training [2]_, in which a network memorizes wrong classes; the graph then serves only L,
        ``transduction_`` and the initial proxies of each partition.
    consistency : float
        Weight of the consistency loss between views; 0 disables it.
    consistency_ratio : int
        Samples of the consistency loss per sample of the class loss (7 in [2]_).
    threshold : float
        Minimum confidence of the samples in the consistency loss [2]_.
    triplets : float
        Weight of the angular loss on triplets within the batch.
    losses : loss, list of losses or of pairs (weight, loss), or None
        Additional losses, from :mod:`ssdml.losses` or with the same call, of the unit embedding of
        a batch and its class codes. They are copied, and their parameters are trained, at their own
        learning rate if they have one. Batches have two halves with the same classes in order if a
        loss needs that.
    metric_steps : int
        Conjugate gradient steps on L per partition; 0 keeps the initial L.
    orthogonal : bool
        Whether L keeps orthonormal columns; otherwise it is trained with the network.
    input_edges : float or "auto"
        Weight of the input graph relative to the graph of the embedding; the first partition uses
        the input graph alone. 0: the first partition learns from the labeled samples and from
        consistency. "auto": 0.2 if two-fold propagation accuracy on the labels exceeds 0.5, else 0.
    input_weight : float or "auto"
        Weight of the input beside the embedding, both of length about 1; it orders near neighbors.
        "auto": 1 if the input graph is used, else 0.
    pretrain_epochs : int
        Epochs of softmax on the labeled samples before the first partition.
    validation_fraction : float
        Share of the labels of each class to hold out (0.15 in Dutta et al., 2021): the network of
        the epoch with the highest R@1 among these samples is kept, or among ``validation`` of
        :meth:`fit`. 0: the last network is kept.
    partition_size : int or None
        Unlabeled samples per partition; None: all. Labels propagate to all samples anyway.
    epochs, epochs_per_partition : int
        Epochs in total and per partition; the last partition gets the remainder.
    tol : float
        Stop early if a smaller share of the samples changes class between partitions. The learning
        rate has not decayed then.
    batch_size : int
        Samples of the class loss per step.
    learning_rate, weight_decay : float
        Of AdamW; the rate warms up over the first tenth of all steps, then decays to 0.
    mixed_precision : bool or "auto"
        Whether the backbone trains in bfloat16; "auto": on GPUs that support it. CPUs gain only
        with AMX instructions.
    checkpoint_dir : path or None
        Folder for a checkpoint and a line of ``history.jsonl`` per partition, and for TensorBoard
        scalars if it is installed. A fit with the same parameters and data resumes from the last
        checkpoint; other fits raise an error, so use None in a parameter search.
    device : str or torch.device
        Where the network trains and its neighbors are searched; "auto": a GPU if torch finds one.
    n_jobs : int or None
        Threads of the neighbor search and of the propagation.
    random_state : int, RandomState or None
        On a CPU, rounding depends on torch's threads: for identical results, keep
        ``torch.get_num_threads()`` the same, also in joblib workers.
    verbose : int
        1 or more: show a progress bar if standard error is a terminal.

    Attributes
    ----------
    network_ : Module
        Maps a batch to its unit embedding.
    components_ : ndarray of shape (n_components, d)
        L, transposed.
    classes_ : ndarray of shape (n_classes,)
    transduction_ : ndarray of shape (n,)
        Class of each fitted sample.
    label_distributions_ : ndarray of shape (n, n_classes)
    input_weight_ : float
    triplets_ : Triplets
        Of the last partition; None after :meth:`load`.
    history_ : list of dict
        One entry per partition: loss, seconds, the ``spread`` of the embedding (0 if it is
        constant), and the share of samples that ``changed`` class; with ``validation_fraction``,
        the scores of the held-out labels (``validation``) and their R@1 per epoch. The
        first has the ``propagation_accuracy`` of the labels on the input graph, if it is used.
    stage_seconds_ : dict of str to float

    Notes
    -----
    Departures from [1]_: labels propagate to pairs of unlabeled samples as well, on a graph of all
    samples; the network learns from classes and triplets of each batch, and from consistency [2]_;
    the embedding includes the input. :meth:`paper` is the method as published.

    On one GPU, steps of a backbone given by name, without ``losses`` and with ``augment`` "auto",
    "handwriting" or None, are captured as a CUDA graph.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021.
    .. [2] Sohn et al., "FixMatch: simplifying semi-supervised learning with consistency and
       confidence", NeurIPS 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ssdml.networks.backbones import ResidualHead
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
    >>> head = ResidualHead(64, n_hidden=64)
    >>> model = DeepSSDML(head, 16, epochs=10, epochs_per_partition=5, random_state=0)
    >>> Z = model.fit(X / 16, labels).transform(X / 16)
    >>> bool((model.transduction_ == y).mean() > 0.8)
    True
    """

    backbone: Any = "mnist"
    n_components: int | None = 64
    _: KW_ONLY
    n_neighbors: int = 10
    decay: float = 0.99
    propagation: str = "two-sided"
    angle: float = 40.0
    augment: Any = "auto"
    learn_from: str = "propagated"
    consistency: float = 1.0
    consistency_ratio: int = 1
    threshold: float = 0.9
    triplets: float = 1.0
    losses: Any = None
    metric_steps: int = 3
    orthogonal: bool = True
    input_edges: float | str = "auto"
    input_weight: float | str = "auto"
    pretrain_epochs: int = 0
    validation_fraction: float = 0.0
    partition_size: int | None = 9000
    epochs: int = 50
    epochs_per_partition: int = 10
    tol: float = 0.0
    batch_size: int = 160
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    mixed_precision: bool | str = "auto"
    checkpoint_dir: Any = None
    device: str | torch.device = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    _parameter_constraints = DeepEstimator._parameter_constraints | {
        "n_neighbors": COUNT,
        "propagation": [StrOptions({"two-sided", "one-sided"})],
        "angle": ANGLE,
        "augment": [StrOptions({"auto", HANDWRITING}), callable, None],
        "learn_from": [StrOptions({"propagated", "labeled"})],
        "consistency": NOT_NEGATIVE,
        "consistency_ratio": COUNT,
        "threshold": [Interval(Real, 0, 1, closed="both")],
        "triplets": NOT_NEGATIVE,
        "losses": [list, tuple, callable, None],
        "metric_steps": [Interval(Integral, 0, None, closed="left")],
        "orthogonal": ["boolean"],
        "input_edges": [*NOT_NEGATIVE, StrOptions({"auto"})],
        "input_weight": [*NOT_NEGATIVE, StrOptions({"auto"})],
        "tol": [Interval(Real, 0, 1, closed="both")],
    }

    mining = "propagated"  # how L's triplets are mined

    @classmethod
    def paper(
        cls, backbone: Any = "mnist", n_components: int | str | None = "auto", **params: Any
    ) -> PublishedDeepSSDML:
        """The published method with the published protocol of each network.

        ``n_components="auto"`` is 32 with "cifar", otherwise 64; "cifar" is pretrained for 30
        epochs.

        Returns
        -------
        model : PublishedDeepSSDML
            Further parameters are passed on to it.
        """
        protocol = paper_network(backbone)
        columns: Any = protocol.n_components if n_components == "auto" else n_components
        return PublishedDeepSSDML(
            backbone, columns, **({"pretrain_epochs": protocol.pretrain_epochs} | params)
        )

    def _read_input(
        self, samples: Samples, labels: Array, device: str, rng: np.random.Generator
    ) -> InputGraph | None:
        projected, graph = None, None
        if self.input_edges or self.input_weight:
            projected = project_input(samples, self.input_edges, self.input_weight)
        self.input_projection_, rows, first = projected or (None, None, None)
        if rows is not None and first is not None and self.input_edges:
            graph = from_first_rank(lambda: input_graph(rows, first, labels, self, device, rng))
        if rows is None:
            self.input_weight_ = 0.0
        elif self.input_weight != "auto":
            self.input_weight_ = float(self.input_weight)
        else:
            self.input_weight_ = BESIDE if graph is not None and graph.weight else 0.0
        return graph

    def _new_trainer(
        self, samples: Any, labels: Array, network: Any, seed: int, device: str
    ) -> AlternationTrainer:
        views = strong_and_weak(self.augment, samples.shape)
        losses = self._copied_losses(device)
        return AlternationTrainer(samples, labels, network, *views, self, seed, device, losses)

    def _copied_losses(self, device: str) -> LossSum | None:
        """Copy the user's losses, with the same weights on all ranks."""
        if self.losses is None:
            return None
        from ssdml.losses.base import LossSum  # loads pytorch-metric-learning

        several = isinstance(self.losses, list | tuple)
        try:
            given = LossSum(self.losses if several else [self.losses])
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"losses must be a loss, or a list of losses or of pairs (weight, loss); {error}"
            ) from error
        check_state(given, "losses")
        losses = copy.deepcopy(given).float().to(device)  # as the embeddings
        broadcast_weights(losses)
        return losses

    @classmethod
    def _restored(cls, config: dict[str, Any], arrays: dict[str, Array], backbone: Any) -> Self:
        # Models saved before the published method had its own class have this parameter.
        mining = config["params"].pop("mining", "propagated")
        if mining != "propagated":
            raise ValueError(
                f"DeepSSDML.load: mining must be 'propagated'; got {mining!r}, which is now "
                "DeepSSDML.paper(). Fit and save that model again."
            )
        return super()._restored(config, arrays, backbone)
