"""DeepSSDML: a network and an orthonormal metric, learned in turn from a handful of labels."""

from __future__ import annotations

import copy
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.deep.base import DeepEstimator
from ssdml.deep.input_graph import InputGraph, input_graph, input_side
from ssdml.networks.backbones import paper_network
from ssdml.utils.typing import Array

if TYPE_CHECKING:
    from ssdml.deep.trainer import PartitionRun
    from ssdml.losses.base import LossSum
    from ssdml.networks.data import Items


BESIDE = 1.0  # weight of an input whose edges are trusted, beside the embedding


class DeepSSDML(DeepEstimator):
    """Network and metric learned from many items and a handful of labels.

    Partition after partition: a kNN graph of the current embedding carries the labels to all
    items, triplets are mined on it, an orthonormal L is learned from them, and the network learns
    under L from the propagated classes and from itself: where it is sure of an item's class, it is
    to give the same class to a distorted view.

    Parameters
    ----------
    backbone : {"mnist", "cifar", "wide-resnet"} or Module
        Seed 003's networks, or :class:`ssdml.networks.wide_resnet.WideResNet` for images of any size, or any
        that makes (n, d) features of a batch; it is copied. All of its parts are in training mode
        while it learns, and in evaluation mode in the end.
    n_components : int or None
        Columns of L, at most d; None: d. The embedding has as many, and where ``input_weight_`` is
        not 0 those of the input beside them.
    n_neighbors : int
    decay : float
        How far labels reach along the graph, between 0 and 1.
    propagation : {"two-sided", "one-sided"}
        Affinities that L's triplets are mined by: of all items, or, for they take a solve an item,
        of a partition's items along their own graph.
    mining : {"propagated", "neighborhood"}
        "neighborhood" is the seed's way, with all that belongs to it: network and L learn from
        triplets alone, 100 at a time, L by 10 steps; ``propagation``, ``augment``, ``consistency``
        with what belongs to it, ``triplets``, ``losses``, ``metric_steps`` and ``tol`` are not
        read, and ``batch_size`` for embedding alone. See :meth:`paper`.
    angle : float
        Of the angular losses, in degrees.
    augment : "auto", None or callable
        Views of a batch, ``augment(items, generator)``. "auto": affine maps of images of one
        channel; a flip, colors and holes besides for others; nothing for features.
    consistency : float
        Weight of the consistency between views; 0 leaves it out.
    threshold : float
        An item takes part in it whose class the network gives more than this probability [2]_.
    triplets : float
        Weight of the angular loss of triplets in the batch beside the classes' proxies.
    losses : loss, list of losses or of pairs (weight, loss), or None
        Of :mod:`ssdml.losses` or with their call, beside these: on the unit embedding of a batch
        and its classes, which are numbered in their order. They are copied. Parameters of theirs
        are learned, at their own rate if they have one; where one takes halves aligned in class,
        batches are drawn so.
    metric_steps : int
        Of conjugate gradients on the Stiefel manifold in each partition; 0: L stays as it began.
    orthogonal : bool
        Whether L keeps orthonormal columns; otherwise it is a layer like any other.
    input_edges : float or "auto"
        Weight of the input's edges beside those of the embedding; in the first partition they are
        alone. 0: the first partition learns from the labeled items and from consistency. "auto":
        0.2 if half of the labels foretell the other half along them, more often than not, else 0.
    input_weight : float or "auto"
        Weight of the input beside the embedding, both of length about 1: it decides among near
        neighbors. "auto": 1 where ``input_edges`` are used, else 0.
    pretrain_epochs : int
        Passes over the labeled items by softmax, before anything else; seed 003 has 30 of them
        for CIFAR-10.
    partition_size : int or None
        Unlabeled items that a partition trains on; None: all. Labels are carried to all anyway.
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
        Whether the backbone computes in bfloat16 while it learns on partitions; "auto": on a GPU. A
        CPU gains by it if it has instructions for it (AMX), otherwise it loses.
    checkpoint_dir : path or None
        Where each partition leaves a checkpoint, and a line in ``history.jsonl``; scalars for
        TensorBoard too where that is installed. A fit with the same settings and data goes on from
        the last checkpoint; another one is refused, so a search over settings wants None.
    device : str
        Where the network learns and its neighbors are searched; "auto" is a GPU where torch finds
        one.
    n_jobs : int or None
        Threads of the neighbor search and of the propagation.
    random_state : int, RandomState or None
    verbose : int
        From 1 on a progress bar is drawn, if standard error is a terminal.

    Attributes
    ----------
    network_ : Module
        Calling it gives the unit embedding.
    components_ : ndarray of shape (n_components, d)
        L, transposed.
    classes_ : ndarray of shape (n_classes,)
    transduction_ : ndarray of shape (n,)
        Class of each item that was fitted.
    label_distributions_ : ndarray of shape (n, n_classes)
    input_weight_ : float
    triplets_ : Triplets
        Of the last partition; None once it is loaded.
    history_ : list of dict
        A partition each: its loss, seconds, and the share of items that ``changed`` class. The
        first, where it begins with the items' own edges, has the share of the labels ``foretold``
        along these, each half by the other; the published way the ``purity`` of its triplets whose
        three ends have labels.
    stage_seconds_ : dict of str to float

    Notes
    -----
    Departures from [1]_: labels are propagated to pairs of unlabeled items as well and along a
    graph of all items; the network learns from classes and triplets of each batch as the graph has
    them; consistency [2]_; the input is kept beside.

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

    _parameter_constraints: dict[str, list[Any]] = DeepEstimator._parameter_constraints | {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "propagation": [StrOptions({"two-sided", "one-sided"})],
        "mining": [StrOptions({"propagated", "neighborhood"})],
        "angle": [Interval(Real, 0, 90, closed="neither")],
        "augment": [StrOptions({"auto"}), callable, None],
        "consistency": [Interval(Real, 0, None, closed="left")],
        "threshold": [Interval(Real, 0, 1, closed="both")],
        "triplets": [Interval(Real, 0, None, closed="left")],
        "losses": [list, tuple, callable, None],
        "metric_steps": [Interval(Integral, 0, None, closed="left")],
        "orthogonal": ["boolean"],
        "input_edges": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "input_weight": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
        "tol": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(
        self,
        backbone: Any = "mnist",
        n_components: int | None = 64,
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
        losses: Any = None,
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
        self.losses = losses
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
    def paper(
        cls, backbone: Any = "mnist", n_components: int | str | None = "auto", **params: Any
    ) -> Self:
        """Seed 003 to the letter: one-sided affinities, neighborhood triplets, L by the batch.

        Descent by SGD at rate 10⁻⁴ on partitions of 9,000 unlabeled items, 10 epochs each, 50 in
        all; neither views nor the input beside. The graph of a partition is that of its features
        before L, as they are when it begins; its triplets make the batches. ``n_components``
        "auto" is 32 with "cifar", otherwise 64, and with "cifar" 30 epochs of softmax on the
        labeled items come before all else.

        The network goes down the mean of a batch's triplets, where Eq. (3) has their sum: the rate
        is that of a mean. Items of which it makes zeros alone are in no triplet. Ours, where the
        seed is silent: items are standardized by channel, the rate stays where it began, the weight
        decay is 5·10⁻⁴, the momentum 0.9; the softmax of the pretraining sees features of any
        length; the embedding is scaled to length 1 behind L, as all are here. And where we do
        otherwise: the last network is kept, for the seed's choice of the best wants the labels of
        15 % of the items.
        """
        theirs = paper_network(backbone)
        columns = theirs.n_components if n_components == "auto" else n_components
        literal: dict[str, Any] = {
            "n_components": columns,
            "pretrain_epochs": theirs.pretrain_epochs,
            "propagation": "one-sided",
            "mining": "neighborhood",
            "augment": None,
            "consistency": 0.0,
            "input_edges": 0.0,
            "input_weight": 0.0,
            "learning_rate": 1e-4,
            "weight_decay": 5e-4,
            "mixed_precision": False,
        }
        return cls(backbone, **(literal | params))

    def _inputs(
        self, items: Items, labels: Array, device: str, rng: np.random.Generator
    ) -> InputGraph | None:
        """Graph of the items as they are, where its edges may count."""
        from ssdml.utils.distributed import from_first_rank

        self.input_side_, rows, graph = None, None, None
        if self.input_edges or self.input_weight:
            self.input_side_, rows = input_side(items, self) or (None, None)
        if rows is not None and self.input_edges:
            graph = from_first_rank(lambda: input_graph(rows, labels, self, device, rng))
        self.input_weight_ = self._beside(graph)
        return graph

    def _beside(self, inputs: InputGraph | None) -> float:
        """Weight of the input beside the embedding."""
        if self.input_side_ is None:
            return 0.0
        if self.input_weight != "auto":
            return float(self.input_weight)
        return BESIDE if inputs is not None and inputs.weight else 0.0

    def _new_run(
        self, items: Any, labels: Array, network: Any, seed: int, device: str
    ) -> PartitionRun:
        from ssdml.deep.alternation import DeepRun
        from ssdml.deep.published import LiteralRun
        from ssdml.networks.augmentation import strong_and_weak

        if self.mining == "neighborhood":
            if self.n_neighbors < 2:
                raise ValueError(
                    "n_neighbors must be at least 2 with mining='neighborhood', one neighbor for "
                    f"the positive and one for the negative; got {self.n_neighbors}."
                )
            return LiteralRun(items, labels, network, self, seed, device)
        views, weak_views = strong_and_weak(self.augment, items.shape)
        losses = self._copied_losses(device)
        return DeepRun(items, labels, network, views, weak_views, self, seed, device, losses)

    def _copied_losses(self, device: str) -> LossSum | None:
        """Losses beside ours, the same on all ranks."""
        from ssdml.losses.base import LossSum
        from ssdml.utils.distributed import share_weights

        if self.losses is None:
            return None
        several = isinstance(self.losses, list | tuple)
        try:
            given = LossSum(self.losses if several else [self.losses])
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"losses must be a loss, or a list of losses or of pairs (weight, loss); {error}"
            ) from error
        losses = copy.deepcopy(given).to(device)
        share_weights(losses)
        return losses
