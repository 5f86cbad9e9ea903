"""DeepBaseline: a linear baseline's metric and a network, by Algorithm 1 of Dutta et al. (2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.baselines.apit import APIT
from ssdml.baselines.apllr import APLLR
from ssdml.baselines.base import Baseline, factor
from ssdml.baselines.batch_losses import BatchLoss
from ssdml.baselines.deep.base import DeepMethod
from ssdml.baselines.isdml import ISDML
from ssdml.baselines.lrml import LRML
from ssdml.baselines.seraph import SERAPH
from ssdml.deep.trainer import PartitionTrainer, Prepared
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.losses.pairs import squared_distances
from ssdml.metric.fitted.base import FRACTION
from ssdml.networks.data import Samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.training import momentum_sgd
from ssdml.utils.linalg import covariance
from ssdml.utils.typing import Array, Indices, Ints
from ssdml.utils.validation import UNLABELED

LABELED_SHARE = 1 / 3  # of a batch
METHODS: dict[str, type[Baseline]] = {
    "lrml": LRML,
    "seraph": SERAPH,
    "isdml": ISDML,
    "apllr": APLLR,
    "apit": APIT,
}
# Where the published objective is not that of the linear method's defaults.
PUBLISHED: dict[str, dict[str, Any]] = {
    "seraph": {"trace_weight": 1.0, "unlabeled_pairs": "both"},
}


@dataclass(eq=False, repr=False)
class DeepBaseline(DeepMethod):
    """Alternate between the metric of a linear baseline and a network.

    In each partition the method learns its metric from the network's unit features; the network
    then minimizes the same objective on mini-batches, with the metric fixed.

    Parameters
    ----------
    method : {"lrml", "seraph", "isdml", "apllr", "apit"}
    n_components : int or None
        Rows of the factor of the metric; None: d.
    method_params : dict or None
        Parameters of the method that differ from its defaults. Those of "seraph" are here
        ``trace_weight=1.0`` and ``unlabeled_pairs="both"``, Eq. (1) of [1]_, which gives no number.
    pretrain_epochs : int
        Passes over the labeled samples with a softmax, before the alternation.
    partition_size : int or None
        Unlabeled samples per partition; None: all.
    batch_size : int
        A third of a batch is labeled, the rest are pairs of neighbors.
    learning_rate, dampening : float
        Of SGD with momentum 0.9; both as in ``DeepSSDML.paper``.
    backbone, decay, epochs, ...
        See :class:`~ssdml.baselines.deep.base.DeepMethod`.

    Attributes
    ----------
    network_, components_, ...
        See :class:`~ssdml.baselines.deep.base.DeepMethod`.

    Warns
    -----
    UserWarning, ConvergenceWarning
        Those of the method, on a partition.

    Notes
    -----
    Ours, as [1]_ only says that batches come from the partition: a third of labeled samples and
    pairs of neighbors, since a uniform batch contains hardly any labeled pair or edge; one metric
    per partition, since its closed form needs the partition's graph; a metric scaled to trace d
    (not for SERAPH, whose threshold fixes the scale), so that a learning rate means the same for
    all; the dampening, since without it networks memorize the few labeled samples at the 1e-4 of
    [1]_ (LRML's NMI on held-out MNIST training images falls to 21; it rises to 57 at 1e-5), and
    ISDML's unscaled metrics end in zeros; embeddings of unit length; keeping the last network
    unless ``validation_fraction`` is set. Samples with all-zero features stay in the graph.

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

    method: str = "lrml"
    backbone: Any = "mnist"
    n_components: int | None = None
    _: KW_ONLY
    method_params: dict[str, Any] | None = None
    pretrain_epochs: int = 0
    partition_size: int | None = 9000
    learning_rate: float = 1e-4
    dampening: float = 0.9

    _parameter_constraints = DeepMethod._parameter_constraints | {
        "method": [StrOptions(set(METHODS))],
        "method_params": [dict, None],
        "dampening": FRACTION,
        "batch_size": [Interval(Integral, 4, None, closed="left")],
    }
    tol, orthogonal = 0.0, True  # no early stopping; L is learned apart

    @property
    def n_neighbors(self) -> int:
        """Number of neighbors in the method's graph."""
        return self._new_method().n_neighbors

    @property
    def method_defaults(self) -> dict[str, Any]:
        """Defaults of the entries of ``method_params``."""
        return METHODS[self.method](**PUBLISHED.get(self.method, {})).get_params()

    def _new_method(self) -> Baseline:
        method = METHODS[self.method](n_jobs=self.n_jobs, **PUBLISHED.get(self.method, {}))
        method.set_params(**(self.method_params or {}))
        method._validate_params()
        return method

    def _new_trainer(
        self, items: Any, labels: Array, network: Any, seed: int, device: str
    ) -> BaselineTrainer:
        return BaselineTrainer(items, labels, network, self._new_method(), self, seed, device)


class Objective(NamedTuple):
    """Objective of the network on a partition."""

    loss: BatchLoss
    graph: KNNGraph


class Batch(NamedTuple):
    """Items of a step."""

    rows: Indices  # in the partition
    items: Indices  # in the data set


class BaselineTrainer(PartitionTrainer):
    """Trainer that alternates between a baseline's metric and the network."""

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

    def optimizer(self, groups: Any, **given: Any) -> torch.optim.Optimizer:
        """Make the optimizer of groups of parameters."""
        return momentum_sgd(groups, dampening=self.estimator.dampening, **given)

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Learn the metric of the partition's features; return it with its objective."""
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
        """Yield batches of the partition."""
        assert self.objective is not None
        known = np.flatnonzero(self.labels[rows] != UNLABELED)
        for _ in range(self._steps_of(number)):
            batch = draw_batch(known, self.objective.graph, self.estimator.batch_size, rng)
            yield Batch(batch, rows[batch])

    def _loss(self, batch: Batch) -> torch.Tensor:
        """Compute the method's objective under the fixed metric."""
        assert self.objective is not None
        features = self.network.features(self.samples.batch(batch.items))
        embedding = features @ self.network.metric
        squares = squared_distances(embedding, embedding)
        weights = torch.from_numpy(self.objective.loss.weights_of(batch.rows)).to(squares)
        labels = torch.from_numpy(self.labels[batch.items]).to(squares.device)
        return self.objective.loss(squares, labels, weights)


def draw_batch(known: Indices, graph: KNNGraph, size: int, rng: np.random.Generator) -> Indices:
    """Draw a batch: a third labeled rows, the rest pairs of neighbors, so that it contains edges.

    ``known`` are the labeled rows of the graph.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> graph = knn_graph(np.arange(20.0)[:, None], 2)
    >>> batch = draw_batch(np.array([3, 9]), graph, 8, np.random.default_rng(0))
    >>> len(batch), {3, 9} <= set(batch.tolist()), np.abs(batch[2:5] - batch[5:]).max() <= 2
    (8, True, np.True_)
    """
    n_known = min(len(known), max(1, round(LABELED_SHARE * size)))
    n_pairs = max(1, (size - n_known) // 2)
    rows = rng.integers(len(graph.indices), size=n_pairs)
    neighbors = graph.indices[rows, rng.integers(graph.n_neighbors, size=n_pairs)]
    drawn = rng.choice(known, n_known, replace=False)
    return np.concatenate([drawn, rows, neighbors])
