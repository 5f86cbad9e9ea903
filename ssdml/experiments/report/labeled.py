"""The page of ``ssdml label``: map, rows to label next, suspected labels."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from ssdml.datasets.base import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.evaluation.predictions import Predictions
from ssdml.experiments.analysis.formats import number, percent
from ssdml.experiments.labeling.accuracy import TARGET
from ssdml.experiments.labeling.labels import LabeledRows, labels_of
from ssdml.experiments.report.explorer import explorer_data
from ssdml.experiments.report.figures import ClassMap, map_picture
from ssdml.experiments.report.report import page_environment
from ssdml.experiments.runs.details import Answers, MapSample
from ssdml.experiments.runs.thumbnails import Thumbnails, make_thumbnails
from ssdml.metric.fitted.maps import CLASS_COLORS, DARK_CLASS_COLORS, spread_colors
from ssdml.utils.typing import Ints

TEMPLATE = "labeled.html.jinja"
MOST_NEW, MOST_GIVEN = 3000, 500  # rows on the map
MOST_FILES = 400  # the same of images in files, which are read once more
LISTED = 25  # rows in a table
SHORT = 160  # characters of a text in a table


def render_page(
    found: LabeledRows,
    dataset: Dataset,
    ids: Sequence[str],
    *,
    lead: str,
    advice: str,
    footer: str,
) -> str:
    """Render the page.

    Parameters
    ----------
    found : LabeledRows
    dataset : Dataset
        The samples as they were loaded, for texts, images and the summary.
    ids : sequence of str
        Names of the rows.
    lead, advice, footer : str
        Sentences; the advice tells what to do with more labels.
    """
    suggested, suspected = found.next_rows[:LISTED], found.suspects.rows[:LISTED]
    most = MOST_FILES if isinstance(dataset.X, ImageFiles) else MOST_NEW
    new, given = _rows_on_map(found, suggested, suspected, most)
    rows = np.concatenate([new, given])
    names = labels_of(found.classes).tolist()
    every = np.unique(rows)
    thumbnails = make_thumbnails(dataset, every)
    sample = MapSample(np.empty((len(rows), 0), np.float32), found.codes[rows], ~found.is_new[rows])
    colors = spread_colors(found.points[rows], found.codes[rows], len(names))
    drawn = ClassMap(found.points[rows], sample, names, colors)
    predictions = Predictions(found.codes[rows], found.confidence[rows].astype(np.float32))
    answers = Answers(rows, np.empty((len(rows), 0), np.int64), predictions, None, None)
    data = explorer_data({"labels": drawn}, {"labels": answers}, thumbnails)
    assert data is not None
    places = {row: place for place, row in enumerate(rows.tolist())}
    data["ids"] = [ids[row] for row in rows]
    data["runnersUp"] = base64.b64encode(found.runner_up[rows].astype("<i4").tobytes()).decode()
    data["suggested"] = [places[row] for row in suggested.tolist()]
    data["suspects"] = [places[row] for row in found.suspects.rows.tolist() if row in places]

    def lines(chosen: Ints) -> list[dict[str, Any]]:
        return [
            {
                "id": ids[row],
                "label": names[found.codes[row]],
                "runner_up": names[found.runner_up[row]] if found.runner_up[row] >= 0 else "–",
                "confidence": float(found.confidence[row]),
                **_shown(thumbnails, int(np.searchsorted(every, row))),
            }
            for row in chosen.tolist()
        ]

    environment, part = page_environment()
    n_new = int(found.is_new.sum())
    summary = str(dataset.summary).split("\n  ") if dataset.summary is not None else []
    return environment.get_template(TEMPLATE).render(
        title=summary[0] if summary else dataset.name,
        lead=lead,
        facts=_facts(found),
        read=summary[1:],
        n_shown=_shown_rows(len(new), n_new),
        names=names,
        colors=CLASS_COLORS,
        dark_colors=DARK_CLASS_COLORS,
        data=data,
        picture=map_picture("map", dataset.name, drawn),
        id_name="row" if dataset.ids is None else "id",
        has_items=bool(thumbnails.texts or thumbnails.sheet),
        suggested=lines(suggested),
        suspects=lines(suspected),
        no_suspects=no_suspects(found),
        usefulness=usefulness(found),
        advice=advice,
        footer=footer,
        part=part,
    )


def no_suspects(found: LabeledRows) -> str:
    """State that no given label is suspected, or that none could be checked."""
    if found.accuracy is None:
        what = "two classes" if len(found.classes) == 1 else "two labels of a class"
        return f"No label could be checked for errors: that takes {what}."
    return f"None of the {found.accuracy.n_labels:,} held-out labels is suspected to be wrong."


def is_certain(found: LabeledRows) -> bool:
    """Whether most rows to label next are already certain, so that labels change little."""
    confidence = found.confidence[found.next_rows]
    if found.accuracy is None or not len(confidence):
        return False
    return bool(np.median(confidence) >= TARGET)


def usefulness(found: LabeledRows) -> str:
    """State why to label these rows next, or that more labels hardly help."""
    if is_certain(found):
        return (
            "More labels are unlikely to change much: most of the rows to label next already have "
            f"a confidence of {TARGET:g} or more."
        )
    return (
        "These labels would help most: typical and uncertain rows, one per region, the most useful "
        "first."
    )


def _facts(found: LabeledRows) -> list[tuple[str, str]]:
    n, n_new = len(found.codes), int(found.is_new.sum())
    facts = [
        ("rows", number(n, 0)),
        ("given labels", number(n - n_new, 0)),
        ("new labels", number(n_new, 0)),
        ("classes", number(len(found.classes), 0)),
    ]
    if found.accuracy is not None and n_new:
        facts.append(("estimated accuracy", percent(100 * found.accuracy.estimate)))
    return facts


def _shown_rows(n_shown: int, n_new: int) -> str:
    if n_shown == n_new:
        return "All new labels."
    return f"{n_shown:,} of {n_new:,} new labels, drawn at random, with all that are listed below."


def _rows_on_map(
    found: LabeledRows, suggested: Ints, suspected: Ints, most: int
) -> tuple[Ints, Ints]:
    """Draw new labels and given ones for the map, with those that are listed."""
    rng = np.random.default_rng(0)

    def some(rows: Ints, most: int, listed: Ints) -> Ints:
        if len(rows) > most:
            rows = rng.choice(rows, most, replace=False)
        return np.union1d(rows, listed).astype(np.int64)

    new = some(np.flatnonzero(found.is_new), most, suggested)
    return new, some(np.flatnonzero(~found.is_new), MOST_GIVEN, suspected)


def _shown(thumbnails: Thumbnails, place: int) -> dict[str, str]:
    """Return the text of a row, or its image as the address of an image."""
    if thumbnails.texts:
        text = thumbnails.texts[place]
        return {"text": text if len(text) <= SHORT else f"{text[: SHORT - 1]}…", "picture": ""}
    if not thumbnails.sheet:
        return {"text": "", "picture": ""}
    from PIL import Image

    height, width = thumbnails.size
    left, top = place % thumbnails.n_columns * width, place // thumbnails.n_columns * height
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(thumbnails.sheet)) as sheet:
        sheet.crop((left, top, left + width, top + height)).save(buffer, "PNG")
    address = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return {"text": "", "picture": address}
