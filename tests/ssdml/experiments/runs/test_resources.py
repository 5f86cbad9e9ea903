"""Peak memory and versions."""

from __future__ import annotations

import platform
import time

import numpy as np

import ssdml
from ssdml.experiments.runs.resources import INTERVAL, PeakMemory, versions


def test_peak_includes_freed_memory():
    megabytes = 200
    with PeakMemory() as before:
        pass
    with PeakMemory() as memory:
        block = np.ones(megabytes * 10**6, dtype=np.uint8)
        time.sleep(4 * INTERVAL)
        del block
    # The block may reuse memory that was freed before and is still counted.
    assert memory.megabytes > before.megabytes + megabytes / 2


def test_nothing_counts_after_stop():
    with PeakMemory() as memory:
        memory.stop()
        stopped = memory.megabytes
        block = np.ones(200 * 10**6, dtype=np.uint8)
        time.sleep(4 * INTERVAL)
        del block
    assert memory.megabytes == stopped


def test_versions_include_python_and_numpy():
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["ssdml"] == ssdml.__version__
    assert found["numpy"] == np.__version__
