"""What all that trains a network shares: network and metric, steps and rates, batches' triplets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from ssdml.networks.data import Samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.utils.distributed import average_gradients
from ssdml.utils.parallel import row_blocks
from ssdml.utils.torch_tools import evaluating, seeded

if TYPE_CHECKING:
    from ssdml.losses.base import Loss

EMBEDDED = (
    250  # samples that are embedded at a time, at most: what a layer makes stays in the cache
)
PRETRAINING_BATCH, PRETRAINING_RATE = 100, 1e-3


class Schedule(NamedTuple):
    """How long and how fast a backbone learns in one round."""

    n_steps: int = 500
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    temperature: float = 0.1  # of the classes' proxies
    n_negatives: int = 5  # of each anchor in a batch


class Stepper:
    """Steps down losses of a network.

    ``optimizer`` makes one of the groups of parameters and the weight decay. ``losses`` may have
    parameters of their own; a group of theirs that names its rate keeps it.
    """

    def __init__(
        self,
        network: MetricNetwork,
        *,
        weight_decay: float,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
        losses: Loss | None = None,
    ) -> None:
        self.network = network
        groups: list[dict[str, Any]] = [{"params": list(network.parameters())}]
        for group in [] if losses is None else losses.parameter_groups():
            groups.append(group | {"keeps_rate": "lr" in group})
        self._trained = nn.ModuleList([network] if losses is None else [network, losses])
        self.optimizer = optimizer(groups, weight_decay=weight_decay)

    def step(self, loss: torch.Tensor, rate: float) -> float:
        """One step down the loss at this rate; the loss as a number."""
        if not loss.requires_grad:
            raise ValueError(
                "backbone must have a parameter that can be learned; the loss depends on none, for "
                "all are fixed, or its features are detached from them. Call requires_grad_() on a "
                "part of it, or learn from its features with ssdml.SSDML."
            )
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] if group.get("keeps_rate") else rate
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(self._trained)
        self.optimizer.step()
        return float(loss.detach())

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """What the optimizer remembers, by the number of the parameter."""
        states = self.optimizer.state_dict()["state"]
        return {
            f"optimizer.{number}.{name}": value
            for number, state in states.items()
            for name, value in state.items()
        }

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take over what :meth:`optimizer_tensors` gave, without its first word."""
        content = self.optimizer.state_dict()
        parameters = [part for group in self.optimizer.param_groups for part in group["params"]]
        for key, value in tensors.items():
            number, name = key.split(".")
            if value.ndim:  # laid out as the parameter is, so that later steps are the same
                value = torch.empty_like(parameters[int(number)]).copy_(value)
            content["state"].setdefault(int(number), {})[name] = value
        self.optimizer.load_state_dict(content)


def pretrain(
    network: MetricNetwork,
    samples: Samples,
    rows: npt.NDArray[np.intp],
    classes: npt.NDArray[np.int64],
    *,
    epochs: int,
    rng: np.random.Generator,
) -> Iterator[float]:
    """Teach a backbone the labeled samples by softmax in the place of L; yields each epoch's loss.

    Seed 003 does so for CIFAR-10, in 30 epochs. AdamW at rate 10⁻³ and batches of 100 are ours: it
    does not say how.

    Parameters
    ----------
    network : MetricNetwork
        Its backbone is trained in place.
    samples : Samples
    rows : array of shape (m,), int
        Samples with a label.
    classes : array of shape (m,), int
        Their classes, from 0.
    epochs : int
    rng : Generator
        Of the order of the samples and the layer's first weights.
    """
    device = network.proxies.device
    with seeded(int(rng.integers(2**31)), str(device)):
        network.train()
        softmax = nn.Linear(len(network.metric), len(network.proxies)).to(device)
        parameters = [*network.backbone.parameters(), *softmax.parameters()]
        optimizer = torch.optim.AdamW(parameters, PRETRAINING_RATE)
        for _ in range(epochs):
            total, order = 0.0, rng.permutation(len(rows))
            for drawn in np.array_split(order, -(-len(order) // PRETRAINING_BATCH)):
                logits = softmax(network.backbone(samples.batch(rows[drawn])))
                loss = functional.cross_entropy(logits, torch.from_numpy(classes[drawn]).to(device))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += float(loss.detach()) * len(drawn)
            yield total / len(rows)


@torch.no_grad()
def embed_samples(
    network: MetricNetwork,
    samples: Samples,
    kind: str = "embedding",
    rows: npt.NDArray[np.intp] | None = None,
    *,
    batch_size: int = EMBEDDED,
) -> npt.NDArray[Any]:
    """Features or embedding of all samples, or of some, in evaluation mode and in float32.

    Eight times ``batch_size`` at a time, at most 250: without gradients they take no more memory
    than a step of the training.
    """
    apply = network.features if kind == "features" else network
    rows = np.arange(len(samples)) if rows is None else rows
    blocks = row_blocks(len(rows), min(EMBEDDED, 8 * batch_size))
    with evaluating(network), mixed_precision(network, False):
        parts = [apply(samples.batch(rows[block])).float().cpu() for block in blocks]
    embedded: npt.NDArray[Any] = torch.cat(parts).numpy()
    return embedded


@contextmanager
def mixed_precision(network: MetricNetwork, wanted: bool) -> Iterator[None]:
    """A network whose backbone computes in bfloat16, if that is wanted; then again as it was.

    Its weights stay in float32, and so does all that stands on the backbone: scaling to length 1,
    L, heads and losses.
    """
    before, network.mixed = network.mixed, wanted
    try:
        yield
    finally:
        network.mixed = before


def rate_at(done: float, plan: Schedule) -> float:
    """Learning rate where so much is done: up over the first tenth, then to zero along a cosine.

    Examples
    --------
    >>> [round(rate_at(done, Schedule(learning_rate=1.0)), 3) for done in (0.0, 0.1, 0.55)]
    [0.02, 1.0, 0.5]
    """
    warmup = 0.1
    rise = min(1.0, (done + 1 / plan.n_steps) / warmup)
    fall = (1 + math.cos(math.pi * max(0.0, done - warmup) / (1 - warmup))) / 2
    return plan.learning_rate * rise * fall
