"""A run of partitions that learns a baseline's metric, and the network by its objective."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ssdml.baselines._batch_losses import BatchLoss
from ssdml.baselines._estimator import Baseline, factor
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.neighbors import KNNGraph
from ssdml.items import Items
from ssdml.partition_run import PartitionRun, Prepared, RunSettings
from ssdml.progress import Show
from ssdml.training import MetricNetwork, embed_items, seeded

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

LABELED = 1 / 3  # of a batch; the rest are rows, each with one of its neighbours


class Objective(NamedTuple):
    """What the network learns from on a partition."""

    loss: BatchLoss
    graph: KNNGraph


class BaselineRun(PartitionRun):
    """State of the alternation of a baseline, and its steps.

    The momentum of the descent (0.9) is that of :class:`~ssdml.deep_literal.LiteralRun`.
    """

    optimizer = partial(torch.optim.SGD, lr=0.0, momentum=0.9)

    def __init__(
        self,
        items: Items,
        labels: Classes,
        network: MetricNetwork,
        method: Baseline,
        settings: RunSettings,
        seed: int,
        device: str,
    ) -> None:
        super().__init__(items, labels, network, settings, seed, device)
        self.method = method
        self.objective: Objective | None = None

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """The metric of the partition's features, and the objective that it was learned by."""
        rows = self.parts[len(self.history)]
        size = self.settings.batch_size
        features = embed_items(self.network, self.items, "features", rows, batch_size=size)
        problem = self.method._pose(features, self.labels[rows], rng)
        M, info = self.method._learn(problem)
        metric = factor(M, self.network.L.shape[1], scaled=False).T / problem.scale
        objective = Objective(self.method._batch_loss(problem, info), problem.graph)
        entry = {name: value for name, value in info.items() if isinstance(value, int | float)}
        return Prepared(self.distributions, metric, more=objective, entry=entry)

    def _take_over(self, found: Prepared) -> None:
        super()._take_over(found)
        self.objective = found.more

    def _train(self, rows: Rows, number: int, rng: np.random.Generator, show: Show) -> list[float]:
        """Steps down the objective on batches of the partition; the mean loss of each epoch."""
        assert self.objective is not None
        loss, graph = self.objective
        n_steps, epochs = self._steps_of(number), self.epochs_of(number)
        known = np.flatnonzero(self.labels[rows] != UNLABELED)
        losses: list[float] = []
        with seeded(int(rng.integers(2**31)), self.device):
            self.network.train()
            for step in range(n_steps):
                batch = draw_batch(known, graph, self.settings.batch_size, rng)
                losses.append(self._step(loss, batch, rows[batch]))
                show((step + 1) / n_steps, self._note(number, step * epochs // n_steps, losses[-1]))
        return [float(np.mean(part)) for part in np.array_split(losses, epochs)]

    def _step(self, loss: BatchLoss, batch: Rows, items: Rows) -> float:
        """One step, L as it is."""
        embedding = self.network.features(self.items.batch(items)) @ self.network.metric
        squares = (embedding[:, None] - embedding).square().sum(dim=2)
        weights = torch.from_numpy(loss.weights_of(batch)).to(squares)
        labels = torch.from_numpy(self.labels[items]).to(squares.device)
        value = loss(squares, labels, weights)
        return self.trainer.step(value, self.settings.learning_rate)


def draw_batch(known: Rows, graph: KNNGraph, size: int, rng: np.random.Generator) -> Rows:
    """Labelled rows, and others in pairs with a neighbour: without them no edge would be met.

    Parameters
    ----------
    known : array of int
        Labelled rows of the graph.
    graph : KNNGraph
    size : int
        Of the batch; a third of it are labelled rows, if there are so many.
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
    batch: Rows = np.concatenate([drawn, rows, neighbors])
    return batch
