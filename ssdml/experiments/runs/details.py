"""Details of a run for the report: map, predictions, correct triplets, warnings.

One ``.npz`` file per run, so that a report can be drawn from the folder alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.splits import LabelScarceSplit
from ssdml.evaluation.calibration import Reliability
from ssdml.evaluation.predictions import Confusion, Predictions
from ssdml.experiments.runs.results import RESUME
from ssdml.graphs.neighbors.exact import without_self
from ssdml.graphs.neighbors.knn import nearest_rows
from ssdml.utils.files import parse_json, read_npz
from ssdml.utils.persistence import atomic_write
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

DETAILS = "details"
WAY_OUT = "Delete it; the report then lacks them."

MAP_LABELED = 500
MAP_COMPONENTS = 50  # input of t-SNE
MAP_NEIGHBORS = 8  # per sample on a map


@dataclass(frozen=True)
class MapSample:
    """Part of an embedding to draw: test samples, then labeled samples."""

    embedding: npt.NDArray[np.float32]  # (n, at most MAP_COMPONENTS)
    y: Ints
    is_labeled: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Predictions for the samples on the map, and totals over all test samples."""

    rows: Ints  # indices of the samples on the map in the data set
    neighbors: Ints  # (n, at most MAP_NEIGHBORS), positions among the test samples on the map
    predictions: Predictions | None  # of these n; None if no test sample is of a labeled class
    confusion: Confusion | None  # of all test samples
    reliability: Reliability | None  # of all test samples, if the method gives confidences


@dataclass(frozen=True)
class RunDetails:
    """Contents of the file of a run; from ``class_names`` on, of the first seed only."""

    config: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    purity: dict[str, float] | None = None
    class_names: list[str] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    sample: MapSample | None = None
    answers: Answers | None = None


def map_rows(split: LabelScarceSplit, n_test: int) -> tuple[Ints, Ints]:
    """Test samples and labeled samples to draw, the same for every method on a split."""
    rng = np.random.default_rng(0)
    test, labeled = (
        rows if len(rows) <= n_most else np.sort(rng.choice(rows, n_most, replace=False))
        for rows, n_most in ((split.test, n_test), (split.labeled, MAP_LABELED))
    )
    return test, labeled


def map_sample(Z: Array, Z_labeled: Array, y: Ints, y_labeled: Ints) -> MapSample:
    """Reduce the embedding of test and labeled samples to its leading principal components."""
    embedding = np.concatenate([Z, Z_labeled])
    if embedding.shape[1] > MAP_COMPONENTS:
        from sklearn.decomposition import PCA

        n_components = min(MAP_COMPONENTS, len(embedding))
        embedding = PCA(n_components, random_state=0).fit_transform(embedding)
    return MapSample(
        embedding=embedding.astype(np.float32),
        y=np.concatenate([y, y_labeled]),
        is_labeled=np.arange(len(embedding)) >= len(y),
    )


def map_neighbors(Z: Array) -> Ints:
    """Nearest other samples of each sample, nearest first."""
    k = min(MAP_NEIGHBORS, len(Z) - 1)
    return without_self(nearest_rows(Z, Z, k + 1), np.arange(len(Z)))[0]


def save_details(path: Path, details: RunDetails) -> None:
    """Write the file atomically, or raise OSError."""
    arrays: dict[str, Any] = {}
    if details.sample is not None:
        arrays |= vars(details.sample)
    if (answers := details.answers) is not None:
        arrays |= {"rows": answers.rows, "neighbors": answers.neighbors}
        if answers.predictions is not None:
            arrays |= {"confusion": answers.confusion} | answers.predictions._asdict()
        if answers.reliability is not None:
            arrays["reliability"] = answers.reliability
    meta = {
        "config": details.config,
        "warnings": details.warnings,
        "purity": details.purity,
        "class_names": details.class_names,
        "history": details.history,
        "arrays": list(arrays),
    }
    arrays = {name: np.asarray(value) for name, value in arrays.items()}
    arrays["meta"] = np.asarray(json.dumps(meta))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, way_out=RESUME) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_details(path: Path) -> RunDetails | None:
    """Read what :func:`save_details` wrote; None if there is no file.

    Raises ValueError, naming the file, if it is damaged.
    """
    if not path.exists():
        return None
    stored = read_npz(path, advice=WAY_OUT)
    try:
        details = _from_arrays(stored)
        _check(details)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: not the details of a run ({type(error).__name__}: {error}). {WAY_OUT}"
        ) from error
    return details


def _from_arrays(stored: dict[str, Array]) -> RunDetails:
    meta = parse_json(str(stored.pop("meta")))
    if set(meta.pop("arrays", stored)) != set(stored):  # early files do not list them
        raise ValueError(f"its arrays must be those that were saved; got {sorted(stored)}")
    sample = answers = None
    if "embedding" in stored:
        sample = MapSample(stored["embedding"], stored["y"], stored["is_labeled"])
    if "neighbors" in stored:
        answers = _load_answers(stored)
    return RunDetails(**meta, sample=sample, answers=answers)


def _check(details: RunDetails) -> None:
    """Raise ValueError, LookupError or TypeError unless the parts fit together."""
    config = details.config
    texts = [*details.warnings, *details.class_names]
    texts += [config["parameters"]["class"], config.get("data", "")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("warnings, names and fingerprints must be text")
    n_classes, sample, answers = len(details.class_names), details.sample, details.answers
    if sample is not None:
        n, n_test = len(sample.embedding), int((~sample.is_labeled).sum())
        if sample.embedding.ndim != 2 or not sample.y.shape == sample.is_labeled.shape == (n,):
            raise ValueError("the map must have one class and one mark per sample")
        if not np.isfinite(sample.embedding).all():
            raise ValueError("the map must be finite")
        _check_range("classes", sample.y, UNLABELED, n_classes)
        if answers is not None:
            if answers.rows.shape != (n,) or len(answers.neighbors) != n_test:
                raise ValueError("there must be one row per sample, and its neighbors")
            _check_range("neighbors", answers.neighbors, 0, n_test)
    if answers is not None and answers.confusion is not None and answers.predictions is not None:
        for classes in (*answers.confusion[:2], answers.predictions.classes):
            _check_range("classes", classes, 0, n_classes)


def _check_range(name: str, values: Array, least: int, end: int) -> None:
    if values.dtype.kind not in "iu" or (
        values.size and not least <= values.min() <= values.max() < end
    ):
        raise ValueError(f"{name} must be integers from {least} to {end - 1}")


def _load_answers(stored: Any) -> Answers:
    found = confusion = reliability = None
    if "classes" in stored:
        classes, confidence = stored["classes"], stored["confidence"]
        by_predict = stored.get("by_predict", not np.isnan(confidence).any())  # early files: none
        found = Predictions(classes, confidence, bool(by_predict))
        confusion = Confusion(*stored["confusion"])
    if "reliability" in stored:
        confidence, right, counts = stored["reliability"]
        reliability = Reliability(confidence, right, counts.astype(np.int64))
    return Answers(stored["rows"], stored["neighbors"], found, confusion, reliability)
