"""One instance of every loss, and a batch for all of them, for the contract tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ssdml.losses import (
    AngularTripletLoss,
    BinomialDevianceLoss,
    ContrastiveLoss,
    DecorrelatedCentersLoss,
    DensityAdaptivity,
    EntropyRegularizer,
    GlobalCenterRankingLoss,
    GlobalOrthogonalRegularizer,
    GraphConsistency,
    Loss,
    NPairBatchLoss,
    ProxyGMLLoss,
)

C, D = 3, 5
DENSITIES = (0.2, 0.5, 0.9)

LOSSES: dict[str, Callable[[], Loss]] = {
    "angular": AngularTripletLoss,
    "binomial": BinomialDevianceLoss,
    "contrastive": ContrastiveLoss,
    "contrastive, free": lambda: ContrastiveLoss(margin=9.0, normalize=False),
    "n-pair": NPairBatchLoss,
    "n-pair, unit": lambda: NPairBatchLoss(normalize=True),
    "consistency": GraphConsistency,
    "consistency of graphs": lambda: GraphConsistency(form="graphs", normalize=False),
    "density": lambda: DensityAdaptivity(C, DENSITIES),
    "density, free": lambda: DensityAdaptivity(C, normalize=False),
    "density, fixed": lambda: DensityAdaptivity(C, DENSITIES, learned=False),
    "entropy": EntropyRegularizer,
    "orthogonality": GlobalOrthogonalRegularizer,
    "proxies": lambda: ProxyGMLLoss(C, D, n_proxies=4, ratio=0.5),
    "proxies, no mask": lambda: ProxyGMLLoss(
        C, D, n_proxies=4, ratio=0.3, positive_mask=False, mask_softmax=False
    ),
    "centers": lambda: DecorrelatedCentersLoss(C, D, scale=4.0),
    "centers, free": lambda: DecorrelatedCentersLoss(C, D, scale=4.0, normalize=False),
    "ranking": lambda: GlobalCenterRankingLoss(C, D),
    "ranking, batch": lambda: GlobalCenterRankingLoss(C, D, hinge="batch"),
    "sum": lambda: BinomialDevianceLoss() + 0.1 * DensityAdaptivity(C, DENSITIES),
}
PAIRED = (
    *("angular", "binomial", "contrastive", "contrastive, free", "n-pair", "n-pair, unit"),
    *("entropy", "orthogonality"),
)
HELD = ("proxies", "proxies, no mask", "centers", "centers, free", "ranking", "ranking, batch")
OF_ROWS = ("density", "density, free", "density, fixed", *HELD)


def make(name: str, dtype: torch.dtype = torch.float64) -> Loss:
    """Create the loss of this name, with the same parameters each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LOSSES[name]().to(dtype)


def batch(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows in two halves with the same classes in order, labels with -1, weights."""
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(16, D, generator=generator, dtype=torch.float64).to(dtype)
    weights = torch.rand(16, generator=generator, dtype=torch.float64).to(dtype) + 0.1
    labels = torch.tensor([0, 1, 2, 0, -1, 1, 2, 0] * 2)
    return z, labels, weights


def gradient(
    loss: Loss, z: torch.Tensor, *args: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the value of a loss and its gradient in the embeddings."""
    z = z.clone().requires_grad_()
    value = loss(z, *args, **options)
    value.backward()
    assert z.grad is not None
    return value.detach(), z.grad


def same_on_two_threads(slope: Callable[[], torch.Tensor], *, times: int) -> bool:
    """Whether repeated results on two CPU threads are bitwise equal."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, *others = (slope() for _ in range(times))
    finally:
        torch.set_num_threads(before)
    return all(torch.equal(first, other) for other in others)
