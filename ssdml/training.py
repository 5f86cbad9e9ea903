"""What all that trains a network shares: network and metric, steps and rates, batches' triplets."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from ssdml.graphs._blocks import row_blocks
from ssdml.graphs._tensors import take_rows, to_device
from ssdml.items import Items
from ssdml.losses.angular import angular_triplet_loss
from ssdml.ranks import average_gradients

if TYPE_CHECKING:
    from ssdml.losses.base import Loss

EMBEDDED, EMBEDDED_BY_GPU = 250, 2000  # items at a time, at most: few stay in a CPU's cache
PRETRAINING_BATCH, PRETRAINING_RATE = 100, 1e-3


class Schedule(NamedTuple):
    """How long and how fast a backbone learns in one round."""

    n_steps: int = 500
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    temperature: float = 0.1  # of the classes' proxies
    n_negatives: int = 5  # of each anchor in a batch


class MetricNetwork(nn.Module):
    """A backbone under a metric L, which others learn, and a proxy of each class.

    Parameters
    ----------
    backbone : Module
        Makes (n, d) features.
    metric : tensor of shape (d, l)
        L.
    n_classes : int
    temperature : float
        Cosines to the proxies are divided by it.
    unit_features : bool
        Whether features are scaled to length 1 before the metric, as seed 003 has them.
    free_metric : bool
        Whether L is a parameter like any other, orthonormal at the start alone.
    """

    metric: torch.Tensor
    mixed = False  # whether the backbone computes in bfloat16; see mixed_precision

    def __init__(
        self,
        backbone: nn.Module,
        metric: torch.Tensor,
        n_classes: int,
        *,
        temperature: float = 0.1,
        unit_features: bool = False,
        free_metric: bool = False,
    ) -> None:
        super().__init__()
        self.backbone: nn.Module = backbone
        self.temperature = temperature
        self.unit_features = unit_features
        if free_metric:
            self.metric = nn.Parameter(metric)
        else:
            self.register_buffer("metric", metric)
        self.proxies = nn.Parameter(torch.randn(n_classes, metric.shape[1]))

    @property
    def L(self) -> npt.NDArray[np.float32]:
        """The metric as an array."""
        array: npt.NDArray[np.float32] = self.metric.detach().cpu().numpy()
        return array

    def outputs(self, items: torch.Tensor) -> torch.Tensor:
        """What the backbone makes, (n, d)."""
        if not self.mixed:
            outputs: torch.Tensor = self.backbone(items)
            return outputs
        with torch.autocast(items.device.type, torch.bfloat16):
            outputs = self.backbone(items)
        return outputs.float()

    def features(self, items: torch.Tensor) -> torch.Tensor:
        """Features before the metric, (n, d)."""
        outputs = self.outputs(items)
        return functional.normalize(outputs, dim=1) if self.unit_features else outputs

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        """Unit embedding, (n, l)."""
        return functional.normalize(self.features(items) @ self.metric, dim=1)

    def logits(self, embedding: torch.Tensor) -> torch.Tensor:
        """Cosines to the proxies over the temperature, (n, n_classes)."""
        return embedding @ functional.normalize(self.proxies, dim=1).T / self.temperature


class Trainer:
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
        fused = {"fused": True} if network.proxies.is_cuda else {}  # one kernel for all parameters
        self.optimizer = optimizer(groups, weight_decay=weight_decay, **fused)

    def step(self, loss: torch.Tensor, rate: float) -> torch.Tensor:
        """One step down the loss at this rate; the loss, which a GPU may not have computed yet."""
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
        return loss.detach()

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """What the optimiser remembers, by the number of the parameter."""
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


def read_behind(losses: Iterable[torch.Tensor], device: str) -> Iterator[float]:
    """Read the loss of each step; off the CPU after the next is queued, so that no device waits.

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


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Torch's own generators, for dropout and the like, from a seed; left as they were."""
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        yield


def pretrain(
    network: MetricNetwork,
    items: Items,
    rows: npt.NDArray[np.intp],
    classes: npt.NDArray[np.int64],
    *,
    epochs: int,
    rng: np.random.Generator,
) -> Iterator[float]:
    """Teach a backbone the labelled items by softmax in the place of L; yields each epoch's loss.

    Seed 003 does so for CIFAR-10, in 30 epochs. AdamW at rate 10⁻³ and batches of 100 are ours: it
    does not say how.

    Parameters
    ----------
    network : MetricNetwork
        Its backbone is trained in place.
    items : Items
    rows : array of shape (m,), int
        Items with a label.
    classes : array of shape (m,), int
        Their classes, from 0.
    epochs : int
    rng : Generator
        Of the order of the items and the layer's first weights.
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
                logits = softmax(network.backbone(items.batch(rows[drawn])))
                loss = functional.cross_entropy(logits, torch.from_numpy(classes[drawn]).to(device))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += float(loss.detach()) * len(drawn)
            yield total / len(rows)


@torch.no_grad()
def embed_items(
    network: MetricNetwork,
    items: Items,
    kind: str = "embedding",
    rows: npt.NDArray[np.intp] | None = None,
    *,
    batch_size: int = EMBEDDED,
) -> npt.NDArray[Any]:
    """Features or embedding of all items, or of some, in evaluation mode and in float32.

    Eight times ``batch_size`` at a time, at most 250 on a CPU and 2,000 elsewhere: without
    gradients they take no more memory than a step of the training.
    """
    most = EMBEDDED if network.proxies.device.type == "cpu" else EMBEDDED_BY_GPU
    apply = network.features if kind == "features" else network
    rows = np.arange(len(items)) if rows is None else rows
    blocks = row_blocks(len(rows), min(most, 8 * batch_size))
    with evaluating(network), mixed_precision(network, False):
        parts = [apply(items.batch(rows[block])).float().cpu() for block in blocks]
    embedded: npt.NDArray[Any] = torch.cat(parts).numpy()
    return embedded


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """A network in evaluation mode, then again in that it was in."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


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


def has_bfloat16(device: str) -> bool:
    """Whether a device is a GPU that multiplies in bfloat16: NVIDIA's since Ampere do.

    Examples
    --------
    >>> has_bfloat16("cpu")  # one may, but not surely faster
    False
    """
    return device.startswith("cuda") and torch.cuda.get_device_capability(device) >= (8, 0)


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Torch on one thread of the CPU: batches are small, and sums do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def find_device(name: str) -> str:
    """Return ``name``, or the GPU that torch finds, or the CPU, for "auto".

    Examples
    --------
    >>> find_device("cpu")
    'cpu'
    """
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(
            f"device must be one that torch finds; got {name!r}, and it finds no GPU. Pass 'auto' "
            "or 'cpu', or install a torch that is built for your GPU."
        )
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda":  # by its number: a tensor there would take room in each process
            is_there = (device.index or 0) < torch.cuda.device_count()
        else:
            torch.zeros(1, device=device)
            is_there = device.type != "meta"
    except (RuntimeError, NotImplementedError, AssertionError, ImportError):
        is_there = False
    if not is_there:
        raise ValueError(
            f"device must be one that torch finds; got {name!r}. Pass 'auto', 'cpu', or 'cuda:0' "
            "for the first GPU."
        )
    return name


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


def batch_angular_loss(
    embedding: torch.Tensor, labels: torch.Tensor, angle: float, n_negatives: int
) -> torch.Tensor:
    """Mean angular loss over a batch: one random positive an anchor, its nearest negatives."""
    *ends, kept = _candidates(embedding.detach(), labels, n_negatives)
    losses = angular_triplet_loss(*(take_rows(embedding, rows) for rows in ends), angle=angle)
    return (losses * kept).sum() / kept.sum().clamp(min=1)  # indexing by it would stall a GPU


def batch_triplets(
    embedding: torch.Tensor, labels: torch.Tensor, n_negatives: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Anchors, a random positive of each, and the negatives nearest to the middle of the two.

    Rows without a positive or a negative in the batch are left out.

    Examples
    --------
    >>> z = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    >>> a, p, n = batch_triplets(z, torch.tensor([0, 0, 1, 1]), 1)
    >>> a.tolist(), p.tolist(), n.tolist()
    ([0, 1, 2, 3], [1, 0, 3, 2], [2, 2, 1, 1])
    """
    anchor, positive, negative, kept = _candidates(embedding, labels, n_negatives)
    return anchor[kept], positive[kept], negative[kept]


def _candidates(
    embedding: torch.Tensor, labels: torch.Tensor, n_negatives: int
) -> tuple[torch.Tensor, ...]:
    """Anchors, positives and negatives of all rows, as many of each, and which are triplets."""
    same = labels[:, None] == labels
    similar = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    usable = similar.any(dim=1) & ~same.all(dim=1)
    drawn = to_device(torch.rand(same.shape), labels.device)  # the same on every device
    scores = drawn.masked_fill(~similar, -1.0)
    positive = scores.argmax(dim=1)
    middle = (embedding + embedding[positive]) / 2
    squares = torch.cdist(middle, embedding).masked_fill(same, math.inf)
    nearest = squares.topk(min(n_negatives, len(labels)), largest=False)
    kept = usable[:, None] & nearest.values.isfinite()
    rows = torch.arange(len(labels), device=labels.device)[:, None].expand_as(kept)
    ends = (rows, positive[:, None].expand_as(kept), nearest.indices)
    return *(part.flatten() for part in ends), kept.flatten()
