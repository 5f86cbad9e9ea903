"""Data shared by the benchmarks."""

from __future__ import annotations

import pytest

from ssdml.datasets import load_dataset


@pytest.fixture(scope="session")
def mnist():
    try:
        return load_dataset("mnist")
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
