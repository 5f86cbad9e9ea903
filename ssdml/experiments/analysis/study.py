"""Analysis of a study with several budgets: sufficient labels, differences, recommendation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.datasets.budgets import Budget
from ssdml.experiments.analysis.formats import interval, number, percent
from ssdml.experiments.analysis.statistics import (
    Estimate,
    PairedTest,
    RankTest,
    friedman_nemenyi,
    mean_interval,
)
from ssdml.experiments.analysis.tables import (
    differences_from,
    headline_table,
    main_score,
    score_matrix,
    score_tables,
)
from ssdml.experiments.runs.results import LEFT_OUT, Row, budget_of, methods_of
from ssdml.utils.typing import Floats, Indices

MARGIN = 1.0  # percentage points below another score that still match it
MIN_DATASETS = 3  # for ranks over data sets


@dataclass(frozen=True)
class StudyScores:
    """One score per method, budget and seed; NaN where a run failed."""

    dataset: str
    score: str
    methods: list[str]
    budgets: list[Budget]  # except that of all labels
    seeds: list[int]
    values: Floats  # (n_methods, n_budgets, n_seeds)
    full: Floats  # (n_methods, n_seeds), with all labels
    test_share: float  # n_test / n_train
    excluded: list[str]  # methods, budgets and seeds without all the runs of the others

    @property
    def averages(self) -> Floats:
        """Mean over the budgets, (n_methods, n_seeds): the area under the learning curve."""
        return self.values.mean(axis=1)

    @property
    def order(self) -> list[int]:
        """Methods from the highest mean to the lowest; those with failed runs come last."""
        means = np.nan_to_num(self.averages.mean(axis=1), nan=-np.inf)
        return [int(i) for i in np.argsort(-means, kind="stable")]


class Match(NamedTuple):
    """The fewest labels that match a score: by the mean, and by its 95% interval."""

    mean: Budget | None
    interval: Budget | None


class MatchLine(NamedTuple):
    """The fewest labels that match a method's own score and the best score with all labels."""

    method: str
    full: Estimate
    own: Match
    best: Match


class TestLine(NamedTuple):
    """Differences of a method from the reference per budget; NaN where it has no runs."""

    method: str
    tests: list[PairedTest]  # p is NaN for fewer than five seeds


class Ranking(NamedTuple):
    """Methods from the best mean rank to the worst."""

    methods: list[str]
    test: RankTest  # in the order of the methods
    n_blocks: int
    by: str  # what is ranked, over which blocks
    excluded: list[str]  # methods without a score in some block

    @property
    def groups(self) -> list[tuple[int, int]]:
        """First and last method of each group within the critical difference."""
        return rank_groups(self.test.ranks, self.test.critical_difference)


@dataclass(frozen=True)
class Study:
    """The analysis that the report shows."""

    scores: StudyScores
    recommendation: str
    matches: list[MatchLine]  # empty without runs with all labels
    target: str  # the best method with all labels
    reference: str  # the method with the highest mean
    tested: list[Budget]  # the budgets of the tests
    tests: list[TestLine]  # empty if the reference has failed runs
    ranking: Ranking | None

    @property
    def sufficient(self) -> list[str]:
        """State the fewest labels with which the recommended method matches all labels."""
        return [
            f"{line.method} with {line.best.mean.amount} is within {MARGIN:.0f} point of "
            f"{self.target} with all labels."
            for line in self.matches
            if line.method == self.reference and line.best.mean is not None
        ]


def make_study(rows: Sequence[Row]) -> Study | None:
    """Analyze the runs on one data set in one condition; None as in :func:`study_scores`."""
    scores = study_scores(rows)
    if scores is None or not np.isfinite(scores.averages).any():
        return None
    reference = scores.order[0]
    target = int(np.argmax(np.nan_to_num(scores.full.mean(axis=1), nan=-np.inf)))
    return Study(
        scores,
        recommendation(scores),
        _matches(scores, target),
        scores.methods[target],
        scores.methods[reference],
        *_tests(rows, scores, reference),
        rank_over_seeds(rows),
    )


def study_scores(rows: Sequence[Row]) -> StudyScores | None:
    """Accuracy per method, budget and seed; R@1 if the test classes have no labels.

    Means over different runs would not be comparable, so of the methods, budgets and seeds those
    are kept that have the most runs with none missing. A failed run is not missing; one that was
    left out is.

    Returns
    -------
    scores : StudyScores or None
        None for fewer than two budgets.
    """
    budgets = sorted({budget_of(row) for row in rows}, key=lambda budget: budget.order)
    few = [budget for budget in budgets if budget.n_labels is not None]
    methods = methods_of(rows)
    seeds = sorted({row["seed"] for row in rows})
    score = main_score(rows)
    table = np.full((len(methods), len(few) + 1, len(seeds)), np.nan)  # all labels come last
    ran = np.zeros(table.shape, dtype=bool)
    for row in rows:
        if row["status"] == LEFT_OUT:
            continue
        budget = budget_of(row)
        column = few.index(budget) if budget in few else len(few)
        cell = methods.index(row["method"]), column, seeds.index(row["seed"])
        table[cell] = row["scores"].get(score, np.nan)
        ran[cell] = True
    kept = most_runs(ran[:, :-1])
    kept_methods, kept_budgets, kept_seeds = kept
    has_full = bool(ran[kept_methods, -1][:, kept_seeds].any())
    if len(kept_budgets) + has_full < 2 or not len(kept_budgets) * len(kept_seeds):
        return None
    names = (methods, [budget.amount for budget in few], [f"seed {seed}" for seed in seeds])
    return StudyScores(
        dataset=rows[0]["dataset"],
        score=score,
        methods=[methods[i] for i in kept_methods],
        budgets=[few[i] for i in kept_budgets],
        seeds=[seeds[i] for i in kept_seeds],
        values=table[np.ix_(*kept)],
        full=table[kept_methods, -1][:, kept_seeds],
        test_share=rows[0]["n_test"] / rows[0]["n_train"],
        excluded=[
            name
            for axis, places in zip(names, kept, strict=True)
            for i, name in enumerate(axis)
            if i not in places
        ],
    )


def most_runs(ran: npt.NDArray[np.bool_]) -> tuple[Indices, Indices, Indices]:
    """Methods, budgets and seeds that have the most runs with none missing.

    Candidates are the budgets and seeds that two methods, or all, have in common.

    Examples
    --------
    >>> ran = np.ones((3, 2, 5), dtype=bool)
    >>> ran[2, :, 1:] = False  # the third method has run with one seed
    >>> most_runs(ran)
    (array([0, 1]), array([0, 1]), array([0, 1, 2, 3, 4]))
    """
    found = []
    for common in (ran.all(axis=0), *(a & b for a in ran for b in ran)):
        budgets, seeds = np.flatnonzero(common.any(axis=1)), np.flatnonzero(common.any(axis=0))
        grids = [(budgets, np.flatnonzero(common[budgets].all(axis=0)))]
        grids.append((np.flatnonzero(common[:, seeds].all(axis=1)), seeds))
        grids += [(budgets[i : i + 1], np.flatnonzero(common[b])) for i, b in enumerate(budgets)]
        for grid in grids:
            methods = np.flatnonzero(ran[np.ix_(np.arange(len(ran)), *grid)].all(axis=(1, 2)))
            found.append((methods, *grid))
    return max(found, key=lambda kept: kept[0].size * kept[1].size * kept[2].size)


def matching_budget(differences: Floats, *, test_share: float) -> tuple[int | None, int | None]:
    """First budget from which on a score matches another one, by mean and by interval.

    The mean, or the lower end of its interval, may be one percentage point below.

    Parameters
    ----------
    differences : ndarray of shape (n_budgets, n_seeds)
        Score with each budget minus the score to match, per seed.
    test_share : float
        As in :func:`ssdml.experiments.analysis.statistics.mean_interval`.

    Examples
    --------
    >>> matching_budget(np.array([[-9.0, -7.0], [-1.5, 0.5], [0.0, 0.1]]), test_share=0.0)
    (1, 2)
    """
    finished = np.isfinite(differences).all(axis=1)
    estimates = [mean_interval(values, test_share=test_share) for values in differences]
    mean, low = (np.array([getattr(e, end) for e in estimates]) for end in ("mean", "low"))
    return _last_start(finished & (mean >= -MARGIN)), _last_start(finished & (low >= -MARGIN))


def _last_start(holds: npt.NDArray[np.bool_]) -> int | None:
    """First place from which on all are true."""
    start = int(np.flatnonzero(np.append(True, ~holds))[-1])
    return start if start < len(holds) else None


def _matches(scores: StudyScores, target: int) -> list[MatchLine]:
    if not np.isfinite(scores.full).any():
        return []

    def match(values: Floats, wanted: Floats) -> Match:
        found = matching_budget(values - wanted, test_share=scores.test_share)
        return Match(*(None if place is None else scores.budgets[place] for place in found))

    best = scores.full[target]
    lines = [
        MatchLine(method, mean_interval(full), match(values, full), match(values, best))
        for method, values, full in zip(scores.methods, scores.values, scores.full, strict=True)
    ]
    return sorted(lines, key=lambda line: -np.nan_to_num(line.full.mean, nan=-np.inf))


def _tests(
    rows: Sequence[Row], scores: StudyScores, reference: int
) -> tuple[list[Budget], list[TestLine]]:
    """Test every other method against the reference with every budget, on all its seeds."""
    if not np.isfinite(scores.averages[reference]).all():
        return [], []
    name = scores.methods[reference]
    by_budget: dict[Budget, list[Row]] = {}
    for row in rows:
        if row["status"] != LEFT_OUT and budget_of(row).n_labels is not None:
            by_budget.setdefault(budget_of(row), []).append(row)
    tested = sorted(
        (b for b, group in by_budget.items() if any(row["method"] == name for row in group)),
        key=lambda budget: budget.order,
    )
    found = [differences_from(by_budget[budget], name, scores.score) for budget in tested]
    compared = [scores.methods[i] for i in scores.order]
    others = dict.fromkeys([*compared, *(method for tests in found for method in tests)])
    missing = PairedTest(np.nan, np.nan)
    return tested, [
        TestLine(method, [tests.get(method, missing) for tests in found])
        for method in others
        if method != name
    ]


def rank_over_seeds(rows: Sequence[Row]) -> Ranking | None:
    """Rank methods with the seeds of the headline's budget as blocks.

    The ranks are those of the headline's table.

    Returns
    -------
    ranking : Ranking or None
        None for fewer than 3 methods without failed runs, or 2 seeds.

    Notes
    -----
    Friedman's test needs independent blocks. The budgets of a seed are not independent, because
    its smaller label sets are subsets of its larger ones, so one budget counts. The result holds
    for this data set, over draws of labels.
    """
    table = headline_table(score_tables(rows))
    kept = [row for row in rows if budget_of(row) == table.budget and row["status"] != LEFT_OUT]
    score = main_score(kept)
    methods = methods_of(kept)
    by = f"{score} with {table.budget}, over {len(table.seeds)} seeds"
    return _ranking(methods, score_matrix(kept, methods, table.seeds, score), by)


def rank_over_datasets(studies: Sequence[Study]) -> Ranking | None:
    """Rank methods with data sets as blocks (Demšar, 2006); None for fewer than 3 data sets."""
    if len({study.scores.dataset for study in studies}) < MIN_DATASETS:
        return None
    methods = list(dict.fromkeys(name for study in studies for name in study.scores.methods))
    table = np.full((len(methods), len(studies)), np.nan)
    for column, study in enumerate(studies):
        means = study.scores.averages.mean(axis=1)
        for name, mean in zip(study.scores.methods, means, strict=True):
            table[methods.index(name), column] = mean
    scores = " or ".join(dict.fromkeys(study.scores.score for study in studies))
    return _ranking(methods, table, f"mean {scores}, over {len(studies)} data sets")


def _ranking(methods: Sequence[str], table: Floats, by: str) -> Ranking | None:
    finished = np.isfinite(table).all(axis=1)
    if finished.sum() < 3 or table.shape[1] < 2:
        return None
    test = friedman_nemenyi(table[finished])
    order = np.argsort(test.ranks, kind="stable")
    ranked = [methods[i] for i in np.flatnonzero(finished)[order].tolist()]
    excluded = [methods[i] for i in np.flatnonzero(~finished).tolist()]
    return Ranking(ranked, test._replace(ranks=test.ranks[order]), table.shape[1], by, excluded)


def rank_groups(ranks: Floats, difference: float) -> list[tuple[int, int]]:
    """First and last of each maximal run of sorted ranks within the difference.

    Examples
    --------
    >>> rank_groups(np.array([1.0, 1.5, 3.0, 3.2, 6.0]), 2.0)
    [(0, 2), (1, 3)]
    """
    groups: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = int(np.searchsorted(ranks, rank + difference, side="right")) - 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def recommendation(scores: StudyScores) -> str:
    """Recommend the method with the highest mean over the budgets, with its uncertainty."""
    excluded = (
        " The means are over what ran in every combination, so these do not count: "
        f"{', '.join(scores.excluded)}."
    )
    return f"On {scores.dataset}, {_advice(scores)}{excluded * bool(scores.excluded)}"


def _advice(scores: StudyScores) -> str:
    best, *others = scores.order
    averages, budgets = scores.averages, scores.budgets
    span = f"over {budgets[0].n_labels} to" if len(budgets) > 1 else "with"
    span = f"{span} {budgets[-1].amount}"
    if not np.isfinite(averages[best]).all():
        return f"no method finished every run {span}, so none is recommended."
    name = scores.methods[best]
    mean = f"mean {scores.score} {percent(float(averages[best].mean()))} {span}"
    rivals = [i for i in others if np.isfinite(averages[i]).all()]
    if not rivals:
        finished = " that finished every run" if others else ""
        return f"{name} is the only method{finished}: {mean}."
    if len(scores.seeds) < 2:
        return f"use {name}: {mean}. One seed gives no interval; run at least five."
    gains = {
        i: mean_interval(averages[best] - averages[i], test_share=scores.test_share) for i in rivals
    }
    close = [scores.methods[i] for i in rivals if not gains[i].low > 0]
    second = gains[rivals[0]]
    lead = f"{number(second.mean)} points above {scores.methods[rivals[0]]}, the next best"
    detail = f"95% interval {interval(second)}, {len(scores.seeds)} seeds"
    if close:
        return (
            f"no clear winner: {name} has the highest {mean}, {lead} ({detail}), but "
            f"{', '.join(close)} may be as good."
        )
    return f"use {name}: {mean}, {lead} ({detail})."
