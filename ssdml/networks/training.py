"""Optimizer steps, learning rates, pretraining and embedding of a network."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ssdml.networks.data import Samples
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.randomness import SeededDraws
from ssdml.utils.distributed import average_gradients
from ssdml.utils.parallel import row_blocks
from ssdml.utils.torch_tools import evaluating
from ssdml.utils.typing import Array, Indices, Ints

if TYPE_CHECKING:
    from ssdml.losses.base import Loss

EMBEDDED, EMBEDDED_BY_GPU = 250, 2000  # samples at once, at most: 250 fit a CPU's cache
PRETRAINING_BATCH, PRETRAINING_RATE = 100, 1e-3


class Stepper:
    """Run optimizer steps.

    ``losses`` may have parameters; a group of them that has its own ``lr`` keeps it.
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
        fused = {"fused": True} if _fusible(self._trained) else {}
        self.optimizer = optimizer(groups, weight_decay=weight_decay, **fused)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate, except of groups that keep their own."""
        for group in self.optimizer.param_groups:
            if group.get("keeps_rate"):
                continue
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def step(self, loss: torch.Tensor, rate: float | None = None) -> torch.Tensor:
        """Take one step at this learning rate; return the loss, which a GPU may still compute.

        None: at the rate of :meth:`set_rate`.
        """
        if not loss.requires_grad:
            raise ValueError(
                "backbone must have a trainable parameter; got a loss that depends on none: all "
                "are frozen, or the features are detached. Call requires_grad_() on a part of it, "
                "or fit ssdml.SSDML on its features."
            )
        if rate is not None:
            self.set_rate(rate)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(self._trained)
        self.optimizer.step()
        return loss.detach()

    def make_capturable(self) -> None:
        """Keep the learning rates on the GPU, where captured steps read them."""
        device = self.network.proxies.device
        for group in self.optimizer.param_groups:
            group |= {"lr": torch.as_tensor(group["lr"], device=device), "capturable": True}

    def state(self) -> list[torch.Tensor]:
        """Return the tensors that a step changes."""
        of_optimizer = (v for state in self.optimizer.state.values() for v in state.values())
        return [*self._trained.parameters(), *self._trained.buffers(), *of_optimizer]

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """Return the optimizer's state, named ``optimizer.<parameter>.<name>``."""
        states = self.optimizer.state_dict()["state"]
        return {
            f"optimizer.{number}.{name}": value
            for number, state in states.items()
            for name, value in state.items()
        }

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore the state of :meth:`optimizer_tensors`, named without the first word."""
        content = self.optimizer.state_dict()
        parameters = [part for group in self.optimizer.param_groups for part in group["params"]]
        for key, value in tensors.items():
            number, name = key.split(".")
            if value.ndim:  # in the parameter's memory layout, for the same bits in later steps
                value = torch.empty_like(parameters[int(number)]).copy_(value)
            content["state"].setdefault(int(number), {})[name] = value
        self.optimizer.load_state_dict(content)


def _fusible(module: nn.Module) -> bool:
    """Whether torch's fused optimizers, one kernel for all parameters, take these parameters.

    On a CPU they read parameters with gaps between their numbers as if there were none.
    """
    return all(
        parameter.device.type in ("cpu", "cuda")
        and parameter.is_floating_point()
        and torch.empty_like(parameter, device="meta").stride() == parameter.stride()
        for parameter in module.parameters()
    )


def momentum_sgd(groups: Any, **options: Any) -> torch.optim.Optimizer:
    """Make the optimizer of published methods: SGD with momentum 0.9; each step sets its rate."""
    return torch.optim.SGD(groups, lr=0.0, momentum=0.9, **options)


def read_behind(losses: Iterable[torch.Tensor], device: str) -> Iterator[float]:
    """Read the loss of each step; off the CPU, after the next step is queued: no GPU waits.

    Examples
    --------
    >>> list(read_behind([torch.tensor(0.5), torch.tensor(0.25)], "cuda"))
    [0.5, 0.25]
    """
    waiting: deque[torch.Tensor] = deque()
    for loss in losses:
        waiting.append(loss)
        if device == "cpu" or len(waiting) > 1:
            yield float(waiting.popleft())
    yield from map(float, waiting)


def pretrain(
    network: MetricNetwork,
    samples: Samples,
    rows: Indices,
    classes: Ints,
    *,
    epochs: int,
    rng: np.random.Generator,
) -> Iterator[float]:
    """Train the backbone by softmax on labeled samples; yield the mean loss per epoch.

    Dutta et al. (2021) do so for CIFAR-10, in 30 epochs. AdamW at rate 1e-3 and batches of 100 are
    our choice: the paper does not name its own.

    ``rows`` are the labeled samples, ``classes`` their codes; ``rng`` draws the order of the
    samples and the initial weights of the softmax layer.
    """
    device, draws = network.proxies.device, SeededDraws(int(rng.integers(2**31)))
    network.train()
    with draws:
        softmax = nn.Linear(len(network.metric), len(network.proxies)).to(network.metric)
    parameters = [*network.backbone.parameters(), *softmax.parameters()]
    optimizer = torch.optim.AdamW(parameters, PRETRAINING_RATE)
    for _ in range(epochs):
        total, order = 0.0, rng.permutation(len(rows))
        for drawn in np.array_split(order, -(-len(order) // PRETRAINING_BATCH)):
            with draws:
                logits = softmax(network.outputs(samples.batch(rows[drawn])))
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
    rows: Indices | None = None,
    *,
    batch_size: int = EMBEDDED,
) -> Array:
    """Compute the "features" or the "embedding" of samples, in evaluation mode and in float32.

    Takes ``8 * batch_size`` samples at a time, at most 250 on a CPU and 2,000 elsewhere: without
    gradients they need no more memory than a training step.
    """
    most = EMBEDDED if network.proxies.device.type == "cpu" else EMBEDDED_BY_GPU
    apply = network.features if kind == "features" else network
    rows = np.arange(len(samples)) if rows is None else rows
    blocks = row_blocks(len(rows), min(most, 8 * batch_size))
    with evaluating(network), mixed_precision(network, False):
        parts = [apply(samples.batch(rows[block])).float().cpu() for block in blocks]
    return torch.cat(parts).numpy()


@contextmanager
def mixed_precision(network: MetricNetwork, wanted: bool) -> Iterator[None]:
    """Compute the backbone in bfloat16, if wanted; restore the mode afterwards.

    Weights, normalization, L, heads and losses stay in float32.
    """
    before, network.mixed = network.mixed, wanted
    try:
        yield
    finally:
        network.mixed = before


def rate_at(step: int, n_steps: int, learning_rate: float) -> float:
    """Learning rate at a step: linear warmup to the given one, then cosine decay to 0.

    Examples
    --------
    >>> [round(rate_at(step, 500, 1.0), 3) for step in (0, 50, 275)]
    [0.02, 1.0, 0.5]
    """
    done, warmup = step / n_steps, 0.1
    rise = min(1.0, (done + 1 / n_steps) / warmup)
    fall = (1 + math.cos(math.pi * max(0.0, done - warmup) / (1 - warmup))) / 2
    return learning_rate * rise * fall
