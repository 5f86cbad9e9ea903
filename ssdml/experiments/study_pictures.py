"""Pictures of a study: the critical difference, scores against wrong labels and imbalance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ssdml.budgets import Budget
from ssdml.experiments.figures import (
    Look,
    Picture,
    as_svg,
    draw_critical_difference,
    draw_label_curve,
    most_lines,
    new_figure,
)
from ssdml.experiments.statistics import Estimate
from ssdml.experiments.study import Ranking
from ssdml.experiments.tables import ScoreTable

AXES: dict[str, Callable[[Budget], float]] = {
    "wrong labels, %": lambda budget: 100 * budget.noise,
    "largest class over smallest": lambda budget: budget.imbalance,
}


def ranking_picture(ranking: Ranking, name: str, look: Mapping[str, Look]) -> Picture:
    """The critical-difference diagram of a ranking."""
    test, methods = ranking.test, ranking.methods
    told = ", ".join(f"{m} {r:.1f}" for m, r in zip(methods, test.ranks, strict=True))
    with new_figure(6.4, 1.6 + 0.2 * len(methods) * most_lines(methods)) as figure:
        draw_critical_difference(
            figure.subplots(),
            methods,
            test.ranks.tolist(),
            test.critical_difference,
            ranking.groups,
            look,
        )
        svg = as_svg(figure, f"{name}: mean ranks {told}")
    return Picture("Mean rank", svg)


def robustness_pictures(
    tables: Sequence[ScoreTable], headline: ScoreTable, look: Mapping[str, Look]
) -> list[Picture]:
    """The study's score with the headline's number of labels against each axis that varies."""
    base = headline.budget
    has_accuracy = any(line.scores["accuracy"].estimate.n for line in headline.lines)
    score = "accuracy" if has_accuracy else "R@1"
    methods = [line.method for line in headline.lines if line.n_ok]
    pictures = []
    for xlabel, place in AXES.items():
        curves: dict[str, dict[float, Estimate]] = {method: {} for method in methods}
        for table in tables:
            budget = table.budget
            same = (budget.n_labels, budget.draw) == (base.n_labels, base.draw)
            others = [at for at in AXES.values() if at is not place]
            if same and all(at(budget) == at(base) for at in others):
                for line in table.lines:
                    if line.n_ok and line.method in curves:
                        curves[line.method][place(budget)] = line.scores[score].estimate
        if len({at for curve in curves.values() for at in curve}) > 1:
            with new_figure(5.4, 3.9) as figure:
                draw_label_curve(figure.subplots(), curves, look, xlabel=xlabel)
                svg = as_svg(figure, f"{headline.dataset}: {score} against {xlabel}")
            pictures.append(Picture(f"{score} with {base.amount}", svg))
    return pictures
