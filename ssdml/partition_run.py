"""A run of partitions, whatever is learned on them: one after another, resumed to the same bits.

What a partition draws depends on the seed and its number, and everything that it needs from those
before it is in :meth:`PartitionRun.checkpoint`.
"""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn import functional

from ssdml.checkpoints import Checkpoint, digest
from ssdml.device_graph import device_graph
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.masses import class_codes, one_hot
from ssdml.graphs.neighbors import KNNGraph
from ssdml.graphs.propagation import propagate_labels
from ssdml.graphs.triplets import Triplets
from ssdml.items import Items
from ssdml.labels import likeliest, named_as
from ssdml.linalg import unit_rows
from ssdml.progress import Show
from ssdml.ranks import from_first_rank, share_weights
from ssdml.sampling import partitions, spaced
from ssdml.training import (
    MetricNetwork,
    Trainer,
    embed_items,
    has_bfloat16,
    mixed_precision,
    one_thread,
    pretrain,
    read_behind,
    seeded,
)

if TYPE_CHECKING:
    from ssdml.input_side import InputGraph
    from ssdml.losses.base import Loss

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

CHECKED = 500  # items of a partition whose features are looked at when it has been learned
ZERO_SHARE = 0.1  # of them that may be zeros alone without a word


class RunSettings(Protocol):
    """Parameters of the estimator that every run reads."""

    n_neighbors: int
    decay: float
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
    """What a partition begins with; all ranks have it from the first."""

    distributions: Array | None = None  # (n, n_classes); None: as they were
    metric: Array | None = None  # L; None: as it was
    proxies: Array | None = None  # directions, (n_classes, l); None: as they were
    triplets: Triplets | None = None
    more: Any = None  # what the kind of run wants besides
    entry: dict[str, Any] = {}  # noqa: RUF012, for the history


class PartitionRun(ABC):
    """State of an alternation, and its steps: a kind of run adds what it learns, and how."""

    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    learns_proxies = False  # otherwise they stand at the classes' means in the end
    input_graph: InputGraph | None = None  # of the items as they are, where its edges may count

    def __init__(
        self,
        items: Items,
        labels: Classes,
        network: MetricNetwork,
        settings: RunSettings,
        seed: int,
        device: str,
        losses: Loss | None = None,
    ) -> None:
        self.items, self.labels = items, labels
        self.seed, self.device, self.settings = seed, device, settings
        mixed = settings.mixed_precision
        self.mixed = has_bfloat16(device) if mixed == "auto" else bool(mixed)
        self.losses = losses  # beside the run's own
        learned: list[nn.Module] = [network] if losses is None else [network, losses]
        self.initial_weights = digest(*(part.state_dict() for part in learned))
        self.trainer = Trainer(
            network,
            weight_decay=settings.weight_decay,
            optimizer=self.optimizer,
            losses=losses,
        )
        self.distributions = one_hot(labels)
        self.triplets: Triplets | None = None
        self.judgement = ""  # of the last partition, for the progress
        self.history: list[dict[str, Any]] = []
        self.pretraining: list[float] = []  # the loss of each epoch
        self.n_partitions = -(-settings.epochs // settings.epochs_per_partition)
        rng = np.random.default_rng([seed, 0])
        rows = np.flatnonzero(labels != UNLABELED), np.flatnonzero(labels == UNLABELED)
        self.parts = partitions(*rows, self.n_partitions, settings.partition_size, rng)

    @abstractmethod
    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """What the next epochs are to have; one process makes it for all."""

    @abstractmethod
    def _batches(self, rows: Rows, number: int, rng: np.random.Generator) -> Iterator[Any]:
        """What each step of a partition learns from, drawn when the step comes."""

    @abstractmethod
    def _loss(self, batch: Any) -> torch.Tensor:
        """What the step of a batch goes down."""

    def _rate(self, number: int, step: int) -> float:
        """Learning rate of a step of a partition."""
        return self.settings.learning_rate

    @property
    def network(self) -> MetricNetwork:
        """What is trained."""
        return self.trainer.network

    def pretrain(self, show: Show) -> None:
        """Teach the network the labelled items by softmax; one class has nothing to teach."""
        codes, n_classes = class_codes(self.labels)
        if n_classes < 2:
            return
        rows = np.flatnonzero(codes != UNLABELED)
        epochs, rng = self.settings.pretrain_epochs, np.random.default_rng([self.seed, 0, 0])
        for loss in pretrain(self.network, self.items, rows, codes[rows], epochs=epochs, rng=rng):
            self.pretraining.append(loss)
            done = len(self.pretraining)
            show(done / epochs, f"epoch {done} of {epochs}, loss {loss:.3f}")
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"the loss must stay finite; got {loss} in epoch {done} of the pretraining. "
                    "Look at the backbone's first weights and at the items, or set "
                    "pretrain_epochs=0."
                )
        share_weights(self.network)  # each process has trained; GPUs do not agree to the last bit

    def partition(self, show: Show) -> dict[str, Any]:
        """The next partition: labels along the graph, triplets, L, and the backbone's epochs.

        Returns its entry of the history, which may be added to.
        """
        number = len(self.history)
        rng = np.random.default_rng([self.seed, number + 1])
        begin = time.perf_counter()
        found = from_first_rank(lambda: self._prepare(rng.spawn(1)[0]))
        before = likeliest(self.distributions)
        self._take_over(found)
        entry = {"partition": number + 1, **found.entry}
        if self.pretraining and not number:
            entry["pretraining"] = self.pretraining
        if number and found.distributions is not None:
            entry["changed"] = float((likeliest(self.distributions) != before).mean())
        self.judgement = judgement(entry)
        prepared = time.perf_counter()
        entry["losses"] = self._train(number, rng, show)
        entry["loss"] = entry["losses"][-1] if entry["losses"] else 0.0
        share_weights(self.network)  # statistics of a rank's own share of each batch among them
        self._check_features(number)
        trained = time.perf_counter()
        entry["seconds"] = {"graph and metric": prepared - begin, "epochs": trained - prepared}
        self.history.append(entry)
        return entry

    def _train(self, number: int, rng: np.random.Generator, show: Show) -> list[float]:
        """The backbone's epochs on a partition; the mean loss of each."""
        n_steps, epochs = self._steps_of(number), self.epochs_of(number)
        batches = enumerate(self._batches(self.parts[number], number, rng))
        losses: list[float] = []
        in_training = mixed_precision(self.network, self.mixed)
        on_gpu = self.device.startswith("cuda")  # which more threads of the CPU keep waiting
        with seeded(int(rng.integers(2**31)), self.device), in_training, one_thread(on_gpu):
            self.network.train()
            steps = (self.trainer.step(self._loss(b), self._rate(number, i)) for i, b in batches)
            for step, loss in enumerate(read_behind(steps, self.device)):
                losses.append(loss)
                show((step + 1) / n_steps, self._note(number, step * epochs // n_steps, losses[-1]))
                if not math.isfinite(losses[-1]):
                    raise FloatingPointError(
                        f"the loss must stay finite; got {losses[-1]} at step "
                        f"{step + 1} of partition {number + 1}. Lower learning_rate="
                        f"{self.settings.learning_rate}, and name another checkpoint_dir."
                    )
        parts = np.array_split(losses, min(epochs, n_steps)) if losses else []
        return [float(np.mean(part)) for part in parts]

    def _check_features(self, number: int) -> None:
        """Raise, or warn, where the last steps have left no network to go on from."""
        rows = spaced(self.parts[number], CHECKED)
        size = self.settings.batch_size
        features = embed_items(self.network, self.items, "features", rows, batch_size=size)
        zero = float((~features.any(axis=1)).mean())
        way_out = (
            f"Lower learning_rate={self.settings.learning_rate}, and name another checkpoint_dir."
        )
        if not np.isfinite(features).all() or zero == 1:
            wrong = "zeros alone" if zero == 1 else "NaN or infinity"
            raise FloatingPointError(
                f"the backbone's features must stay finite and not all zero; got {wrong} after "
                f"partition {number + 1}. {way_out}"
            )
        if zero > ZERO_SHARE:
            warnings.warn(
                f"the backbone makes zeros alone of {zero:.0%} of the items after partition "
                f"{number + 1}: they have no direction, and all one place. {way_out}",
                RuntimeWarning,
                stacklevel=2,
            )

    @property
    def has_settled(self) -> bool:
        """Whether so few items changed class with the last partition that the run may stop."""
        return bool(self.history) and self.history[-1].get("changed", 1.0) < self.settings.tol

    def conclude(self) -> None:
        """The labels along the graph of the last embedding, and proxies that name them.

        Proxies that were trained stay, unless the classes' means name more items as the graph does:
        after few steps they do.

        Warns
        -----
        ConvergenceWarning
            If an early stop was asked for, and the classes have not settled.
        """
        changed, tol = self.history[-1].get("changed"), self.settings.tol
        if tol and changed is not None and not self.has_settled:
            warnings.warn(
                f"{changed:.1%} of the items changed class with the last partition, more than "
                f"tol={tol}. Raise epochs={self.settings.epochs} or tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
        if not self.distributions.shape[1]:
            return  # there is no label
        rng = np.random.default_rng([self.seed, len(self.history) + 1])
        found = from_first_rank(lambda: self._concluded(rng))
        assert found.distributions is not None
        self.distributions = found.distributions
        self._place(None, found.proxies)

    def _concluded(self, rng: np.random.Generator) -> Prepared:
        features = self.embed("features")
        distributions = self._spread(self._edges(self._graph(features, rng)))
        embedding = unit_rows(features @ self.network.L)
        means, classes = distributions.T @ embedding, likeliest(distributions)
        learned = self.network.proxies.detach().cpu().numpy()
        stay = self.learns_proxies and (
            named_as(classes, embedding, learned) >= named_as(classes, embedding, means)
        )
        return Prepared(distributions, proxies=None if stay else means)

    def _graph(self, features: Array, rng: np.random.Generator) -> KNNGraph:
        """Graph of the embedding."""
        rows = unit_rows(features @ self.network.L)
        return device_graph(rows, self.settings, self.device, rng)

    def _edges(self, graph: KNNGraph) -> sparse.csr_array:
        """Weights along which labels are spread."""
        return adjacency(graph)

    def _spread(self, edges: sparse.csr_array) -> Array:
        distributions = propagate_labels(
            edges, self.labels, decay=self.settings.decay, n_jobs=self.settings.n_jobs
        )
        known = self.labels != UNLABELED
        distributions[known] = one_hot(self.labels)[known]  # others may outvote them
        return distributions

    def _take_over(self, found: Prepared) -> None:
        """Classes, L, and the proxies at the classes' means."""
        if found.distributions is not None:
            self.distributions = found.distributions
        self.triplets = found.triplets
        self._place(found.metric, found.proxies)

    def _place(self, metric: Array | None, proxies: Array | None) -> None:
        """Put L and the proxies' directions into the network; None leaves them as they are."""
        with torch.no_grad():
            if metric is not None:
                self.network.metric.copy_(torch.from_numpy(metric))
            if proxies is not None:
                directions = torch.from_numpy(proxies)
                self.network.proxies.copy_(functional.normalize(directions, dim=1))

    def _note(self, number: int, epoch: int, loss: float) -> str:
        """Where a partition's epochs stand."""
        epoch += number * self.settings.epochs_per_partition + 1
        return f"epoch {epoch} of {self.settings.epochs}, loss {loss:.3f}{self.judgement}"

    def epochs_of(self, number: int) -> int:
        """Passes over a partition; the last has what is left."""
        each = self.settings.epochs_per_partition
        return min(each, self.settings.epochs - number * each)

    def _steps_of(self, number: int) -> int:
        """Batches of a partition, those of all its epochs."""
        return -(-self.epochs_of(number) * len(self.parts[number]) // self.settings.batch_size)

    def embed(self, kind: str, rows: Rows | None = None) -> Array:
        """Unit features, or embedding, of all items by the network, or of some."""
        size = self.settings.batch_size
        embedded = embed_items(self.network, self.items, kind, rows, batch_size=size)
        finite = np.isfinite(embedded).all(axis=1)
        if not finite.all():
            place = int(np.flatnonzero(~finite)[0])
            raise ValueError(
                f"backbone must return finite features; got NaN or infinity for "
                f"{np.count_nonzero(~finite)} of {len(finite)} items, the first of them item "
                f"{place if rows is None else rows[place]}. Leave such items out, or see what the "
                "backbone divides by; if there are checkpoints, name another checkpoint_dir."
            )
        return embedded

    def checkpoint(self) -> Checkpoint:
        """All that later partitions depend on."""
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        tensors |= self.trainer.optimizer_tensors()
        if self.losses is not None:
            tensors |= {f"losses.{k}": v for k, v in self.losses.state_dict().items()}
        if self.triplets is not None:
            ends = self.triplets._asdict().items()
            tensors |= {f"triplets.{k}": torch.from_numpy(v) for k, v in ends}
        tensors["distributions"] = torch.from_numpy(self.distributions)
        state = {"history": self.history, "initial weights": self.initial_weights}
        return Checkpoint(len(self.history), tensors, state)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint of the same run; its weights are those that count.

        Warns
        -----
        RuntimeWarning
            If the weights to begin with are not those that the run began with.
        """
        if checkpoint.state["initial weights"] != self.initial_weights:
            warnings.warn(
                "the weights that backbone and losses begin with are not those of the run whose "
                "checkpoint is there; going on with the checkpoint's. Name another "
                "checkpoint_dir to begin with these.",
                RuntimeWarning,
                stacklevel=2,
            )
        if triplets := checkpoint.part("triplets"):
            self.triplets = Triplets(**{name: part.numpy() for name, part in triplets.items()})
        self.network.load_state_dict(checkpoint.part("network"))
        if self.losses is not None:
            self.losses.load_state_dict(checkpoint.part("losses"))
        self.trainer.restore_optimizer(checkpoint.part("optimizer"))
        self.distributions = checkpoint.tensors["distributions"].numpy()
        self.history = checkpoint.state["history"]


def judgement(entry: Mapping[str, Any]) -> str:
    """What is known of a partition before its epochs, for the progress.

    Examples
    --------
    >>> judgement({"purity": {"both": 12.3}}), judgement({"foretold": 0.936}), judgement({})
    (', 12 % of the triplets right', ', 94 % of the labels foretold', '')
    >>> judgement({"changed": 0.012})
    ', 1.2 % changed class'
    """
    if purity := entry.get("purity"):
        return f", {purity['both']:.0f} % of the triplets right"
    if (share := entry.get("foretold")) is not None:
        return f", {100 * share:.0f} % of the labels foretold"
    return f", {100 * entry['changed']:.1f} % changed class" if "changed" in entry else ""
