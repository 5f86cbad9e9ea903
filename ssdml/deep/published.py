"""Algorithm 1 of seed 003 to the letter: triplets of a partition's graph, a batch at a time.

Each batch of triplets learns L by ten steps of conjugate gradients with the network fixed, and the
network by a step of gradient descent with L fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ssdml.deep.input_graph import device_graph
from ssdml.deep.trainer import PartitionRun, Prepared, RunSettings
from ssdml.evaluation.scores import triplet_purity
from ssdml.graphs.propagation.affinities import propagate_affinities
from ssdml.graphs.triplets import Triplets, mine_triplets
from ssdml.losses.angular import angular_triplet_loss
from ssdml.metric.alternation import PAPER_STEPS, learn_metric
from ssdml.utils.distributed import from_first_rank
from ssdml.utils.linalg import nearest_orthonormal
from ssdml.utils.typing import Array, Indices

BATCH_TRIPLETS = 100


class LiteralSettings(RunSettings, Protocol):
    """Parameters of the estimator that this run reads besides."""

    angle: float
    orthogonal: bool


class LiteralRun(PartitionRun):
    """State of the seed's alternation, and its steps.

    The momentum of the descent (0.9) is ours, for the seed names none; so is the mean over the
    triplets of a batch, where Eq. (3) has their sum.
    """

    settings: LiteralSettings
    optimizer = partial(torch.optim.SGD, lr=0.0, momentum=0.9)

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Triplets in the neighborhoods of the partition's own graph."""
        rows = self.parts[len(self.history)]
        features, n_jobs = self.embed("features", rows), self.settings.n_jobs
        somewhere = features.any(axis=1)  # zeros have no direction, and would be each other's
        if np.count_nonzero(somewhere) < 2:
            raise FloatingPointError(
                "the backbone's features must not be zeros alone for all items of a partition but "
                f"one; got {np.count_nonzero(~somewhere)} such items of {len(rows)}. A ReLU at its "
                f"end may be dead: lower learning_rate={self.settings.learning_rate}, or start it "
                "otherwise."
            )
        rows, features = rows[somewhere], features[somewhere]
        graph = device_graph(features, self.settings, self.device, rng)
        affinities = propagate_affinities(
            graph, self.labels[rows], decay=self.settings.decay, n_jobs=n_jobs
        )
        mined = mine_triplets(graph, affinities, strategy="neighborhood")
        purity = triplet_purity(mined, self.labels[rows])
        entry = {"n_triplets": len(mined.anchor), "purity": purity}
        return Prepared(triplets=mined.among(rows), entry=entry)

    def _batches(self, rows: Indices, number: int, rng: np.random.Generator) -> Iterator[Indices]:
        """Triplets (3, n) of the partition, in another order with each pass."""
        assert self.triplets is not None
        ends = np.stack(self.triplets[:3])
        size, each = BATCH_TRIPLETS, self._steps_of(number) // self.epochs_of(number)
        for _ in range(self.epochs_of(number) if each else 0):
            order = rng.permutation(ends.shape[1])[: each * size]  # Eq. (4) drops the rest
            yield from (ends[:, batch] for batch in np.array_split(order, each))

    def _steps_of(self, number: int) -> int:
        """Batches of triplets; all in one where they are fewer than a batch."""
        assert self.triplets is not None
        count = len(self.triplets.anchor)
        return self.epochs_of(number) * max(min(count, 1), count // BATCH_TRIPLETS)

    def _loss(self, batch: Indices) -> Tensor:
        """L is learned under the network; then the loss, for the network under L."""
        used, places = np.unique(batch, return_inverse=True)
        features = self.network.features(self.items.batch(used))
        anchor, positive, negative = places.reshape(3, -1)
        if self.settings.orthogonal and features.isfinite().all():
            local = Triplets(anchor, positive, negative, np.ones(len(anchor)))
            self._learn_metric(features.detach().cpu().numpy(), local)
        projected = features @ self.network.metric
        return self._losses(projected[anchor], projected[positive], projected[negative]).mean()

    def _losses(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Of each triplet under L."""
        return angular_triplet_loss(anchor, positive, negative, angle=self.settings.angle)

    def _learn_metric(self, features: Array, triplets: Triplets) -> None:
        """One L for all processes: each embeds the batch, but GPUs differ in the last bits."""
        found = from_first_rank(
            lambda: learn_metric(
                features,
                triplets,
                nearest_orthonormal(self.network.L),
                angle=self.settings.angle,
                max_iter=PAPER_STEPS,
                rescale=False,
            )
        )
        self._place(found.point, None)
