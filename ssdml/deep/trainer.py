"""Train a network on partitions of the data, one after another.

A partition draws its random numbers from the seed and its own number, and
:meth:`PartitionTrainer.checkpoint` holds everything that it needs from earlier ones: a resumed fit
equals an uninterrupted one bit for bit.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import count as from_zero
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn import functional

from ssdml.deep.checkpoints import Checkpoint, digest
from ssdml.deep.collapse import constant_embedding, loss_at_chance, single_prediction, spread
from ssdml.deep.input_graph import InputGraph, device_graph
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.graphs.triplets import Triplets
from ssdml.networks.captured import CapturedStep
from ssdml.networks.data import Samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.randomness import SeededDraws
from ssdml.networks.sampling import partitions, spaced
from ssdml.networks.training import Stepper, embed_samples, mixed_precision, pretrain, read_behind
from ssdml.utils.distributed import broadcast_weights, from_first_rank, is_distributed
from ssdml.utils.labels import class_codes, likeliest, one_hot, proxy_accuracy
from ssdml.utils.linalg import unit_rows
from ssdml.utils.progress import Show
from ssdml.utils.torch_tools import (
    load_whole_state,
    one_thread,
    plain_numbers,
    set_numbers,
    trains_in_bfloat16,
    whole_state,
)
from ssdml.utils.typing import Array, Indices, Ints
from ssdml.utils.validation import UNLABELED, warn

if TYPE_CHECKING:
    from ssdml.losses.base import Loss

CHECKED = 500  # samples whose features are checked after a partition
ZERO_SHARE = 0.1  # share of all-zero features among them above which to warn


class Prepared(NamedTuple):
    """State that a partition starts from; the first rank computes it for all."""

    distributions: Array | None = None  # (n, n_classes); None: unchanged
    metric: Array | None = None  # L; None: unchanged
    proxies: Array | None = None  # (n_classes, l), of any length; None: unchanged
    triplets: Triplets | None = None
    more: Any = None  # for subclasses
    entry: dict[str, Any] = {}  # noqa: RUF012, added to the history


class PartitionTrainer(ABC):
    """Train a network on partitions; subclasses define the targets and the loss.

    The parameters of ``estimator`` are read, and ``losses`` are trained with the network.
    """

    learns_proxies = False  # otherwise the class means become the proxies at the end
    input_graph: InputGraph | None = None
    validation: Callable[[], float] | None = None  # R@1 of the network on held-out samples

    def __init__(
        self,
        samples: Samples,
        labels: Ints,
        network: MetricNetwork,
        estimator: Any,
        seed: int,
        device: str,
        losses: Loss | None = None,
    ) -> None:
        self.samples, self.labels, self.losses = samples, labels, losses
        self.estimator, self.seed, self.device = estimator, seed, device
        self.mixed = trains_in_bfloat16(estimator.mixed_precision, device)
        self.learned = nn.ModuleList([network] if losses is None else [network, losses])
        self.initial_weights = digest(*map(whole_state, self.learned))
        self.initial_numbers = plain_numbers(self.learned)
        self.stepper = Stepper(
            network,
            weight_decay=estimator.weight_decay,
            optimizer=self.optimizer,
            losses=losses,
        )
        self.distributions = one_hot(labels)
        self.triplets: Triplets | None = None
        self.history: list[dict[str, Any]] = []
        self.pretraining: list[float] = []  # mean loss per epoch
        self.draws = SeededDraws(seed)  # of the partition
        self._captured: CapturedStep | None = None
        self.best_score = -math.inf  # of `validation`, over all epochs
        self.best: dict[str, torch.Tensor] = {}  # weights of that network
        self.n_partitions = -(-estimator.epochs // estimator.epochs_per_partition)
        rng = np.random.default_rng([seed, 0])
        rows = np.flatnonzero(labels != UNLABELED), np.flatnonzero(labels == UNLABELED)
        self.parts = partitions(*rows, self.n_partitions, estimator.partition_size, rng)

    def optimizer(self, groups: Any, **given: Any) -> torch.optim.Optimizer:
        """Make the optimizer of groups of parameters."""
        return torch.optim.AdamW(groups, **given)

    @abstractmethod
    def _prepare(self, rng: np.random.Generator) -> Prepared:
        """Compute the state that the next partition starts from; runs on the first rank."""

    @abstractmethod
    def _batches(self, rows: Indices, number: int, rng: np.random.Generator) -> Iterator[Any]:
        """Draw the batches of a partition, one per step."""

    @abstractmethod
    def _loss(self, batch: Any) -> torch.Tensor:
        """Compute the loss of a batch."""

    def _rate(self, number: int, step: int) -> float:
        """Learning rate of a step of a partition."""
        return float(self.estimator.learning_rate)

    @property
    def network(self) -> MetricNetwork:
        """Network that is trained."""
        return self.stepper.network

    def pretrain(self, show: Show) -> None:
        """Train the backbone on the labeled samples by softmax, if they have two classes."""
        codes, n_classes = class_codes(self.labels)
        if n_classes < 2:
            return
        rows = np.flatnonzero(codes != UNLABELED)
        epochs, rng = self.estimator.pretrain_epochs, np.random.default_rng([self.seed, 0, 0])
        losses = pretrain(self.network, self.samples, rows, codes[rows], epochs=epochs, rng=rng)
        for epoch, loss in enumerate(losses, 1):
            self.pretraining.append(loss)
            show(epoch / epochs, f"epoch {epoch} of {epochs}, loss {loss:.3f}")
            if not math.isfinite(loss):
                raise FloatingPointError(
                    f"the loss must stay finite; got {loss} in epoch {epoch} of the pretraining. "
                    "Check the backbone's initial weights and the samples, or set "
                    "pretrain_epochs=0."
                )
        broadcast_weights(self.network)  # every rank has trained, and GPUs differ in the last bits

    def partition(self, show: Show) -> dict[str, Any]:
        """Train on the next partition; return its entry of the history."""
        number = len(self.history)
        rng = np.random.default_rng([self.seed, number + 1])
        begin = time.perf_counter()
        prepared = from_first_rank(lambda: self._prepare(rng.spawn(1)[0]))
        before = likeliest(self.distributions)
        self._apply(prepared)
        entry = {"partition": number + 1, **prepared.entry}
        if self.pretraining and not number:
            entry["pretraining"] = self.pretraining
        if number and prepared.distributions is not None:
            entry["changed"] = float((likeliest(self.distributions) != before).mean())
        trained_from = time.perf_counter()
        entry["losses"] = self._train(number, rng, show, summary(entry))
        entry["loss"] = entry["losses"][-1] if entry["losses"] else 0.0
        if self.validation is not None:
            entry["R@1 per epoch"] = self._epoch_scores
        broadcast_weights(self.network)  # batch statistics are those of each rank's slices
        entry["spread"] = self._checked_spread(number)
        entry["seconds"] = {
            "graph and metric": trained_from - begin,
            "epochs": time.perf_counter() - trained_from,
        }
        self.history.append(entry)
        return entry

    def _train(self, number: int, rng: np.random.Generator, show: Show, note: str) -> list[float]:
        """Train the network on a partition; return the mean loss per epoch."""
        n_steps, epochs = self._steps_of(number), self.epochs_of(number)
        first = number * self.estimator.epochs_per_partition + 1
        losses: list[float] = []
        self.draws = SeededDraws(int(rng.integers(2**31)))
        self._epoch_scores: list[float] = []
        with (
            mixed_precision(self.network, self.mixed),
            one_thread(self.device.startswith("cuda")),  # more threads would delay the GPU
        ):
            self.network.train()
            steps = self._take_steps(self._batches(self.parts[number], number, rng), number)
            for step, loss in enumerate(read_behind(steps, self.device)):
                losses.append(loss)
                epoch = f"epoch {first + step * epochs // n_steps} of {self.estimator.epochs}"
                show((step + 1) / n_steps, f"{epoch}, loss {losses[-1]:.3f}{note}")
                if not math.isfinite(losses[-1]):
                    way_out = self._lower_rate
                    if not (number or step):  # no rate has had an effect
                        way_out = "Look for a division by zero in the backbone, views and losses."
                    raise FloatingPointError(
                        f"the loss must stay finite; got {losses[-1]} at step {step + 1} of "
                        f"partition {number + 1}. {way_out}"
                    )
                if (step + 1) * epochs // n_steps > len(self._epoch_scores):
                    self._validate()
        parts = np.array_split(losses, min(epochs, n_steps)) if losses else []
        return [float(np.mean(part)) for part in parts]

    def _take_steps(self, batches: Iterator[Any], number: int) -> Iterator[torch.Tensor]:
        """Take one step per batch; yield the losses."""
        captures = self.device.startswith("cuda") and self._can_capture and not is_distributed()
        for step in from_zero():
            with self.draws:
                batch = next(batches, None)
            if batch is None:
                return
            rate = self._rate(number, step)
            if captures:
                yield self._captured_step(batch, rate)
                continue
            with self.draws:
                loss = self._loss(batch)
            # Gradient checkpointing, if there is any, shows in the first step.
            with self.draws.forbidden() if step == 0 else nullcontext():
                taken = self.stepper.step(loss, rate)
            yield taken

    def _captured_step(self, batch: Any, rate: float) -> torch.Tensor:
        """Take one step by the graph of an earlier one, whose batch had the same shapes."""
        if self._captured is None or not self._captured.takes(batch):
            self.stepper.make_capturable()
            self._captured = CapturedStep(
                lambda parts: self.stepper.step(self._loss(type(batch)(*parts))),
                batch,
                self.stepper.state,
                self.device,
            )
        self.stepper.set_rate(rate)
        return self._captured(batch)

    @property
    def _can_capture(self) -> bool:
        """Whether a step can be captured as a CUDA graph: it neither waits nor draws numbers."""
        return False

    def _validate(self) -> None:
        """Score the network after an epoch, and keep its weights if it is the best so far."""
        if self.validation is None:
            return
        score = self.validation()
        self._epoch_scores.append(score)
        if score > self.best_score:
            state = whole_state(self.network).items()
            self.best_score, self.best = score, {k: v.detach().clone() for k, v in state}

    @property
    def chance_loss(self) -> float | None:
        """Loss of a constant embedding; None if that is not known."""
        return None

    @property
    def _lower_rate(self) -> str:
        rate = self.estimator.learning_rate
        return f"Lower learning_rate={rate} and use another checkpoint_dir."

    def _checked_spread(self, number: int) -> float:
        """Return the spread of the embedding of some samples; warn if it is almost 0.

        Raise if the trained network makes no usable features; warn if it makes zeros.
        """
        rows = spaced(self.parts[number], CHECKED)
        size = self.estimator.batch_size
        features = embed_samples(self.network, self.samples, "features", rows, batch_size=size)
        embedded = features @ self.network.L
        zero = float((~features.any(axis=1)).mean())
        if not np.isfinite(embedded).all() or zero == 1:
            wrong = "only zeros" if zero == 1 else "NaN or infinity"
            raise FloatingPointError(
                f"the backbone's features must stay finite and nonzero; got {wrong} after "
                f"partition {number + 1}. {self._lower_rate}"
            )
        if zero > ZERO_SHARE:
            warn(
                f"the backbone's features are all zero for {zero:.0%} of the samples after "
                f"partition {number + 1}: they share one point of the embedding. "
                f"{self._lower_rate}",
                RuntimeWarning,
            )
        found = spread(unit_rows(embedded))
        if sign := constant_embedding(found, self.estimator.learning_rate):
            warn(f"after partition {number + 1}, {sign}", RuntimeWarning)
        return found

    def _warn_of_nothing_learned(self) -> None:
        """Warn if the loss stayed at chance, or if all samples are predicted as one class."""
        losses = [loss for entry in self.history for loss in entry["losses"]]
        signs = [loss_at_chance(losses, self.chance_loss, self.estimator.learning_rate)]
        n_classes = self.distributions.shape[1]
        if n_classes:
            rows = spaced(np.arange(len(self.samples)), CHECKED)
            proxies = self.network.proxies.detach().cpu().numpy()
            codes = likeliest(self.embed("embedding", rows) @ unit_rows(proxies).T)
            signs.append(single_prediction(codes, n_classes))
        for sign in filter(None, signs):
            warn(sign, RuntimeWarning)

    @property
    def has_settled(self) -> bool:
        """Whether early stopping applies: fewer samples than ``tol`` changed class."""
        changed = self.history[-1].get("changed", 1.0) if self.history else 1.0
        return bool(changed < self.estimator.tol)

    def finish(self) -> None:
        """Propagate the labels over the final graph, and choose the proxies.

        With `validation`, the network is the best one of all epochs. Warn if it has learned
        nothing.

        Trained proxies are kept unless the class means predict more of the propagated classes, as
        they do after few steps.
        """
        if self.best:
            load_whole_state(self.network, self.best)
        changed, tol = self.history[-1].get("changed"), self.estimator.tol
        if tol and changed is not None and not self.has_settled:
            warn(
                f"{changed:.1%} of the samples changed class in the last partition, more than "
                f"tol={tol}. Raise epochs={self.estimator.epochs} or tol.",
                ConvergenceWarning,
            )
        if self.distributions.shape[1]:  # there are labels
            rng = np.random.default_rng([self.seed, len(self.history) + 1])
            final = from_first_rank(lambda: self._final_state(rng))
            assert final.distributions is not None
            self.distributions = final.distributions
            self._update_network(None, final.proxies)
        self._warn_of_nothing_learned()

    def _final_state(self, rng: np.random.Generator) -> Prepared:
        features = self.embed("features")
        distributions = self._propagate(self._edges(self._graph(features, rng)))
        embedding = unit_rows(features @ self.network.L)
        means, classes = distributions.T @ embedding, likeliest(distributions)
        learned = self.network.proxies.detach().cpu().numpy()
        keep = self.learns_proxies and (
            proxy_accuracy(classes, embedding, learned) >= proxy_accuracy(classes, embedding, means)
        )
        return Prepared(distributions, proxies=None if keep else means)

    def _graph(self, features: Array, rng: np.random.Generator) -> KNNGraph:
        """Build the graph of the embedding."""
        rows = unit_rows(features @ self.network.L)
        first = None if self.input_graph is None else self.input_graph.first
        k, n_jobs = self.estimator.n_neighbors, self.estimator.n_jobs
        return device_graph(rows, k, self.device, rng, first=first, n_jobs=n_jobs)

    def _edges(self, graph: KNNGraph) -> sparse.csr_array:
        """Return the edge weights that labels propagate along."""
        return adjacency(graph)

    def _propagate(self, edges: sparse.csr_array) -> Array:
        """Propagate the labels; given labels stay, even where their neighbors disagree."""
        distributions = propagate_labels(
            edges, self.labels, decay=self.estimator.decay, n_jobs=self.estimator.n_jobs
        )
        known = self.labels != UNLABELED
        distributions[known] = one_hot(self.labels)[known]
        return distributions

    def _apply(self, prepared: Prepared) -> None:
        """Apply the result of :meth:`_prepare`."""
        if prepared.distributions is not None:
            self.distributions = prepared.distributions
        self.triplets = prepared.triplets
        self._update_network(prepared.metric, prepared.proxies)

    def _update_network(self, metric: Array | None, proxies: Array | None) -> None:
        """Set L and the proxies; None leaves them unchanged."""
        with torch.no_grad():
            if metric is not None:
                self.network.metric.copy_(torch.from_numpy(metric))
            if proxies is not None:
                directions = torch.from_numpy(proxies)
                self.network.proxies.copy_(functional.normalize(directions, dim=1))

    def epochs_of(self, number: int) -> int:
        """Epochs on a partition; the last partition gets the remainder."""
        each = self.estimator.epochs_per_partition
        return int(min(each, self.estimator.epochs - number * each))

    def _steps_of(self, number: int) -> int:
        """Optimizer steps on a partition, over all its epochs."""
        return -(-self.epochs_of(number) * len(self.parts[number]) // self.estimator.batch_size)

    def embed(self, kind: str, rows: Indices | None = None) -> Array:
        """Compute the features or the embedding of all samples, or of some; check them."""
        size = self.estimator.batch_size
        embedded = embed_samples(self.network, self.samples, kind, rows, batch_size=size)
        finite = np.isfinite(embedded).all(axis=1)
        if not finite.all():
            place = int(np.flatnonzero(~finite)[0])
            raise ValueError(
                f"backbone must return finite features; got NaN or infinity for "
                f"{np.count_nonzero(~finite)} of {len(embedded)} samples, the first at index "
                f"{place if rows is None else rows[place]}. Drop such samples, or check for "
                "divisions by zero in the backbone; use another checkpoint_dir."
            )
        return embedded

    def checkpoint(self) -> Checkpoint:
        """Return everything that later partitions depend on."""
        tensors = {f"network.{k}": v for k, v in whole_state(self.network).items()}
        tensors |= self.stepper.optimizer_tensors()
        if self.losses is not None:
            tensors |= {f"losses.{k}": v for k, v in whole_state(self.losses).items()}
        if self.triplets is not None:
            ends = self.triplets._asdict().items()
            tensors |= {f"triplets.{k}": torch.from_numpy(v) for k, v in ends}
        tensors["distributions"] = torch.from_numpy(self.distributions)
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        initial, numbers = self.initial_numbers, plain_numbers(self.learned).items()
        changed = {k: v for k, v in numbers if k not in initial or v != initial[k]}
        state = {"history": self.history, "initial weights": self.initial_weights}
        return Checkpoint(len(self.history), tensors, state | {"numbers": changed})

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint; warn if training began with other weights."""
        if checkpoint.state["initial weights"] != self.initial_weights:
            warn(
                "the initial weights of the backbone or of losses differ from those of the run in "
                "checkpoint_dir; continuing with the weights of the checkpoint. Use another "
                "checkpoint_dir to start from the new ones.",
                RuntimeWarning,
            )
        if triplets := checkpoint.part("triplets"):
            self.triplets = Triplets(**{name: part.numpy() for name, part in triplets.items()})
        load_whole_state(self.network, checkpoint.part("network"))
        if self.losses is not None:
            load_whole_state(self.losses, checkpoint.part("losses"))
        set_numbers(self.learned, checkpoint.state.get("numbers", {}))  # earlier versions kept none
        self.stepper.restore_optimizer(checkpoint.part("optimizer"))
        self.distributions = checkpoint.tensors["distributions"].numpy()
        self.history = checkpoint.state["history"]
        self.best = checkpoint.part("best")
        scores = [score for entry in self.history for score in entry.get("R@1 per epoch", ())]
        self.best_score = max(scores, default=-math.inf)


def summary(entry: Mapping[str, Any]) -> str:
    """Summarize a partition before its epochs, for the progress bar.

    Examples
    --------
    >>> summary({"purity": {"both": 12.3}}), summary({"propagation_accuracy": 0.936}), summary({})
    (', triplet purity 12%', ', propagation accuracy 94%', '')
    >>> summary({"changed": 0.012})
    ', 1.2% changed class'
    """
    if purity := entry.get("purity"):
        return f", triplet purity {purity['both']:.0f}%"
    if (accuracy := entry.get("propagation_accuracy")) is not None:
        return f", propagation accuracy {100 * accuracy:.0f}%"
    return f", {100 * entry['changed']:.1f}% changed class" if "changed" in entry else ""
