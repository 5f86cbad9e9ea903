"""The interactive maps of the report, and which classes the methods confuse."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ssdml.evaluation.predictions import Confusion
from ssdml.experiments.analysis.tables import ScoreTable
from ssdml.experiments.report.figures import ClassMap, Picture, class_maps, map_picture
from ssdml.experiments.runs.details import Answers, RunDetails
from ssdml.experiments.runs.thumbnails import Thumbnails
from ssdml.metric.fitted.maps import CLASS_COLORS, medoids
from ssdml.utils.typing import Array

COORDINATES = 65535  # steps of a coordinate, more than any screen has pixels
CERTAIN = 254  # stands for confidence 1
MAX_CLASSES = 12  # of a confusion matrix that fits on the page
MAX_PAIRS = 12


@dataclass(frozen=True)
class Explorer:
    """Maps of the same samples by the reference and by the best method."""

    dataset: str
    maps: dict[str, ClassMap]  # by method
    answers: dict[str, Answers]  # by method; none for runs of earlier versions
    thumbnails: Thumbnails | None

    @property
    def pictures(self) -> list[Picture]:
        """Static maps."""
        return [map_picture(name, self.dataset, drawn) for name, drawn in self.maps.items()]

    @property
    def n_dots(self) -> int:
        """Number of test samples on a map."""
        return max((int((~m.sample.is_labeled).sum()) for m in self.maps.values()), default=0)

    @property
    def class_names(self) -> Sequence[str]:
        """Class names of the data set."""
        return next((drawn.class_names for drawn in self.maps.values()), [])

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Classes and their colors in the page's theme; empty if classes share a color."""
        drawn = next(iter(self.maps.values()), None)
        if drawn is None or len(drawn.class_names) > len(CLASS_COLORS):
            return []
        return [
            (name, f"var(--class-{c})")
            for name, c in zip(drawn.class_names, drawn.colors.tolist(), strict=True)
        ]

    @cached_property
    def data(self) -> dict[str, Any] | None:
        """Data of the page's script; None if the runs kept too little."""
        return explorer_data(self.maps, self.answers, self.thumbnails)

    @property
    def colorings(self) -> list[tuple[str, str]]:
        """Ways to color the maps, with their titles."""
        has_errors = any(answers.predictions is not None for answers in self.answers.values())
        has_confidence = any(map(self._has_confidence, self.answers))
        names = ["class"] + ["errors"] * has_errors + ["confidence"] * has_confidence
        return [(name, name) for name in names]

    @property
    def queries(self) -> list[tuple[str, str]]:
        """Sets of samples that the gallery can show, with their titles."""
        if len(self.maps) < 2:
            return [("any", "all")]
        before, after = self.maps
        gained, lost = (f"only {method} is correct" for method in (after, before))
        return [("gained", gained), ("lost", lost), ("any", "all")]

    @cached_property
    def confusions(self) -> dict[str, ConfusionTable]:
        """Confused classes by method."""
        return {
            method: confusion_table(answers.confusion, self.class_names)
            for method, answers in self.answers.items()
            if answers.confusion is not None
        }

    @property
    def caption(self) -> str:
        """State where the predicted classes come from."""
        sources: dict[str, list[str]] = {}
        for method in self.confusions:
            found = self.answers[method].predictions
            own = found is not None and found.by_predict
            source = "its predict" if own else "nearest mean of the labeled samples"
            sources.setdefault(source, []).append(method)
        told = [f"{', '.join(methods)}: {source}" for source, methods in sources.items()]
        return f"Predictions: {'; '.join(told)}." if told else ""

    def _has_confidence(self, method: str) -> bool:
        found = self.answers[method].predictions
        return found is not None and found.has_confidence


def make_explorer(
    table: ScoreTable,
    details: Mapping[str, RunDetails],
    thumbnails: Callable[[str], Thumbnails | None],
) -> Explorer:
    """Map the reference and the best other embedding.

    Parameters
    ----------
    table : ScoreTable
    details : dict of RunDetails
        By method, of the runs that kept a sample of their embedding.
    thumbnails : callable
        Loads the thumbnails of a data set by its fingerprint.
    """
    others = [line.method for line in table.ranked if line.method != table.reference]
    methods = [name for name in (table.reference, *others[:1]) if name in details]
    kept = {method: details[method] for method in methods}
    samples = {method: k.sample for method, k in kept.items() if k.sample is not None}
    names = next((k.class_names for k in kept.values() if k.sample is not None), [])
    maps = dict(zip(samples, class_maps(samples, names), strict=True))
    fingerprints = {k.config["data"] for k in kept.values() if k.sample and "data" in k.config}
    answers = {method: k.answers for method, k in kept.items() if k.answers is not None}
    loaded = thumbnails(fingerprints.pop()) if len(fingerprints) == 1 else None
    return Explorer(table.dataset, maps, answers, loaded)


def explorer_data(
    maps: Mapping[str, ClassMap], answers: Mapping[str, Answers], thumbnails: Thumbnails | None
) -> dict[str, Any] | None:
    """Pack arrays and names for the page's script, as JSON values.

    Parameters
    ----------
    maps : dict of ClassMap
        By method, all of the same samples: test samples, then labeled ones.
    answers : dict of Answers
        By method, for the test samples.
    thumbnails : Thumbnails or None
        Of these samples, and possibly of others.

    Returns
    -------
    data : dict or None
        Arrays are base64 of little-endian bytes. None if a method has no answers, as in runs of
        earlier versions.

    Notes
    -----
    A sample takes 2 bytes per coordinate and neighbor, 4 per class and 1 for a confidence: 0.8 MB
    for 10,000 samples and two methods, without thumbnails.
    """
    if not maps or not all(name in answers for name in maps):
        return None
    first = next(iter(maps.values()))
    sample, class_names = first.sample, first.class_names
    n, rows = len(sample.y), [answers[name].rows for name in maps]
    if any(len(r) != n or not np.array_equal(r, rows[0]) for r in rows):
        return None
    return {
        "names": list(class_names),
        "colors": first.colors.tolist(),
        "n": n,
        "nTest": int((~sample.is_labeled).sum()),
        "rows": _packed(rows[0], "<i4"),
        "classes": _packed(sample.y, "<i4"),
        "methods": [_method(name, maps[name], answers[name]) for name in maps],
        "thumbnails": None if thumbnails is None else _thumbnails(thumbnails, rows[0]),
    }


def _method(name: str, drawn: ClassMap, answers: Answers) -> dict[str, Any]:
    found = answers.predictions
    predicted = confidence = None
    if found is not None:
        predicted = _packed(found.classes, "<i4")
        if found.has_confidence:
            confidence = _packed(np.round(found.confidence * CERTAIN), "<u1")
    return {
        "name": name,
        "points": _packed(_on_unit_square(drawn.points) * COORDINATES, "<u2"),
        "neighbors": _packed(answers.neighbors, "<u2" if len(drawn.points) < 2**16 else "<i4"),
        "width": answers.neighbors.shape[1],
        "centers": _centers(drawn),
        "predicted": predicted,
        "confidence": confidence,
    }


def _centers(drawn: ClassMap) -> list[list[int]]:
    """Classes and the sample at their middle, the largest class first."""
    y = drawn.sample.y
    found, rows = medoids(drawn.points, y)
    order = np.argsort(-np.bincount(y[y >= 0], minlength=1)[found], kind="stable")
    return [[int(found[i]), int(rows[i])] for i in order if found[i] >= 0]


def _on_unit_square(points: Array) -> Array:
    """Scale points to the unit square, with their aspect kept and y downwards."""
    low, high = points.min(axis=0), points.max(axis=0)
    width = float((high - low).max()) or 1.0
    centered: Array = (points - (low + high) / 2) / width + 0.5
    centered[:, 1] = 1 - centered[:, 1]
    return centered.clip(0, 1)


def _thumbnails(thumbnails: Thumbnails, rows: Array) -> dict[str, Any] | None:
    """Texts of the rows, or the sheet of images with the place of each row."""
    places = np.searchsorted(thumbnails.rows, rows)
    if len(thumbnails.rows) <= places.max() or not np.array_equal(thumbnails.rows[places], rows):
        return None
    if thumbnails.texts:
        return {"texts": [thumbnails.texts[place] for place in places]}
    if not thumbnails.sheet:
        return None
    height, width = thumbnails.size
    return {
        "sheet": base64.b64encode(thumbnails.sheet).decode(),
        "places": _packed(places, "<i4"),
        "height": height,
        "width": width,
        "columns": thumbnails.n_columns,
        "n": len(thumbnails.rows),
    }


def _packed(values: Array, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values).astype(dtype).tobytes()).decode()


class Cell(NamedTuple):
    """Samples of one class that were predicted as one class."""

    n_samples: int
    share: float  # of the samples of the true class


class Pair(NamedTuple):
    """A true class and the class predicted for it."""

    true: str
    predicted: str
    n_samples: int
    share: float


class ConfusionTable(NamedTuple):
    """A confusion matrix, or the commonest confusions if there are many classes."""

    names: Sequence[str]
    matrix: list[list[Cell]]  # empty for many classes
    pairs: list[Pair]  # empty for few classes


def confusion_table(found: Confusion, names: Sequence[str]) -> ConfusionTable:
    """Tabulate which classes are confused.

    Examples
    --------
    >>> counts = Confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([3, 1, 2]))
    >>> confusion_table(counts, ["a", "b"]).matrix[0]
    [Cell(n_samples=3, share=0.75), Cell(n_samples=1, share=0.25)]
    """
    true, predicted, counts = found
    sizes = np.bincount(true, counts, minlength=len(names))
    if len(names) <= MAX_CLASSES:
        matrix = np.zeros((len(names), len(names)), dtype=np.int64)
        matrix[true, predicted] = counts
        shares = matrix / np.maximum(sizes, 1)[:, None]
        cells = [
            list(map(Cell, *rows)) for rows in zip(matrix.tolist(), shares.tolist(), strict=True)
        ]
        return ConfusionTable(names, cells, [])
    wrong = np.flatnonzero(true != predicted)
    wrong = wrong[np.argsort(-counts[wrong], kind="stable")][:MAX_PAIRS]
    pairs = [
        Pair(names[i], names[j], n, float(n / sizes[i]))
        for i, j, n in zip(*(part[wrong].tolist() for part in found), strict=True)
    ]
    return ConfusionTable(names, [], pairs)
