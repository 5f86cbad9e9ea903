"""A run that learns a network without labels, and what a recipe for it consists of."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from ssdml.deep.checkpoints import Checkpoint
from ssdml.deep.trainer import PartitionTrainer, Prepared
from ssdml.networks.augmentation import Augment
from ssdml.networks.data import Samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.utils.labels import one_hot
from ssdml.utils.torch_tools import seeded
from ssdml.utils.typing import Indices, Ints
from ssdml.utils.validation import UNLABELED


class Recipe(BaseEstimator, metaclass=ABCMeta):
    """What a network learns without labels: a head on the embedding, batches and a loss.

    Its parameters have the values that were published.
    """

    learning_rate = 0.03
    drops: tuple[float, ...] = ()  # shares of all steps after which the rate falls
    drop = 0.1  # to so much of it
    nesterov = False
    learns_metric = False  # L by itself; otherwise it is a layer like any other
    _parameter_constraints: dict[str, list[Any]] = {}  # noqa: RUF012

    def default_views(self, shape: tuple[int, ...]) -> Any:
        """What takes the place of ``augment="auto"``."""
        return "auto"

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError if nothing is learned from items of this shape."""

    def new_head(self, n_items: int, d: int, n_components: int) -> nn.Module:
        """What is learned or kept beside the network, by random weights of torch's generator."""
        return nn.Module()

    def batches(
        self, run: UnsupervisedTrainer, rows: Indices, counts: list[int], rng: np.random.Generator
    ) -> Iterator[Any]:
        """What each step learns from; of each epoch as many as ``counts`` says."""
        return shuffled(rows, run.estimator.batch_size, sum(counts), rng)

    @abstractmethod
    def loss(self, run: UnsupervisedTrainer, batch: Any) -> Tensor:
        """What the step of a batch goes down."""


class UnsupervisedTrainer(PartitionTrainer):
    """State of the training by a recipe: a partition is all items, labeled or not.

    What is learned never sees a label; they are carried along the last graph alone.
    """

    def __init__(
        self,
        items: Samples,
        labels: Ints,
        network: MetricNetwork,
        recipe: Recipe,
        views: Augment,
        estimator: Any,
        seed: int,
        device: str,
    ) -> None:
        self.optimizer = partial(torch.optim.SGD, lr=0.0, momentum=0.9, nesterov=recipe.nesterov)
        blind = np.full_like(labels, UNLABELED)
        super().__init__(items, blind, network, estimator, seed, device)
        self.labels, self.distributions = labels, one_hot(labels)
        self.recipe, self._views = recipe, views
        with seeded(seed, device):
            self.head = recipe.new_head(len(items), *network.L.shape).to(device)
        if learned := [*self.head.parameters()]:
            self.stepper.optimizer.add_param_group({"params": learned})

    def views(self, rows: Indices) -> Tensor:
        """Distorted items, by torch's generator."""
        return self._views(self.samples.batch(rows), torch.default_generator)

    def layer(self, items: Tensor) -> Tensor:
        """The embedding before it is scaled to unit length, which heads stand on."""
        return self.network.outputs(items) @ self.network.metric

    def forget_head(self) -> None:
        """Take what the optimizer remembers of the head, whose weights begin anew."""
        for weights in self.head.parameters():
            self.stepper.optimizer.state.pop(weights, None)

    def place_metric(self, metric: npt.NDArray[Any]) -> None:
        """L, which the recipe learns by itself."""
        self._update_network(metric, None)

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        return Prepared()

    def _batches(self, rows: Indices, number: int, rng: np.random.Generator) -> Iterator[Any]:
        n_steps = self._steps_of(number)
        parts = np.array_split(np.arange(n_steps), min(n_steps, self.epochs_of(number)))
        return self.recipe.batches(self, rows, [len(part) for part in parts], rng)

    def _loss(self, batch: Any) -> Tensor:
        return self.recipe.loss(self, batch)

    def _rate(self, number: int, step: int) -> float:
        """It falls where the recipe says so."""
        steps = [self._steps_of(i) for i in range(self.n_partitions)]
        done = (sum(steps[:number]) + step) / sum(steps)
        n_drops = sum(done >= share for share in self.recipe.drops)
        return self.estimator.learning_rate * self.recipe.drop**n_drops

    def checkpoint(self) -> Checkpoint:
        """All that later partitions depend on."""
        done = super().checkpoint()
        done.tensors.update({f"head.{k}": v for k, v in self.head.state_dict().items()})
        return done

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint of the same run."""
        super().resume(checkpoint)
        self.head.load_state_dict(checkpoint.part("head"))


class Softmax(nn.Sequential):
    """Logits of classes, on columns that are scaled to mean 0 and variance 1 in each batch.

    The published networks normalize their batches, seed 003's do not.

    Parameters
    ----------
    n_components, n_classes : int

    Examples
    --------
    >>> Softmax(3, 5)(1e-3 * torch.randn(8, 3)).shape
    torch.Size([8, 5])
    """

    def __init__(self, n_components: int, n_classes: int) -> None:
        super().__init__()
        self.scaled = nn.BatchNorm1d(n_components, affine=False, track_running_stats=False)
        self.linear = nn.Linear(n_components, n_classes)


def shuffled(rows: Indices, size: int, count: int, rng: np.random.Generator) -> Iterator[Indices]:
    """Batches of rows, in another order each time that all have had their turn.

    Examples
    --------
    >>> batches = list(shuffled(np.arange(4), 3, 4, np.random.default_rng(0)))
    >>> [len(batch) for batch in batches], np.bincount(np.concatenate(batches)).tolist()
    ([3, 3, 3, 3], [3, 3, 3, 3])
    """
    left = rows[:0]
    for _ in range(count):
        while len(left) < size:
            left = np.concatenate([left, rng.permutation(rows)])
        yield left[:size]
        left = left[size:]
