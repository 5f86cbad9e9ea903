"""Details of a run for the report: map, predictions, triplets, warnings.

One ``.npz`` file per run, so that a report can be drawn from the folder alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
from ssdml.graphs.plotting import Neighborhood, neighborhood
from ssdml.graphs.propagation.class_masses import ClassMasses
from ssdml.graphs.triplets import Triplets, affinity_lookup
from ssdml.utils.files import parse_json, read_npz
from ssdml.utils.linalg import graph_rows
from ssdml.utils.persistence import atomic_write
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

DETAILS = "details"

MAP_LABELED = 500
MAP_COMPONENTS = 50  # input of t-SNE
MAP_NEIGHBORS = 8  # per sample on a map

N_NEIGHBORS = 10  # whatever the method uses, so that all methods show one neighborhood
SHOWN_TRIPLETS = 8  # of the anchor: more would hide each other
MOST_ANCHORS = 500  # labeled samples that the anchor is chosen from


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
class MinedSample:
    """One labeled sample, its neighborhood and some of its triplets."""

    around: Neighborhood
    y: Ints  # (m,), true classes of its samples, -1 if unknown
    n_triplets: int  # of the anchor, shown or not


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
    mined: MinedSample | None = None


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


def mined_sample(model: Any, X: Array, labels: Ints, y: Ints) -> MinedSample | None:
    """Neighborhood of one labeled sample in the input, and what the model mined for it.

    The anchor is the labeled sample with the most neighbors of other true classes, the first if
    tied: the same for all methods on a split that mine for every sample.

    Parameters
    ----------
    model : estimator
        Fitted, with ``triplets_`` and, for the affinities, ``label_distributions_``, if it mines.
    X : array of shape (n, d)
        Training samples.
    labels, y : arrays of shape (n,)
        Labels given for training, -1 for unlabeled, and true classes.

    Returns
    -------
    mined : MinedSample or None
        None if the model has no triplets of a labeled sample.
    """
    triplets = getattr(model, "triplets_", None)
    if triplets is None:
        return None
    is_anchor = np.bincount(triplets.anchor, minlength=len(X)) > 0
    anchors = np.flatnonzero((labels != UNLABELED) & is_anchor)[:MOST_ANCHORS]
    if not len(anchors):
        return None
    points = graph_rows(X)
    k = min(N_NEIGHBORS, len(X) - 1)

    def neighbors(rows: Array) -> Array:
        return without_self(nearest_rows(points, points[rows], k + 1), rows)[0]

    near = y[neighbors(anchors)]
    n_others = ((near != y[anchors][:, None]) & (near != UNLABELED)).sum(axis=1)
    anchor = int(anchors[n_others.argmax()])
    mine = np.flatnonzero(triplets.anchor == anchor)
    around = neighborhood(
        anchor,
        neighbors,
        affinity=_affinity(model, len(X)),
        y=labels,
        triplets=Triplets(*(np.asarray(part)[mine[:SHOWN_TRIPLETS]] for part in triplets)),
    )
    return MinedSample(around, y[around.rows], len(mine))


def _affinity(model: Any, n_samples: int) -> Callable[[Array, Array], Array] | None:
    """Signed trust of the miner in pairs: the sign says alike or not, 1 is the surest pair."""
    distributions = getattr(model, "label_distributions_", None)
    if distributions is None:
        return None
    lookup = affinity_lookup(ClassMasses(distributions), n_samples, "mined_sample")

    def signed_trust(i: Array, j: Array) -> Array:
        evidence = lookup.evidence(i, j)
        trust = np.sqrt(lookup.weights((i, j), (evidence, evidence)))  # as SSDML weighs triplets
        signed: Array = np.sign(evidence) * trust / (trust.max() or 1.0)
        return signed

    return signed_trust


# Arrays have the names of the fields, with the prefix "mined_" for those of a MinedSample.


def save_details(path: Path, details: RunDetails) -> None:
    """Write the file atomically, or raise OSError."""
    meta = {
        "config": details.config,
        "warnings": details.warnings,
        "purity": details.purity,
        "class_names": details.class_names,
        "history": details.history,
    }
    arrays: dict[str, Any] = {"meta": json.dumps(meta)}
    if details.sample is not None:
        arrays |= vars(details.sample)
    if (answers := details.answers) is not None:
        arrays |= {"rows": answers.rows, "neighbors": answers.neighbors}
        if answers.predictions is not None:
            arrays |= {"confusion": answers.confusion} | answers.predictions._asdict()
        if answers.reliability is not None:
            arrays["reliability"] = answers.reliability
    if (mined := details.mined) is not None:
        fields = {**mined.around._asdict(), "y": mined.y, "n_triplets": mined.n_triplets}
        arrays |= {f"mined_{name}": value for name, value in fields.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.asarray(value) for name, value in arrays.items()}
    with atomic_write(path, way_out=RESUME) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load_details(path: Path) -> RunDetails | None:
    """Read what :func:`save_details` wrote; None if there is no file.

    Raises ValueError, naming the file, if it is damaged.
    """
    if not path.exists():
        return None
    stored = read_npz(path)
    try:
        details = _from_arrays(stored)
        _check(details)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: not the details of a run ({type(error).__name__}: {error}). Delete it; the "
            "report then lacks them."
        ) from error
    return details


def _from_arrays(stored: dict[str, Array]) -> RunDetails:
    meta = parse_json(str(stored["meta"]))
    sample = answers = mined = None
    if "embedding" in stored:
        sample = MapSample(stored["embedding"], stored["y"], stored["is_labeled"])
    if "neighbors" in stored:
        answers = _load_answers(stored)
    if "mined_rows" in stored:
        fields: Any = {name: stored[f"mined_{name}"] for name in Neighborhood._fields}
        fields["n_neighbors"] = int(fields["n_neighbors"])
        n_triplets = int(stored["mined_n_triplets"])
        mined = MinedSample(Neighborhood(**fields), stored["mined_y"], n_triplets)
    return RunDetails(**meta, sample=sample, answers=answers, mined=mined)


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
    if details.mined is not None:
        _check_range("classes", details.mined.y, UNLABELED, n_classes)


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
