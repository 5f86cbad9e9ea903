"""The command line in this process, and files to call it with."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from ssdml.cli.app import app
from tests.tables import CLASS_NAMES


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    """No test finds what another one kept."""
    cache = tmp_path / "cache" / "ssdml"
    monkeypatch.setattr("ssdml.experiments.labeling.kept.data_folders", lambda data_dir: [cache])


@pytest.fixture(scope="module", autouse=True)
def short_maps_everywhere(short_maps) -> None:
    """Draw maps in few steps."""


@pytest.fixture(scope="session")
def runner() -> Iterator[CliRunner]:
    """One that makes the commands once: typer's own takes 30 ms per call for that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield CliRunner()


@pytest.fixture
def run(runner):
    """Calls the command line in this process."""
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def arrays(tmp_path) -> tuple[Path, Path]:
    """X.npy and y.npy: three separated classes, six labels per class."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 40)
    X = (rng.normal(size=(120, 5)) + 4 * np.eye(5)[y]).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", np.where(np.arange(120) % 40 < 6, y, -1))
    return tmp_path / "X.npy", tmp_path / "y.npy"


@pytest.fixture
def data(arrays, tmp_path) -> Path:
    """The same samples as one .npz file, all labeled."""
    path = tmp_path / "blobs.npz"
    np.savez(path, X=np.load(arrays[0]), y=np.repeat(np.arange(3), 40))
    return path


@pytest.fixture
def quick_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace t-SNE by the first two columns."""
    monkeypatch.setattr("ssdml.experiments.report.figures.map_rows", lambda Z, n_jobs: Z[:, :2])


@pytest.fixture
def photos(tmp_path, rng):
    """40 bright and dark images of two sizes, ten of them in class folders."""
    for i in range(40):
        folder = ["dark", "light"][i % 2] if i < 10 else "."
        path = tmp_path / "photos" / folder / f"IMG_{i}.JPG"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = (48, 36, 3) if i % 3 else (36, 48, 3)
        pixels = rng.integers(0, 80, size) + 150 * (i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def table(arrays):
    """The samples with an index, names, a column of texts and few labels."""
    X, y = (np.load(path) for path in arrays)
    frame = pd.DataFrame(X).add_prefix("f").assign(animal_id=[f"no {i}" for i in range(120)])
    return frame.assign(town=["Ulm", "Bonn"] * 60, label=CLASS_NAMES[y])
