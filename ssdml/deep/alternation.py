"""Train :class:`ssdml.DeepSSDML`: propagate labels, learn L by triplets, train the backbone.

The backbone learns from the propagated classes, from triplets within each batch, and from its own
confident predictions on weakly augmented samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch.nn import functional

from ssdml.deep.input_graph import device_graph
from ssdml.deep.trainer import PartitionTrainer, Prepared
from ssdml.graphs.neighbors.copies import first_among
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.triplets import Triplets
from ssdml.losses.angular import batch_angular_loss
from ssdml.metric.alternation import N_TRIPLETS, learn_metric, mine
from ssdml.metric.state import State
from ssdml.networks.augmentation import Augment, RandomViews, custom_views, unchanged
from ssdml.networks.data import Samples, StoredSamples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.sampling import Batches, aligned_halves, balanced_batches
from ssdml.networks.training import rate_at
from ssdml.utils.distributed import gathered, rank_slice, world_size
from ssdml.utils.labels import confidences
from ssdml.utils.linalg import nearest_orthonormal
from ssdml.utils.torch_tools import counting, normalizing_by_batch, to_device
from ssdml.utils.typing import Array, Indices, Ints
from ssdml.utils.validation import UNLABELED, warn

if TYPE_CHECKING:
    from ssdml.losses.base import Loss

N_NEGATIVES = 5


class Batch(NamedTuple):
    """Samples of a training step, and the random numbers of their views."""

    rows: torch.Tensor
    classes: torch.Tensor  # propagated classes of the rows
    others: torch.Tensor  # rows for the consistency loss
    views: torch.Tensor  # of the rows, as RandomViews draws them; empty for other functions
    weak: torch.Tensor  # of the others
    strong: torch.Tensor
    positives: torch.Tensor  # (m, m): uniform numbers that choose one positive per row


class AlternationTrainer(PartitionTrainer):
    """Train a network and L on propagated classes, triplets and consistency."""

    learns_proxies = True

    @property
    def chance_loss(self) -> float | None:
        """Loss of a constant embedding: uniform classes, and triplets without a margin."""
        if self.losses is not None:
            return None
        n_classes = self.distributions.shape[1]
        return (
            math.log(n_classes) + self.estimator.triplets * math.log(2) if n_classes > 1 else None
        )

    def __init__(
        self,
        samples: Samples,
        labels: Ints,
        network: MetricNetwork,
        views: Augment,
        weak_views: Augment,
        estimator: Any,
        seed: int,
        device: str,
        losses: Loss | None = None,
    ) -> None:
        super().__init__(samples, labels, network, estimator, seed, device, losses)
        rank_slice(estimator.batch_size)  # fail early if the ranks cannot share a batch
        least = math.lcm(2, world_size())
        if losses is not None and losses.takes_halves and estimator.batch_size < least:
            raise ValueError(
                f"batch_size must be at least {least} with losses of two halves that are aligned "
                f"in class, such as GraphConsistency; got {estimator.batch_size}."
            )
        self.views, self.weak_views = views, weak_views
        self._generator = torch.Generator()  # of the views

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Propagate labels, mine triplets and learn L; the first partition uses the input graph."""
        if not self.history and not self.uses_input:
            return Prepared()
        estimator, features = self.estimator, self.embed("features")
        entry: dict[str, Any] = {}
        if self.history:
            graph = self._graph(features, rng)
            edges = self._edges(graph)
        else:
            assert self.input_graph is not None
            graph, edges = self.input_graph.graph, self.input_graph.edges
            # Later graphs come from a network that has seen all labels.
            entry["propagation_accuracy"] = self.input_graph.propagation_accuracy
        distributions = self._propagate(edges)
        triplets = self._mine(State(features, self.labels, graph, distributions), rng)
        entry["n_triplets"] = len(triplets.anchor)
        if not len(triplets.anchor):
            warn(
                f"{type(estimator).__name__}: found no triplets of two samples of one class and "
                "one of another. Labels of two classes must reach the graph.",
                RuntimeWarning,
            )
        fixed = not (estimator.metric_steps and estimator.orthogonal)
        if fixed or not len(triplets.anchor):
            return Prepared(distributions, triplets=triplets, entry=entry)
        result = learn_metric(
            features,
            triplets,
            nearest_orthonormal(self.network.L),  # float32 is only nearly orthonormal
            angle=estimator.angle,
            max_iter=estimator.metric_steps,
            rescale=True,
            device=self.device,
        )
        entry |= {"objective": (result.initial_value, result.value), "n_iter": result.n_iter}
        sums = distributions.T @ (features @ result.point)
        proxies = sums if self.history else None  # random features all share one direction
        return Prepared(distributions, result.point, proxies, triplets, entry=entry)

    def _mine(self, state: State, rng: np.random.Generator) -> Triplets:
        """Mine triplets of all samples, or with one-sided affinities those of the partition."""
        part, rows = self.parts[len(self.history)], state.graph.rows
        if self.estimator.propagation == "two-sided" or len(part) == len(state.X):
            return mine(state, self.estimator, N_TRIPLETS, rng)
        assert rows is not None
        estimator, first = self.estimator, None
        if self.input_graph is not None:
            first = first_among(self.input_graph.first, part)
        k, n_jobs = estimator.n_neighbors, estimator.n_jobs
        graph = device_graph(rows[part], k, self.device, rng, first=first, n_jobs=n_jobs)
        of_part = State(state.X[part], state.labels[part], graph, state.distributions[part])
        return mine(of_part, estimator, N_TRIPLETS, rng).among(part)

    def _edges(self, graph: KNNGraph) -> sparse.csr_array:
        """Add the input's weighted edges to those of the embedding."""
        edges = super()._edges(graph)
        if self.uses_input:
            assert self.input_graph is not None
            edges = edges + self.input_graph.weight * self.input_graph.edges
        return edges

    @property
    def uses_input(self) -> bool:
        """Whether labels propagate along the input graph."""
        return self.input_graph is not None and self.input_graph.weight > 0

    def _batches(self, rows: Indices, number: int, rng: np.random.Generator) -> Iterator[Batch]:
        """Draw class-balanced batches by confidence, with other samples of the partition."""
        classes, estimator = self.distributions.argmax(axis=1), self.estimator
        weights = np.zeros(len(classes))
        weights[rows] = confidences(self.distributions[rows])
        if estimator.learn_from == "labeled":
            weights[self.labels == UNLABELED] = 0
        in_halves = self.losses is not None and self.losses.takes_halves
        draw: Callable[..., Iterable[Any]] = halves if in_halves else balanced_batches
        drawn = draw(classes, weights, estimator.batch_size, self._steps_of(number), rng)
        self._generator.manual_seed(int(rng.integers(2**31)))
        for batch in map(np.asarray, drawn):
            others = rng.choice(rows, estimator.consistency_ratio * len(batch))
            yield self._batch(batch, classes[batch], others)

    def _batch(self, rows: Indices, classes: Ints, others: Indices) -> Batch:
        """Draw the random numbers of a step."""
        estimator = self.estimator
        others = others if estimator.consistency else others[:0]
        n_anchors = len(rows) if estimator.triplets else 0
        return Batch(
            torch.from_numpy(rows),
            torch.from_numpy(classes),
            torch.from_numpy(others),
            self._numbers(self.views, rows),
            self._numbers(self.weak_views, others),
            self._numbers(self.views, others),
            torch.rand(n_anchors, n_anchors, generator=self.draws.generator()),
        )

    def _numbers(self, augment: Augment, rows: Indices) -> torch.Tensor:
        if type(augment) is not RandomViews:
            return torch.empty(0)
        return augment.draw(len(rows), self.samples.shape[0], self._generator)

    def _rate(self, number: int, step: int) -> float:
        """Warm up once and decay once over all partitions."""
        steps = [self._steps_of(i) for i in range(self.n_partitions)]
        return rate_at(sum(steps[:number]) + step, sum(steps), self.estimator.learning_rate)

    def _train(self, *given: Any) -> list[float]:
        """Train the network on a partition; return the mean loss per epoch.

        Images are evaluated as they are: weak views are counted, strong ones only without them,
        nor in the backward pass, where gradient checkpointing repeats their forward pass.
        """
        with counting(self.network, not self.estimator.consistency):
            return super()._train(*given)

    def _loss(self, batch: Batch) -> torch.Tensor:
        """Add the losses of classes, triplets, consistency and the user's own."""
        share = rank_slice(len(batch.rows))
        labels = to_device(batch.classes, self.device)
        parts = [self._view(self.views, self.samples.batch(batch.rows), batch.views)[share]]
        if self.estimator.consistency:
            unseen, share = self.samples.batch(batch.others), rank_slice(len(batch.others))
            weak = self._view(self.weak_views, unseen, batch.weak)[share]
            # Views may be made in place, and the weak view may be the samples themselves.
            parts.append(self._view(self.views, unseen.clone(), batch.strong)[share])
        embedding = self.network(torch.cat(parts))
        seen, *strong = (gathered(part) for part in embedding.split([*map(len, parts)]))
        loss = functional.cross_entropy(self.network.logits(seen), labels)
        if self.estimator.triplets:
            with self.draws.suspended():
                angular = batch_angular_loss(
                    seen, labels, self.estimator.angle, N_NEGATIVES, batch.positives
                )
            loss = loss + self.estimator.triplets * angular
        if self.losses is not None:
            loss = loss + self.losses(seen, labels)
        if self.estimator.consistency:
            targets, confident = self._targets(weak)
            losses = functional.cross_entropy(
                self.network.logits(strong[0]), targets, reduction="none"
            )
            loss = loss + self.estimator.consistency * (losses * confident).mean()
        return loss

    def _view(self, augment: Augment, samples: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Make one view per sample."""
        if type(augment) is RandomViews:
            with self.draws.suspended():
                return augment.views(samples, numbers)
        return custom_views(augment, samples, self._generator)

    @property
    def _can_capture(self) -> bool:
        """Whether a step is made of our own functions alone, which neither draw nor wait."""
        own_views = type(self.views) is RandomViews or self.views is unchanged
        stored = isinstance(self.samples, StoredSamples) and self.samples.is_on_device
        named = isinstance(self.estimator.backbone, str)
        return own_views and stored and named and self.losses is None

    @torch.no_grad()
    def _targets(self, weak: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Predict the classes of weak views, and whether they exceed the threshold."""
        with normalizing_by_batch(self.network):
            embedding = self.network(weak)
        probabilities = torch.softmax(self.network.logits(gathered(embedding)), dim=1)
        best, targets = probabilities.max(dim=1)
        return targets, (best > self.estimator.threshold).to(probabilities.dtype)


def halves(
    classes: Ints, weights: Array, size: int, count: int, rng: np.random.Generator
) -> Batches:
    """Draw weighted batches of at most ``size`` rows whose halves are aligned in class.

    The rows per class are a multiple of 2 and of the world size.

    Examples
    --------
    >>> classes = np.array([0, 0, 1, 1, 1])
    >>> (batch,) = halves(classes, np.ones(5), 9, 1, np.random.default_rng(0))
    >>> classes[batch[:4]].tolist() == classes[batch[4:]].tolist(), len(batch)
    (True, 8)
    """
    least = math.lcm(2, world_size())
    # Classes with a single row are not drawn.
    drawable = np.unique(classes[weights > 0], return_counts=True)[1]
    if not (drawable > 1).any():
        raise ValueError(
            "y must have two labels of a class to learn from labels alone with losses of two "
            "halves that are aligned in class, such as GraphConsistency; got one label of each of "
            f"{len(drawable)} classes. Label more, or pass learn_from='propagated' and "
            "input_edges=0.2."
        )
    n_classes = min(int((drawable > 1).sum()), max(1, size // least))
    per_class = size // n_classes // least * least // 2
    return aligned_halves(
        classes, count, rng, n_classes=n_classes, per_class=per_class, weights=weights
    )
