"""What the report says of one data set: tables, figures, triplets, failures, parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ssdml.datasets.budgets import DRAWS
from ssdml.datasets.loading import LAYOUTS
from ssdml.experiments.analysis.statistics import Estimate, mean_interval
from ssdml.experiments.analysis.study import Study, make_study
from ssdml.experiments.analysis.tables import HEADLINE, ScoreTable, headline_table, score_tables
from ssdml.experiments.methods.registry import METHODS
from ssdml.experiments.report.explorer import Atlas, make_atlas
from ssdml.experiments.report.figures import (
    Look,
    Picture,
    as_svg,
    class_texts,
    draw_estimates,
    draw_label_curve,
    history_pictures,
    looks,
    mined_svg,
    mined_words,
    most_lines,
    new_figure,
    ranking_picture,
    reliability_picture,
    robustness_pictures,
)
from ssdml.experiments.runs.details import RunDetails
from ssdml.experiments.runs.results import Row, budget_of
from ssdml.experiments.runs.thumbnails import Cards
from ssdml.utils.validation import UNLABELED

CURVES = ("NMI", "accuracy")
Done = list[tuple[Row, RunDetails]]


class PurityLine(NamedTuple):
    """How many of a method's triplets are right, in percent over the seeds."""

    method: str
    n: Estimate
    positive: Estimate
    negative: Estimate
    both: Estimate
    weighted: Estimate


@dataclass(frozen=True)
class Section:
    """One data set's part of the report."""

    rows: Sequence[Row]
    looks: Mapping[str, Look]  # of the methods on the page
    headline: ScoreTable
    tables: list[ScoreTable]
    curves: list[Picture]
    differences: list[Picture]
    atlas: Atlas
    reliabilities: list[Picture]  # of methods that say how sure they are
    histories: list[Picture]  # a quantity each
    purity: list[PurityLine]
    mined: list[Picture]  # by method, of those in `purity`
    mined_key: list[tuple[str, str]]  # number, class; empty where the pictures name the classes
    failures: list[Row]
    warnings: list[tuple[str, str]]  # methods, message
    parameters: list[tuple[str, str]]  # method, parameters
    command: str
    study: Study | None  # where there are several budgets
    ranking: Picture | None  # the critical-difference diagram of the study
    robustness: list[Picture]  # scores against wrong labels and imbalance, in the first condition


def make_section(
    rows: Sequence[Row],
    details: Mapping[str, RunDetails | None],
    every: Sequence[Row] = (),
    cards: Callable[[str], Cards | None] = lambda data: None,
    drawn_as: Mapping[str, Look] | None = None,
) -> Section:
    """Gather it from the rows of one data set in one condition; ``details`` go by hash.

    ``every``: the rows of the data set in all conditions, where the section is to compare them.
    ``cards`` gives those of a data set, by its fingerprint; ``drawn_as`` the looks of all methods
    on the page.
    """
    look = drawn_as or looks(list(dict.fromkeys(row["method"] for row in rows)))
    tables = score_tables(rows)
    headline = headline_table(tables)
    done: Done = []
    for row in rows:
        detail = details.get(row["config_hash"])
        if detail is not None:
            done.append((row, detail))
    at_headline = [
        (row, detail)
        for row, detail in done
        if budget_of(row) == headline.budget and row["status"] == "ok"
    ]
    mapped = {row["method"]: kept for row, kept in at_headline if kept.sample is not None}
    study = make_study(rows)
    ranking = None if study is None else study.ranking
    return Section(
        rows=rows,
        looks=look,
        headline=headline,
        tables=tables,
        curves=_curves(tables, look),
        differences=_differences(headline, look),
        atlas=make_atlas(headline, mapped, cards),
        reliabilities=_reliabilities(headline, mapped, look),
        histories=_histories(headline, mapped, look),
        purity=_purity(headline, at_headline),
        mined=_mined(headline, at_headline),
        mined_key=_mined_key(at_headline),
        failures=[row for row in rows if row["status"] != "ok"],
        warnings=_warnings(done),
        parameters=_parameters(done),
        command=_command(tables),
        study=study,
        ranking=None if ranking is None else ranking_picture(ranking, headline.dataset, look),
        robustness=robustness_pictures(score_tables(every), headline, look),
    )


def _reliabilities(
    table: ScoreTable, kept: Mapping[str, RunDetails], look: Mapping[str, Look]
) -> list[Picture]:
    """How often the methods are right where they are sure, in the order of their ranks."""
    methods = [line.method for line in table.lines]
    found = {
        method: answers.reliability
        for method in methods
        if method in kept and (answers := kept[method].answers) is not None
    }
    return [
        reliability_picture(method, table.dataset, bins, look[method])
        for method, bins in found.items()
        if bins is not None
    ]


def _histories(
    table: ScoreTable, kept: Mapping[str, RunDetails], look: Mapping[str, Look]
) -> list[Picture]:
    methods = [line.method for line in table.lines]
    histories = {method: kept[method].history for method in methods if method in kept}
    return history_pictures(histories, table.dataset, look)


def _curves(tables: Sequence[ScoreTable], look: Mapping[str, Look]) -> list[Picture]:
    """Scores against the number of labels; none where there is but one number."""
    if len(tables) < 2:
        return []
    methods = [line.method for line in headline_table(tables).lines if line.n_ok]
    pictures = []
    for score in CURVES:
        curves: dict[str, dict[float, Estimate]] = {method: {} for method in methods}
        for table in tables:
            for line in table.lines:
                if line.n_ok and line.method in curves:
                    count = table.budget.order[-1]
                    curves[line.method][count] = line.scores[score].estimate
        xlabel = DRAWS[tables[0].budget.draw].format("labels")
        with new_figure(5.4, 3.9) as figure:
            draw_label_curve(figure.subplots(), curves, look, xlabel=xlabel)
            described = f"{tables[0].dataset}: {score} against {xlabel}"
            svg = as_svg(figure, f"{described}, {tables[0].budget.condition}".rstrip(", "))
        pictures.append(Picture(score, svg))
    return pictures


def _differences(table: ScoreTable, look: Mapping[str, Look]) -> list[Picture]:
    """Paired differences from the reference, a picture a score."""
    lines = [line for line in table.lines if line.n_ok and line.method != table.reference]
    if not lines:
        return []
    pictures = []
    for score in HEADLINE:
        estimates = {line.method: line.scores[score].difference for line in lines}
        with new_figure(3.7, 0.6 + len(lines) * (0.15 + 0.18 * most_lines(estimates))) as figure:
            draw_estimates(figure.subplots(), estimates, look)
            svg = as_svg(figure, f"{table.dataset}: {score}, difference from {table.reference}")
        pictures.append(Picture(score, svg))
    return pictures


def _purity(table: ScoreTable, done: Done) -> list[PurityLine]:
    lines = []
    for line in table.lines:
        found = [
            detail.purity for row, detail in done if row["method"] == line.method and detail.purity
        ]
        if found:
            shares = {
                name: mean_interval([purity[name] for purity in found])
                for name in PurityLine._fields[1:]
            }
            lines.append(PurityLine(line.method, **shares))
    return lines


def _mined(table: ScoreTable, done: Done) -> list[Picture]:
    """What the methods mined around one row, in the order of their ranks."""
    found = {
        row["method"]: (detail.mined, detail.class_names)
        for row, detail in done
        if detail.mined is not None
    }
    pictures = []
    for method in (line.method for line in table.lines if line.method in found):
        words = mined_words(*found[method])
        svg = mined_svg(*found[method], f"{table.dataset}: mined by {method}. {words}")
        pictures.append(Picture(method, svg, words))
    return pictures


def _mined_key(done: Done) -> list[tuple[str, str]]:
    """Classes whose numbers stand in the pictures of :func:`_mined` for their names."""
    shown: dict[str, str] = {}
    for _, detail in done:
        if detail.mined is not None:
            texts, names = class_texts(detail.class_names), detail.class_names
            classes = sorted(set(detail.mined.y.tolist()) - {UNLABELED})
            shown |= {texts[c]: names[c] for c in classes}
    return [(text, name) for text, name in shown.items() if text != name]


def _warnings(done: Done) -> list[tuple[str, str]]:
    """Every message once, with the methods that gave it."""
    methods: dict[str, list[str]] = {}
    for row, detail in done:
        for message in detail.warnings:
            methods.setdefault(message, []).append(row["method"])
    return [(", ".join(dict.fromkeys(names)), message) for message, names in methods.items()]


def _parameters(done: Done) -> list[tuple[str, str]]:
    """Parameters of each method, the seed left out."""
    parameters: dict[str, str] = {}
    for row, detail in done:
        chosen = dict(detail.config["parameters"])
        name = chosen.pop("class")
        shown = [f"{k}={v!r}" for k, v in chosen.items() if k.split("__")[-1] != "random_state"]
        parameters.setdefault(row["method"], f"{name}({', '.join(shown)})")
    return list(parameters.items())


def _command(tables: Sequence[ScoreTable]) -> str:
    """What runs it again; empty where a name does not tell everything, as of a user's own file."""
    headline = headline_table(tables)
    names = {line.method for line in headline.lines}
    seeds = list(range(len(headline.seeds)))
    if headline.dataset not in LAYOUTS or not names <= METHODS.keys() or headline.seeds != seeds:
        return ""
    methods = ",".join(name for name in METHODS if name in names)
    if not all(table.budget.is_plain for table in tables):
        return ""
    labels = ",".join(str(t.labels_per_class) for t in tables if t.seeds == headline.seeds)
    return (
        f"ssdml compare --dataset {headline.dataset} --methods {methods} "
        f"--labels-per-class {labels} --seeds {len(seeds)} --out comparison"
    )
