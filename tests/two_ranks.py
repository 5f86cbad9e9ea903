"""What torchrun runs in the tests of several processes: a step, then a whole fit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import distributed

from ssdml import ranks
from ssdml.deep_run import DeepRun
from tests.deep import small_images, small_model


def main(out: Path) -> None:
    X, _, labels = small_images()
    torch.set_num_threads(1)
    gradients = []
    step = ranks.average_gradients

    def keep(network):
        step(network)
        if not gradients:
            gradients.extend(p.grad.clone().numpy() for p in network.parameters())

    ranks.average_gradients = keep
    from ssdml import training

    training.average_gradients = keep
    losses = []
    train = DeepRun._loss

    def loss(self, *args):
        losses.append(train(self, *args))
        return losses[-1]

    DeepRun._loss = loss
    model = small_model(checkpoint_dir=out / "checkpoints").fit(X, labels)
    if ranks.rank() == 0:
        np.savez(
            out / "result.npz",
            *gradients,
            losses=[float(value.detach()) for value in losses],
            Z=model.transform(X),
        )
    if ranks.n_ranks() > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
