"""Scores and costs of a comparison, one line per method: the references, then the best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ssdml.datasets.budgets import Budget
from ssdml.experiments.analysis.formats import number
from ssdml.experiments.analysis.statistics import (
    Estimate,
    PairedTest,
    average_ranks,
    corrected_t_test,
    holm,
    mean_interval,
    p_value,
    paired_difference,
)
from ssdml.experiments.runs.results import LEFT_OUT, OK, Row, budget_of, methods_of
from ssdml.utils.typing import Floats

HEADLINE = ("NMI", "R@1", "accuracy")  # clustering, retrieval, classification
ALL_SCORES = ("NMI", "F1", "R@1", "R@2", "R@4", "R@8", "MAP@R", "accuracy")
REFERENCE = "input"
LEVEL = 0.05  # of significance
FIRST = (REFERENCE, "logistic", "knn", "poisson", "tabpfn")  # in every table: before the best


@dataclass(frozen=True)
class ScoreCell:
    """Mean of a score over the seeds and its paired difference from the reference."""

    estimate: Estimate
    difference: Estimate
    is_best: bool


@dataclass(frozen=True)
class MethodLine:
    """Scores and costs of a method, and its mean rank over the seeds by the main score."""

    method: str
    rank: float
    scores: dict[str, ScoreCell]
    fit: Estimate
    transform: Estimate
    memory: Estimate
    n_ok: int
    n_runs: int

    @property
    def is_embedding(self) -> bool:
        """Whether the method embeds samples; a classifier without a metric does not."""
        return self.scores["R@1"].estimate.n > 0

    @property
    def merit(self) -> tuple[float, float]:
        """Sort key of the best first: the rank, then the sum of the headline scores."""
        means = [self.scores[name].estimate.mean for name in HEADLINE]
        return self.rank, -float(np.nansum(means))

    @property
    def _order(self) -> tuple[bool, int, tuple[float, float]]:
        name = self.method.partition("[")[0].removesuffix("-tuned")
        place = FIRST.index(name) if name in FIRST else len(FIRST)
        return self.n_ok == 0, place, self.merit


@dataclass(frozen=True)
class ScoreTable:
    """All methods on one data set with one budget."""

    dataset: str
    labels_per_class: int
    seeds: list[int]
    reference: str
    lines: list[MethodLine]
    n_train: int
    n_labeled: int
    n_test: int
    budget: Budget

    @property
    def ranked(self) -> list[MethodLine]:
        """Embeddings from the best mean rank to the worst, then the others."""
        return sorted(self.lines, key=lambda line: (not line.is_embedding, line.merit))


def score_tables(rows: Sequence[Row]) -> list[ScoreTable]:
    """Make one table per data set and budget, in this order."""
    groups: dict[tuple[str, Budget], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], budget_of(row)), []).append(row)
    datasets = list(dict.fromkeys(dataset for dataset, _ in groups))
    order = sorted(groups, key=lambda key: (datasets.index(key[0]), *key[1].order))
    return [score_table(groups[key]) for key in order]


def conditions(rows: Sequence[Row]) -> list[list[Row]]:
    """Group rows by data set, imbalance, noise and the way labels are drawn.

    Runs with all labels join every way of drawing. Clean, balanced conditions come first.
    """
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    found: dict[tuple[int, float, float], dict[str, list[Row]]] = {}
    for row in rows:
        budget = budget_of(row)
        condition = names.index(row["dataset"]), budget.imbalance, budget.noise
        draw = "" if budget.n_labels is None else budget.draw
        found.setdefault(condition, {}).setdefault(draw, []).append(row)
    groups: list[list[Row]] = []
    for _, by_draw in sorted(found.items()):
        full = by_draw.pop("", [])
        groups += [by_draw[draw] + full for draw in sorted(by_draw)] or [full]
    return groups


def score_table(rows: Sequence[Row]) -> ScoreTable:
    """Make the table of the runs on one data set with one budget.

    Methods that cannot run with it have no line.
    """
    rows = [row for row in rows if row["status"] != LEFT_OUT] or rows
    methods = methods_of(rows)
    seeds = sorted({row["seed"] for row in rows})
    reference = REFERENCE if REFERENCE in methods else methods[0]
    names = dict.fromkeys((*ALL_SCORES, *(name for row in rows for name in row["scores"])))
    scores = {name: score_matrix(rows, methods, seeds, name) for name in names}
    ranks = average_ranks(scores[main_score(rows)])
    cells = {name: _cells(table, methods.index(reference)) for name, table in scores.items()}
    lines = [
        _line(
            [row for row in rows if row["method"] == method],
            float(ranks[i]),
            {name: column[i] for name, column in cells.items()},
        )
        for i, method in enumerate(methods)
    ]
    lines.sort(key=lambda line: line._order)
    first = rows[0]
    return ScoreTable(
        dataset=first["dataset"],
        labels_per_class=first["labels_per_class"],
        seeds=seeds,
        reference=reference,
        lines=lines,
        n_train=first["n_train"],
        n_labeled=first["n_labeled"],
        n_test=first["n_test"],
        budget=budget_of(first),
    )


def main_score(rows: Sequence[Row]) -> str:
    """Return the score that ranks methods: accuracy; R@1 if the test classes have no labels."""
    return "accuracy" if any("accuracy" in row["scores"] for row in rows) else "R@1"


def headline_table(tables: Sequence[ScoreTable]) -> ScoreTable:
    """Return the table with the most seeds; the middle one of several."""
    most = max(len(table.seeds) for table in tables)
    full = [table for table in tables if len(table.seeds) == most]
    return full[len(full) // 2]


def score_matrix(rows: Sequence[Row], methods: list[str], seeds: list[int], score: str) -> Floats:
    """Scores of shape (n_methods, n_seeds); NaN where a run failed or is missing."""
    table = np.full((len(methods), len(seeds)), np.nan)
    for row in rows:
        place = methods.index(row["method"]), seeds.index(row["seed"])
        table[place] = row["scores"].get(score, np.nan)
    return table


def _cells(table: Floats, reference: int) -> list[ScoreCell]:
    """Make one cell per method, a row of the table; all that print like the best are best."""
    estimates = [mean_interval(values) for values in table]
    highest = number(max((e.mean for e in estimates if e.n), default=np.nan))
    return [
        ScoreCell(
            e, paired_difference(values, table[reference]), e.n > 0 and number(e.mean) == highest
        )
        for e, values in zip(estimates, table, strict=True)
    ]


def _line(runs: Sequence[Row], rank: float, cells: dict[str, ScoreCell]) -> MethodLine:
    done = [row for row in runs if row["status"] == OK]
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


def mean_scores(rows: Sequence[Row], score: str) -> dict[str, float]:
    """Mean of each method over its finished seeds; NaN if there are none."""
    return {name: mean_interval(values).mean for name, values in _by_method(rows, score).items()}


def paired_tests(rows: Sequence[Row], reference: str, score: str) -> dict[str, PairedTest]:
    """Test the lead of the reference over each method by the corrected t-test.

    With fewer than five common seeds, p is NaN.

    Parameters
    ----------
    rows : sequence of dict
        Runs on one data set with one budget.
    reference : str
        A method among them.
    score : str

    Examples
    --------
    >>> runs = [("a", 0, 80.0), ("b", 0, 81.0), ("a", 1, 90.0), ("b", 1, 92.0)]
    >>> rows = [{"method": m, "seed": seed, "scores": {"NMI": value}, "n_test": 1, "n_train": 2}
    ...         for m, seed, value in runs]
    >>> round(paired_tests(rows, "b", "NMI")["a"].mean, 2)
    1.5
    """
    scores = _by_method(rows, score)
    share = rows[0]["n_test"] / rows[0]["n_train"]
    leads = {name: scores[reference] - values for name, values in scores.items()}
    tests = {name: corrected_t_test(lead, test_share=share) for name, lead in leads.items()}
    return {
        name: test._replace(p=p_value(test, int(np.isfinite(leads[name]).sum())))
        for name, test in tests.items()
    }


def differences_from(rows: Sequence[Row], reference: str, score: str) -> dict[str, PairedTest]:
    """Test every other method against the reference by the corrected t-test.

    The p-values are adjusted by Holm's method over these methods: one family per data set, budget
    and score, wherever its tests are shown. Parameters are those of :func:`paired_tests`.

    Returns
    -------
    tests : dict of PairedTest
        Method minus reference. With fewer than five common seeds, p is NaN.
    """
    leads = paired_tests(rows, reference, score)
    others = [name for name in leads if name != reference]
    adjusted = holm([leads[name].p for name in others])
    return {
        name: PairedTest(-leads[name].mean, float(p))
        for name, p in zip(others, adjusted, strict=True)
    }


def worse_than_best(rows: Sequence[Row], score: str) -> dict[str, float]:
    """P-values, at most 5%, of the methods that are significantly below the best one.

    They are those of :func:`differences_from`, which needs five seeds.

    Parameters
    ----------
    rows : sequence of dict
        Runs on one data set with one budget.
    score : str
    """
    means = mean_scores(rows, score)
    ranked = {name: mean for name, mean in means.items() if np.isfinite(mean)}
    if not ranked:
        return {}
    best = max(ranked, key=lambda name: ranked[name])
    tests = differences_from(rows, best, score)
    return {name: test.p for name, test in tests.items() if test.p < LEVEL and test.mean < 0}


def _by_method(rows: Sequence[Row], score: str) -> dict[str, Floats]:
    methods = methods_of(rows)
    seeds = sorted({row["seed"] for row in rows})
    return dict(zip(methods, score_matrix(rows, methods, seeds, score), strict=True))
