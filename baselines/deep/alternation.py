"""The baselines end to end: Algorithm 1 of seed 003 over any of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.baselines.apit import APIT
from ssdml.baselines.apllr import APLLR
from ssdml.baselines.base import Baseline, factor
from ssdml.baselines.batch_losses import BatchLoss
from ssdml.baselines.isdml import ISDML
from ssdml.baselines.lrml import LRML
from ssdml.baselines.seraph import SERAPH
from ssdml.deep.base import DeepEstimator
from ssdml.deep.trainer import PartitionTrainer, Prepared
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.losses.pairs import squared_distances
from ssdml.networks.data import Samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.utils.linalg import covariance
from ssdml.utils.typing import Array, Indices, Ints
from ssdml.utils.validation import UNLABELED

METHODS: dict[str, type[Baseline]] = {
    "lrml": LRML,
    "seraph": SERAPH,
    "isdml": ISDML,
    "apllr": APLLR,
    "apit": APIT,
}


class DeepBaseline(DeepEstimator):
    """A baseline's metric and a network, learned in turn.

    Partition after partition: the method learns its metric from the network's unit features, then
    the network learns by the same objective, the metric fixed, on mini-batches.

    Parameters
    ----------
    method : {"lrml", "seraph", "isdml", "apllr", "apit"}
    backbone : {"mnist", "cifar", "wide-resnet"} or Module
        Seed 003's networks, or :class:`ssdml.networks.wide_resnet.WideResNet` for images of any size, or any
        that makes (n, d) features of a batch; it is copied.
    n_components : int or None
        Rows of the metric's factor; None: d, for the methods' matrices are full.
    method_params : dict or None
        Parameters of the method, beside its own defaults.
    decay : float
        How far labels reach along the last graph, between 0 and 1, for ``transduction_``.
    pretrain_epochs : int
        Passes over the labeled items by softmax, before anything else.
    partition_size : int or None
        Unlabeled items of a partition; None: all.
    epochs, epochs_per_partition : int
        Passes over partitions, and over each of them; the last partition has what is left.
    batch_size : int
        Samples of a step: a third labeled, the rest in pairs of neighbors.
    learning_rate, weight_decay : float
        Of SGD with momentum 0.9.
    mixed_precision : bool or "auto"
        As that of :class:`ssdml.DeepSSDML`, but in float32 unless it is asked for.
    checkpoint_dir : path or None
        Where each partition leaves a checkpoint; see :class:`ssdml.DeepSSDML`.
    device : str
        "auto" is a GPU where torch finds one.
    n_jobs : int or None
        Threads of the method.
    random_state : int, RandomState or None
    verbose : int
        From 1 on a progress bar is drawn, if standard error is a terminal.

    Attributes
    ----------
    network_ : Module
        Calling it gives the embedding, of unit length.
    components_ : ndarray of shape (n_components, d)
    classes_, transduction_, label_distributions_, history_, stage_seconds_
        As those of :class:`ssdml.DeepSSDML`.

    Warns
    -----
    UserWarning, ConvergenceWarning
        As the method does, of the labels and of its steps on a partition.

    Notes
    -----
    The seed says that batches are drawn from the partition, and no more; a third of labeled items
    and pairs of neighbors are ours, as a batch drawn evenly would hold hardly any labeled pair or
    edge. So is a metric learned once a partition, for its closed form wants the partition's graph.
    But for SERAPH, whose threshold says how long a distance is, it is scaled to trace d, so that a
    rate means the same to all. That rate is ours too: at seed 003's 10⁻⁴ networks learn the few
    labeled items by heart (of held-out training images of MNIST, LRML's NMI falls to 21, and at
    10⁻⁵ rises to 57), and ISDML's, unscaled, end in zeros.
    The embedding is scaled to unit length, where the seed says nothing, and the last network is
    kept: the seed's choice of the best wants the labels of 15 % of the items. Samples of which the
    network makes zeros alone stay in the partition's graph.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
    >>> _ = torch.manual_seed(0)
    >>> head = torch.nn.Linear(64, 32)
    >>> model = DeepBaseline("lrml", head, 16, epochs=2, random_state=0)
    >>> model.fit(X / 16, labels).transform(X / 16).shape
    (1797, 16)
    """

    _parameter_constraints: dict[str, list[Any]] = DeepEstimator._parameter_constraints | {
        "method": [StrOptions(set(METHODS))],
        "method_params": [dict, None],
        "batch_size": [Interval(Integral, 4, None, closed="left")],
    }

    # What other runs leave open: no early stop, and L is learned apart.
    tol, orthogonal = 0.0, True

    def __init__(
        self,
        method: str = "lrml",
        backbone: Any = "mnist",
        n_components: int | None = None,
        *,
        method_params: dict[str, Any] | None = None,
        decay: float = 0.99,
        pretrain_epochs: int = 0,
        partition_size: int | None = 9000,
        epochs: int = 50,
        epochs_per_partition: int = 10,
        batch_size: int = 100,
        learning_rate: float = 1e-5,
        weight_decay: float = 5e-4,
        mixed_precision: bool | str = False,
        checkpoint_dir: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.n_components = n_components
        self.method_params = method_params
        self.decay = decay
        self.pretrain_epochs = pretrain_epochs
        self.partition_size = partition_size
        self.epochs = epochs
        self.epochs_per_partition = epochs_per_partition
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.mixed_precision = mixed_precision
        self.checkpoint_dir = checkpoint_dir
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @property
    def n_neighbors(self) -> int:
        """Of the method's graph, and of the last."""
        return self._new_method().n_neighbors

    @property
    def method_defaults(self) -> dict[str, Any]:
        """What may stand in ``method_params``, with the values that it has otherwise."""
        return METHODS[self.method]().get_params()

    def _new_method(self) -> Baseline:
        method = METHODS[self.method](n_jobs=self.n_jobs)
        method.set_params(**(self.method_params or {}))
        method._validate_params()
        return method

    def _new_trainer(
        self, items: Any, labels: Array, network: Any, seed: int, device: str
    ) -> BaselineTrainer:
        return BaselineTrainer(items, labels, network, self._new_method(), self, seed, device)


# A run of partitions that learns a baseline's metric, and the network by its objective.

LABELED = 1 / 3  # of a batch; the rest are rows, each with one of its neighbors


class Objective(NamedTuple):
    """What the network learns from on a partition."""

    loss: BatchLoss
    graph: KNNGraph


class Batch(NamedTuple):
    """What a step learns from."""

    rows: Indices  # of the partition
    items: Indices  # the same among all


class BaselineTrainer(PartitionTrainer):
    """State of the alternation of a baseline, and its steps.

    The momentum of the descent (0.9) is that of :class:`~ssdml.deep.published.PublishedTrainer`.
    """

    optimizer = partial(torch.optim.SGD, lr=0.0, momentum=0.9)

    def __init__(
        self,
        items: Samples,
        labels: Ints,
        network: MetricNetwork,
        method: Baseline,
        estimator: Any,
        seed: int,
        device: str,
    ) -> None:
        super().__init__(items, labels, network, estimator, seed, device)
        self.method = method
        self.objective: Objective | None = None

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """The metric of the partition's features, and the objective that it was learned by."""
        rows = self.parts[len(self.history)]
        problem = self.method._pose(self.embed("features", rows), self.labels[rows], rng)
        M, info = self.method._solve(problem)
        count = self.network.L.shape[1]
        free = self.method._is_scale_free
        metric = factor(M, covariance(problem.X), count, scaled=free).T / problem.scale
        objective = Objective(self.method._batch_loss(problem, info), problem.graph)
        entry = {name: value for name, value in info.items() if isinstance(value, int | float)}
        return Prepared(metric=metric, more=objective, entry=entry)

    def _apply(self, found: Prepared) -> None:
        super()._apply(found)
        self.objective = found.more

    def _batches(self, rows: Indices, number: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Rows of the partition as its graph has them, and their numbers among all items."""
        assert self.objective is not None
        known = np.flatnonzero(self.labels[rows] != UNLABELED)
        for _ in range(self._steps_of(number)):
            batch = draw_batch(known, self.objective.graph, self.estimator.batch_size, rng)
            yield Batch(batch, rows[batch])

    def _loss(self, batch: Batch) -> torch.Tensor:
        """The method's objective, its metric as it is."""
        assert self.objective is not None
        features = self.network.features(self.samples.batch(batch.items))
        embedding = features @ self.network.metric
        squares = squared_distances(embedding, embedding)
        weights = torch.from_numpy(self.objective.loss.weights_of(batch.rows)).to(squares)
        labels = torch.from_numpy(self.labels[batch.items]).to(squares.device)
        return self.objective.loss(squares, labels, weights)


def draw_batch(known: Indices, graph: KNNGraph, size: int, rng: np.random.Generator) -> Indices:
    """Labeled rows, and others in pairs with a neighbor: without them no edge would be met.

    Parameters
    ----------
    known : array of int
        Labeled rows of the graph.
    graph : KNNGraph
    size : int
        Of the batch; a third of it are labeled rows, if there are so many.
    rng : Generator

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> graph = knn_graph(np.arange(20.0)[:, None], 2)
    >>> batch = draw_batch(np.array([3, 9]), graph, 8, np.random.default_rng(0))
    >>> len(batch), {3, 9} <= set(batch.tolist()), np.abs(batch[2:5] - batch[5:]).max() <= 2
    (8, True, np.True_)
    """
    n_known = min(len(known), max(1, round(LABELED * size)))
    n_pairs = max(1, (size - n_known) // 2)
    rows = rng.integers(len(graph.indices), size=n_pairs)
    neighbors = graph.indices[rows, rng.integers(graph.n_neighbors, size=n_pairs)]
    drawn = rng.choice(known, n_known, replace=False)
    batch: Indices = np.concatenate([drawn, rows, neighbors])
    return batch
