"""Tables and the figure of a comparison of losses, with published differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from reproduction.loss_search import ANY_RATE, FROM_ALL, FROM_FEW, RATE, Comparison
from reproduction.losses import LOSSES
from reproduction.published_losses import published_differences
from ssdml.experiments.analysis.statistics import Estimate, mean_interval, paired_difference
from ssdml.experiments.report.figures import MUTED, PAPER, draw_estimates, new_figure
from ssdml.experiments.report.styles import Style, method_styles
from ssdml.experiments.runs.results import Row
from ssdml.utils.persistence import atomic_write

Scores = dict[str, list[float]]  # per method, in the order of the seeds
Curves = dict[str, dict[float, Estimate]]  # per term and λ

OURS = ("proxy-gml", "dgcrl", "gcrl-batch")
THEIRS = ("softmax", "proxy-nca", "soft-triple", "gcrl")


def by_method(rows: Sequence[Row], score: str = "R@1") -> Scores:
    """Collect the scores of each method in the order of the seeds."""
    scores: Scores = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        scores.setdefault(row["method"], []).append(row["scores"][score])
    return scores


def gains(scores: Scores, kind: str = "") -> dict[str, Estimate]:
    """Paired difference of each term from its base, for one kind of runs (", any rate").

    Examples
    --------
    >>> found = gains({"triplet": [80.0, 90.0], "triplet+da": [81.0, 92.0]})
    >>> found["triplet+da"].mean
    1.5
    """
    found = {}
    for name, loss in LOSSES.items():
        if loss.term and {name + kind, loss.base + kind} <= scores.keys():
            found[name] = paired_difference(scores[name + kind], scores[loss.base + kind])
    return found


def loss_table(name: str, found: Comparison, score: str = "R@1") -> Iterator[str]:
    """Lines of one data set, one per loss.

    Columns: mean and half the width of the 95% interval; paired difference from the base, "*" where
    its interval excludes 0; the same at the best rates; with five labels per class, the difference
    that propagated labels make; and the setting chosen in each half of the classes (number of the
    base, learning rate, λ). Proxy losses are compared below, with published differences.

    With fewer than 20 classes all seeds train on the same half, so intervals cover initial weights
    and batches only; the first line says so.
    """
    scores, few = by_method(found.scored, score), by_method(found.few, score)
    added, tuned = gains(scores), gains(scores, ANY_RATE)
    n_seeds = len(next(iter(scores.values())))
    halves = len(found.halves)
    same = ", all of the same half" if halves == 1 < n_seeds else ""
    yield f"{name}, {n_seeds} seed{'s' * (n_seeds > 1)}{same}: {score} on unseen classes"
    heads = ("over its base", "at any rate", *(["propagated"] if few else []), "settings")
    yield f"  {'':21} {score:12}  " + "  ".join(f"{head:14}" for head in heads).rstrip()
    for loss, values in scores.items():
        mean = mean_interval(values)
        cells = [f"  {loss:21} {mean.mean:5.1f}{mean.margin('4.2f', ' ± ')}"]
        if loss in LOSSES:
            for of in (added, tuned):
                cells.append(format_difference(of[loss]) if loss in of else " " * 14)
            if few:
                carried = paired_difference(few[loss + FROM_ALL], few[loss + FROM_FEW])
                cells.append(format_difference(carried))
            chosen = [half.best(loss).choice for half in found.halves]
            cells.append(" ".join("/".join(f"{value:g}" for value in of) for of in chosen))
        yield "  ".join(cells).rstrip()
    for ours in OURS:
        for theirs in THEIRS:
            if ours in scores and theirs in scores:
                gap = paired_difference(scores[ours], scores[theirs])
                published = _published(ours, theirs, score)
                line = f"  {ours + ' - ' + theirs:24} {format_difference(gap)}"
                yield f"{line} published: {published}" if published else line.rstrip()


def summary_lines(found: Mapping[str, Comparison], score: str = "R@1") -> Iterator[str]:
    """Lines over data sets: how often each term improves or impairs its base significantly.

    The last column has the published differences.
    """
    added = {name: gains(by_method(of.scored, score)) for name, of in found.items()}
    yield f"{'':16}{'up':>4}{'down':>6}{'neither':>9}  data sets; published differences in {score}"
    for loss in dict.fromkeys(loss for of in added.values() for loss in of):
        every = [of[loss] for of in added.values() if loss in of]
        up = sum(estimate.low > 0 for estimate in every)
        down = sum(estimate.high < 0 for estimate in every)
        published = _published(loss, LOSSES[loss].base, score)
        yield f"{loss:16}{up:4}{down:6}{len(every) - up - down:9}  {published}".rstrip()


def _published(one: str, other: str, score: str) -> str:
    found = published_differences(one, other, score)
    return ", ".join(f"{dataset} {value:+.1f}" for dataset, value in found)


def format_difference(found: Estimate) -> str:
    """Format an estimate with its interval, if there is one, and a star if that excludes 0.

    Examples
    --------
    >>> format_difference(paired_difference([3.0, 4.1], [1.0, 2.0]))
    ' +2.05 ± 0.64*'
    """
    star = "*" if found.excludes_zero else " "
    return f"{found.mean:+6.2f}{found.margin('4.2f', ' ± ')}{star}"


def sensitivity(found: Comparison, base: str, score: str = "R@1") -> Curves:
    """Paired difference of each term from its chosen base on the held-out classes, by λ."""
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


def draw_sensitivity(axes: Axes, curves: Curves, styles: Mapping[str, Style]) -> None:
    """Draw differences against λ, one curve per term."""
    axes.axhline(0, color=MUTED, linewidth=1)
    for term, curve in curves.items():
        means = [estimate.mean for estimate in curve.values()]
        color, marker, _ = styles[term]
        axes.plot(list(curve), means, color=color, marker=marker, label=term)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("λ")
    axes.legend(frameon=False, fontsize="small")


def draw_losses(found: Mapping[str, Comparison], path: Path, score: str = "R@1") -> None:
    """Write a figure with a row per data set: gains, then sensitivity to λ per base."""
    terms = {loss.term: None for loss in LOSSES.values() if loss.term is not None}
    styles = method_styles(list(terms))
    names = [name for of in found.values() for name in of.halves[0].trials]
    bases = list(dict.fromkeys(LOSSES[name].base for name in names if LOSSES[name].term))
    with new_figure(3.4 + 2.9 * len(bases), 3.6 * len(found)) as figure:
        grid = figure.subplots(len(found), 1 + len(bases), squeeze=False)
        for row, (dataset, of) in zip(grid, found.items(), strict=True):
            added = gains(by_method(of.scored, score))
            draw_estimates(row[0], added, {name: styles[str(LOSSES[name].term)] for name in added})
            row[0].set_title(f"{dataset}: {score} over the base")
            for axes, base in zip(row[1:], bases, strict=True):
                draw_sensitivity(axes, sensitivity(of, base, score), styles)
                axes.set_title(f"{base}, held-out classes")
        with atomic_write(path) as unfinished:
            figure.savefig(unfinished, format="png", dpi=120, facecolor=PAPER)
