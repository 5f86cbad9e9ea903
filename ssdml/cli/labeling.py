"""``ssdml next``: which samples to label next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ssdml.cli import samples
from ssdml.cli.model import Model
from ssdml.cli.options import (
    Encoding,
    Force,
    IdColumn,
    LabelColumn,
    NoLabel,
    TextColumn,
    say,
)


def suggest_next(
    model: Model,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="The samples of the fit, in the same order.")
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="Number of samples.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option(metavar="next.csv", help="File for the list; default: standard output."),
    ] = None,
    label: LabelColumn = None,
    text: TextColumn = None,
    id_column: IdColumn = None,
    no_label: NoLabel = None,
    encoding: Encoding = None,
    force: Force = False,
) -> None:
    """List the samples whose labels would help most, with the model's guesses."""
    samples.check_out(out, force)
    import numpy as np

    from ssdml.cli.terminal import spinner
    from ssdml.datasets.reading.summary import counted
    from ssdml.metric.estimator import SSDML
    from ssdml.model_selection.labeling import suggest_labels
    from ssdml.utils.persistence import saved_config

    if saved_config(model).get("class") == "DeepSSDML":
        raise ValueError(
            f"{model} holds a network, for which no samples are suggested. `ssdml label` suggests "
            "images and others by their features."
        )
    learned = SSDML.load(model)
    choice = samples.chosen(label, text, id_column, needs_label=False)
    raw, X, (codes, _) = samples.read_new(model, data, choice, encoding, no_label)
    n_samples = len(learned.transduction_)
    if len(X) != n_samples:
        raise ValueError(
            f"{data} must hold the {n_samples} samples of the fit; got {len(X)}. Pass the file "
            "that the model was fitted to."
        )
    others, compared = np.empty(0, int), learned.reference_rows_
    if learned.classifier_ is not None:
        compared = np.arange(n_samples) if compared is None else compared
        others = compared[learned.classifier_.other_rows(X[compared])]
    if len(others):
        first = raw.table.place(int(others[0])) if raw.table is not None else f"row {others[0]}"
        raise ValueError(
            f"{data} must hold the samples of the fit, in the same order; got others in "
            f"{len(others)} of {n_samples} rows, first in {first}. Pass the file that the model "
            "was fitted to, or run `ssdml fit` again."
        )
    known = () if learned.labeled_rows_ is None else learned.labeled_rows_
    new = np.setdiff1d(np.flatnonzero(codes >= 0), known)  # labeled since the fit
    if len(known) == n_samples:
        raise ValueError(
            f"{model} must have unlabeled samples; all {n_samples} had a label. Add some without "
            "one to the file, and run `ssdml fit` again."
        )
    with spinner(f"choosing {n} of {n_samples} samples"):
        rows = suggest_labels(learned, max(n, min(n + len(new), n_samples - len(known))))
    rows = rows[~np.isin(rows, new)][:n]
    if len(new):
        say(
            f"{counted(len(new), 'label')} in {data} came after the fit and are not used; to use "
            "them, run `ssdml fit` again."
        )
    columns: dict[str, Any] = {
        **{name: every[rows] for name, every in samples.numbered(raw, n_samples).items()},
        "guess": learned.transduction_[rows],
        "confidence": learned.transduction_confidence_[rows].round(4),
        "novelty": learned.novelty_score()[rows].round(4),
    }
    if raw.table is not None and raw.ids is None:
        columns = {"place": list(map(raw.table.place, rows.tolist()))} | columns
    if raw.texts is not None:
        columns["text"] = np.asarray(raw.texts, dtype=object)[rows]
    samples.put_out(columns, out)
    if out is not None:
        say(f"{len(rows)} samples to label next: {out}")
