"""Train a backbone under a fixed metric on propagated classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from ssdml.graphs.neighbors.exact import Progress
from ssdml.losses.angular import batch_angular_loss
from ssdml.networks.metric_network import MetricNetwork
from ssdml.networks.training import Schedule, Stepper, rate_at
from ssdml.utils.torch_tools import find_device, one_thread, seeded
from ssdml.utils.typing import Ints

PASSES = 10
FEWEST, MOST = 500, 3000  # steps


def schedule_for(n_rows: int) -> Schedule:
    """Schedule with ten draws per row on average, between 500 and 3,000 steps.

    On 30,000 samples of MNIST, 1,500 steps (13 draws per row) gave an NMI 2.3 points higher than
    500; on 50,000, 2,500 steps gave 0.5 more than 1,500. On 1,200 digits, 500 steps suffice.

    Examples
    --------
    >>> [schedule_for(n_rows).n_steps for n_rows in (1000, 25_600, 1_000_000)]
    [500, 1000, 3000]
    """
    plan = Schedule()
    n_steps = PASSES * n_rows // plan.batch_size
    return plan._replace(n_steps=min(max(n_steps, FEWEST), MOST))


def train_backbone(
    backbone: nn.Module,
    L: npt.ArrayLike,
    rows: npt.NDArray[np.float32],
    classes: Ints,
    *,
    angle: float,
    seed: int,
    device: str = "auto",
    schedule: Schedule | None = None,
    progress: Progress | None = None,
) -> tuple[nn.Module, list[float]]:
    """Train a backbone; return it with the loss of each step.

    The embedding of a row x is ``unit(backbone(x) @ L)`` with L fixed. Batches draw all classes
    equally often. The loss is the angular loss of triplets mined in the batch (a random positive,
    the nearest negatives) plus the cross-entropy of the cosines to one proxy per class.

    The backbone is trained in place, and returned on the CPU in evaluation mode. The seed
    determines batches, dropout and proxies; torch's global generator is not used. ``progress``
    receives the fraction done after each step.
    """
    plan, device = schedule or schedule_for(len(rows)), find_device(device, "SSDML")
    with seeded(seed, device), one_thread():
        metric = torch.as_tensor(np.asarray(L, dtype=np.float32))
        network = MetricNetwork(
            backbone, metric, int(classes.max()) + 1, temperature=plan.temperature
        ).to(device)
        trainer = Stepper(network.train(), weight_decay=plan.weight_decay)
        losses = []
        for step, batch in enumerate(_balanced_batches(classes, plan, seed)):
            embedding = network(torch.from_numpy(rows[batch]).to(device))
            labels = torch.from_numpy(classes[batch]).to(device)
            loss = batch_angular_loss(
                embedding, labels, angle, plan.n_negatives
            ) + functional.cross_entropy(network.logits(embedding), labels)
            losses.append(float(trainer.step(loss, rate_at(step / plan.n_steps, plan))))
            if progress is not None:
                progress(len(losses) / plan.n_steps)
    return backbone.eval().cpu(), losses


def _balanced_batches(classes: Ints, plan: Schedule, seed: int) -> Iterator[Ints]:
    """Rows of each batch: draw classes uniformly, then a row of each."""
    rng = np.random.default_rng(seed)
    order = np.argsort(classes, kind="stable")
    present, starts, counts = np.unique(classes[order], return_index=True, return_counts=True)
    for _ in range(plan.n_steps):
        drawn = rng.integers(len(present), size=plan.batch_size)
        yield order[starts[drawn] + rng.integers(counts[drawn])]
