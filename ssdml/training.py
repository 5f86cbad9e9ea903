"""The loop that trains a backbone under a fixed metric on the classes that a graph gave."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from ssdml.graphs._search import Progress
from ssdml.losses.angular import angular_triplet_loss


class Schedule(NamedTuple):
    """How long and how fast a backbone learns in one round."""

    n_steps: int = 500
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    averaging: float = 0.99  # of the weights over the steps
    temperature: float = 0.1  # of the classes' proxies
    n_negatives: int = 5  # of each anchor in a batch


def train_backbone(
    backbone: nn.Module,
    L: npt.ArrayLike,
    rows: npt.NDArray[np.float32],
    classes: npt.NDArray[np.int64],
    *,
    angle: float,
    seed: int,
    device: str = "auto",
    schedule: Schedule | None = None,
    progress: Progress | None = None,
) -> tuple[nn.Module, list[float]]:
    """Backbone with averaged weights, and the loss of each step.

    The embedding of a row x is ``unit(backbone(x) @ L)``; L stays as it is. Each batch draws the
    classes equally often. Its loss is the angular loss of triplets mined in the batch (a random
    positive, the nearest negatives) and the cross-entropy of the cosines to one proxy a class.

    Parameters
    ----------
    backbone : Module
        Trained in place; the average over its steps is returned.
    L : array of shape (n_features, n_components)
    rows : array of shape (n, ...), float32
    classes : array of shape (n,)
        Class of each row, from 0.
    angle : float
        In degrees.
    seed : int
        Of the batches, the dropout and the proxies; torch's own generator is left alone.
    device : str
        "auto" is a GPU where torch finds one.
    schedule : Schedule
    progress : callable, optional
        Told the fraction done, after each step.

    Returns
    -------
    averaged : Module
        In evaluation mode, on the CPU.
    losses : list of float
    """
    plan, device = schedule or Schedule(), find_device(device)
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []), one_thread():
        torch.manual_seed(seed)
        metric = torch.as_tensor(np.asarray(L, dtype=np.float32), device=device)
        n_classes = int(classes.max()) + 1
        proxies = nn.Parameter(torch.randn(n_classes, metric.shape[1], device=device))
        backbone.to(device).train()
        average = copy.deepcopy(backbone)
        optimizer = torch.optim.AdamW(
            [*backbone.parameters(), proxies], plan.learning_rate, weight_decay=plan.weight_decay
        )
        losses = []
        for step, batch in enumerate(_balanced_batches(classes, plan, seed)):
            _set_rate(optimizer, plan, step)
            features = backbone(torch.from_numpy(rows[batch]).to(device))
            embedding = functional.normalize(features @ metric, dim=1)
            labels = torch.from_numpy(classes[batch]).to(device)
            loss = _triplet_loss(embedding, labels, angle, plan) + functional.cross_entropy(
                embedding @ functional.normalize(proxies, dim=1).T / plan.temperature, labels
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            _update_average(average, backbone, min(plan.averaging, step / (step + 1)))
            losses.append(float(loss.detach()))
            if progress is not None:
                progress(len(losses) / plan.n_steps)
    return average.eval().cpu(), losses


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread of the CPU: batches are small, and sums do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
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
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def _balanced_batches(
    classes: npt.NDArray[np.int64], plan: Schedule, seed: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Indices of the rows of each batch: a class drawn evenly, then one of its rows."""
    rng = np.random.default_rng(seed)
    order = np.argsort(classes, kind="stable")
    present, starts, counts = np.unique(classes[order], return_index=True, return_counts=True)
    for _ in range(plan.n_steps):
        drawn = rng.integers(len(present), size=plan.batch_size)
        yield order[starts[drawn] + rng.integers(counts[drawn])]


def _set_rate(optimizer: torch.optim.Optimizer, plan: Schedule, step: int) -> None:
    """Rise over the first tenth of the steps, then fall to zero along a cosine."""
    done, warmup = step / plan.n_steps, 0.1
    rise = min(1.0, (done + 1 / plan.n_steps) / warmup)
    fall = (1 + math.cos(math.pi * max(0.0, done - warmup) / (1 - warmup))) / 2
    for group in optimizer.param_groups:
        group["lr"] = plan.learning_rate * rise * fall


@torch.no_grad()
def _update_average(average: nn.Module, backbone: nn.Module, keep: float) -> None:
    for mean, current in zip(average.parameters(), backbone.parameters(), strict=True):
        mean.lerp_(current, 1 - keep)
    for copied, buffer in zip(average.buffers(), backbone.buffers(), strict=True):
        copied.copy_(buffer)  # running statistics are averages already


def _triplet_loss(
    embedding: torch.Tensor, labels: torch.Tensor, angle: float, plan: Schedule
) -> torch.Tensor:
    """Mean angular loss over a batch: one random positive an anchor, its nearest negatives."""
    anchor, positive, negative = batch_triplets(embedding.detach(), labels, plan.n_negatives)
    if not len(anchor):
        return embedding.sum() * 0
    losses = angular_triplet_loss(
        embedding[anchor], embedding[positive], embedding[negative], angle=angle
    )
    return losses.mean()


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
    same = labels[:, None] == labels
    similar = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    usable = similar.any(dim=1) & ~same.all(dim=1)
    scores = torch.rand(same.shape, device=labels.device).masked_fill(~similar, -1.0)
    positive = scores.argmax(dim=1)
    middle = (embedding + embedding[positive]) / 2
    squares = torch.cdist(middle, embedding).masked_fill(same, math.inf)
    nearest = squares.topk(min(n_negatives, len(labels)), largest=False)
    kept = usable[:, None] & nearest.values.isfinite()
    anchor, rank = kept.nonzero(as_tuple=True)
    return anchor, positive[anchor], nearest.indices[anchor, rank]
