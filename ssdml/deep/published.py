"""The deep alternation of Dutta et al. (2021), as published."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor

from ssdml.deep.base import DeepEstimator
from ssdml.deep.input_graph import device_graph
from ssdml.deep.trainer import PartitionTrainer, Prepared
from ssdml.evaluation.scores import triplet_purity
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.propagation.affinities import propagate_affinities
from ssdml.graphs.triplets import Triplets, mine_triplets
from ssdml.losses.angular import angular_triplet_loss
from ssdml.metric.alternation import PAPER_STEPS, learn_metric
from ssdml.metric.fitted.base import ANGLE, FRACTION
from ssdml.networks.training import momentum_sgd
from ssdml.utils.distributed import from_first_rank
from ssdml.utils.linalg import nearest_orthonormal
from ssdml.utils.typing import Array, Floats, Indices


@dataclass(eq=False, repr=False)
class PublishedDeepSSDML(DeepEstimator):
    """The method of [1]_, as published; :meth:`ssdml.DeepSSDML.paper` sets each network's protocol.

    Each partition of the unlabeled samples has its own graph, of the network's features when it
    begins. One-sided affinities sort the neighbors of each sample into positives and negatives.
    Each batch of these triplets takes ten steps of conjugate gradients on L with the network fixed,
    then one step of SGD on the network with L fixed.

    Parameters
    ----------
    backbone : {"mnist", "cifar", "wide-resnet"} or Module
        See :class:`ssdml.DeepSSDML`.
    n_components : int or None
        Columns of L; None: as many as the backbone has features.
    n_neighbors : int
        At least 2: half of the neighbors are positives.
    decay : float
        How far labels propagate, between 0 and 1.
    angle : float
        Of the angular loss, in degrees.
    orthogonal : bool
        Whether L keeps orthonormal columns; otherwise the conjugate gradients of each batch are
        Euclidean, and L leaves the manifold.
    pretrain_epochs : int
        Epochs of softmax on the labeled samples before the first partition.
    validation_fraction : float
        Share of the labels of each class to hold out (0.15 in Dutta et al., 2021): the network of
        the epoch with the highest R@1 among these samples is kept, or among ``validation`` of
        :meth:`fit`. 0: the last network is kept.
    partition_size : int or None
        Unlabeled samples per partition; None: all.
    epochs, epochs_per_partition : int
        Passes over the triplets, in total and per partition.
    batch_size : int
        Triplets per step.
    learning_rate, weight_decay : float
        Of SGD with momentum 0.9.
    dampening : float
        Of the momentum. With 0.9, steps have the length of the gradient's running mean; with 0 they
        are ten times as long at the same rate.
    mixed_precision : bool or "auto"
        See :class:`ssdml.DeepSSDML`.
    checkpoint_dir, device, n_jobs, random_state, verbose
        See :class:`ssdml.DeepSSDML`.

    Attributes
    ----------
    network_, components_, classes_, transduction_, label_distributions_, triplets_, stage_seconds_
        See :class:`ssdml.DeepSSDML`.
    history_ : list of dict
        One entry per partition: loss, seconds, and the ``purity`` of the triplets whose three
        samples are labeled.

    Notes
    -----
    Affinities have an error of at most 0.01 (1 - decay). Where the paper gives no details, L takes
    its steps in each batch, not once per partition; samples are standardized per channel; the
    learning rate is constant, the weight decay 5e-4 and the momentum 0.9 with dampening 0.9, as in
    other code of its first author; the embedding is scaled to unit length. In pretraining, the
    softmax replaces L and the normalization before it, in the paper only L. The loss is averaged
    over the batch; Eq. (3) sums it. Samples with all-zero features are excluded from triplets. The
    paper keeps the best network, and holds out 15% of the training samples of each class; by
    default the last network is kept here. ``validation_fraction=0.15`` holds out given labels;
    ``validation`` in :meth:`fit` takes others.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, Algorithm 1.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
    >>> _ = torch.manual_seed(0)
    >>> model = PublishedDeepSSDML(torch.nn.Linear(64, 32), 16, epochs=1, random_state=0)
    >>> model.fit(X / 16, labels).transform(X / 16).shape
    (1797, 16)
    """

    backbone: Any = "mnist"
    n_components: int | None = 64
    _: KW_ONLY
    n_neighbors: int = 10
    decay: float = 0.99
    angle: float = 40.0
    orthogonal: bool = True
    pretrain_epochs: int = 0
    validation_fraction: float = 0.0
    partition_size: int | None = 9000
    epochs: int = 50
    epochs_per_partition: int = 10
    batch_size: int = 100
    learning_rate: float = 1e-4
    dampening: float = 0.9
    weight_decay: float = 5e-4
    mixed_precision: bool | str = False
    checkpoint_dir: Any = None
    device: str = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0

    _parameter_constraints = DeepEstimator._parameter_constraints | {
        "n_neighbors": [Interval(Integral, 2, None, closed="left")],
        "angle": ANGLE,
        "orthogonal": ["boolean"],
        "dampening": FRACTION,
    }
    _has_metric_layer = False
    tol = 0.0  # labels are propagated once, at the end: no early stopping

    def _new_trainer(
        self, samples: Any, labels: Array, network: Any, seed: int, device: str
    ) -> PublishedTrainer:
        return PublishedTrainer(samples, labels, network, self, seed, device)


class PublishedTrainer(PartitionTrainer):
    """Train a network and L on the triplets of a partition's graph, one batch at a time."""

    def optimizer(self, groups: Any, **given: Any) -> torch.optim.Optimizer:
        """Make the optimizer of groups of parameters."""
        return momentum_sgd(groups, dampening=self.estimator.dampening, **given)

    @property
    def chance_loss(self) -> float | None:
        """Loss of a constant embedding."""
        return math.log(2)

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Mine triplets in the neighborhoods of the partition's graph."""
        rows, estimator = self.parts[len(self.history)], self.estimator
        features = self.embed("features", rows)
        # Zeros have no direction and would be each other's neighbors.
        nonzero = features.any(axis=1)
        if np.count_nonzero(nonzero) < 2:
            raise FloatingPointError(
                "the backbone's features must be nonzero for at least two samples of a partition; "
                f"got zeros for {np.count_nonzero(~nonzero)} of {len(rows)} samples. If a final "
                f"ReLU is dead, lower learning_rate={estimator.learning_rate} or initialize the "
                "backbone differently."
            )
        rows, features = rows[nonzero], features[nonzero]
        graph = device_graph(
            features, estimator.n_neighbors, self.device, rng, n_jobs=estimator.n_jobs
        )
        mined = self._mine(graph, rows)
        purity = triplet_purity(mined, self.labels[rows])
        entry = {"n_triplets": len(mined.anchor), "purity": purity}
        return Prepared(triplets=mined.among(rows), entry=entry)

    def _mine(self, graph: KNNGraph, rows: Indices) -> Triplets:
        """Sort the neighbors of the rows by propagated affinities."""
        estimator = self.estimator
        affinities = propagate_affinities(
            graph, self.labels[rows], decay=estimator.decay, n_jobs=estimator.n_jobs
        )
        return mine_triplets(graph, affinities, strategy="neighborhood")

    def _batches(self, rows: Indices, number: int, rng: np.random.Generator) -> Iterator[Indices]:
        """Shuffle the triplets in each epoch, and yield batches of shape (3, n)."""
        assert self.triplets is not None
        ends = np.stack(self.triplets[:3])
        size, each = self.estimator.batch_size, self._steps_of(number) // self.epochs_of(number)
        for _ in range(self.epochs_of(number) if each else 0):
            order = rng.permutation(ends.shape[1])[: each * size]  # the paper drops the rest
            yield from (ends[:, batch] for batch in np.array_split(order, each))

    def _steps_of(self, number: int) -> int:
        """Optimizer steps on a partition; fewer triplets than a batch make one."""
        assert self.triplets is not None
        count = len(self.triplets.anchor)
        return self.epochs_of(number) * max(min(count, 1), count // self.estimator.batch_size)

    def _loss(self, batch: Indices) -> Tensor:
        """Learn L with the network fixed; return the loss of the network under L."""
        used, places = np.unique(batch, return_inverse=True)
        features = self.network.features(self.samples.batch(used))
        anchor, positive, negative = places.reshape(3, -1)
        if features.isfinite().all():
            local = Triplets(anchor, positive, negative, np.ones(len(anchor)))
            self._learn_metric(features.detach().cpu().numpy(), local)
        projected = features @ self.network.metric
        return self._losses(projected[anchor], projected[positive], projected[negative]).mean()

    def _losses(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Compute the loss of each triplet under L."""
        return angular_triplet_loss(anchor, positive, negative, angle=self.estimator.angle)

    def _learn_metric(self, features: Array, triplets: Triplets) -> None:
        """Learn L on the first rank: features differ in the last bits between GPUs."""
        found = from_first_rank(
            lambda: learn_metric(
                features,
                triplets,
                self._start_of_metric(),
                angle=self.estimator.angle,
                max_iter=PAPER_STEPS,
                rescale=False,
                orthogonal=self.estimator.orthogonal,
            )
        )
        self._update_network(found.point, None)

    def _start_of_metric(self) -> Floats:
        """L in double precision; float32 is only nearly orthonormal."""
        L = self.network.L
        return nearest_orthonormal(L) if self.estimator.orthogonal else L.astype(np.float64)
