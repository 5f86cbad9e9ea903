"""What two processes of torchrun do: whole fits, and a step with each loss."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import distributed, nn

from ssdml import DeepSSDML
from ssdml.deep.alternation import AlternationTrainer
from ssdml.deep.checkpoints import digest
from ssdml.graphs.neighbors import copies
from ssdml.losses import DecorrelatedCentersLoss
from ssdml.networks import training
from ssdml.utils import distributed as ranks
from tests.deep import small_images, small_model, small_network
from tests.losses import LOSSES, D, batch, make


def main(out: Path) -> None:
    """Fit models and keep what each process found; the second dies once in the first fit."""
    torch.set_num_threads(1)
    fit(out / "disturbed", dies=True)
    fit(out)
    np.savez(out / "paper.npz", **published())
    np.savez(out / "norm.npz", networks=batch_statistics())
    np.savez(out / "losses.npz", **steps())
    distributed.barrier()  # who leaves first may take the other's connection away
    distributed.destroy_process_group()


def fit(out: Path, *, dies: bool = False) -> None:
    """Fit with a loss of our own; write losses, first gradients, and the embedding."""
    X, _, labels = small_images()
    losses, gradients, built = [], [], []
    step, build = ranks.average_gradients, copies.knn_graph
    train, partition = AlternationTrainer._loss, AlternationTrainer.partition

    def keep(network):
        step(network)
        if not gradients:
            given = (p.grad for p in network.parameters() if p.grad is not None)
            gradients.extend(gradient.clone().numpy() for gradient in given)

    def loss(self, *args):
        losses.append(train(self, *args))
        return losses[-1]

    def begin(self, progress):
        if ranks.rank() == ranks.world_size() - 1:
            with (out / "begun").open("a") as file:
                file.write(f"{len(self.history) + 1}\n")
            first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
            if dies and first and len(self.history) == 2:
                written = out / "checkpoints" / "partition-0002.safetensors"
                while not written.exists():  # by the first process, which may be slower
                    time.sleep(0.05)
                os.kill(os.getpid(), signal.SIGKILL)
        return partition(self, progress)

    def counted(*args, **options):
        built.append(1)
        return build(*args, **options)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(os.environ.get("RANK", "0")))  # each begins with centers of its own
        centers = DecorrelatedCentersLoss(10, 16)
    # An attempt after a lost connection goes on where that is tested, and else begins anew.
    attempt = "" if dies else os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    model = small_model(losses=centers, checkpoint_dir=out / f"checkpoints{attempt}")
    with (
        patch.object(training, "average_gradients", keep),
        patch.object(AlternationTrainer, "_loss", loss),
        patch.object(AlternationTrainer, "partition", begin),
        patch.object(copies, "knn_graph", counted),
    ):
        fit_on_each(model, X, labels)
    networks, graphs = of_all(digest(model.network_.state_dict())), of_all(len(built))
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


def published() -> dict[str, object]:
    X, _, labels = small_images()
    options = {"partition_size": 100, "epochs": 1, "epochs_per_partition": 1}
    model = DeepSSDML.paper(small_network(), 16, **options, random_state=None)
    fit_on_each(model, X, labels)
    networks = of_all(digest(model.network_.state_dict()))
    return {"networks": networks, "Z": model.transform(X), "stages": list(model.stage_seconds_)}


def batch_statistics() -> list[str]:
    """Networks of each rank, which has the statistics of its own share of a batch."""
    X, _, labels = small_images()
    model = small_model(backbone=small_network().append(nn.BatchNorm1d(32)), epochs=2)
    fit_on_each(model, X, labels)
    return of_all(digest(model.network_.state_dict()))


def fit_on_each(model, X, labels) -> None:
    """Fit; the modules of the ranks differ, as those that every process makes for itself."""
    if os.environ.get("RANK") == "1":
        with torch.no_grad():
            model.backbone[0].weight += 1
    model.fit(X, labels)


def of_all(value):
    values = [value] * ranks.world_size()
    if ranks.world_size() > 1:
        distributed.all_gather_object(values, value)
    return values


def steps() -> dict[str, np.ndarray]:
    """Value and gradients of the first step with each loss."""
    rows, labels, weights = batch()
    n, found = len(rows), {}
    ends = [0, n // 3, n] if ranks.is_distributed() else [0, n]  # of shares that differ in size
    share = slice(*ends[ranks.rank() : ranks.rank() + 2])
    for name in LOSSES:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = nn.Linear(D, D).double()
        step = nn.ModuleDict({"network": network, "loss": make(name)})
        own = step["network"](rows[share]).T.contiguous().T  # NCCL needs contiguous rows
        embeddings = ranks.gathered(own)
        known = {"labels": ranks.gathered(labels[share]), "weights": ranks.gathered(weights[share])}
        loss = step["loss"](embeddings, **known)
        loss.backward()
        ranks.average_gradients(step)
        gradients = [p.grad.flatten() for p in step.parameters()]
        found[name] = torch.cat([loss.detach()[None], *gradients]).numpy()
    return found
