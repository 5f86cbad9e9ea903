"""What came out of the comparison of losses: tables of text, and the figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ssdml.experiments.compared_losses import LOSSES
from ssdml.experiments.loss_claims import FROM_ALL, FROM_FEW, Found
from ssdml.experiments.results import Row
from ssdml.experiments.statistics import Estimate, mean_interval, paired_difference

Scores = dict[str, list[float]]  # of each method, seed by seed


def by_method(rows: Sequence[Row], score: str = "R@1") -> Scores:
    """Scores of each method in the order of the seeds."""
    scores: Scores = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        scores.setdefault(row["method"], []).append(row["scores"][score])
    return scores


def gain(scores: Scores, name: str) -> Estimate | None:
    """Paired difference of a loss with a term from its base; None of a base."""
    compared = LOSSES[name]
    if compared.term is None or compared.base not in scores:
        return None
    return paired_difference(scores[name], scores[compared.base])


def loss_tables(found: Mapping[str, Found], score: str = "R@1") -> Iterator[str]:
    """Lines of text: a table a data set, a line a loss.

    Mean and half of the interval; the difference from the base; the setting chosen in each half.
    """
    for name, of in found.items():
        scores, few = by_method(of.scored, score), by_method(of.few, score)
        n_seeds = len(next(iter(scores.values())))
        yield f"{name}, {n_seeds} seeds: {score} of classes that were not learned"
        for loss, values in scores.items():
            mean = mean_interval(values)
            line = f"  {loss:15} {mean.mean:5.1f} ± {mean.half_width:4.1f}  "
            if loss in LOSSES:
                line += f"{_difference(gain(scores, loss)):20}"
                if few:
                    line += _difference(paired_difference(few[loss + FROM_ALL], few[loss + FROM_FEW]))
                line += "  " + " ".join(
                    "/".join(f"{value:g}" for value in half.best(loss).choice) for half in of.halves
                )
            yield line.rstrip()


def _difference(found: Estimate | None) -> str:
    if found is None:
        return ""
    star = "*" if found.excludes_zero else " "
    return f"{found.mean:+6.2f} ± {found.half_width:4.2f}{star}"


def draw_losses(found: Mapping[str, Found], path: Path) -> None:
    """Write the figure."""
