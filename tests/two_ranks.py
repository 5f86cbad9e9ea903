"""What torchrun runs in the tests of several processes: a step, then a whole fit."""

from __future__ import annotations

import os
import signal
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
    train, partition = DeepRun._loss, DeepRun.partition

    def die_once(self, progress):
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
        if "--die" in sys.argv and first and ranks.rank() == 1 and len(self.history) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return partition(self, progress)

    DeepRun.partition = die_once

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
            stages=list(model.stage_seconds_),
        )
    if ranks.n_ranks() > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
