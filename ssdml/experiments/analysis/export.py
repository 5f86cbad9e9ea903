"""Tables for a paper: LaTeX with booktabs, CSV, Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ssdml.datasets.budgets import Budget
from ssdml.experiments.analysis.statistics import MIN_SEEDS, Estimate
from ssdml.experiments.analysis.tables import (
    HEADLINE,
    LEVEL,
    ScoreTable,
    score_table,
    worse_than_best,
)
from ssdml.experiments.runs.results import Row, budget_of

RANK = "rank"
ESCAPED = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{letter: f"${letter}$" for letter in "<>"},
}


class Cell(NamedTuple):
    """A mean score with its interval, and its place among the methods."""

    estimate: Estimate
    is_best: bool
    p: float | None  # of a score significantly below the best, else None


class Column(NamedTuple):
    """One score with one budget; methods that did not run are missing."""

    budget: Budget
    score: str
    cells: dict[str, Cell]


class PaperTable(NamedTuple):
    """All methods on one data set."""

    dataset: str
    methods: list[str]
    columns: list[Column]
    n_seeds: int
    caption: str


def export_tables(
    rows: Sequence[Row], form: str, scores: Sequence[str] | None = None, *, note: str = ""
) -> str:
    """Write one table per data set, the budgets side by side; CSV has one line per number.

    Means are over the seeds, with half the width of the 95% t-interval. The best mean, and any that
    prints the same, is bold; a star marks means that are significantly lower (paired t-test
    corrected for overlapping samples, Holm's method over the methods of a column; at least five
    seeds).

    Parameters
    ----------
    rows : sequence of dict
        Runs of a folder.
    form : {"latex", "csv", "markdown"}
        LaTeX needs the package booktabs.
    scores : sequence of str, optional
        Names of scores, or "rank" for the mean rank by the main score; one that no run has raises
        ValueError. By default, the rank and the main scores that runs have.
    note : str
        Appended to LaTeX and Markdown, as a comment in LaTeX.

    Examples
    --------
    >>> rows = [
    ...     {"dataset": "digits", "method": method, "seed": seed, "labels_per_class": 5,
    ...      "scores": {"NMI": value + seed}, "seconds": {"fit": 1.0, "transform": 1.0},
    ...      "n_train": 9, "n_labeled": 5, "n_test": 9, "peak_rss_mb": 1.0, "status": "ok"}
    ...     for method, value in (("input", 70.0), ("my_method", 80.0)) for seed in range(2)
    ... ]
    >>> print(export_tables(rows, "csv", ["NMI"]).splitlines()[1])
    digits,5 labels per class,input,NMI,70.5,64.1469,76.8531,2,False,
    """
    known = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    known += [RANK] * bool(known)
    if scores is None:
        scores = [name for name in (RANK, *HEADLINE) if name in known]
    unknown = [name for name in scores if name not in known]
    if unknown or not scores:
        raise ValueError(
            f"table: scores must be among {', '.join(known) or 'those of finished runs'}; got "
            f"{unknown[0] if unknown else 'none'!r}. Name others with --scores."
        )
    tables = [
        _paper_table([row for row in rows if row["dataset"] == name], scores)
        for name in dict.fromkeys(row["dataset"] for row in rows)
    ]
    return FORMATS[form](tables, note)


def _paper_table(rows: Sequence[Row], scores: Sequence[str]) -> PaperTable:
    budgets = sorted({budget_of(row) for row in rows}, key=lambda budget: budget.order)
    columns, found, tables = [], [], []
    for budget in budgets:
        group = [row for row in rows if budget_of(row) == budget]
        table = score_table(group)
        tables.append(table)
        found += [line.method for line in table.lines]
        for score in scores:
            if score == RANK:
                columns.append(Column(budget, score, _ranks(table)))
                continue
            worse = worse_than_best(group, score)
            cells = {
                line.method: Cell(
                    cell.estimate, cell.is_best, None if cell.is_best else worse.get(line.method)
                )
                for line in table.lines
                if (cell := line.scores[score]).estimate.n
            }
            if cells:
                columns.append(Column(budget, score, cells))
    n_seeds = min(len(table.seeds) for table in tables)
    caption = _caption(rows[0]["dataset"], tables, n_seeds)
    return PaperTable(rows[0]["dataset"], list(dict.fromkeys(found)), columns, n_seeds, caption)


def _ranks(table: ScoreTable) -> dict[str, Cell]:
    ranks = {line.method: line.rank for line in table.lines if line.rank == line.rank}
    best = round(min(ranks.values(), default=0.0), 1)
    return {
        method: Cell(Estimate(rank, np.nan, np.nan, len(table.seeds)), round(rank, 1) == best, None)
        for method, rank in ranks.items()
    }


def _caption(dataset: str, tables: Sequence[ScoreTable], n_seeds: int) -> str:
    seeds = f"{n_seeds} seeds" if n_seeds > 1 else "one seed"
    caption = f"{dataset}, {tables[0].n_test:,} test samples: mean over {seeds}"
    caption += " with half the width of the 95% t-interval" if n_seeds > 1 else ""
    caption += "; the best of a column is bold"
    if n_seeds < MIN_SEEDS:
        return f"{caption}. No tests: p-values need {MIN_SEEDS} seeds."
    return (
        f"{caption}. *: significantly below the best of its column (p < {LEVEL:g}; paired t-test "
        "corrected for overlapping samples, Holm's method over the methods of the column)."
    )


def latex(tables: Sequence[PaperTable], note: str) -> str:
    """Write tables in LaTeX; they need the package booktabs."""
    comment = f"% {note}\n" if note else ""
    return comment + "\n".join(_latex_table(table) for table in tables)


def _latex_table(table: PaperTable) -> str:
    groups, rules, first = [], [], 2
    for budget in dict.fromkeys(column.budget for column in table.columns):
        width = sum(column.budget == budget for column in table.columns)
        groups.append(rf"\multicolumn{{{width}}}{{c}}{{{escaped(str(budget))}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    body = [
        " & ".join([escaped(method), *(_latex_cell(column, method) for column in table.columns)])
        for method in table.methods
    ]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(table.caption)}}}",
        rf"\label{{tab:{''.join(c if c.isalnum() else '-' for c in table.dataset)}}}",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        f" & {' & '.join(groups)} " + r"\\",
        " ".join(rules),
        f"method & {' & '.join(escaped(column.score) for column in table.columns)} " + r"\\",
        r"\midrule",
        *(line + r" \\" for line in body),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_cell(column: Column, method: str) -> str:
    cell = column.cells.get(method)
    if cell is None:
        return "--"
    mean = f"{cell.estimate.mean:.1f}"
    text = rf"\textbf{{{mean}}}" if cell.is_best else mean
    text += "$^{*}$" if cell.p is not None else ""
    margin = rf" {{\scriptsize $\pm$ {cell.estimate.half_width:.1f}}}"
    return text + margin * cell.estimate.has_interval


def escaped(text: str) -> str:
    r"""Escape what LaTeX would read as a command.

    Examples
    --------
    >>> escaped("my_method, 10%")
    'my\\_method, 10\\%'
    """
    return "".join(ESCAPED.get(letter, letter) for letter in text)


def markdown(tables: Sequence[PaperTable], note: str) -> str:
    """Write tables in Markdown."""
    parts = [_markdown_table(table) for table in tables]
    return "\n".join([*parts, f"{note}\n"] if note else parts)


def _markdown_table(table: PaperTable) -> str:
    several = len({column.budget for column in table.columns}) > 1
    heads = [f"{c.score}, {c.budget}" if several else c.score for c in table.columns]
    lines = [["method", *heads], ["---", *["---:"] * len(heads)]]
    for method in table.methods:
        name = method.replace("|", r"\|")
        lines.append([name, *(_markdown_cell(column, method) for column in table.columns)])
    text = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([table.caption, "", *text]) + "\n"


def _markdown_cell(column: Column, method: str) -> str:
    cell = column.cells.get(method)
    if cell is None:
        return "–"
    mean = f"{cell.estimate.mean:.1f}"
    text = f"**{mean}**" if cell.is_best else mean
    return text + r"\*" * (cell.p is not None) + f" {cell.estimate.margin()}".rstrip()


def separated(tables: Sequence[PaperTable], note: str) -> str:
    """Write CSV, one line per data set, budget, method and score; the note is left out."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["dataset", "budget", "method", "score", "mean", "low", "high", "seeds", "best", "p"]
    )
    for table in tables:
        for column in table.columns:
            for method, (estimate, is_best, p) in column.cells.items():
                numbers = [f"{value:.6g}" if value == value else "" for value in estimate[:3]]
                place = [table.dataset, str(column.budget), method, column.score]
                mark = "" if p is None else f"{p:.3g}"
                writer.writerow([*place, *numbers, estimate.n, is_best, mark])
    return text.getvalue()


FORMATS: dict[str, Callable[[Sequence[PaperTable], str], str]] = {
    "latex": latex,
    "csv": separated,
    "markdown": markdown,
}
