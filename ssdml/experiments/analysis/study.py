"""What a study says: how few labels are enough, which methods differ, and which one to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.datasets.budgets import Budget
from ssdml.experiments.analysis.formats import interval, number, signed
from ssdml.experiments.analysis.statistics import (
    Estimate,
    RankTest,
    corrected_interval,
    corrected_t_test,
    friedman_nemenyi,
    holm,
    mean_interval,
)
from ssdml.experiments.runs.results import Row, budget_of
from ssdml.utils.typing import Floats, Indices

MARGIN = 1.0  # percentage points below another score that still match it
LEVEL = 0.05
FEWEST_DATASETS = 3  # over which methods are ranked


@dataclass(frozen=True)
class StudyScores:
    """One score of every method with every budget and seed; NaN where a run failed."""

    dataset: str
    score: str
    methods: list[str]
    budgets: list[Budget]  # without the one of all labels
    seeds: list[int]
    values: Floats  # (n_methods, n_budgets, n_seeds)
    full: Floats  # (n_methods, n_seeds), with all labels
    test_share: float  # test rows a training row
    left_out: list[str]  # methods, budgets and seeds that are not run with all that is here

    @property
    def averages(self) -> Floats:
        """Mean over the budgets, (n_methods, n_seeds): the area under the learning curve."""
        return self.values.mean(axis=1)


class MatchLine(NamedTuple):
    """The fewest labels with which a method is as good as with all, and as the best with all.

    ``None``: with none of the budgets. The second of a pair is the budget from which on the 95 %
    interval says so too.
    """

    method: str
    full: Estimate
    own: tuple[Budget | None, Budget | None]
    best: tuple[Budget | None, Budget | None]


class TestLine(NamedTuple):
    """Differences of a method from the one that is recommended, a budget each."""

    method: str
    differences: list[float]
    p: list[float]  # by Holm


class Ranking(NamedTuple):
    """Methods from the best rank to the worst, and from which rank to which none differ."""

    methods: list[str]
    test: RankTest  # in the order of the methods
    n_blocks: int
    left_out: list[str]  # methods without a score in some block

    @property
    def groups(self) -> list[tuple[int, int]]:
        """First and last of the methods that the critical difference does not tell apart."""
        return alike(self.test.ranks, self.test.critical_difference)


@dataclass(frozen=True)
class Study:
    """What the report shows of it."""

    scores: StudyScores
    recommendation: str
    matches: list[MatchLine]  # empty without runs that have all labels
    target: str  # the best method with all labels
    reference: str  # the method with the best mean
    tests: list[TestLine]  # empty where no method finished
    ranking: Ranking | None


def make_study(rows: Sequence[Row]) -> Study | None:
    """What the rows of one data set in one condition say; None as in `study_scores`."""
    scores = study_scores(rows)
    if scores is None or not np.isfinite(scores.averages).any():
        return None
    order = _from_best(scores)
    target = int(np.argmax(np.nan_to_num(scores.full.mean(axis=1), nan=-np.inf)))
    return Study(
        scores,
        recommendation(scores),
        _matches(scores, target),
        scores.methods[target],
        scores.methods[order[0]],
        _tests(scores, order[0]),
        rank_over_seeds(scores),
    )


def study_scores(rows: Sequence[Row]) -> StudyScores | None:
    """Accuracy, or R@1 where the scored classes have no labels.

    A run that is missing, other than one that failed, would leave means over different runs: so
    those methods, budgets and seeds are kept of which the most runs are there with none missing.
    None where they have fewer than two budgets.
    """
    budgets = sorted({budget_of(row) for row in rows}, key=lambda budget: budget.order)
    few = [budget for budget in budgets if budget.n_labels is not None]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    seeds = sorted({row["seed"] for row in rows})
    score = "accuracy" if any("accuracy" in row["scores"] for row in rows) else "R@1"
    table = np.full((len(methods), len(few) + 1, len(seeds)), np.nan)
    ran = np.zeros(table.shape, dtype=bool)
    for row in rows:
        budget = budget_of(row)
        place = few.index(budget) if budget in few else len(few)
        cell = methods.index(row["method"]), place, seeds.index(row["seed"])
        table[cell] = row["scores"].get(score, np.nan)
        ran[cell] = True
    kept = most_runs(ran[:, :-1])
    of_methods, of_budgets, of_seeds = kept
    n_budgets = len(of_budgets) + int(ran[of_methods, -1][:, of_seeds].any())
    if n_budgets < 2 or not len(of_budgets) * len(of_seeds):
        return None
    return StudyScores(
        rows[0]["dataset"],
        score,
        [methods[i] for i in of_methods],
        [few[i] for i in of_budgets],
        [seeds[i] for i in of_seeds],
        table[np.ix_(*kept)],
        table[of_methods, -1][:, of_seeds],
        rows[0]["n_test"] / rows[0]["n_train"],
        [
            *_without(methods, of_methods),
            *_without([budget.amount for budget in few], of_budgets),
            *_without([f"seed {seed}" for seed in seeds], of_seeds),
        ],
    )


def most_runs(ran: npt.NDArray[np.bool_]) -> tuple[Indices, Indices, Indices]:
    """Methods, budgets and seeds with no run missing among them, and as many runs as possible.

    Of the budgets and seeds that some two methods have in common; those of all, if that is no less.

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


def _without(names: Sequence[str], places: Indices) -> list[str]:
    return [name for i, name in enumerate(names) if i not in places]


def matching_budget(
    differences: Floats, *, test_share: float, margin: float = MARGIN
) -> tuple[int | None, int | None]:
    """The first budget from which on no difference falls below the margin: in the mean, and surely.

    Parameters
    ----------
    differences : ndarray of shape (n_budgets, n_seeds)
        Of the score with that budget from the one to be matched, on the same seed.
    test_share : float
        As in :func:`ssdml.experiments.analysis.statistics.corrected_interval`.
    margin : float
        Percentage points; the interval's lower end has to reach it for "surely".

    Examples
    --------
    >>> matching_budget(np.array([[-9.0, -7.0], [-1.5, 0.5], [0.0, 0.1]]), test_share=0.0)
    (1, 2)
    """
    estimates = [corrected_interval(values, test_share=test_share) for values in differences]
    whole = [bool(np.isfinite(values).all()) for values in differences]
    mean = [e.mean >= -margin and w for e, w in zip(estimates, whole, strict=True)]
    surely = [e.low >= -margin and w for e, w in zip(estimates, whole, strict=True)]
    return _from_which_on(mean), _from_which_on(surely)


def _from_which_on(holds: Sequence[bool]) -> int | None:
    missed = [i for i, fine in enumerate(holds) if not fine]
    first = missed[-1] + 1 if missed else 0
    return first if first < len(holds) else None


def _matches(scores: StudyScores, target: int) -> list[MatchLine]:
    if not np.isfinite(scores.full).any():
        return []
    lines = []
    for method, values, full in zip(scores.methods, scores.values, scores.full, strict=True):
        own, best = (_matching(scores, values - wanted) for wanted in (full, scores.full[target]))
        lines.append(MatchLine(method, mean_interval(full), own, best))
    return sorted(lines, key=lambda line: -np.nan_to_num(line.full.mean, nan=-np.inf))


def _matching(scores: StudyScores, differences: Floats) -> tuple[Budget | None, Budget | None]:
    mean, surely = matching_budget(differences, test_share=scores.test_share)
    return (
        None if mean is None else scores.budgets[mean],
        None if surely is None else scores.budgets[surely],
    )


def _tests(scores: StudyScores, reference: int) -> list[TestLine]:
    """Every other method against the reference with every budget, by Holm over all of them."""
    if not np.isfinite(scores.averages[reference]).all():
        return []
    differences = scores.values - scores.values[reference]
    tests = [
        [corrected_t_test(cell, test_share=scores.test_share) for cell in line]
        for line in differences
    ]
    p = np.array([[cell.p for cell in line] for line in tests])
    p[reference] = np.nan
    adjusted = holm(p)
    return [
        TestLine(scores.methods[i], [cell.mean for cell in tests[i]], adjusted[i].tolist())
        for i in _from_best(scores)
        if i != reference
    ]


def rank_over_seeds(scores: StudyScores) -> Ranking | None:
    """Ranks of the methods with a seed as a block; None for fewer than 3 methods or 2 seeds.

    Notes
    -----
    Friedman's test takes blocks that are independent. The budgets of one seed are not: the rows
    labeled at 1 a class are among those at 5. So a block is a seed, with the mean over its
    budgets, and not a seed with a budget, which would make the critical difference too small by
    the root of their number. What comes out holds for this data set, over draws of labeled rows;
    the seeds share the rows that these are drawn from.
    """
    return _ranking(scores.methods, scores.averages)


def rank_over_datasets(studies: Sequence[Study]) -> Ranking | None:
    """Ranks of the methods with a data set as a block, as Demšar has it; None for fewer than 3."""
    if len({study.scores.dataset for study in studies}) < FEWEST_DATASETS:
        return None
    methods = list(dict.fromkeys(name for study in studies for name in study.scores.methods))
    table = np.full((len(methods), len(studies)), np.nan)
    for column, study in enumerate(studies):
        means = study.scores.averages.mean(axis=1)
        for name, mean in zip(study.scores.methods, means, strict=True):
            table[methods.index(name), column] = mean
    return _ranking(methods, table)


def _ranking(methods: Sequence[str], table: Floats) -> Ranking | None:
    whole = [bool(np.isfinite(line).all()) for line in table]
    if sum(whole) < 3 or table.shape[1] < 2:
        return None
    test = friedman_nemenyi(table[whole])
    names = [name for name, is_whole in zip(methods, whole, strict=True) if is_whole]
    order = np.argsort(test.ranks, kind="stable")
    left_out = [name for name in methods if name not in names]
    ranked = [names[i] for i in order]
    return Ranking(ranked, test._replace(ranks=test.ranks[order]), table.shape[1], left_out)


def alike(ranks: Floats, difference: float) -> list[tuple[int, int]]:
    """First and last of each longest run of sorted ranks that lie within the difference.

    Examples
    --------
    >>> alike(np.array([1.0, 1.5, 3.0, 3.2, 6.0]), 2.0)
    [(0, 2), (1, 3)]
    """
    groups: list[tuple[int, int]] = []
    for first, rank in enumerate(ranks):
        last = int(np.searchsorted(ranks, rank + difference, side="right")) - 1
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def recommendation(scores: StudyScores) -> str:
    """The method with the highest mean over the budgets, how sure that is, and what is left out."""
    missing = f" Left out, where runs are missing: {', '.join(scores.left_out)}."
    return _advice(scores) + missing * bool(scores.left_out)


def _advice(scores: StudyScores) -> str:
    order = _from_best(scores)
    best = order[0]
    averages = scores.averages
    if not np.isfinite(averages[best]).all():
        return f"No method finished every run {_span(scores.budgets)}: none is recommended."
    mean = number(float(averages[best].mean()))
    what = f"{scores.score} is {mean} % on average {_span(scores.budgets)}"
    name = scores.methods[best]
    rivals = [i for i in order[1:] if np.isfinite(averages[i]).all()]
    if not rivals:
        finished = " that finished every run" if len(order) > 1 else ""
        return f"{name} is the only method{finished}: its {what}."
    if len(scores.seeds) < 2:
        return f"Take {name}: its {what}; one seed does not tell how sure that is, five do."
    gains = {
        i: corrected_interval(averages[best] - averages[i], test_share=scores.test_share)
        for i in rivals
    }
    near = [scores.methods[i] for i in rivals if not gains[i].low > 0]
    second, gain = scores.methods[rivals[0]], gains[rivals[0]]
    apart = f"{signed(gain.mean)} points from {second}, the next"
    sure = f"95 % interval {interval(gain)}, {len(scores.seeds)} seeds"
    if not near:
        return f"Take {name}: its {what}, {apart} ({sure})."
    others = ", ".join(near)
    return f"Take {name}, though {others} may be as good: its {what}, {apart} ({sure})."


def _from_best(scores: StudyScores) -> list[int]:
    """Methods by their means over budgets and seeds; those that failed somewhere come last."""
    means = np.nan_to_num(scores.averages.mean(axis=1), nan=-np.inf)
    return [int(i) for i in np.argsort(-means, kind="stable")]


def _span(budgets: Sequence[Budget]) -> str:
    if len(budgets) == 1:
        return f"with {budgets[0].amount}"
    return f"over {budgets[0].n_labels} to {budgets[-1].amount}"
