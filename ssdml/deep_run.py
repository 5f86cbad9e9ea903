"""Our alternation: labels along input and embedding, L by triplets, the backbone by classes.

The backbone learns from the classes that the graph gave, from triplets of each batch, and from
itself: the class that it is sure of for an item that is barely changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch.nn import functional

from ssdml.alternation import N_TRIPLETS, learn_metric, mine
from ssdml.augmentation import Augment
from ssdml.conclusion import State
from ssdml.device_graph import device_graph
from ssdml.graphs._tensors import to_device
from ssdml.graphs.neighbors import KNNGraph
from ssdml.graphs.triplets import Triplets
from ssdml.items import Items
from ssdml.linalg import nearest_orthonormal
from ssdml.partition_run import PartitionRun, Prepared, RunSettings
from ssdml.ranks import gathered, n_ranks, own_share
from ssdml.sampling import aligned_halves, balanced_batches, confidences
from ssdml.training import MetricNetwork, Schedule, batch_angular_loss, evaluating, rate_at

if TYPE_CHECKING:
    from ssdml.losses.base import Loss

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

N_NEGATIVES = 5


class DeepSettings(RunSettings, Protocol):
    """Parameters of the estimator that this run reads besides."""

    propagation: str
    mining: str
    angle: float
    consistency: float
    threshold: float
    triplets: float
    metric_steps: int
    orthogonal: bool


class Batch(NamedTuple):
    """What a step learns from."""

    rows: Rows
    classes: Classes  # of the rows, as the graph has them
    others: Rows  # under consistency


class DeepRun(PartitionRun):
    """State of our alternation, and its steps."""

    settings: DeepSettings
    learns_proxies = True

    def __init__(
        self,
        items: Items,
        labels: Classes,
        network: MetricNetwork,
        views: Augment,
        weak_views: Augment,
        settings: DeepSettings,
        seed: int,
        device: str,
        losses: Loss | None = None,
    ) -> None:
        super().__init__(items, labels, network, settings, seed, device, losses)
        own_share(settings.batch_size)  # or an error, before the work
        least = math.lcm(2, n_ranks())
        if losses is not None and losses.takes_halves and settings.batch_size < least:
            raise ValueError(
                f"batch_size must be at least {least} with losses of two halves that are aligned "
                f"in class, such as GraphConsistency; got {settings.batch_size}."
            )
        self.views, self.weak_views = views, weak_views
        self._generator = torch.Generator()  # of the views

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Labels, triplets and metric; at first along the input, if its edges count."""
        if not self.history and not self.trusts_input:
            return Prepared()
        settings, features = self.settings, self.embed("features")
        entry: dict[str, Any] = {}
        if self.history:
            graph = self._graph(features, rng)
            edges = self._edges(graph)
        else:
            assert self.input_graph is not None
            graph, edges = self.input_graph.graph, self.input_graph.edges
            # Later graphs are of a network that has learned the labels, and foretell them all.
            entry["foretold"] = self.input_graph.foretold
        distributions = self._spread(edges)
        state = State(features, self.labels, graph, distributions)
        triplets = self._mined(state, rng)
        entry["n_triplets"] = len(triplets.anchor)
        fixed = not (settings.metric_steps and settings.orthogonal)
        if fixed or not len(triplets.anchor):
            return Prepared(distributions, triplets=triplets, entry=entry)
        result = learn_metric(
            features,
            triplets,
            nearest_orthonormal(self.network.L),  # of float32, nearly so
            angle=settings.angle,
            max_iter=settings.metric_steps,
            rescale=True,
            device=self.device,
        )
        entry |= {"objective": (result.initial_value, result.value), "n_iter": result.n_iter}
        sums = distributions.T @ (features @ result.point)
        proxies = sums if self.history else None  # of random features all would be one direction
        return Prepared(distributions, result.point, proxies, triplets, entry=entry)

    def _mined(self, state: State, rng: np.random.Generator) -> Triplets:
        """Triplets of all items; by one-sided affinities, of the partition's."""
        part, rows = self.parts[len(self.history)], state.graph.rows
        if self.settings.propagation == "two-sided" or len(part) == len(state.X):
            return mine(state, self.settings, N_TRIPLETS, rng)
        assert rows is not None  # it was not read from a file
        graph = device_graph(rows[part], self.settings, self.device, rng)
        of_part = State(state.X[part], state.labels[part], graph, state.distributions[part])
        return mine(of_part, self.settings, N_TRIPLETS, rng).among(part)

    def _edges(self, graph: KNNGraph) -> sparse.csr_array:
        """Those of the embedding, and those of the input beside."""
        edges = super()._edges(graph)
        if self.trusts_input:
            assert self.input_graph is not None
            edges = edges + self.input_graph.weight * self.input_graph.edges
        return edges

    @property
    def trusts_input(self) -> bool:
        """Whether the input's edges count."""
        return self.input_graph is not None and self.input_graph.weight > 0

    def _batches(self, rows: Rows, number: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Of every class as many, by confidence, and any other rows of the partition."""
        size, classes = self.settings.batch_size, self.distributions.argmax(axis=1)
        outside = np.ones(len(classes), bool)
        outside[rows] = False
        weights = np.where(outside, 0, confidences(self.distributions))
        draw = halves if self.losses is not None and self.losses.takes_halves else balanced_batches
        drawn = draw(classes, weights, size, self._steps_of(number), rng)
        self._generator.manual_seed(int(rng.integers(2**31)))
        return (Batch(batch, classes[batch], rng.choice(rows, len(batch))) for batch in drawn)

    def _rate(self, number: int, step: int) -> float:
        """It rises and falls once over all partitions."""
        steps = [self._steps_of(i) for i in range(self.n_partitions)]
        plan = Schedule(sum(steps), learning_rate=self.settings.learning_rate)
        return rate_at((sum(steps[:number]) + step) / plan.n_steps, plan)

    def _loss(self, batch: Batch) -> torch.Tensor:
        """Classes and triplets of the batch, and consistency of the other rows."""
        rows, classes, others = batch
        share = own_share(len(rows))
        labels = to_device(torch.from_numpy(classes), self.device)
        parts = [self._seen(self.views, self.items.batch(rows))[share]]
        if self.settings.consistency:
            items = self.items.batch(others)
            weak = self._seen(self.weak_views, items)[share]
            # A copy: the weak view may be the items themselves, and theirs may work in place.
            parts.append(self._seen(self.views, items.clone())[share])
        embedding = self.network(torch.cat(parts))
        seen, *strong = (gathered(part) for part in embedding.split(len(parts[0])))
        loss = functional.cross_entropy(self.network.logits(seen), labels)
        if self.settings.triplets:
            loss = loss + self.settings.triplets * batch_angular_loss(
                seen, labels, self.settings.angle, N_NEGATIVES
            )
        if self.losses is not None:
            loss = loss + self.losses(seen, labels)
        if self.settings.consistency:
            targets, trusted = self._targets(weak)
            losses = functional.cross_entropy(
                self.network.logits(strong[0]), targets, reduction="none"
            )
            loss = loss + self.settings.consistency * (losses * trusted).mean()
        return loss

    def _seen(self, augment: Augment, items: torch.Tensor) -> torch.Tensor:
        """A view of each item."""
        views = augment(items, self._generator)
        if not isinstance(views, torch.Tensor):
            raise TypeError(
                f"augment must return a tensor, a view of each item; got {type(views).__name__}."
            )
        if len(views) != len(items):
            raise ValueError(
                f"augment must return a view of each item; got {len(views)} for {len(items)} items."
            )
        return views

    @torch.no_grad()
    def _targets(self, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Likeliest classes of weak views, and which of them the network is sure of."""
        with evaluating(self.network):
            embedding = self.network(weak)
        beliefs = torch.softmax(self.network.logits(gathered(embedding)), dim=1)
        best, targets = beliefs.max(dim=1)
        return targets, (best > self.settings.threshold).to(beliefs.dtype)


def halves(
    classes: Classes, weights: Array, size: int, count: int, rng: np.random.Generator
) -> Iterator[Rows]:
    """Batches of two halves, aligned in class, of at most ``size`` rows, by weight.

    As many rows of a class as the processes can share evenly.

    Examples
    --------
    >>> classes = np.array([0, 0, 1, 1, 1])
    >>> (batch,) = halves(classes, np.ones(5), 9, 1, np.random.default_rng(0))
    >>> classes[batch[:4]].tolist() == classes[batch[4:]].tolist(), len(batch)
    (True, 8)
    """
    least = math.lcm(2, n_ranks())
    n_classes = min(len(np.unique(classes)), max(1, size // least))
    per_class = size // n_classes // least * least
    return aligned_halves(
        classes, count, rng, n_classes=n_classes, per_class=per_class, weights=weights
    )
