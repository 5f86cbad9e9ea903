"""One run of the deep alternation: graph, labels and metric of a partition, then its mini-batches.

Everything that a partition needs from those before it is in :meth:`DeepRun.checkpoint`, and what it
draws depends on the seed and its number: a run that is resumed comes to the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from ssdml.alternation import N_TRIPLETS, learn_metric, mine
from ssdml.augmentation import Augment
from ssdml.checkpoints import Checkpoint
from ssdml.conclusion import State
from ssdml.evaluation import triplet_purity
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.masses import class_codes, one_hot
from ssdml.graphs.neighbors import KNNGraph, knn_graph
from ssdml.graphs.propagation import propagate_labels
from ssdml.graphs.triplets import Triplets
from ssdml.input_side import InputGraph
from ssdml.items import Items
from ssdml.linalg import nearest_orthonormal, unit_rows
from ssdml.progress import Show
from ssdml.ranks import from_first_rank, gathered, own_share
from ssdml.sampling import balanced_batches, confidences, partitions
from ssdml.training import (
    MetricNetwork,
    Schedule,
    Trainer,
    batch_angular_loss,
    embed_items,
    pretrain,
    rate_at,
    seeded,
)

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

N_NEGATIVES = 5
MASS_AVERAGING = 0.99  # of the teacher's class masses over the steps


class DeepSettings(Protocol):
    """Parameters of the estimator that a run reads."""

    n_neighbors: int
    decay: float
    propagation: str
    mining: str
    angle: float
    consistency: float
    threshold: float
    triplets: float
    averaging: float
    metric_steps: int
    orthogonal: bool
    partition_size: int | None
    pretrain_epochs: int
    epochs: int
    epochs_per_partition: int
    tol: float
    batch_size: int
    learning_rate: float
    weight_decay: float
    mixed_precision: bool | str
    n_jobs: int | None


class Prepared(NamedTuple):
    """What a partition begins with."""

    distributions: Array  # (n, n_classes)
    metric: Array | None  # L; None: as it was
    proxies: Array | None  # directions, (n_classes, l); None: as they were
    triplets: Triplets | None
    entry: dict[str, Any]  # for the history


class DeepRun:
    """State of the alternation, and its steps."""

    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW

    def __init__(
        self,
        items: Items,
        labels: Classes,
        network: MetricNetwork,
        input_graph: InputGraph | None,
        views: Augment,
        weak_views: Augment,
        settings: DeepSettings,
        seed: int,
        device: str,
    ) -> None:
        self.items, self.labels, self.settings = items, labels, settings
        self.seed, self.device, self.input_graph = seed, device, input_graph
        self.views, self.weak_views = views, weak_views
        self.trainer = Trainer(
            network,
            weight_decay=settings.weight_decay,
            averaging=settings.averaging,
            optimizer=self.optimizer,
        )
        self._kind = device.split(":")[0]
        mixed = settings.mixed_precision
        self._mixed = self._kind == "cuda" if mixed == "auto" else bool(mixed)
        n_classes = class_codes(labels)[1]
        self.distributions = one_hot(labels)
        self.masses = torch.full((n_classes,), 1 / n_classes, device=device)
        self.triplets: Triplets | None = None
        self.purity: dict[str, float] | None = None
        self.history: list[dict[str, Any]] = []
        self.n_partitions = -(-settings.epochs // settings.epochs_per_partition)
        rng = np.random.default_rng([seed, 0])
        rows = np.flatnonzero(labels != UNLABELED), np.flatnonzero(labels == UNLABELED)
        self.parts = partitions(*rows, self.n_partitions, settings.partition_size, rng)

    @property
    def network(self) -> MetricNetwork:
        """What is trained."""
        return self.trainer.network

    @property
    def average(self) -> MetricNetwork:
        """Its averaged weights: the teacher, and in the end the result."""
        return self.trainer.average

    def pretrain(self) -> None:
        """Teach the network the labelled items, if that is asked for, before anything else."""
        if self.settings.pretrain_epochs:
            codes, _ = class_codes(self.labels)
            rows = np.flatnonzero(codes != UNLABELED)
            epochs, rng = self.settings.pretrain_epochs, np.random.default_rng([self.seed, 0, 0])
            pretrain(self.network, self.items, rows, codes[rows], epochs=epochs, rng=rng)
            self.average.load_state_dict(self.network.state_dict())

    def partition(self, show: Show) -> dict[str, Any]:
        """The next partition: labels along the graph, triplets, L, and the backbone's epochs.

        Returns its entry of the history, which may be added to.
        """
        number = len(self.history)
        rng = np.random.default_rng([self.seed, number + 1])
        begin = time.perf_counter()
        found = from_first_rank(lambda: self._prepare(rng.spawn(1)[0]))
        changed = found.distributions.argmax(axis=1) != self.distributions.argmax(axis=1)
        self._take_over(found)
        entry = {"partition": number + 1, **found.entry}
        if number:
            entry["changed"] = float(changed.mean())
        prepared = time.perf_counter()
        entry["purity"] = self.purity
        entry["losses"] = self._train(self.parts[number], number, rng, show)
        entry["loss"] = entry["losses"][-1]
        trained = time.perf_counter()
        entry["seconds"] = {"graph and metric": prepared - begin, "epochs": trained - prepared}
        self.history.append(entry)
        return entry

    @property
    def has_settled(self) -> bool:
        """Whether so few items changed class with the last partition that the run may stop."""
        return bool(self.history) and self.history[-1].get("changed", 1.0) < self.settings.tol

    def conclude(self) -> None:
        """The labels once more, along the graph of the last embedding."""
        rng = np.random.default_rng([self.seed, len(self.history) + 1])
        self.distributions = from_first_rank(
            lambda: self._carried(self.embed_all("features"), rng)[0]
        )

    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Labels, triplets and metric for the next epochs; one process does it for all."""
        features = self.embed_all("features")
        distributions, graph = self._carried(features, rng)
        if graph is None:
            return Prepared(distributions, None, None, None, {})
        state = State(features, self.labels, graph, distributions)
        triplets = mine(state, self.settings, N_TRIPLETS, rng)
        entry: dict[str, Any] = {"n_triplets": len(triplets.anchor)}
        fixed = not (self.settings.metric_steps and self.settings.orthogonal)
        if fixed or not len(triplets.anchor):
            return Prepared(distributions, None, None, triplets, entry)
        result = learn_metric(
            features,
            triplets,
            nearest_orthonormal(self.network.L),  # of float32, nearly so
            angle=self.settings.angle,
            max_iter=self.settings.metric_steps,
            rescale=True,
        )
        entry |= {"objective": (result.initial_value, result.value), "n_iter": result.n_iter}
        sums = distributions.T @ (features @ result.point)
        proxies = sums if self.history else None
        return Prepared(distributions, result.point, proxies, triplets, entry)

    def _carried(self, features: Array, rng: np.random.Generator) -> tuple[Array, KNNGraph | None]:
        """Labels spread along the edges of the input and of the embedding, and the new graph.

        Nothing is spread where nothing has been learned yet and the input's edges do not count.
        """
        inputs = self.input_graph if self.trusts_input else None
        if not self.history:
            if inputs is None:
                return self.distributions, None
            graph, edges = inputs.graph, inputs.edges
        else:
            graph = knn_graph(
                unit_rows(features @ self.average.L),
                self.settings.n_neighbors,
                n_jobs=self.settings.n_jobs,
                random_state=rng,
            )
            edges = adjacency(graph)
            if inputs is not None:
                edges = edges + inputs.weight * inputs.edges
        distributions = propagate_labels(
            edges, self.labels, decay=self.settings.decay, n_jobs=self.settings.n_jobs
        )
        known = self.labels != UNLABELED
        distributions[known] = one_hot(self.labels)[known]  # others may outvote them
        return distributions, graph

    @property
    def trusts_input(self) -> bool:
        """Whether the input's edges count."""
        return self.input_graph is not None and self.input_graph.weight > 0

    def _take_over(self, found: Prepared) -> None:
        """Classes, L, and the proxies at the classes' means."""
        self.distributions, self.triplets = found.distributions, found.triplets
        self.purity = found.triplets and triplet_purity(found.triplets, self.labels)
        self._place(found.metric, found.proxies)

    def _place(self, metric: Array | None, proxies: Array | None) -> None:
        """Put L and the proxies' directions into both networks; None leaves them as they are."""
        with torch.no_grad():
            for network in (self.network, self.average):
                if metric is not None:
                    network.metric.copy_(torch.from_numpy(metric))
                if proxies is not None:
                    directions = torch.from_numpy(proxies)
                    network.proxies.copy_(functional.normalize(directions, dim=1))

    def _train(self, rows: Rows, number: int, rng: np.random.Generator, show: Show) -> list[float]:
        """The backbone's epochs on the partition; the mean loss of each."""
        settings = self.settings
        weights, classes = confidences(self.distributions), self.distributions.argmax(axis=1)
        outside = np.ones(len(weights), bool)
        outside[rows] = False
        weights = np.where(outside, 0, weights)
        before, n_steps = sum(self._steps_of(i) for i in range(number)), self._steps_of(number)
        epochs = self.epochs_of(number)
        n_all = sum(map(self._steps_of, range(self.n_partitions)))
        plan = Schedule(n_all, learning_rate=settings.learning_rate)
        batches = balanced_batches(classes, weights, settings.batch_size, n_steps, rng)
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        losses: list[float] = []
        with seeded(int(rng.integers(2**31)), self.device):
            self.network.train()
            self.average.eval()
            for step, batch in enumerate(batches):
                others = rng.choice(rows, settings.batch_size)
                loss = self._loss(batch, classes[batch], others, generator)
                rate = rate_at((before + step) / n_all, plan)
                losses.append(self.trainer.step(loss, rate))
                show((step + 1) / n_steps, self._note(number, step * epochs // n_steps, losses[-1]))
                if not math.isfinite(losses[-1]):
                    raise FloatingPointError(
                        f"DeepSSDML: the loss must stay finite; got {losses[-1]} at step "
                        f"{step + 1} of partition {number + 1}. Lower learning_rate="
                        f"{settings.learning_rate}, and name another checkpoint_dir."
                    )
        return [float(np.mean(part)) for part in np.array_split(losses, epochs)]

    def _note(self, number: int, epoch: int, loss: float) -> str:
        """Where a partition's epochs stand."""
        epoch += number * self.settings.epochs_per_partition + 1
        pure = "" if self.purity is None else f", triplets {self.purity['both']:.0f} % right"
        return f"epoch {epoch} of {self.settings.epochs}, loss {loss:.3f}{pure}"

    def epochs_of(self, number: int) -> int:
        """Passes over a partition; the last has what is left."""
        each = self.settings.epochs_per_partition
        return min(each, self.settings.epochs - number * each)

    def _steps_of(self, number: int) -> int:
        return -(-self.epochs_of(number) * len(self.parts[number]) // self.settings.batch_size)

    def _loss(
        self, batch: Rows, classes: Classes, others: Rows, generator: torch.Generator
    ) -> torch.Tensor:
        """Classes and triplets of the batch, and consistency of the other rows."""
        share = own_share(len(batch))
        labels = torch.from_numpy(classes).to(self.device)
        views = self.views(self.items.batch(batch), generator)[share]
        parts = [views]
        if self.settings.consistency:
            items = self.items.batch(others)
            weak = self.weak_views(items, generator)[share]
            parts.append(self.views(items, generator)[share])
        with torch.autocast(self._kind, torch.bfloat16, enabled=self._mixed):
            embedding = self.network(torch.cat(parts)).float()
        seen, *strong = (gathered(part) for part in embedding.split(len(views)))
        loss = functional.cross_entropy(self.network.logits(seen), labels)
        if self.settings.triplets:
            loss = loss + self.settings.triplets * batch_angular_loss(
                seen, labels, self.settings.angle, N_NEGATIVES
            )
        if self.settings.consistency:
            targets, trusted = self._targets(weak, others)
            losses = functional.cross_entropy(
                self.network.logits(strong[0]), targets, reduction="none"
            )
            loss = loss + self.settings.consistency * (losses * trusted).mean()
        return loss

    @torch.no_grad()
    def _targets(self, weak: torch.Tensor, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """Classes of weak views by teacher and graph together, and which of them are trusted."""
        with torch.autocast(self._kind, torch.bfloat16, enabled=self._mixed):
            embedding = self.average(weak).float()
        given = torch.softmax(self.average.logits(gathered(embedding)), dim=1)
        self.masses.lerp_(given.mean(dim=0), 1 - MASS_AVERAGING)
        beliefs = given / self.masses
        if self.history or self.trusts_input:
            known = torch.from_numpy(self.distributions[rows]).to(beliefs)
            beliefs = beliefs * known
        sums = beliefs.sum(dim=1, keepdim=True)
        beliefs = beliefs / sums.clamp_min(torch.finfo(beliefs.dtype).tiny)
        best, targets = beliefs.max(dim=1)
        return targets, (best > self.settings.threshold).to(beliefs.dtype)

    def embed_all(self, kind: str) -> Array:
        """Unit features, or embedding, of all items by the averaged network."""
        return embed_items(self.average, self.items, kind, batch_size=self.settings.batch_size)

    def checkpoint(self) -> Checkpoint:
        """All that later partitions depend on."""
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        tensors |= {f"average.{k}": v for k, v in self.average.state_dict().items()}
        tensors |= self.trainer.optimizer_tensors()
        tensors |= {"masses": self.masses, "distributions": torch.from_numpy(self.distributions)}
        state = {"history": self.history, "n_steps": self.trainer.n_steps}
        return Checkpoint(len(self.history), tensors, state)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint of the same run."""

        def part(prefix: str) -> dict[str, torch.Tensor]:
            names = [name for name in checkpoint.tensors if name.startswith(f"{prefix}.")]
            return {name[len(prefix) + 1 :]: checkpoint.tensors[name] for name in names}

        self.network.load_state_dict(part("network"))
        self.average.load_state_dict(part("average"))
        self.trainer.restore_optimizer(part("optimizer"))
        self.trainer.n_steps = checkpoint.state["n_steps"]
        self.masses = checkpoint.tensors["masses"].to(self.device)
        self.distributions = checkpoint.tensors["distributions"].numpy()
        self.history = checkpoint.state["history"]
