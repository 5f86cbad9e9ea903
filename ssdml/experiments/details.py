"""What the report shows of a run beyond its row: a sample of its embedding, its triplets, warnings.

One ``.npz`` a run, named by the run's hash, so that a report can be made again from the folder
alone, without the data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets import Dataset, LabelScarceSplit
from ssdml.experiments.neighborhoods import MinedSample
from ssdml.experiments.results import RESUME
from ssdml.files import whole_file

MAP_ROWS = 1500  # test rows on a map: as many dots as a panel can carry
MAP_LABELED = 500
MAP_COMPONENTS = 50  # what t-SNE looks at


@dataclass(frozen=True)
class MapSample:
    """Rows of one embedding to be drawn: test rows, and the labelled rows beside them."""

    embedding: npt.NDArray[np.float32]  # (n, at most MAP_COMPONENTS)
    y: npt.NDArray[np.int64]
    is_labeled: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RunDetails:
    """What :func:`save_details` keeps. ``sample`` and ``mined`` are None but for the first seed."""

    config: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    purity: dict[str, float] | None = None
    class_names: list[str] = field(default_factory=list)
    sample: MapSample | None = None
    mined: MinedSample | None = None


def map_rows(split: LabelScarceSplit) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Test rows and labelled rows to draw: the same for every method on this split."""
    rng = np.random.default_rng(0)
    return _some(split.test, MAP_ROWS, rng), _some(split.labeled, MAP_LABELED, rng)


def map_sample(model: Any, dataset: Dataset, split: LabelScarceSplit) -> MapSample:
    """Embedding of the rows of :func:`map_rows`, on its leading principal components."""
    test, labeled = map_rows(split)
    rows = np.concatenate([test, labeled])
    return MapSample(
        embedding=_leading_components(np.asarray(model.transform(dataset.X[rows]))),
        y=dataset.y[rows],
        is_labeled=np.arange(len(rows)) >= len(test),
    )


def save_details(path: Path, details: RunDetails) -> None:
    """Write the file whole, or raise OSError."""
    meta = {
        "config": details.config,
        "warnings": details.warnings,
        "purity": details.purity,
        "class_names": details.class_names,
    }
    arrays: dict[str, Any] = {"meta": np.array(json.dumps(meta))}
    if details.sample is not None:
        arrays |= vars(details.sample)
    if details.mined is not None:
        arrays |= details.mined.to_arrays()
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, way_out=RESUME) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_details(path: Path) -> RunDetails | None:
    """What :func:`save_details` wrote; None where the file is missing."""
    if not path.is_file():
        return None
    with np.load(path, allow_pickle=False) as stored:
        meta = json.loads(str(stored["meta"]))
        sample = None
        if "embedding" in stored:
            sample = MapSample(stored["embedding"], stored["y"], stored["is_labeled"])
        mined = MinedSample.from_arrays(stored)
    return RunDetails(**meta, sample=sample, mined=mined)


def _some(
    rows: npt.NDArray[np.int64], n_most: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    if len(rows) <= n_most:
        return rows
    return np.sort(rng.choice(rows, n_most, replace=False))


def _leading_components(embedding: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    if embedding.shape[1] <= MAP_COMPONENTS:
        return embedding.astype(np.float32)
    from sklearn.decomposition import PCA

    n_components = min(MAP_COMPONENTS, len(embedding))
    return PCA(n_components, random_state=0).fit_transform(embedding).astype(np.float32)
