"""Part "checks": the tests on the card, graphs, precision, resuming, NCCL and steps."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from ssdml import DeepSSDML
from ssdml.graphs import knn_graph, propagate_affinities
from tools.gpu.data import clusters, enlarged_digits
from tools.gpu.recipes import mnist_parts, mnist_row
from tools.gpu.rows import Row, Rows, synchronize
from tools.gpu.steps import SHAPES, compiled_row, cudnn, step_row, waits_row

ROOT = Path(__file__).resolve().parents[2]
TEST_SECONDS = 150


def run_checks(rows: Rows, *, toy: bool) -> None:
    """All rows of the part, those first that tell most."""
    device = rows.device
    size, large, many = (20, "mnist", 20) if toy else (160, "wide-resnet", 512)
    rows.measure("card", lambda: card_row(device))
    if not toy:  # the tests of ssdml themselves run them, on the fake device
        rows.measure("tests", lambda: tests_row(device, TEST_SECONDS), needs=20)
    rows.measure("affinities", lambda: affinities_row(300 if toy else 9100, device), needs=3)
    rows.measure("mnist, seed 0", lambda: mnist_row(0, device, toy=toy), needs=20)
    for name in dict.fromkeys(("mnist", large)):
        rows.measure(f"step, {name}, {size}", partial(step_row, name, size, device, toy=toy))
        rows.measure(f"waits, {name}", partial(waits_row, name, size, device, toy=toy))
        rows.measure(f"resume, {name}", partial(resume_row, name, device, toy=toy))
    rows.measure("one rank", partial(one_rank_row, device, toy=toy))
    rows.measure("mnist, parts", lambda: mnist_parts(device, toy=toy), needs=15)
    neighbors(rows, (400, 500) if toy else (100_000, 1_000_000))
    if not toy:
        rows.measure(f"step, {large}, {many}", partial(step_row, large, many, device), needs=15)
    for count in dict.fromkeys((size, many)):
        compiled = partial(compiled_row, large, count, device, toy=toy)
        rows.measure(f"compiled step, {large}, {count}", compiled, needs=0 if toy else 40)
    for seed in () if toy else (1, 2):
        rows.measure(f"mnist, seed {seed}", partial(mnist_row, seed, device), needs=40)


def card_row(device: str) -> Row:
    """What the card is, and the versions that it is driven by."""
    row: Row = {"python": sys.version.split()[0], "numpy": np.__version__, "cpus": os.cpu_count()}
    if device.startswith("cuda"):
        of_card = torch.cuda.get_device_properties(device)
        row |= {
            "memory_gb": round(of_card.total_memory / 1e9, 1),
            "free_gb": round(torch.cuda.mem_get_info()[0] / 1e9, 1),
            "capability": f"{of_card.major}.{of_card.minor}",
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "bfloat16": torch.cuda.is_bf16_supported(),
        }
    return row


def tests_row(device: str, seconds: float) -> Row:
    """Outcome of ``tests/elsewhere.py`` on the device, with the text of what failed.

    "pretended" is the fake device of the tests.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default"]
    command += ["--tb=short", "-rfE", "tests/elsewhere.py"]
    if device.startswith("cuda") and find_spec("xdist") is not None:
        command += ["-n", "8"]
    environment = os.environ | {"SSDML_DEVICE": device}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
    )
    words = "passed|failed|error|skipped"
    counts = {word: int(n) for n, word in re.findall(rf"(\d+) ({words})", done.stdout)}
    row: Row = {"passed": 0, "failed": 0} | counts | {"exit": done.returncode}
    if done.returncode:
        row["status"] = "failed"
        row["failures"] = (done.stdout + done.stderr)[-12_000:]
    return row


def affinities_row(n: int, device: str) -> Row:
    """One-sided affinities by a dense factorization, the second time; asked: 0.5 s."""
    X, labels = clusters(n, 64, n // 91)
    graph = knn_graph(X, 10, method="torch", device=device, n_jobs=-1)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        _, bounds = propagate_affinities(
            graph, labels, solver="torch", device=device, return_bound=True
        )
        seconds.append(round(time.perf_counter() - start, 3))
    return {"n": n, "first": seconds[0], "second": seconds[1], "bound": float(bounds.max())}


def neighbors(rows: Rows, sizes: tuple[int, int]) -> None:
    """KNN of rows with 64 columns: of fewer first, which tells whether there is time for all."""
    small, large = sizes
    row = rows.measure(f"neighbors, {small}", lambda: neighbors_row(small, rows.device))
    if row is not None:
        expected = row["graph"] * (large / small) ** 2
        needs = min(expected + 10, 90)  # the small one does not fill the card
        rows.measure(f"neighbors, {large}", lambda: neighbors_row(large, rows.device), needs=needs)


def neighbors_row(n: int, device: str) -> Row:
    """Ten neighbors of each of so many rows, and how many of 10 rows differ from brute force."""
    X, _ = clusters(n, 64, 0)
    start = time.perf_counter()
    graph = knn_graph(X, 10, method="torch", device=device, n_jobs=-1)
    seconds = time.perf_counter() - start
    wrong, exact = 0, X.astype(np.float64)
    for row in np.linspace(0, n - 1, 10).astype(int):
        away = np.linalg.norm(exact - exact[row], axis=1)
        away[row] = np.inf
        wrong += set(np.argpartition(away, 10)[:10]) != set(graph.indices[row])
    return {"n": n, "graph": round(seconds, 2), "rows_unlike_brute_force": wrong}


def small_fit(name: str, device: str, images: Any, **options: Any) -> DeepSSDML:
    """A fit of two partitions of enlarged digits."""
    recipe = {"epochs": 4, "epochs_per_partition": 2, "partition_size": 600, "batch_size": 100}
    model = DeepSSDML(name, 32, device=device, random_state=0, **(recipe | options))
    return model.fit(images.X, images.labels)


def same_bits(one: DeepSSDML, two: DeepSSDML) -> bool:
    """Whether two networks have the same weights to the last bit."""
    first, second = one.network_.state_dict(), two.network_.state_dict()
    return all(torch.equal(value, second[name]) for name, value in first.items())


def resume_row(name: str, device: str, *, toy: bool) -> Row:
    """Whether a fit that goes on from its first partition, or is repeated, has the same bits.

    With mixed precision as on any card, and with cuDNN's deterministic algorithms beside its own.
    """
    images = enlarged_digits(80 if toy else 1000, SHAPES[name], 5)
    row: Row = {}
    options = {"mixed_precision": not toy, "epochs": 2 if toy else 4}
    options["epochs_per_partition"] = options["epochs"] // 2
    options["metric_steps"] = 0 if toy else 3
    for kind, exactly in (("default", False), ("deterministic", True)):
        with cudnn(deterministic=exactly), TemporaryDirectory() as folder:
            start = time.perf_counter()
            whole = small_fit(name, device, images, checkpoint_dir=folder, **options)
            seconds = time.perf_counter() - start
            (Path(folder) / "partition-0002.safetensors").unlink()
            resumed = small_fit(name, device, images, checkpoint_dir=folder, **options)
            again = small_fit(name, device, images, **options)
        row[kind] = {
            "resumed_same_bits": same_bits(whole, resumed),
            "repeated_same_bits": same_bits(whole, again),
            "fit": round(seconds, 2),
        }
    return row


def one_rank_row(device: str, *, toy: bool) -> Row:
    """A fit through the collectives of a group of one rank, beside a fit without a group."""
    from unittest.mock import patch

    from torch import distributed

    backend = "nccl" if device.startswith("cuda") else "gloo"
    images = enlarged_digits(150, SHAPES["mnist"], 5)
    options = {"epochs": 2, "epochs_per_partition": 1, "mixed_precision": False}
    options["metric_steps"] = 0 if toy else 3
    with cudnn(deterministic=True):
        alone = small_fit("mnist", device, images, **options)
        distributed.init_process_group(backend, store=distributed.HashStore(), rank=0, world_size=1)
        try:
            with patch("ssdml.utils.distributed.is_distributed", lambda: True):
                start = time.perf_counter()
                in_group = small_fit("mnist", device, images, **options)
                synchronize(device)
                seconds = time.perf_counter() - start
        finally:
            distributed.destroy_process_group()
    apart = np.abs(alone.transform(images.X) - in_group.transform(images.X)).max()
    return {
        "backend": backend,
        "fit": round(seconds, 2),
        "same_bits": same_bits(alone, in_group),
        "largest_difference": float(apart),
    }
