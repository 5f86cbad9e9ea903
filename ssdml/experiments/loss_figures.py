"""The figure of a comparison of losses: what terms add, and how that changes with λ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes

from ssdml.experiments.compared_losses import LOSSES
from ssdml.experiments.figures import MUTED, OTHER_LOOKS, PAPER, Look, draw_estimates, new_figure
from ssdml.experiments.loss_claims import RATE, Found
from ssdml.experiments.loss_tables import by_method, gains
from ssdml.experiments.statistics import Estimate, paired_difference
from ssdml.files import whole_file

Curves = dict[str, dict[float, Estimate]]  # by term and λ


def sensitivity(found: Found, base: str, score: str = "R@1") -> Curves:
    """What each term adds to a base on the held-out classes, at each λ that was tried.

    Cuts of all halves are paired, each with the base as it was chosen there.
    """
    curves: Curves = {}
    names = [name for name in found.halves[0].trials if LOSSES[name].base == base]
    for name in names:
        term = LOSSES[name].term
        if term is None:
            continue
        without: list[float] = []
        with_term: dict[float, list[float]] = {}
        for half in found.halves:
            without += [cut[score] for cut in half.best(base).scores]
            for trial in half.trials[name]:
                if trial.choice.learning_rate != RATE:
                    continue
                cuts = with_term.setdefault(trial.choice.weight, [])
                cuts += [cut[score] for cut in trial.scores]
        curves[term] = {
            weight: paired_difference(values, without) for weight, values in with_term.items()
        }
    return curves


def draw_sensitivity(axes: Axes, curves: Curves, looks: Mapping[str, Look]) -> None:
    """Differences against λ, a curve a term, on a logarithmic axis."""
    axes.axhline(0, color=MUTED, linewidth=1)
    for term, curve in curves.items():
        means = [estimate.mean for estimate in curve.values()]
        color, marker, _ = looks[term]
        axes.plot(list(curve), means, color=color, marker=marker, label=term)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("λ")
    axes.legend(frameon=False, fontsize="small")


def draw_losses(found: Mapping[str, Found], path: Path, score: str = "R@1") -> None:
    """Write a picture: a row a data set, the scored gains at the left, a base a column beside."""
    terms = {loss.term: None for loss in LOSSES.values() if loss.term is not None}
    looks = dict(zip(terms, OTHER_LOOKS, strict=False))
    names = [name for of in found.values() for name in of.halves[0].trials]
    bases = list(dict.fromkeys(LOSSES[name].base for name in names if LOSSES[name].term))
    with new_figure(3.4 + 2.9 * len(bases), 3.6 * len(found)) as figure:
        grid = figure.subplots(len(found), 1 + len(bases), squeeze=False)
        for row, (dataset, of) in zip(grid, found.items(), strict=True):
            added = gains(by_method(of.scored, score))
            draw_estimates(row[0], added, {name: looks[str(LOSSES[name].term)] for name in added})
            row[0].set_title(f"{dataset}: {score} over the base")
            for axes, base in zip(row[1:], bases, strict=True):
                draw_sensitivity(axes, sensitivity(of, base, score), looks)
                axes.set_title(f"{base}, held-out classes")
        with whole_file(path) as unfinished:
            figure.savefig(unfinished, format="png", dpi=120, facecolor=PAPER)
