"""The numbers of a comparison, ready to print: a line a method, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ssdml.datasets.budgets import Budget
from ssdml.experiments.analysis.statistics import (
    Estimate,
    PairedTest,
    average_ranks,
    corrected_t_test,
    mean_interval,
    paired_difference,
)
from ssdml.experiments.runs.results import Row, budget_of
from ssdml.utils.typing import Floats

HEADLINE = ("NMI", "R@1", "accuracy")  # a clustering, a retrieval and a classification score
ALL_SCORES = ("NMI", "F1", "R@1", "R@2", "R@4", "R@8", "MAP@R", "accuracy")
REFERENCE = "input"


@dataclass(frozen=True)
class ScoreCell:
    """A method's score: its mean over the seeds, and its paired difference from the reference."""

    estimate: Estimate
    difference: Estimate
    is_best: bool


@dataclass(frozen=True)
class MethodLine:
    """A method's scores and costs, and its mean rank over the seeds and the headline scores."""

    method: str
    rank: float
    scores: dict[str, ScoreCell]
    fit: Estimate
    transform: Estimate
    memory: Estimate
    n_ok: int
    n_runs: int


@dataclass(frozen=True)
class ScoreTable:
    """All methods on one data set with one budget of labels."""

    dataset: str
    labels_per_class: int
    seeds: list[int]
    reference: str
    lines: list[MethodLine]
    n_train: int
    n_labeled: int
    n_test: int
    budget: Budget


def score_tables(rows: Sequence[Row]) -> list[ScoreTable]:
    """A table for each data set and budget, in this order."""
    groups: dict[tuple[str, Budget], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], budget_of(row)), []).append(row)
    datasets = list(dict.fromkeys(dataset for dataset, _ in groups))
    order = sorted(groups, key=lambda key: (datasets.index(key[0]), *key[1].order))
    return [score_table(groups[key]) for key in order]


def conditions(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each data set whose labels are drawn alike and are as often wrong.

    Runs with all labels stand beside those of every way to draw some.
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    full = [row for row in rows if budget_of(row).n_labels is None]
    for row in rows:
        budget = budget_of(row)
        if budget.n_labels is not None:
            groups.setdefault((row["dataset"], *budget.order[:-1]), []).append(row)
    for row in full:
        place = (row["dataset"], *budget_of(row).order[1:-1])
        alike = [group for key, group in groups.items() if (key[0], *key[2:]) == place]
        for group in alike or [groups.setdefault((row["dataset"], *budget_of(row).order), [])]:
            group.append(row)
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    # The plain one comes first: fewest wrong labels, classes most alike.
    keys = sorted(groups, key=lambda key: (names.index(str(key[0])), key[2:4], key[1]))
    return [groups[key] for key in keys]


def score_table(rows: Sequence[Row]) -> ScoreTable:
    """The table of the runs on one data set with one budget."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    seeds = sorted({row["seed"] for row in rows})
    reference = REFERENCE if REFERENCE in methods else methods[0]
    names = dict.fromkeys((*ALL_SCORES, *(name for row in rows for name in row["scores"])))
    scores = {name: by_seed(rows, methods, seeds, name) for name in names}
    ranks = average_ranks(np.hstack([scores[name] for name in HEADLINE]))
    cells = _cells(scores, methods, reference)
    lines = [
        _line([row for row in rows if row["method"] == method], float(rank), cells[method])
        for method, rank in zip(methods, ranks, strict=True)
    ]
    lines.sort(key=lambda line: (line.n_ok == 0, line.rank))
    first = rows[0]
    return ScoreTable(
        first["dataset"],
        first["labels_per_class"],
        seeds,
        reference,
        lines,
        first["n_train"],
        first["n_labeled"],
        first["n_test"],
        budget_of(first),
    )


def headline_table(tables: Sequence[ScoreTable]) -> ScoreTable:
    """The table with the most seeds; among equals the one in the middle."""
    most = max(len(table.seeds) for table in tables)
    full = [table for table in tables if len(table.seeds) == most]
    return full[len(full) // 2]


def by_seed(rows: Sequence[Row], methods: list[str], seeds: list[int], score: str) -> Floats:
    """Table of methods by seeds; NaN where a run failed or is missing."""
    table = np.full((len(methods), len(seeds)), np.nan)
    for row in rows:
        place = methods.index(row["method"]), seeds.index(row["seed"])
        table[place] = row["scores"].get(score, np.nan)
    return table


def _cells(
    scores: dict[str, Floats], methods: list[str], reference: str
) -> dict[str, dict[str, ScoreCell]]:
    """For each method, a cell for each score."""
    cells: dict[str, dict[str, ScoreCell]] = {method: {} for method in methods}
    for name, table in scores.items():
        estimates = [mean_interval(values) for values in table]
        highest = max((e.mean for e in estimates if e.n), default=np.nan)
        for method, values, estimate in zip(methods, table, estimates, strict=True):
            difference = paired_difference(values, table[methods.index(reference)])
            cells[method][name] = ScoreCell(estimate, difference, estimate.mean == highest)
    return cells


def _line(runs: Sequence[Row], rank: float, cells: dict[str, ScoreCell]) -> MethodLine:
    done = [row for row in runs if row["status"] == "ok"]
    return MethodLine(
        runs[0]["method"],
        rank,
        cells,
        fit=mean_interval([row["seconds"]["fit"] for row in done]),
        transform=mean_interval([row["seconds"]["transform"] for row in done]),
        memory=mean_interval([row["peak_rss_mb"] for row in done]),
        n_ok=len(done),
        n_runs=len(runs),
    )


# Each method of a comparison against one of them, on the same labels, over the seeds.


def means(rows: Sequence[Row], score: str) -> dict[str, float]:
    """Mean of each method over the seeds that it finished; NaN where it finished none."""
    return {
        name: float(np.nanmean(values)) if np.isfinite(values).any() else np.nan
        for name, values in _scores(rows, score).items()
    }


def against(rows: Sequence[Row], reference: str, score: str) -> dict[str, PairedTest]:
    """By how much the reference is ahead of each method, and the corrected t-test of it.

    Parameters
    ----------
    rows : sequence of dict
        Runs on one data set with one budget of labels.
    reference : str
        A method among them.
    score : str

    Examples
    --------
    >>> runs = [("a", 0, 80.0), ("b", 0, 81.0), ("a", 1, 90.0), ("b", 1, 92.0)]
    >>> rows = [{"method": m, "seed": seed, "scores": {"NMI": value}, "n_test": 1, "n_train": 2}
    ...         for m, seed, value in runs]
    >>> round(against(rows, "b", "NMI")["a"].mean, 2)
    1.5
    """
    scores = _scores(rows, score)
    share = rows[0]["n_test"] / rows[0]["n_train"]
    return {
        name: corrected_t_test(scores[reference] - values, test_share=share)
        for name, values in scores.items()
    }


def _scores(rows: Sequence[Row], score: str) -> dict[str, Floats]:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    seeds = sorted({row["seed"] for row in rows})
    return dict(zip(methods, by_seed(rows, methods, seeds, score), strict=True))
