"""Instance discrimination by noise-contrastive estimation, against a memory of all items."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, from_numpy, nn
from torch.nn import functional

from ssdml.baselines.deep.recipe import Recipe, UnsupervisedTrainer
from ssdml.metric.fitted.base import COUNT, FRACTION, POSITIVE
from ssdml.utils.typing import Indices


@dataclass(eq=False, repr=False)
class InstanceDiscrimination(Recipe):
    """Contrast each view with the memory of its item and with noise, the memory of others.

    Parameters
    ----------
    n_noise : int
        Number of noise items, at most all others.
    temperature : float
        Divisor of the cosines to the memory.
    momentum : float
        Weight of the old memory when an item is updated.

    Notes
    -----
    Defaults are those of the authors' script for CIFAR-10, whose learning rate falls to a tenth
    after 60 and 80% of the steps. Ours: the memory starts with the embedding, since embeddings of
    a network without batch normalization start close together, and a Z from random rows is far too
    small for them. The rows of a batch share their noise: one matrix product instead of a gather
    of b × K rows.

    References
    ----------
    .. [1] Wu, Xiong, Yu, Lin, "Unsupervised feature learning via non-parametric instance
       discrimination", CVPR 2018, Eq. (4) to (8).
    """

    n_noise: int = 4096
    temperature: float = 0.1
    momentum: float = 0.5

    _parameter_constraints = {  # noqa: RUF012
        "n_noise": COUNT,
        "temperature": POSITIVE,
        "momentum": FRACTION,
    }
    learning_rate = 0.003
    drops = (0.6, 0.8)

    def new_head(self, n_items: int, d: int, n_components: int) -> nn.Module:
        """Return the memory."""
        return Memory(n_items, n_components)

    def batches(
        self, run: UnsupervisedTrainer, rows: Indices, counts: list[int], rng: np.random.Generator
    ) -> Iterator[Indices]:
        """Fill the memory with the embedding if it is new; yield shuffled items."""
        memory = run.head
        assert isinstance(memory, Memory)
        if memory.log_normalizer.isnan():
            memory.rows.copy_(from_numpy(run.embed("embedding")))
        return super().batches(run, rows, counts, rng)

    def loss(self, run: UnsupervisedTrainer, batch: Indices) -> Tensor:
        """Compute the contrast with the memory, and update it."""
        memory, embedding = run.head, run.network(run.views(batch))
        assert isinstance(memory, Memory)
        rows = from_numpy(batch).to(embedding.device)
        n_items = len(memory.rows)
        noise = torch.randint(n_items, (min(self.n_noise, max(1, n_items - 1)),)).to(rows)
        positive = (embedding * memory.rows[rows]).sum(dim=1) / self.temperature
        others = embedding @ memory.rows[noise].T / self.temperature
        if memory.log_normalizer.isnan():
            memory.log_normalizer.copy_(log_normalizer(positive, others, n_items))
        loss = noise_contrast(positive, others, memory.log_normalizer, n_items)
        memory.take_in(rows, embedding.detach(), self.momentum)
        return loss


class Memory(nn.Module):
    """An embedding of each item, and the logarithm of Z, NaN until it is known.

    Examples
    --------
    >>> memory = Memory(2, 3)
    >>> memory.take_in(torch.tensor([1]), torch.tensor([[0.0, 0.0, 1.0]]), 0.0)
    >>> memory.rows[1].tolist(), memory.log_normalizer.item()
    ([0.0, 0.0, 1.0], nan)
    """

    rows: Tensor
    log_normalizer: Tensor

    def __init__(self, n_items: int, n_components: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_components / 3)
        self.register_buffer("rows", bound * (2 * torch.rand(n_items, n_components) - 1))
        self.register_buffer("log_normalizer", torch.tensor(math.nan))

    def take_in(self, rows: Tensor, embedding: Tensor, momentum: float) -> None:
        """Move some rows toward their embedding, and normalize them."""
        mixed = momentum * self.rows[rows] + (1 - momentum) * embedding
        self.rows[rows] = functional.normalize(mixed, dim=1)


def log_normalizer(positive: Tensor, noise: Tensor, n_items: int) -> Tensor:
    """Estimate log Z: the mean of all exponentials, times the number of items.

    Examples
    --------
    >>> round(log_normalizer(torch.zeros(2), torch.zeros(2, 3), 10).exp().item(), 4)
    10.0
    """
    logits = torch.cat([positive.detach(), noise.detach().flatten()])
    return logits.logsumexp(dim=0) - math.log(len(logits)) + math.log(n_items)


def noise_contrast(positive: Tensor, noise: Tensor, log_z: Tensor, n_items: int) -> Tensor:
    r"""Compute the mean of :math:`-\log h(i, v) - \sum_k \log(1 - h(k, v))` over the rows.

    .. math:: h(i, v) = \frac{P(i|v)}{P(i|v) + K / n}, \qquad P(i|v) = \exp(m_i \cdot v / T) / Z

    ``positive`` (b,) and ``noise`` (b, K) are logits m · v / T with the own memory and the noise.

    Examples
    --------
    >>> loss = noise_contrast(torch.zeros(1), torch.zeros(1, 1), torch.tensor(0.0), 1)
    >>> round(loss.item(), 4)  # 2 log 2
    1.3863
    """
    level = math.log(noise.shape[1] / n_items) + log_z  # where h is one half
    missed, mistaken = functional.softplus(level - positive), functional.softplus(noise - level)
    return (missed + mistaken.sum(dim=1)).mean()
