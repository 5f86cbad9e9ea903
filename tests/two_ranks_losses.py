"""What torchrun runs in the contract of losses: a step with each, of every rank's share."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn

from ssdml.utils.distributed import (
    average_gradients,
    gathered,
    init_process_group,
    rank,
    rank_slice,
    world_size,
)
from tests.losses import LOSSES, D, batch, make


def steps() -> dict[str, np.ndarray]:
    """Value and gradients of the first step with each loss."""
    rows, labels, weights = batch()
    share, found = rank_slice(len(rows)), {}
    for name in LOSSES:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = nn.Linear(D, D).double()
        step = nn.ModuleDict({"network": network, "loss": make(name)})
        own = step["network"](rows[share]).T.contiguous().T  # NCCL needs contiguous rows
        embeddings = gathered(own)
        known = {"labels": gathered(labels[share]), "weights": gathered(weights[share])}
        loss = step["loss"](embeddings, **known)
        loss.backward()
        average_gradients(step)
        gradients = [p.grad.flatten() for p in step.parameters()]
        found[name] = torch.cat([loss.detach()[None], *gradients]).numpy()
    return found


def main(out: Path) -> None:
    torch.set_num_threads(1)
    init_process_group("cpu")
    found = steps()
    if rank() == 0:
        np.savez(out / "result.npz", **found)
    if world_size() > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
