"""Fixtures shared by all tests: seeded generators and the folder of real data."""

from __future__ import annotations

import gc
import os
import runpy
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores; set before numpy loads
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage, then never look through what was collected."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, so that no core idles at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session", autouse=True)
def device_that_is_not_there() -> Iterator[None]:
    """With ``SSDML_DEVICE=pretended``, torch has a device of this name."""
    if os.environ.get("SSDML_DEVICE") != "pretended":
        yield
        return
    from tests import pretended_device

    pretended_device.register()
    with pretended_device.OnBoth():
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    """A fresh generator with a fixed seed: no test depends on the order of the others."""
    return np.random.default_rng(0)


@pytest.fixture
def data_dir() -> Path:
    """Folder of the real data sets; the test is skipped where ``SSDML_DATA`` is not set."""
    folder = os.environ.get("SSDML_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SSDML_DATA is not set to a folder of real data sets")
    return Path(folder)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Of torch: batches are small, and the machine may be busy."""
    from ssdml.utils import torch_tools

    with torch_tools.one_thread():
        yield


@pytest.fixture
def example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """A function that runs an example with arguments and gives what it prints."""

    def run(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture
def make_row() -> Callable[..., Any]:
    """Makes rows of a comparison."""
    from tests.rows import make_row

    return make_row
