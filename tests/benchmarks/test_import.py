"""Time of the imports that every program pays, in units of ``import numpy``."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

ROUNDS = 5


def import_seconds(module: str) -> float:
    """Seconds that one import takes in a fresh interpreter."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    line = re.search(rf"\|\s*(\d+) \| {re.escape(module)}$", done.stderr, flags=re.MULTILINE)
    assert line, done.stderr
    return int(line[1]) / 1e6


# the name ssdml stands on nothing; ssdml.graphs and the command line on numpy and scipy.sparse
@pytest.mark.parametrize(
    ("module", "most"), [("ssdml", 0.5), ("ssdml.graphs", 5), ("ssdml.cli", 5)]
)
def test_import_time(benchmark: BenchmarkFixture, module: str, most: float) -> None:
    times: list[float] = []
    benchmark.pedantic(lambda: times.append(import_seconds(module)), rounds=ROUNDS)
    numpy = min(import_seconds("numpy") for _ in range(ROUNDS))
    ratio = benchmark.extra_info["numpy imports"] = min(times) / numpy
    assert ratio < most, f"import {module} takes {min(times):.3f} s, import numpy {numpy:.3f} s"
