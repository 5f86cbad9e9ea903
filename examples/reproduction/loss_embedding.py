"""A small network trained under one of the compared losses, as a method of a comparison."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, TransformerMixin

from reproduction.losses import Problem, make_loss
from ssdml.experiments.methods.deep import NETWORKS
from ssdml.graphs.neighbors.knn import knn_graph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.losses.base import LossSum
from ssdml.losses.density import class_densities
from ssdml.networks.backbones import ResidualHead
from ssdml.networks.data import Samples, StoredSamples, as_samples
from ssdml.networks.metric_network import MetricNetwork, new_network
from ssdml.networks.randomness import SeededDraws
from ssdml.networks.sampling import aligned_halves
from ssdml.networks.training import embed_samples, rate_at
from ssdml.utils.labels import confidences
from ssdml.utils.linalg import random_orthonormal, unit_rows
from ssdml.utils.torch_tools import one_thread
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

BATCH_CLASSES, BATCH_SIZE = 10, 100  # as in Li et al. (2020)
CENTERS_RATE = 1e-2  # of proxies, centers and target densities
N_COMPONENTS, N_NEIGHBORS = 64, 10
DENSITY_SAMPLES = 2000  # for the densities before training


def train(
    network: MetricNetwork,
    samples: Samples,
    classes: Ints,
    loss: LossSum,
    *,
    n_steps: int,
    learning_rate: float,
    rng: np.random.Generator,
    weights: Array | None = None,
) -> list[float]:
    """Train a network in place on batches of aligned halves; return the loss of each step.

    Parameters
    ----------
    network : MetricNetwork
    samples : Samples
    classes : array of shape (n,), int
        -1 means unlabeled.
    loss : LossSum
    n_steps : int
    learning_rate : float
        AdamW's rate of the network; that of the loss is 0.01. Both rise over the first tenth of the
        steps and fall to 0 along a cosine.
    rng : Generator
        Of the batches, which do not depend on the loss.
    weights : array of shape (n,), optional
        Sampling weights.
    """
    drawable = np.unique(classes[classes >= 0], return_counts=True)[1] > 1
    n_classes = min(BATCH_CLASSES, int(drawable.sum()))
    own = [{"lr": CENTERS_RATE} | group for group in loss.parameter_groups()]
    optimizer = torch.optim.AdamW([{"params": network.parameters()}, *own], learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: rate_at(n, n_steps, 1.0))
    batches = aligned_halves(
        classes,
        n_steps,
        rng,
        n_classes=n_classes,
        per_class=BATCH_SIZE // (2 * n_classes),
        weights=weights,
    )
    labels, losses = torch.from_numpy(classes), []
    network.train()
    for batch in map(np.array, batches):
        value = loss(network(samples.batch(batch)), labels[batch])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        losses.append(value.item())
    network.eval()
    return losses


class LossEmbedding(TransformerMixin, BaseEstimator):
    """Unit-length embedding by a small network trained under one loss.

    Images of 28 x 28 or 32 x 32 pixels use the networks of Dutta et al. (2021) and a linear map to
    64 dimensions. Other samples use a residual head and a square linear map, which initially keep
    all distances.

    Parameters
    ----------
    loss : str
        One of `losses.LOSSES`.
    base, weight : float
        Number of the base loss, and weight λ of the term.
    propagated : bool
        Whether to train on unlabeled samples too, with propagated labels over 10 nearest neighbors
        and confidences as sampling weights.
    item_shape : tuple of int, optional
        Shape (height, width, channels) of images.
    n_steps : int
    learning_rate : float
    random_state : int
        Seed of the initial weights, the batches and the dropout.
    backbone : Module, optional
        Network of the samples, which may then be image files, in place of those above; L maps its
        features to `n_components` dimensions.
    n_components : int

    Attributes
    ----------
    network_ : MetricNetwork
    losses_ : list of float
        Loss per step.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LossEmbedding("binomial+gor", base=5.0, weight=1.0, n_steps=20).fit(X, y)
    >>> model.transform(X[:2]).shape, model.losses_[-1] < model.losses_[0]
    ((2, 64), True)
    """

    def __init__(
        self,
        loss: str,
        base: float,
        weight: float = 0.0,
        propagated: bool = False,
        item_shape: tuple[int, ...] | None = None,
        n_steps: int = 100,
        learning_rate: float = 1e-3,
        random_state: int = 0,
        backbone: Any = None,
        n_components: int = N_COMPONENTS,
    ) -> None:
        self.loss = loss
        self.base = base
        self.weight = weight
        self.propagated = propagated
        self.item_shape = item_shape
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.backbone = backbone
        self.n_components = n_components

    def fit(self, X: Any, y: Array) -> Self:
        """Train on the labeled samples, or on those with a propagated label too."""
        known = y != UNLABELED
        self.classes_, codes = np.unique(y[known], return_inverse=True)
        classes, weights = np.full(len(y), UNLABELED), None
        classes[known] = codes
        if self.propagated:
            classes, weights = _propagated(X, classes)
        else:
            X, classes = X[known], classes[known]
        seed, samples, n_classes = self.random_state, self._samples(X), len(self.classes_)
        self.network_ = self._new_network(samples)
        with SeededDraws(seed), one_thread():
            drawn = np.random.default_rng(seed).permutation(len(samples))[:DENSITY_SAMPLES]
            before = torch.from_numpy(embed_samples(self.network_, samples, "features", drawn))
            densities = class_densities(before, torch.from_numpy(classes[drawn]), n_classes)
            problem = Problem(n_classes, self.network_.metric.shape[1], densities)
            self.losses_ = train(
                self.network_,
                samples,
                classes,
                make_loss(self.loss, problem, self.base, self.weight),
                n_steps=self.n_steps,
                learning_rate=self.learning_rate,
                rng=np.random.default_rng(seed),
                weights=weights,
            )
        return self

    def transform(self, X: Any) -> Array:
        """Embed samples, with length 1."""
        with one_thread():
            return embed_samples(self.network_, self._samples(X))

    def _samples(self, X: Any) -> Samples:
        if self.backbone is not None:
            return as_samples(X, "LossEmbedding")
        if self.item_shape is not None:
            X = X.reshape(len(X), *self.item_shape[:2], -1).transpose(0, 3, 1, 2)
        return StoredSamples(torch.from_numpy(np.require(X, np.float32, ["C", "W"])))

    def _new_network(self, samples: Samples) -> MetricNetwork:
        """Make a network with random weights for images, or one that starts as a rotation."""
        seed, backbone = self.random_state, self.backbone
        if backbone is None and self.item_shape is not None:
            backbone = NETWORKS[self.item_shape[:2]][0]
        if backbone is not None:
            count = self.n_components
            return new_network(backbone, samples, count, 1, seed, "cpu", orthogonal=False)
        d = samples.shape[0]
        L = random_orthonormal(d, d, np.random.default_rng(seed)).astype(np.float32)
        with SeededDraws(seed):
            return MetricNetwork(ResidualHead(d), torch.from_numpy(L), 1, free_metric=True)


def _propagated(X: Array, classes: Ints) -> tuple[Ints, Array]:
    """Propagated labels and confidences; -1 and 0 where no label arrives."""
    distributions = propagate_labels(knn_graph(unit_rows(X), N_NEIGHBORS, metric="cosine"), classes)
    confidence = confidences(distributions)
    known = classes != UNLABELED
    confidence[known] = 1.0
    found = np.where(confidence > 0, distributions.argmax(axis=1), UNLABELED)
    return np.where(known, classes, found), confidence
