"""The supervised baselines of seed 003: a network learned from the labeled items alone."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor
from torch.nn import functional

from ssdml.deep.base import DeepEstimator
from ssdml.deep.published import PublishedTrainer
from ssdml.deep.trainer import Prepared
from ssdml.graphs.triplets import Triplets
from ssdml.metric.alternation import PAPER_STEPS
from ssdml.metric.stiefel import minimize_on_stiefel
from ssdml.utils.labels import class_codes
from ssdml.utils.linalg import nearest_orthonormal
from ssdml.utils.typing import Array, Ints


class DeepSupervised(DeepEstimator):
    """Network and orthonormal metric learned from triplets of the labeled items.

    It is the seed's own alternation, ``DeepSSDML.paper``, with triplets of the labels in the place
    of those that are mined on a graph: each batch of 100 triplets learns L by ten steps of
    conjugate gradients, and the network by one of gradient descent.

    Parameters
    ----------
    loss : {"triplet", "angular"}
        "triplet" [1]_: by how much less than ``margin`` the squared distance to the negative is
        beyond that to the positive. "angular" [2]_: that of seed 003's Eq. (3).
    backbone : {"mnist", "cifar", "wide-resnet"} or Module
        Seed 003's networks, or :class:`ssdml.networks.wide_resnet.WideResNet` for images of any size, or any
        that makes (n, d) features of a batch; it is copied.
    n_components : int or None
        Columns of L, at most d; None: d.
    margin : float
        Of "triplet".
    angle : float
        Of "angular", in degrees.
    orthogonal : bool
        Whether L keeps orthonormal columns; otherwise it is a layer like any other.
    n_triplets : int
        That are drawn for a partition at most, and drawn anew for the next.
    n_neighbors, decay : int, float
        Of the last graph, along which the labels are carried, for ``transduction_``.
    pretrain_epochs : int
        Passes over the labeled items by softmax, before anything else.
    epochs, epochs_per_partition : int
        Passes over the triplets, and over those of a partition.
    batch_size : int
        Triplets per step.
    learning_rate, weight_decay : float
        Of SGD with momentum 0.9.
    mixed_precision : bool or "auto"
        As that of :class:`ssdml.DeepSSDML`, but in float32 unless it is asked for.
    checkpoint_dir, device, n_jobs, random_state, verbose
        As those of :class:`ssdml.DeepSSDML`.

    Attributes
    ----------
    network_, components_, classes_, transduction_, label_distributions_, history_, stage_seconds_
        As those of :class:`ssdml.DeepSSDML`.

    Notes
    -----
    Seed 003 compares with both losses in its Table 5 and says no more. Triplets are drawn evenly
    from all that the labels make; the margin is that of [1]_. L is learned as in the seed's own
    method, so that the two differ in their triplets alone.

    References
    ----------
    .. [1] Schroff, Kalenichenko, Philbin, "FaceNet: a unified embedding for face recognition and
       clustering", CVPR 2015.
    .. [2] Wang et al., "Deep metric learning with angular loss", ICCV 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Linear(64, 32)
    >>> model = DeepSupervised("triplet", network, 16, n_triplets=500, epochs=2, random_state=0)
    >>> model.fit(X / 16, labels).transform(X / 16).shape
    (1797, 16)
    """

    _parameter_constraints: dict[str, list[Any]] = DeepEstimator._parameter_constraints | {
        "loss": [StrOptions({"triplet", "angular"})],
        "margin": [Interval(Real, 0, None, closed="neither")],
        "angle": [Interval(Real, 0, 90, closed="neither")],
        "orthogonal": ["boolean"],
        "n_triplets": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
    }

    # What other runs leave open: no early stop, no part of the items.
    tol, partition_size = 0.0, None

    def __init__(
        self,
        loss: str = "triplet",
        backbone: Any = "mnist",
        n_components: int | None = 64,
        *,
        margin: float = 0.2,
        angle: float = 40.0,
        orthogonal: bool = True,
        n_triplets: int = 10_000,
        n_neighbors: int = 10,
        decay: float = 0.99,
        pretrain_epochs: int = 0,
        epochs: int = 50,
        epochs_per_partition: int = 10,
        batch_size: int = 100,
        learning_rate: float = 1e-4,
        weight_decay: float = 5e-4,
        mixed_precision: bool | str = False,
        checkpoint_dir: Any = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.backbone = backbone
        self.n_components = n_components
        self.margin = margin
        self.angle = angle
        self.orthogonal = orthogonal
        self.n_triplets = n_triplets
        self.n_neighbors = n_neighbors
        self.decay = decay
        self.pretrain_epochs = pretrain_epochs
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

    def _new_trainer(
        self, items: Any, labels: Array, network: Any, seed: int, device: str
    ) -> SupervisedTrainer:
        kind = TripletTrainer if self.loss == "triplet" else SupervisedTrainer
        return kind(items, labels, network, self, seed, device)


class SupervisedTrainer(PublishedTrainer):
    """The seed's alternation on triplets of the labeled items."""

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Triplets of the labels."""
        triplets = labeled_triplets(self.labels, self.estimator.n_triplets, rng)
        entry = {"n_triplets": len(triplets.anchor)}
        return Prepared(triplets=triplets, entry=entry)


class TripletTrainer(SupervisedTrainer):
    """The same with the triplet loss, for the network as for L."""

    def _losses(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """By how much the negative is nearer than it should be."""
        to_positive = (anchor - positive).square().sum(dim=1)
        to_negative = (anchor - negative).square().sum(dim=1)
        return functional.relu(to_positive - to_negative + self.estimator.margin)

    def _learn_metric(self, features: Array, triplets: Triplets) -> None:
        rows = torch.from_numpy(features.astype(np.float64))
        ends = [rows[end] for end in triplets[:3]]

        def objective(L: Array) -> tuple[float, Array]:
            metric = torch.tensor(L, requires_grad=True)
            value = self._losses(*(end @ metric for end in ends)).mean()
            (gradient,) = torch.autograd.grad(value, metric)
            return value.item(), gradient.numpy()

        start = nearest_orthonormal(self.network.L)  # of float32, nearly so
        with np.errstate(invalid="ignore"):  # pymanopt, where no triplet is left to mend
            found = minimize_on_stiefel(objective, start, max_iter=PAPER_STEPS)
        self._update_network(found.point, None)


def labeled_triplets(labels: Ints, most: int, rng: np.random.Generator) -> Triplets:
    """Triplets of labeled rows, two of one class and one of another, all as likely.

    Parameters
    ----------
    labels : array of shape (n,), int
        -1 where unlabeled.
    most : int
        As many are drawn as there are, but no more than this.
    rng : Generator

    Raises
    ------
    ValueError
        If no two rows are of one class, or none is of another.

    Examples
    --------
    >>> labels = np.array([7, -1, 7, 3])
    >>> triplets = labeled_triplets(labels, 100, np.random.default_rng(0))
    >>> [labels[end].tolist() for end in triplets[:3]]
    [[7, 7], [7, 7], [3, 3]]
    """
    codes, _ = class_codes(labels)
    order = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]
    classes, starts, sizes = np.unique(codes[order], return_index=True, return_counts=True)
    total = len(order)
    each = sizes * (sizes - 1) * (total - sizes)
    if not each.any():
        raise ValueError(
            "DeepSupervised: y must label two items of one class and one of another; got "
            f"{total} labeled items of {len(classes)} classes. Label more."
        )
    drawn = rng.choice(len(classes), min(most, int(each.sum())), p=each / each.sum())
    start, size = starts[drawn], sizes[drawn]
    first = rng.integers(size)
    second = (first + rng.integers(1, size)) % size
    other = rng.integers(total - size)
    other += size * (other >= start)
    ends = (order[start + first], order[start + second], order[other])
    return Triplets(*ends, np.ones(len(drawn)))
