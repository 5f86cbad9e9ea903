"""What torchrun runs in the tests of several processes: a step, then a whole fit."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn

from ssdml import DeepSSDML
from ssdml.deep import input_graph as device_graph
from ssdml.deep.alternation import AlternationTrainer
from ssdml.deep.checkpoints import digest
from ssdml.losses import DecorrelatedCentersLoss
from ssdml.utils import distributed as ranks
from tests.deep import small_images, small_model, small_network


def main(out: Path) -> None:
    X, _, labels = small_images()
    torch.set_num_threads(1)
    gradients = []
    step = ranks.average_gradients

    def keep(network):
        step(network)
        if not gradients:
            given = (p.grad for p in network.parameters() if p.grad is not None)
            gradients.extend(gradient.clone().numpy() for gradient in given)

    ranks.average_gradients = keep
    from ssdml.networks import training

    training.average_gradients = keep
    losses = []
    train, partition = AlternationTrainer._loss, AlternationTrainer.partition

    def die_once(self, progress):
        if ranks.rank() == ranks.world_size() - 1:
            with (out / "begun").open("a") as file:
                file.write(f"{len(self.history) + 1}\n")
            first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
            if "--die" in sys.argv and first and len(self.history) == 2:
                written = out / "checkpoints" / "partition-0002.safetensors"
                while not written.exists():  # by the first process, which may be slower
                    time.sleep(0.05)
                os.kill(os.getpid(), signal.SIGKILL)
        return partition(self, progress)

    AlternationTrainer.partition = die_once

    def loss(self, *args):
        losses.append(train(self, *args))
        return losses[-1]

    AlternationTrainer._loss = loss
    torch.manual_seed(int(os.environ.get("RANK", "0")))  # each begins with centers of its own
    centers = DecorrelatedCentersLoss(10, 16)
    # An attempt after a lost connection goes on where that is tested, and else begins anew.
    attempt = "" if "--die" in sys.argv else os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    model = small_model(losses=centers, checkpoint_dir=out / f"checkpoints{attempt}")
    if "--paper" in sys.argv:
        options = {"partition_size": 100, "epochs": 1, "epochs_per_partition": 1}
        model = DeepSSDML.paper(small_network(), 16, **options, random_state=None)
    if "--norm" in sys.argv:  # each rank has statistics of its own share of a batch
        model.set_params(backbone=small_network().append(nn.BatchNorm1d(32)), epochs=2)
    if os.environ.get("RANK") == "1":  # as a module that every process makes for itself
        with torch.no_grad():
            model.backbone[0].weight += 1
    built = []
    build = device_graph.knn_graph

    def counted(*args, **options):
        built.append(1)
        return build(*args, **options)

    device_graph.knn_graph = counted
    model.fit(X, labels)
    networks, graphs = ([None] * ranks.world_size() for _ in range(2))
    if ranks.world_size() > 1:
        distributed.all_gather_object(networks, digest(model.network_.state_dict()))
        distributed.all_gather_object(graphs, len(built))
    if ranks.rank() == 0:
        np.savez(
            out / "result.npz",
            *gradients,
            losses=[float(value.detach()) for value in losses],
            Z=model.transform(X),
            stages=list(model.stage_seconds_),
            networks=networks,
            graphs=graphs,
        )
    if ranks.world_size() > 1:
        distributed.barrier()  # who leaves first may take the other's connection away
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
