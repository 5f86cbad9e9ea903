"""Algorithm 1 of seed 003 to the letter: triplets of a partition's graph, a batch at a time.

Each batch of triplets learns L by ten steps of conjugate gradients with the network fixed, and the
network by a step of gradient descent with L fixed.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ssdml.alternation import PAPER_STEPS, learn_metric
from ssdml.graphs.neighbors import knn_graph
from ssdml.graphs.propagation import propagate_affinities
from ssdml.graphs.triplets import Triplets, mine_triplets
from ssdml.linalg import nearest_orthonormal
from ssdml.losses.angular import angular_triplet_loss
from ssdml.partition_run import PartitionRun, Prepared, RunSettings
from ssdml.progress import Show
from ssdml.training import embed_items, seeded

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]

BATCH_TRIPLETS = 100


class LiteralSettings(RunSettings, Protocol):
    """Parameters of the estimator that this run reads besides."""

    angle: float
    orthogonal: bool


class LiteralRun(PartitionRun):
    """State of the seed's alternation, and its steps.

    The momentum of the descent (0.9) and the mean over a batch's triplets, where Eq. (3) has their
    sum, are our reading: the seed says neither.
    """

    settings: LiteralSettings
    optimizer = partial(torch.optim.SGD, lr=0.0, momentum=0.9)

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Triplets in the neighbourhoods of the partition's own graph."""
        rows = self.parts[len(self.history)]
        batch_size, n_jobs = self.settings.batch_size, self.settings.n_jobs
        features = embed_items(self.network, self.items, "features", rows, batch_size=batch_size)
        k = min(self.settings.n_neighbors, len(rows) - 1)
        graph = knn_graph(features, k, n_jobs=n_jobs, random_state=rng)
        affinities = propagate_affinities(
            graph, self.labels[rows], decay=self.settings.decay, n_jobs=n_jobs
        )
        mined = mine_triplets(graph, affinities, strategy="neighborhood")
        anchor, positive, negative = (rows[ends] for ends in mined[:3])
        triplets = Triplets(anchor, positive, negative, mined.weight)
        entry = {"n_triplets": len(anchor)}
        return Prepared(self.distributions, triplets=triplets, entry=entry)

    def conclude(self) -> None:
        """The labels along the last embedding, and the proxies, which nobody has trained."""
        super().conclude()
        self._place(None, self.distributions.T @ self.embed_all("embedding"))

    def _train(self, rows: Rows, number: int, rng: np.random.Generator, show: Show) -> list[float]:
        """So many passes over the triplets; the mean loss of each."""
        assert self.triplets is not None
        ends = np.stack(self.triplets[:3])  # (3, n_triplets)
        passes, means = self.epochs_of(number), []
        with seeded(int(rng.integers(2**31)), self.device):
            self.network.train()
            for done in range(passes):
                order = rng.permutation(ends.shape[1])
                whole = len(order) // BATCH_TRIPLETS * BATCH_TRIPLETS  # Eq. (4) drops the rest
                batches = order[: whole or None].reshape(-1, min(BATCH_TRIPLETS, len(order)))
                losses: list[float] = []
                for batch in batches:
                    losses.append(self._turn(ends[:, batch]))
                    share = (done + len(losses) / len(batches)) / passes
                    show(share, self._note(number, done, losses[-1]))
                means.append(float(np.mean(losses)))
        return means

    def _turn(self, ends: Rows) -> float:
        """One batch: L under the network, then the network under L."""
        used, places = np.unique(ends, return_inverse=True)
        features = self.network.features(self.items.batch(used))
        anchor, positive, negative = places.reshape(3, -1)
        if self.settings.orthogonal:
            local = Triplets(anchor, positive, negative, np.ones(len(anchor)))
            self._learn_metric(features.detach().cpu().numpy(), local)
        projected = features @ self.network.metric
        losses = angular_triplet_loss(
            projected[anchor], projected[positive], projected[negative], angle=self.settings.angle
        )
        return self.trainer.step(losses.mean(), self.settings.learning_rate)

    def _learn_metric(self, features: Array, triplets: Triplets) -> None:
        found = learn_metric(
            features,
            triplets,
            nearest_orthonormal(self.network.L),
            angle=self.settings.angle,
            max_iter=PAPER_STEPS,
            rescale=False,
        )
        self._place(found.point, None)
