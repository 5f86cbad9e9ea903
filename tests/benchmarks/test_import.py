"""Import times, relative to NumPy and SciPy."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

ROUNDS = 5


def import_seconds(module: str) -> float:
    """Measure one import in a fresh interpreter."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    line = re.search(rf"\|\s*(\d+) \| {re.escape(module)}$", done.stderr, flags=re.MULTILINE)
    assert line, done.stderr
    return int(line[1]) / 1e6


@pytest.mark.parametrize(
    ("module", "peer", "most"),
    [("ssdml", "numpy", 0.5), ("ssdml.cli.app", "numpy", 3), ("ssdml.graphs", "scipy.sparse", 1.5)],
)
def test_import_time(benchmark: BenchmarkFixture, module: str, peer: str, most: float) -> None:
    times: list[float] = []
    benchmark.pedantic(lambda: times.append(import_seconds(module)), rounds=ROUNDS)
    reference = min(import_seconds(peer) for _ in range(ROUNDS))
    ratio = benchmark.extra_info[f"imports of {peer}"] = min(times) / reference
    assert ratio < most, f"{module}: {min(times):.3f} s, {peer}: {reference:.3f} s"
