"""Base class of unsupervised recipes, and the trainer that runs them."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from ssdml.deep.checkpoints import Checkpoint
from ssdml.deep.trainer import PartitionTrainer, Prepared
from ssdml.networks.augmentation import Augment, custom_views
from ssdml.networks.data import Samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.randomness import SeededDraws
from ssdml.networks.training import momentum_sgd
from ssdml.utils.labels import one_hot
from ssdml.utils.typing import Array, Indices, Ints
from ssdml.utils.validation import UNLABELED

EPSILON = 1e-5  # of a variance, as in torch's batch normalization


class Recipe(BaseEstimator, metaclass=ABCMeta):
    """Unsupervised training of a network: a head on the embedding, batches and a loss.

    Defaults of the parameters are the published values.
    """

    learning_rate = 0.03
    drops: tuple[float, ...] = ()  # fractions of all steps after which the learning rate drops
    drop = 0.1  # factor of each drop
    nesterov = False
    learns_metric = False  # L apart from the network; otherwise L is its last layer
    _parameter_constraints: dict[str, list[Any]] = {}  # noqa: RUF012

    def default_views(self, shape: tuple[int, ...]) -> Any:
        """Return the augmentation that ``augment="auto"`` stands for."""
        return "auto"

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError if items of this shape are not supported."""

    def new_head(self, n_items: int, d: int, n_components: int) -> nn.Module:
        """Return the module trained with the network; torch's generator draws its weights."""
        return nn.Module()

    def batches(
        self, run: UnsupervisedTrainer, rows: Indices, counts: list[int], rng: np.random.Generator
    ) -> Iterator[Any]:
        """Yield batches, ``counts`` per epoch."""
        return shuffled(rows, run.estimator.batch_size, sum(counts), rng)

    @abstractmethod
    def loss(self, run: UnsupervisedTrainer, batch: Any) -> Tensor:
        """Compute the loss of a batch."""


class UnsupervisedTrainer(PartitionTrainer):
    """Trainer of a recipe; a partition is all items, labeled or not.

    Training ignores the labels; they are propagated over the last graph.
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
        self.recipe, self._views = recipe, views
        blind = np.full_like(labels, UNLABELED)
        super().__init__(items, blind, network, estimator, seed, device)
        self.labels, self.distributions = labels, one_hot(labels)
        with SeededDraws(seed):
            self.head = recipe.new_head(len(items), *network.L.shape).to(device)
        if learned := [*self.head.parameters()]:
            self.stepper.optimizer.add_param_group({"params": learned})

    def optimizer(self, groups: Any, **given: Any) -> torch.optim.Optimizer:
        """Make the optimizer of groups of parameters."""
        return momentum_sgd(groups, nesterov=self.recipe.nesterov, **given)

    def views(self, rows: Indices) -> Tensor:
        """Return augmented items, drawn by the partition's generator."""
        generator = self.draws.generator()
        assert generator is not None
        return custom_views(self._views, self.samples.batch(rows), generator)

    def layer(self, items: Tensor) -> Tensor:
        """Compute the embedding before it is scaled to unit length: the input of the head."""
        return self.network.outputs(items) @ self.network.metric

    def forget_head(self) -> None:
        """Reset the optimizer's state of the head, whose weights were reset."""
        for weights in self.head.parameters():
            self.stepper.optimizer.state.pop(weights, None)

    def place_metric(self, metric: Array) -> None:
        """Set L, which the recipe learns apart."""
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
        """Return the learning rate, dropped as the recipe says."""
        steps = [self._steps_of(i) for i in range(self.n_partitions)]
        done = (sum(steps[:number]) + step) / sum(steps)
        n_drops = sum(done >= share for share in self.recipe.drops)
        return self.estimator.learning_rate * self.recipe.drop**n_drops

    def checkpoint(self) -> Checkpoint:
        """Return the state that later partitions depend on."""
        done = super().checkpoint()
        done.tensors.update({f"head.{k}": v for k, v in self.head.state_dict().items()})
        return done

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of the same run."""
        super().resume(checkpoint)
        self.head.load_state_dict(checkpoint.part("head"))


class Softmax(nn.Module):
    """Linear classifier on columns scaled to mean 0 and variance 1 in each batch.

    The published networks use batch normalization; those of Dutta et al. (2021) do not. torch's
    would add up the parts of its threads: results would depend on their number.

    Examples
    --------
    >>> Softmax(3, 5)(1e-3 * torch.randn(8, 3)).shape
    torch.Size([8, 5])
    """

    def __init__(self, n_components: int, n_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_components, n_classes)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the logits of a batch."""
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        centered = rows - rows.mean(dim=0)
        scale = (centered.square().mean(dim=0) + EPSILON).rsqrt()
        return self.linear(centered * scale)


def shuffled(rows: Indices, size: int, count: int, rng: np.random.Generator) -> Iterator[Indices]:
    """Yield batches of rows, reshuffled after each pass over all of them.

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
