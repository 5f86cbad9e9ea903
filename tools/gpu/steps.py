"""Milliseconds of a training step: a bare loop of torch, and DeepSSDML on the same network."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ssdml import DeepSSDML
from ssdml.networks.backbones import named_backbone
from tools.gpu.data import enlarged_digits
from tools.gpu.rows import Row, synchronize

SHAPES = {"mnist": (1, 28, 28), "cifar": (3, 32, 32), "wide-resnet": (3, 32, 32)}
STEPS, TOY_STEPS = 60, 1
WARM = 10  # steps that are not counted, at most


def step_row(name: str, size: int, device: str, *, toy: bool = False) -> Row:
    """A step of a batch in float32 and bfloat16, bare and ours, and the ratio of the two."""
    row: Row = {"backbone": name, "batch_size": size}
    n_steps = TOY_STEPS if toy else STEPS
    for kind, mixed in (("float32", False), ("bfloat16", True)):
        bare, queued = timed(bare_step(name, size, device, mixed=mixed), n_steps, device)
        ours = fitted_step(name, size, device, mixed=mixed, n_steps=n_steps)
        row[kind] = {"bare_ms": bare, "bare_queued_ms": queued, "ours_ms": ours}
        row[kind]["ratio"] = round(ours / bare, 2)
    with cudnn(deterministic=True):
        row["deterministic_ms"] = fitted_step(name, size, device, mixed=True, n_steps=n_steps)
    return row


def compiled_row(name: str, size: int, device: str, *, toy: bool) -> Row:
    """The bare step in bfloat16 with ``torch.compile``, and the seconds of the compilation."""
    n_steps = TOY_STEPS if toy else STEPS
    backend = "eager" if toy else "inductor"
    step = bare_step(name, size, device, mixed=True, compiled=backend)
    start = time.perf_counter()
    step()
    synchronize(device)
    first = time.perf_counter() - start
    whole, queued = timed(step, n_steps, device)
    return {
        "backbone": name,
        "batch_size": size,
        "compile_seconds": round(first, 1),
        "bare_ms": whole,
        "bare_queued_ms": queued,
    }


def cudnn(*, deterministic: bool) -> AbstractContextManager[None]:
    """In the block, cuDNN's algorithms are those that repeat to the last bit, or its own choice."""
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=deterministic, allow_tf32=True
    )


def waits_row(name: str, size: int, device: str, *, toy: bool) -> Row:
    """Lines at which a fit waits for the card, and how often: in a step none should."""
    n_steps = TOY_STEPS if toy else STEPS
    is_cuda = device.startswith("cuda")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if is_cuda:
            torch.cuda.set_sync_debug_mode("warn")
        try:
            fitted_step(name, size, device, mixed=not toy, n_steps=n_steps)
        finally:
            if is_cuda:
                torch.cuda.set_sync_debug_mode("default")
    lines = Counter(
        f"{Path(told.filename).name}:{told.lineno}"
        for told in caught
        if "synchronizing CUDA" in str(told.message)
    )
    return {"n_steps": 2 * n_steps, "lines": dict(lines.most_common(15))}


def bare_step(
    name: str, size: int, device: str, *, mixed: bool, compiled: str = ""
) -> Callable[[], None]:
    """A step on random images: two views learned from, and a third that is only looked at.

    That is what DeepSSDML asks of a network, without its views, triplets and draws.
    """
    backbone = named_backbone(name, SHAPES[name])
    network = nn.Sequential(backbone, nn.Linear(backbone.n_features, 10))
    network = network.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
    called = torch.compile(network, backend=compiled) if compiled else network
    images = torch.rand(3 * size, *SHAPES[name], device=device)
    learned, looked_at = images[: 2 * size], images[2 * size :]
    labels = torch.arange(size, device=device) % 10

    def step() -> None:
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=mixed):
            with torch.no_grad():
                network.eval()
                targets = called(looked_at).argmax(dim=1)
                network.train()
            logits = called(learned)
        loss = functional.cross_entropy(logits.float(), torch.cat([labels, targets]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def timed(step: Callable[[], None], n_steps: int, device: str) -> tuple[float, float]:
    """Mean milliseconds of a step, and those until the CPU has queued it.

    Where the two are the same, the device waits for the CPU.
    """
    for _ in range(min(WARM, n_steps)):
        step()
    synchronize(device)
    start = time.perf_counter()
    for _ in range(n_steps):
        step()
    queued = time.perf_counter() - start
    synchronize(device)
    whole = time.perf_counter() - start
    return round(1000 * whole / n_steps, 3), round(1000 * queued / n_steps, 3)


def fitted_step(
    name: str, size: int, device: str, *, mixed: bool, n_steps: int = STEPS, **options: Any
) -> float:
    """Mean milliseconds of a step of the second partition of a fit."""
    n_images = 1700 if n_steps > TOY_STEPS else size + 20
    images = enlarged_digits(n_images, SHAPES[name], 2)
    epochs = max(1, -(-n_steps * size // len(images.X)))
    recipe = {
        "epochs": 2 * epochs,
        "epochs_per_partition": epochs,
        "partition_size": None,
        "batch_size": size,
        "mixed_precision": mixed,
        "metric_steps": 10 if n_steps > TOY_STEPS else 0,
    }
    model = DeepSSDML(name, 32, device=device, random_state=0, **(recipe | options))
    model.fit(images.X, images.labels)
    steps = -(-epochs * len(images.X) // size)
    return round(1000 * float(model.history_[1]["seconds"]["epochs"]) / steps, 3)
