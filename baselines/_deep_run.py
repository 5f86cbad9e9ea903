"""A run of partitions that learns a baseline's metric, and the network by its objective."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from ssdml.baselines._batch_losses import BatchLoss
from ssdml.baselines._estimator import Baseline, factor
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.neighbors import KNNGraph
from ssdml.items import Items
from ssdml.linalg import covariance
from ssdml.losses._pairs import squared_distances
from ssdml.partition_run import PartitionRun, Prepared, RunSettings
from ssdml.training import MetricNetwork
from ssdml.utils.typing import Indices, Ints

LABELED = 1 / 3  # of a batch; the rest are rows, each with one of its neighbours


class Objective(NamedTuple):
    """What the network learns from on a partition."""

    loss: BatchLoss
    graph: KNNGraph


class Batch(NamedTuple):
    """What a step learns from."""

    rows: Indices  # of the partition
    items: Indices  # the same among all


class BaselineRun(PartitionRun):
    """State of the alternation of a baseline, and its steps.

    The momentum of the descent (0.9) is that of :class:`~ssdml.deep_literal.LiteralRun`.
    """

    optimizer = partial(torch.optim.SGD, lr=0.0, momentum=0.9)

    def __init__(
        self,
        items: Items,
        labels: Ints,
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
        problem = self.method._pose(self.embed("features", rows), self.labels[rows], rng)
        M, info = self.method._solve(problem)
        count = self.network.L.shape[1]
        free = self.method._is_scale_free
        metric = factor(M, covariance(problem.X), count, scaled=free).T / problem.scale
        objective = Objective(self.method._batch_loss(problem, info), problem.graph)
        entry = {name: value for name, value in info.items() if isinstance(value, int | float)}
        return Prepared(metric=metric, more=objective, entry=entry)

    def _take_over(self, found: Prepared) -> None:
        super()._take_over(found)
        self.objective = found.more

    def _batches(self, rows: Indices, number: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Rows of the partition as its graph has them, and their numbers among all items."""
        assert self.objective is not None
        known = np.flatnonzero(self.labels[rows] != UNLABELED)
        for _ in range(self._steps_of(number)):
            batch = draw_batch(known, self.objective.graph, self.settings.batch_size, rng)
            yield Batch(batch, rows[batch])

    def _loss(self, batch: Batch) -> torch.Tensor:
        """The method's objective, its metric as it is."""
        assert self.objective is not None
        features = self.network.features(self.items.batch(batch.items))
        embedding = features @ self.network.metric
        squares = squared_distances(embedding, embedding)
        weights = torch.from_numpy(self.objective.loss.weights_of(batch.rows)).to(squares)
        labels = torch.from_numpy(self.labels[batch.items]).to(squares.device)
        return self.objective.loss(squares, labels, weights)


def draw_batch(known: Indices, graph: KNNGraph, size: int, rng: np.random.Generator) -> Indices:
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
    batch: Indices = np.concatenate([drawn, rows, neighbors])
    return batch
