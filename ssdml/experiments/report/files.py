"""The report's figures as files, for a paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from ssdml.datasets.budgets import DRAWS
from ssdml.experiments.analysis.study import Study, make_study
from ssdml.experiments.analysis.tables import (
    HEADLINE,
    ScoreTable,
    conditions,
    headline_table,
    score_tables,
)
from ssdml.experiments.report.figures import (
    differences_of,
    draw_curves,
    draw_estimates,
    label_curves,
    new_figure,
    ranking_figure,
)
from ssdml.experiments.report.styles import Style, max_lines, method_styles, wrap_name
from ssdml.experiments.runs.folder import read_folder
from ssdml.experiments.runs.grid import safe_name
from ssdml.experiments.runs.results import latest, methods_of

FIGURES = "figures"
# Without a date, a figure of the same results is the same file.
FIGURE_FORMATS: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}


def save_figures(out: Path, form: str) -> list[Path]:
    """Write the figures of a folder's results into ``out/figures``.

    Scores against the number of labels, paired differences from the reference, and the
    critical-difference diagram, per data set and condition, as far as there are the runs for them.

    Parameters
    ----------
    out : path
        Folder that :func:`ssdml.experiments.compare` wrote.
    form : {"pdf", "svg"}

    Returns
    -------
    paths : list of Path
    """
    rows = latest(read_folder(out))
    styles = method_styles(methods_of(rows))
    written = []
    for group in conditions(rows):
        tables = score_tables(group)
        headline = headline_table(tables)
        condition = headline.budget.condition
        stem = safe_name("-".join(filter(None, [headline.dataset, condition])))
        figures = _differences(headline, styles)
        if len(tables) > 1:
            figures |= _curves(tables, headline, styles)
        figures |= _ranks(make_study(group), styles)
        for name, figure in figures.items():
            path = out / FIGURES / f"{stem}-{safe_name(name)}.{form}"
            path.parent.mkdir(parents=True, exist_ok=True)
            # Text stays text, and can be edited and searched.
            with matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "none"}):
                figure.savefig(path, metadata=FIGURE_FORMATS[form])
            written.append(path)
    return written


def _differences(table: ScoreTable, styles: Mapping[str, Style]) -> dict[str, Figure]:
    figures = {}
    for score in HEADLINE:
        if estimates := differences_of(table, score):
            with new_figure(4.2, 0.9 + len(estimates) * (0.15 + 0.18 * max_lines(estimates))) as f:
                axes = f.subplots()
                draw_estimates(axes, estimates, styles)
                axes.set_xlabel(f"{score}, difference from {table.reference}")
            figures[f"{score}-difference"] = f
    return figures


def _curves(
    tables: list[ScoreTable], headline: ScoreTable, styles: Mapping[str, Style]
) -> dict[str, Figure]:
    figures = {}
    xlabel = DRAWS[headline.budget.draw].format("labels")
    for score in HEADLINE:
        if curves := label_curves(tables, headline, score):
            with new_figure(7.0, 3.9) as figure:
                axes = figure.subplots()
                draw_curves(axes, curves, styles, xlabel=xlabel)
                axes.set_ylabel(f"{score}, %")
                handles: Any = axes.containers  # not in matplotlib's annotation
                figure.legend(
                    handles,
                    [wrap_name(name) for name in curves],
                    loc="outside right upper",
                    frameon=False,
                    fontsize=9,
                )
            figures[f"{score}-labels"] = figure
    return figures


def _ranks(study: Study | None, styles: Mapping[str, Style]) -> dict[str, Figure]:
    if study is None or study.ranking is None:
        return {}
    return {"ranks": ranking_figure(study.ranking, styles)}
