"""The command ``ssdml label``: the table with all its labels, and a page about them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ssdml.cli import samples
from ssdml.cli.model import Data, Labels
from ssdml.cli.options import (
    Encoding,
    FeatureColumns,
    Force,
    IdColumn,
    IgnoredColumns,
    LabelColumn,
    NoLabel,
    Seed,
    TextColumn,
    TextModel,
    Threads,
    refuse_to_replace,
    say,
)
from ssdml.cli.parsing import repeated

if TYPE_CHECKING:
    from ssdml.datasets.base import RawItems
    from ssdml.experiments.labeling.accuracy import Threshold
    from ssdml.experiments.labeling.labels import LabeledRows

NAMED = 5  # rows in a line


def label(
    ctx: typer.Context,
    data: Data,
    out: Annotated[
        Path,
        typer.Option(
            metavar="labeled.csv",
            help="File for the table: .csv, .tsv, .parquet, .feather, .jsonl or .xlsx.",
        ),
    ],
    labels: Labels = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="page.html", help="HTML report; default: next to the table."),
    ] = None,
    label: LabelColumn = None,
    text: TextColumn = None,
    id_column: IdColumn = None,
    features: FeatureColumns = None,
    ignore: IgnoredColumns = None,
    no_label: NoLabel = None,
    text_model: TextModel = None,
    encoding: Encoding = None,
    n_neighbors: Annotated[int, typer.Option(min=1, help="Neighbors in the graph.")] = 10,
    random_state: Seed = 0,
    n_jobs: Threads = -1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ignore the cached model, and fit from scratch.")
    ] = False,
    force: Force = False,
) -> None:
    """Label the unlabeled rows of a table, texts or images."""
    from ssdml.datasets.writing import check_folder, check_suffix, write_rows

    check_suffix(out)
    page = out.with_suffix(".html") if report is None else report
    for path in (out, page):
        refuse_to_replace(path, force)
    from ssdml.cli.terminal import log_lines
    from ssdml.datasets.loading import assembled
    from ssdml.datasets.reading.summary import counted
    from ssdml.experiments.labeling.kept import keep_model, kept_model
    from ssdml.experiments.labeling.labels import label_rows, labeled_columns
    from ssdml.experiments.report.labeled import render_page
    from ssdml.metric.estimator import SSDML
    from ssdml.utils.labels import is_unlabeled
    from ssdml.utils.persistence import atomic_write

    check_folder(page)
    start = time.perf_counter()
    choice = samples.chosen(label, text, id_column, features, ignore, texts=text_model is not None)
    raw, y, _ = samples.read_labeled(
        data, labels, choice, text_model=text_model, no_label=no_label, encoding=encoding, least=2
    )
    is_new = is_unlabeled(y)
    if is_new.all():
        raise ValueError(f"{data}: must have labels in some rows; got none. Label a few per class.")
    X, _ = samples.features_of(raw.items, raw.summary, y)
    model = SSDML(n_neighbors=n_neighbors, random_state=random_state, n_jobs=n_jobs, verbose=1)
    earlier = None if fresh else kept_model(model, X, y)
    with samples.told_once(raw.summary), log_lines(lambda: f"learning from {len(is_new)} rows"):
        if earlier is None:
            keep_model(model.fit(X, y), X)
        elif earlier.has_labels:
            model = earlier.model
        else:
            model = earlier.model.relabel(y)
    found = label_rows(model, is_new)
    columns = labeled_columns(raw, found)
    write_rows(out, columns, like=raw.table)
    told = _told(found)
    ids = _ids(raw)
    where = f"{out}: {len(is_new):,} rows in {time.perf_counter() - start:.0f} s, map: {page}"
    dataset = assembled(Path(data).stem, raw._replace(summary=None))  # it was completed above
    dataset = replace(dataset, summary=raw.summary)
    advice = f"{_place_of_labels(raw, data)}, then run: {repeated(ctx)}"
    with atomic_write(page) as unfinished:
        shown = render_page(found, dataset, ids, lead=told[0], advice=advice, footer=where)
        unfinished.write_text(shown, encoding="utf-8", errors="backslashreplace")  # of paths
    if earlier is not None and not earlier.has_labels:
        told.append(
            f"To save time, the graphs of the run of {earlier.day} with "
            f"{counted(earlier.n_labels, 'label')} were reused; --fresh fits from scratch."
        )
    for line in (*told, *_next(found, ids, advice), where):
        say(line)


def _ids(raw: RawItems) -> list[str]:
    """Return the names of the rows, or where they are in the file, such as "line 7"."""
    if raw.ids is not None:
        return [str(name) for name in raw.ids.tolist()]
    place = "row {}".format if raw.table is None else raw.table.place
    return [place(row) for row in range(len(raw.items))]


def _told(found: LabeledRows) -> list[str]:
    """Summarize the labels in lines; the first is that of the page."""
    from ssdml.datasets.reading.summary import counted

    n_new, accuracy = int(found.is_new.sum()), found.accuracy
    if not n_new:
        return [
            "All rows had a label; none is new. If one of the labels means unlabeled, name it: "
            "--no-label MARK."
        ]
    if accuracy is None:
        few, way_out = "one label per class", "two"
        if len(found.classes) == 1:
            few, way_out = "labels of one class", "samples of another"
        return [
            f"{counted(n_new, 'new label')}. The accuracy cannot be estimated from {few}; label "
            f"{way_out}."
        ]
    return [
        f"{counted(n_new, 'new label')}, expected accuracy {accuracy.estimate:.1%} "
        f"(95% interval: {accuracy.low:.1%} to {accuracy.high:.1%}), estimated by holding "
        f"out {_held_out(found)} in turn.",
        _threshold(found.threshold, accuracy.n_labels),
    ]


def _held_out(found: LabeledRows) -> str:
    """Count the labels that were held out, and say why others were not."""
    import numpy as np

    from ssdml.datasets.reading.summary import counted

    assert found.accuracy is not None
    given = np.bincount(found.codes[~found.is_new])
    n_held, n_alone = found.accuracy.n_labels, int((given == 1).sum())
    if n_held == given.sum():
        return f"the {n_held:,} given labels"
    some = f"{n_held:,} of the {counted(int(given.sum()), 'given label')}"
    if n_held + n_alone != given.sum():
        return some
    alone = "is the only one of its class" if n_alone == 1 else "are the only ones of their classes"
    return f"{some} ({n_alone:,} {alone})"


def _threshold(limit: Threshold | None, n_held: int) -> str:
    """State the confidence above which 95% of the labels are right."""
    from ssdml.experiments.labeling.accuracy import FEWEST

    if limit is not None:
        return (
            f"Of the {limit.n_rows:,} new labels with a confidence of {limit.confidence:.4f} or "
            f"more, at least 95% are right, with 90% certainty, as {limit.n_labels:,} held-out "
            "labels of such confidence show."
        )
    if n_held < FEWEST:
        return (
            f"A confidence threshold for 95% accuracy needs at least {FEWEST} held-out labels; got "
            f"{n_held:,}."
        )
    return (
        f"The {n_held:,} held-out labels are not enough to find a confidence above which 95% of "
        "the new labels are right (with 90% certainty)."
    )


def _place_of_labels(raw: RawItems, data: str) -> str:
    """Tell where labels are to be added."""
    if raw.table is not None:
        into = "the files of " * raw.table.path.is_dir()
        return f"Add the labels to {into}{raw.table.path}"
    if raw.ids is not None and len(raw.items.shape) > 2:
        return f"Move these images into the folders of their classes in {data}"
    return f"Add them to the labels of {data}"


def _next(found: LabeledRows, ids: list[str], advice: str) -> list[str]:
    """Tell which labels to check, and which rows to label."""
    from ssdml.datasets.reading.summary import counted
    from ssdml.experiments.report.labeled import is_certain, no_suspects, usefulness

    suspects = found.suspects
    lines = [no_suspects(found)]
    if len(suspects.rows):
        named = "; ".join(
            f"{ids[row]}: {given}, probably {other}"
            for row, given, other, _ in list(zip(*suspects, strict=True))[:NAMED]
        )
        more = ", ..." if len(suspects.rows) > NAMED else ""
        number = counted(len(suspects.rows), "given label")
        lines = [f"Suspected to be wrong: {number} ({named}{more})."]
    if len(found.next_rows):
        rows = ", ".join(ids[row] for row in found.next_rows[:NAMED].tolist())
        lines += [usefulness(found)] if is_certain(found) else []
        lines.append(f"Label next, most useful first: {rows}. {advice}")
    return lines
