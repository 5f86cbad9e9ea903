"""What the report shows of a run beyond its row: a sample of its embedding, its triplets, warnings.

One ``.npz`` a run, named by the run's hash, so that a report can be made again from the folder
alone, without the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

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
from ssdml.graphs.triplets import Lookup, Triplets, affinity_lookup
from ssdml.utils.linalg import graph_rows
from ssdml.utils.persistence import atomic_write
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED

# What was mined around one labeled row, as a run keeps it for the report.

N_NEIGHBORS = 10  # whatever a method takes, so that all methods show one neighborhood
SHOWN_TRIPLETS = 8  # of the anchor: more would hide each other
MOST_ANCHORS = 500  # labeled rows that the anchor is chosen from
PREFIX = "mined_"


@dataclass(frozen=True)
class MinedSample:
    """One labeled row, the rows around it and some of its triplets."""

    around: Neighborhood
    y: Array  # (m,), the true classes of its rows, -1 where nobody knows
    n_triplets: int  # of the anchor, shown or not

    def to_arrays(self) -> dict[str, Array]:
        """The sample as named arrays for a file."""
        fields = {**self.around._asdict(), "y": self.y, "n_triplets": self.n_triplets}
        return {PREFIX + name: np.asarray(value) for name, value in fields.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> Self | None:
        """What `to_arrays` gave; None where it is not there."""
        if f"{PREFIX}rows" not in arrays:
            return None
        fields: Any = {name: arrays[PREFIX + name] for name in Neighborhood._fields}
        fields["n_neighbors"] = int(fields["n_neighbors"])
        n_triplets = int(arrays[f"{PREFIX}n_triplets"])
        return cls(Neighborhood(**fields), arrays[f"{PREFIX}y"], n_triplets)


def mined_sample(model: Any, X: Array, labels: Array, y: Array) -> MinedSample | None:
    """The neighborhood of one labeled row in the input, and what the model mined for it.

    The row is the hardest one: with the most neighbors of another true class, the first of those
    with as many. So it is the same for all methods on a split that mine for every row.

    Parameters
    ----------
    model : estimator
        Fitted: ``triplets_`` and, for the affinities, ``label_distributions_`` of its training
        rows, where it has them.
    X : array of shape (n, d)
        The training rows.
    labels, y : arrays of shape (n,)
        Labels that were learned from, -1 where there is none, and true classes.

    Returns
    -------
    mined : MinedSample or None
        None where no triplets of a labeled row were kept.
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
    distributions = getattr(model, "label_distributions_", None)
    if distributions is None:
        return None
    return partial(
        _signed_trust, affinity_lookup(ClassMasses(distributions), n_samples, "mined_sample")
    )


def _signed_trust(lookup: Lookup, i: Array, j: Array) -> Array:
    """What the miner goes by: are two rows alike, and how far is that to be trusted.

    The trust is the root of the miner's, as in the weights of :class:`ssdml.SSDML`, relative to
    the largest: 1 for the surest pair.
    """
    evidence = lookup.evidence(i, j)
    trust = np.sqrt(lookup.weights((i, j), (evidence, evidence)))
    signed: Array = np.sign(evidence) * trust / (trust.max() or 1.0)
    return signed


# What the report shows of a run beyond its row: a sample of its embedding, its triplets, warnings.
#
# One ``.npz`` a run, named by the run's hash, so that a report can be made again from the folder
# alone, without the data.

MAP_ROWS = 1500  # test rows on a map, unless it is told otherwise
MAP_LABELED = 500
MAP_COMPONENTS = 50  # what t-SNE looks at
MAP_NEIGHBORS = 8  # of each row on a map


@dataclass(frozen=True)
class MapSample:
    """Rows of one embedding to be drawn: test rows, and the labeled rows beside them."""

    embedding: npt.NDArray[np.float32]  # (n, at most MAP_COMPONENTS)
    y: npt.NDArray[np.int64]
    is_labeled: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """What a method says of the test rows: of those on the map one by one, of all in sum."""

    rows: npt.NDArray[np.int64]  # of the map, as they stand in its sample: numbers in the data set
    neighbors: npt.NDArray[np.int64]  # (n, at most MAP_NEIGHBORS), numbers of test rows on the map
    predictions: Predictions | None  # of the n; None where no test row is of a labeled class
    confusion: Confusion | None  # of all test rows
    reliability: Reliability | None  # of all, where the method says how sure it is


@dataclass(frozen=True)
class RunDetails:
    """What :func:`save_details` keeps; of what has a default, the first seed alone has all."""

    config: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    purity: dict[str, float] | None = None
    class_names: list[str] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    sample: MapSample | None = None
    answers: Answers | None = None
    mined: MinedSample | None = None


def map_rows(
    split: LabelScarceSplit, n_test: int = MAP_ROWS
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Test rows and labeled rows to draw: the same for every method on this split."""
    rng = np.random.default_rng(0)
    return _some(split.test, n_test, rng), _some(split.labeled, MAP_LABELED, rng)


def map_sample(Z: Any, Z_labeled: Any, y: Any, y_labeled: Any) -> MapSample:
    """Embedding of test rows and labeled rows, on its leading principal components."""
    return MapSample(
        embedding=_leading_components(np.concatenate([Z, Z_labeled])),
        y=np.concatenate([y, y_labeled]),
        is_labeled=np.arange(len(y) + len(y_labeled)) >= len(y),
    )


def map_neighbors(Z: Any) -> npt.NDArray[np.int64]:
    """Nearest others of each row, the nearest first."""
    k = min(MAP_NEIGHBORS, len(Z) - 1)
    return without_self(nearest_rows(Z, Z, k + 1), np.arange(len(Z)))[0]


def save_details(path: Path, details: RunDetails) -> None:
    """Write the file whole, or raise OSError."""
    meta = {
        "config": details.config,
        "warnings": details.warnings,
        "purity": details.purity,
        "class_names": details.class_names,
        "history": details.history,
    }
    arrays: dict[str, Any] = {"meta": np.array(json.dumps(meta))}
    if details.sample is not None:
        arrays |= vars(details.sample)
    if details.answers is not None:
        arrays |= _answers_to_arrays(details.answers)
    if details.mined is not None:
        arrays |= details.mined.to_arrays()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, way_out=RESUME) as unfinished, unfinished.open("wb") as file:
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
        answers = _answers_from_arrays(stored) if "neighbors" in stored else None
        mined = MinedSample.from_arrays(stored)
    return RunDetails(**meta, sample=sample, answers=answers, mined=mined)


def _answers_to_arrays(answers: Answers) -> dict[str, Any]:
    arrays: dict[str, Any] = {"rows": answers.rows, "neighbors": answers.neighbors}
    if answers.predictions is not None:
        arrays |= {"confusion": np.array(answers.confusion)} | answers.predictions._asdict()
    if answers.reliability is not None:
        arrays["reliability"] = np.array(answers.reliability)
    return arrays


def _answers_from_arrays(stored: Any) -> Answers:
    found = mixed_up = bins = None
    if "classes" in stored:
        found = Predictions(stored["classes"], stored["confidence"])
        mixed_up = Confusion(*stored["confusion"])
    if "reliability" in stored:
        confidence, right, counts = stored["reliability"]
        bins = Reliability(confidence, right, counts.astype(np.int64))
    return Answers(stored["rows"], stored["neighbors"], found, mixed_up, bins)


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
