"""What the report's map and gallery show when they are asked: the data behind a page's script."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ssdml.evaluation.predictions import Confusion
from ssdml.experiments.analysis.tables import ScoreTable
from ssdml.experiments.report.figures import CLASS_COLORS, ClassMap, Picture, map_svg, project
from ssdml.experiments.runs.details import Answers, RunDetails
from ssdml.experiments.runs.thumbnails import Cards
from ssdml.utils.typing import Array

STEPS = 65535  # of a coordinate: more than any screen has pixels
SURE = 254  # stands for confidence 1


def explorer_data(
    maps: Mapping[str, ClassMap], answers: Mapping[str, Answers], cards: Cards | None
) -> dict[str, Any] | None:
    """Arrays and names that the script reads, as JSON can hold them.

    Parameters
    ----------
    maps : dict of ClassMap
        By method, all of the same rows: test rows, then labeled ones.
    answers : dict of Answers
        By method, of the test rows.
    cards : Cards or None
        Of the same rows.

    Returns
    -------
    data : dict or None
        Arrays as base64 of little-endian bytes. None where some method left no answers, as runs of
        an earlier version do.

    Notes
    -----
    A row takes 2 bytes a coordinate, 4 a class and a neighbor, 1 for a confidence: 10,000 rows by
    two methods are 1.2 MB, the pictures not counted.
    """
    if not maps or not all(name in answers for name in maps):
        return None
    first = next(iter(maps.values()))
    n_test = int((~first.sample.is_labeled).sum())
    n, rows = len(first.sample.y), [answers[name].rows for name in maps]
    if any(len(r) != n or not np.array_equal(r, rows[0]) for r in rows):
        return None
    return {
        "names": list(first.class_names),
        "colors": list(CLASS_COLORS),
        "n": n,
        "nTest": n_test,
        "rows": _packed(rows[0], "<i4"),
        "classes": _packed(first.sample.y, "<i4"),
        "methods": [_method(name, maps[name], answers[name]) for name in maps],
        "cards": None if cards is None else _cards(cards, rows[0]),
    }


def _method(name: str, drawn: ClassMap, answers: Answers) -> dict[str, Any]:
    found, width = answers.predictions, answers.neighbors.shape[1]
    method = {
        "name": name,
        "points": _packed(_on_unit_square(drawn.points) * STEPS, "<u2"),
        "neighbors": _packed(answers.neighbors, "<i4"),
        "width": width,
        "predicted": None,
        "confidence": None,
    }
    if found is not None:
        method["predicted"] = _packed(found.classes, "<i4")
        if found.are_own:
            method["confidence"] = _packed(np.round(found.confidence * SURE), "<u1")
    return method


def _on_unit_square(points: Array) -> Array:
    """The points moved and scaled, in both directions alike, so that they fill a square of 1."""
    low, high = points.min(axis=0), points.max(axis=0)
    width = float((high - low).max()) or 1.0
    centered: Array = (points - (low + high) / 2) / width + 0.5
    centered[:, 1] = 1 - centered[:, 1]  # a screen counts from the top
    return centered.clip(0, 1)


def _cards(cards: Cards, rows: Array) -> dict[str, Any] | None:
    """Texts of the rows, or the sheet of pictures and the place of each row in it."""
    places = np.searchsorted(cards.rows, rows)
    if len(cards.rows) <= places.max() or not np.array_equal(cards.rows[places], rows):
        return None
    if cards.texts:
        return {"texts": [cards.texts[place] for place in places]}
    if not cards.sheet:
        return None
    height, width = cards.size
    return {
        "sheet": base64.b64encode(cards.sheet).decode(),
        "places": _packed(places, "<i4"),
        "height": height,
        "width": width,
        "columns": cards.n_columns,
        "n": len(cards.rows),
    }


def _packed(values: Array, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values).astype(dtype).tobytes()).decode()


# The maps of a data set's rows before and after learning, and what can be asked of them.


@dataclass(frozen=True)
class Atlas:
    """Maps of the same rows by method: the reference, then the best beside it."""

    dataset: str
    maps: dict[str, ClassMap]
    answers: dict[str, Answers]  # of those methods; none of runs of an earlier version
    cards: Cards | None

    @property
    def pictures(self) -> list[Picture]:
        """The maps as figures for the page."""
        return [
            Picture(method, map_svg(drawn, f"{self.dataset}: rows by {method}"))
            for method, drawn in self.maps.items()
        ]

    @property
    def n_dots(self) -> int:
        """Test rows on a map."""
        return max((int((~m.sample.is_labeled).sum()) for m in self.maps.values()), default=0)

    @property
    def class_names(self) -> Sequence[str]:
        """Of the data set."""
        return next((drawn.class_names for drawn in self.maps.values()), [])

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Classes and their colors; empty where classes share a color."""
        if len(self.class_names) > len(CLASS_COLORS):
            return []
        return list(zip(self.class_names, CLASS_COLORS, strict=False))

    @cached_property
    def data(self) -> dict[str, Any] | None:
        """What the page's script needs; None where the runs kept too little."""
        return explorer_data(self.maps, self.answers, self.cards)

    @property
    def colorings(self) -> list[tuple[str, str]]:
        """What the maps can be colored by, and what a reader calls it."""
        choices = [("class", "class")]
        if any(answers.predictions is not None for answers in self.answers.values()):
            choices.append(("errors", "errors"))
        return choices + [("confidence", "confidence")] * any(map(self._is_own, self.answers))

    @property
    def questions(self) -> list[tuple[str, str]]:
        """Which rows the gallery can be asked for, and what a reader calls them."""
        if len(self.maps) < 2:
            return [("any", "all")]
        before, after = self.maps
        alone = [("gained", f"right by {after} alone"), ("lost", f"right by {before} alone")]
        return [("any", "all"), *alone]

    @cached_property
    def confusions(self) -> dict[str, Confused]:
        """What is taken for what, by method."""
        return {
            method: confused(answers.confusion, self.class_names)
            for method, answers in self.answers.items()
            if answers.confusion is not None
        }

    @property
    def caption(self) -> str:
        """Whose word the predicted classes are."""
        own = [method for method in self.confusions if self._is_own(method)]
        others = [method for method in self.confusions if not self._is_own(method)]
        told = [f"{', '.join(own)}: by its own predict_proba"] if own else []
        told += [f"{', '.join(others)}: by the nearest mean of the labeled rows"] if others else []
        return f"Classes are predicted by: {'; '.join(told)}." if told else ""

    def _is_own(self, method: str) -> bool:
        found = self.answers[method].predictions
        return found is not None and found.are_own


def make_atlas(
    table: ScoreTable,
    details: Mapping[str, RunDetails],
    cards: Callable[[str], Cards | None],
) -> Atlas:
    """Map of the reference and that of the best method beside it, which learned something.

    Parameters
    ----------
    table : ScoreTable
    details : dict of RunDetails
        By method, of the runs that kept a sample of their embedding.
    cards : callable
        Gives the cards of a data set, by its fingerprint.
    """
    after = [line.method for line in table.lines if line.method != table.reference]
    wanted = [name for name in (table.reference, *after[:1]) if name in details]
    maps, answers, data = {}, {}, set()
    for method in wanted:
        kept = details[method]
        if kept.sample is not None:
            maps[method] = ClassMap(project(kept.sample), kept.sample, kept.class_names)
            data.add(kept.config.get("data", ""))
        if kept.answers is not None:
            answers[method] = kept.answers
    return Atlas(table.dataset, maps, answers, cards(data.pop()) if len(data) == 1 else None)


# Which classes a method takes for which: a table where they are few, else the commonest errors.

MOST_CLASSES = 12  # of a table that fits on the page
MOST_PAIRS = 12


@dataclass(frozen=True)
class Cell:
    """Rows of one class that were taken for one class."""

    count: int
    share: float  # of the rows of the true class


@dataclass(frozen=True)
class Pair:
    """Two classes of which one is taken for the other."""

    true: str
    taken: str
    count: int
    share: float


class Confused(NamedTuple):
    """What is taken for what; either the table or the pairs are empty."""

    names: Sequence[str]
    table: list[list[Cell]]
    pairs: list[Pair]


def confused(found: Confusion, names: Sequence[str]) -> Confused:
    """What the report shows of which classes were taken for which.

    Examples
    --------
    >>> counts = Confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([3, 1, 2]))
    >>> confused(counts, ["a", "b"]).table[0]
    [Cell(count=3, share=0.75), Cell(count=1, share=0.25)]
    """
    true, taken, counts = found
    sizes = np.bincount(true, counts, minlength=len(names))
    if len(names) <= MOST_CLASSES:
        whole = np.zeros((len(names), len(names)), dtype=np.int64)
        whole[true, taken] = counts
        shares = whole / np.maximum(sizes, 1)[:, None]
        table = [
            [Cell(int(n), float(share)) for n, share in zip(*rows, strict=True)]
            for rows in zip(whole, shares, strict=True)
        ]
        return Confused(names, table, [])
    wrong = np.flatnonzero(true != taken)
    wrong = wrong[np.argsort(-counts[wrong], kind="stable")][:MOST_PAIRS]
    places = zip(true[wrong].tolist(), taken[wrong].tolist(), counts[wrong].tolist(), strict=True)
    return Confused(
        names, [], [Pair(names[i], names[j], n, float(n / sizes[i])) for i, j, n in places]
    )
