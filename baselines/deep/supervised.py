"""DeepSupervised: the supervised baselines of Dutta et al. (2021)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions
from torch import Tensor
from torch.nn import functional

from ssdml.baselines.deep.base import DeepMethod
from ssdml.deep.published import PublishedTrainer
from ssdml.deep.trainer import Prepared
from ssdml.graphs.triplets import Triplets
from ssdml.metric.alternation import PAPER_STEPS
from ssdml.metric.fitted.base import ANGLE, COUNT, FRACTION, POSITIVE
from ssdml.metric.stiefel import minimize_freely, minimize_on_stiefel
from ssdml.utils.labels import class_codes
from ssdml.utils.typing import Array, Ints


@dataclass(eq=False, repr=False)
class DeepSupervised(DeepMethod):
    """Learn a network and an orthonormal metric from triplets of the labeled samples.

    The alternation of ``DeepSSDML.paper`` with triplets of the labels instead of mined ones: each
    batch of 100 triplets takes ten conjugate gradient steps on L and one SGD step on the network.

    Parameters
    ----------
    loss : {"triplet", "angular"}
        "triplet" [1]_: hinge of squared distances. "angular" [2]_: Eq. (3) of Dutta et al. (2021).
    margin : float
        Of "triplet".
    angle : float
        Of "angular", in degrees.
    orthogonal : bool
        Whether L keeps orthonormal columns; otherwise its conjugate gradients are Euclidean.
    n_triplets : int
        Maximum number of triplets per partition, drawn anew for each.
    n_neighbors : int
        Of the last graph, over which the labels are propagated for ``transduction_``.
    pretrain_epochs : int
        Passes over the labeled samples with a softmax, before the alternation.
    epochs, epochs_per_partition : int
        Passes over the triplets, and over those of a partition.
    batch_size : int
        Triplets per step.
    learning_rate, dampening : float
        Of SGD with momentum 0.9; both as in ``DeepSSDML.paper``.
    backbone, n_components, decay, ...
        See :class:`~ssdml.baselines.deep.base.DeepMethod`.

    Attributes
    ----------
    network_, components_, ...
        See :class:`~ssdml.baselines.deep.base.DeepMethod`.

    Notes
    -----
    Dutta et al. (2021) compare with both losses in their Table 5 without details. Triplets are
    drawn uniformly from all that the labels allow; the margin is that of [1]_. L is learned as in
    their own method, so that with loss="angular" the two differ in the triplets only.

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

    loss: str = "triplet"
    backbone: Any = "mnist"
    n_components: int | None = 64
    _: KW_ONLY
    margin: float = 0.2
    angle: float = 40.0
    orthogonal: bool = True
    n_triplets: int = 10_000
    n_neighbors: int = 10
    pretrain_epochs: int = 0
    learning_rate: float = 1e-4
    dampening: float = 0.9

    _parameter_constraints = DeepMethod._parameter_constraints | {
        "loss": [StrOptions({"triplet", "angular"})],
        "margin": POSITIVE,
        "angle": ANGLE,
        "orthogonal": ["boolean"],
        "dampening": FRACTION,
        "n_triplets": COUNT,
        "n_neighbors": COUNT,
    }
    _has_metric_layer = False
    tol, partition_size = 0.0, None  # no early stopping, all items

    def _new_trainer(
        self, items: Any, labels: Array, network: Any, seed: int, device: str
    ) -> SupervisedTrainer:
        kind = TripletTrainer if self.loss == "triplet" else SupervisedTrainer
        return kind(items, labels, network, self, seed, device)


class SupervisedTrainer(PublishedTrainer):
    """Trainer of the published alternation on triplets of the labeled samples."""

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Draw triplets of the labels."""
        triplets = labeled_triplets(self.labels, self.estimator.n_triplets, rng)
        entry = {"n_triplets": len(triplets.anchor)}
        return Prepared(triplets=triplets, entry=entry)


class TripletTrainer(SupervisedTrainer):
    """Trainer with the triplet loss, for the network and for L."""

    @property
    def chance_loss(self) -> float | None:
        """Loss of a constant embedding."""
        return float(self.estimator.margin)

    def _losses(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Compute the hinge of each triplet."""
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

        minimize = minimize_on_stiefel if self.estimator.orthogonal else minimize_freely
        # pymanopt divides 0 by 0 if every hinge is 0.
        with self.draws.suspended(), np.errstate(invalid="ignore"):
            found = minimize(objective, self._start_of_metric(), max_iter=PAPER_STEPS)
        self._update_network(found.point, None)


def labeled_triplets(labels: Ints, most: int, rng: np.random.Generator) -> Triplets:
    """Draw triplets of labeled rows uniformly, two of one class and one of another.

    Raises
    ------
    ValueError
        If no two labeled rows share a class, or only one class is labeled.

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
            "DeepSupervised: y must label two samples of one class and one of another; got "
            f"{total} labeled samples of {len(classes)} classes. Label more."
        )
    drawn = rng.choice(len(classes), min(most, int(each.sum())), p=each / each.sum())
    start, size = starts[drawn], sizes[drawn]
    first = rng.integers(size)
    second = (first + rng.integers(1, size)) % size
    other = rng.integers(total - size)
    other += size * (other >= start)
    ends = (order[start + first], order[start + second], order[other])
    return Triplets(*ends, np.ones(len(drawn)))
