"""What the report's map and gallery show when they are asked: the data behind a page's script."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from ssdml.experiments.cards import Cards
from ssdml.experiments.details import Answers
from ssdml.experiments.figures import CLASS_COLORS
from ssdml.experiments.maps import ClassMap
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
        By method, all of the same rows: test rows, then labelled ones.
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
    A row takes 2 bytes a coordinate, 4 a class and a neighbour, 1 for a confidence: 10,000 rows by
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
