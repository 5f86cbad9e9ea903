"""The content of the report, one section per data set and condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ssdml.datasets.known.layouts import LAYOUTS
from ssdml.experiments.analysis.statistics import Estimate, mean_interval
from ssdml.experiments.analysis.study import Study, make_study
from ssdml.experiments.analysis.tables import ScoreTable, headline_table, main_score, score_tables
from ssdml.experiments.methods.registry import METHODS
from ssdml.experiments.report.explorer import Explorer, make_explorer
from ssdml.experiments.report.figures import (
    Picture,
    curve_pictures,
    difference_pictures,
    history_pictures,
    ranking_picture,
    reliability_picture,
    robustness_pictures,
)
from ssdml.experiments.report.styles import Style, method_styles
from ssdml.experiments.runs.details import RunDetails
from ssdml.experiments.runs.results import (
    FAILED,
    OK,
    Row,
    budget_of,
    methods_of,
    summarize_left_out,
)
from ssdml.experiments.runs.thumbnails import Thumbnails


class PurityLine(NamedTuple):
    """Correct triplets of a method, in percent over the seeds."""

    method: str
    n: Estimate
    positive: Estimate
    negative: Estimate
    both: Estimate
    weighted: Estimate


@dataclass(frozen=True)
class Section:
    """The report on one data set in one condition."""

    rows: Sequence[Row]
    styles: Mapping[str, Style]  # of all methods on the page
    headline: ScoreTable
    main_score: str  # of the ranks
    tables: list[ScoreTable]
    curves: list[Picture]
    differences: list[Picture]
    explorer: Explorer
    reliabilities: list[Picture]  # of methods with confidences
    histories: list[Picture]  # per quantity
    purity: list[PurityLine]
    failures: list[Row]
    left_out: list[str]  # a line per method and budget
    warnings: list[tuple[str, str]]  # methods, message
    parameters: list[tuple[str, str]]  # method, parameters
    command: str
    study: Study | None  # of several budgets
    ranking: Picture | None
    robustness: list[Picture]  # in the first section of a data set


def make_section(
    rows: Sequence[Row],
    details: Mapping[str, RunDetails | None],
    all_rows: Sequence[Row] = (),
    thumbnails: Callable[[str], Thumbnails | None] = lambda fingerprint: None,
    styles: Mapping[str, Style] | None = None,
) -> Section:
    """Make the section of the runs on one data set in one condition.

    Parameters
    ----------
    rows : sequence of dict
    details : dict of RunDetails
        By configuration hash.
    all_rows : sequence of dict
        Runs on the data set in all conditions, if the section compares these.
    thumbnails : callable
        Loads the thumbnails of a data set by its fingerprint.
    styles : dict of Style, optional
        Of all methods on the page.
    """
    styles = styles or method_styles(methods_of(rows))
    tables = score_tables(rows)
    headline = headline_table(tables)
    name = headline.dataset
    done = [(row, kept) for row in rows if (kept := details.get(row["config_hash"])) is not None]
    ranked: dict[str, list[RunDetails]] = {line.method: [] for line in headline.lines}
    for row, kept in done:
        if budget_of(row) == headline.budget and row["status"] == OK:
            ranked[row["method"]].append(kept)
    # The first seed alone keeps a sample of its embedding, and what belongs to it.
    mapped = {m: kept for m, runs in ranked.items() for kept in runs if kept.sample is not None}
    study = make_study(rows)
    ranking = None if study is None else study.ranking
    return Section(
        rows=rows,
        styles=styles,
        headline=headline,
        main_score=main_score(rows),
        tables=tables,
        curves=curve_pictures(tables, styles),
        differences=difference_pictures(headline, styles),
        explorer=make_explorer(headline, mapped, thumbnails),
        reliabilities=[
            reliability_picture(method, name, kept.answers.reliability, styles[method])
            for method, kept in mapped.items()
            if kept.answers is not None and kept.answers.reliability is not None
        ],
        histories=history_pictures({m: kept.history for m, kept in mapped.items()}, name, styles),
        purity=_purity(ranked),
        failures=[row for row in rows if row["status"] == FAILED],
        left_out=summarize_left_out(rows),
        warnings=_warnings(done),
        parameters=_parameters(done),
        command=_command(tables),
        study=study,
        ranking=None if ranking is None else ranking_picture(ranking, name, styles),
        robustness=robustness_pictures(score_tables(all_rows), headline, styles),
    )


def _purity(ranked: Mapping[str, Sequence[RunDetails]]) -> list[PurityLine]:
    lines = []
    for method, runs in ranked.items():
        found = [kept.purity for kept in runs if kept.purity]
        if found:
            shares = [mean_interval([p[name] for p in found]) for name in PurityLine._fields[1:]]
            lines.append(PurityLine(method, *shares))
    return lines


def _warnings(done: Sequence[tuple[Row, RunDetails]]) -> list[tuple[str, str]]:
    """List each message once, with its methods."""
    methods: dict[str, list[str]] = {}
    for row, kept in done:
        for message in kept.warnings:
            methods.setdefault(message, []).append(row["method"])
    return [(", ".join(dict.fromkeys(names)), message) for message, names in methods.items()]


def _parameters(done: Sequence[tuple[Row, RunDetails]]) -> list[tuple[str, str]]:
    """List the parameters of each method, except seeds."""
    parameters: dict[str, str] = {}
    for row, kept in done:
        chosen = dict(kept.config["parameters"])
        name = chosen.pop("class")
        shown = [f"{k}={v!r}" for k, v in chosen.items() if k.split("__")[-1] != "random_state"]
        parameters.setdefault(row["method"], f"{name}({', '.join(shown)})")
    return list(parameters.items())


def _command(tables: Sequence[ScoreTable]) -> str:
    """Return the command that repeats the runs; empty if no short command does."""
    headline = headline_table(tables)
    names = {line.method for line in headline.lines}
    seeds = list(range(len(headline.seeds)))
    if headline.dataset not in LAYOUTS or not names <= METHODS.keys() or headline.seeds != seeds:
        return ""
    if not all(table.budget.is_plain for table in tables):
        return ""
    methods = ",".join(name for name in METHODS if name in names)
    labels = ",".join(str(t.labels_per_class) for t in tables if t.seeds == headline.seeds)
    return (
        f"ssdml compare --dataset {headline.dataset} --methods {methods} "
        f"--labels-per-class {labels} --seeds {len(seeds)} --out comparison"
    )
