"""What came out of a comparison of losses as lines of text, what papers print beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from reproduction.loss_claims import ANY_RATE, FROM_ALL, FROM_FEW, RATE, Found
from reproduction.losses import LOSSES
from reproduction.printed_losses import printed_differences

from ssdml.experiments.analysis.statistics import Estimate, mean_interval, paired_difference
from ssdml.experiments.report.figures import (
    MUTED,
    OTHER_STYLES,
    PAPER,
    Style,
    draw_estimates,
    new_figure,
)
from ssdml.experiments.runs.results import Row
from ssdml.utils.persistence import atomic_write

Scores = dict[str, list[float]]  # of each method, seed by seed

OURS, THEIRS = ("proxy-gml", "dgcrl"), ("softmax", "proxy-nca", "soft-triple")


def by_method(rows: Sequence[Row], score: str = "R@1") -> Scores:
    """Scores of each method in the order of the seeds."""
    scores: Scores = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        scores.setdefault(row["method"], []).append(row["scores"][score])
    return scores


def gains(scores: Scores, kind: str = "") -> dict[str, Estimate]:
    """Paired difference of each loss with a term from its base, both of a kind: ", any rate".

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


def loss_table(name: str, found: Found, score: str = "R@1") -> Iterator[str]:
    """Lines of a data set, one a loss.

    Mean and half of the 95 % interval; the paired difference from the base, "*" where its interval
    excludes 0, and the same where both have their best rate; with five labels a class, the
    difference that propagated ones make; and the setting chosen in each half of the classes: number
    of the base, learning rate, λ. Losses of proxies stand against each other below, with what is
    printed of the two at equal dimension.

    Of less than 20 classes all seeds learn the same half: intervals are then those of first weights
    and batches, not of the choice of classes, and the first line says so.
    """
    scores, few = by_method(found.scored, score), by_method(found.few, score)
    added, tuned = gains(scores), gains(scores, ANY_RATE)
    n_seeds = len(next(iter(scores.values())))
    halves = len(found.halves)
    same = ", all of the same half" if halves == 1 < n_seeds else ""
    yield f"{name}, {n_seeds} seeds{same}: {score} of classes that were not learned"
    heads = ("over its base", "at any rate", *(["propagated"] if few else []), "settings")
    yield f"  {'':21} {score:12}  " + "  ".join(f"{head:14}" for head in heads).rstrip()
    for loss, values in scores.items():
        mean = mean_interval(values)
        cells = [f"  {loss:21} {mean.mean:5.1f}{mean.margin('4.2f', ' ± ')}"]
        if loss in LOSSES:
            for of in (added, tuned):
                cells.append(difference(of[loss]) if loss in of else " " * 14)
            if few:
                carried = paired_difference(few[loss + FROM_ALL], few[loss + FROM_FEW])
                cells.append(difference(carried))
            chosen = [half.best(loss).choice for half in found.halves]
            cells.append(" ".join("/".join(f"{value:g}" for value in of) for of in chosen))
        yield "  ".join(cells).rstrip()
    for ours in OURS:
        for theirs in THEIRS:
            if ours in scores and theirs in scores:
                against = paired_difference(scores[ours], scores[theirs])
                told = _told(ours, theirs, score)
                line = f"  {ours + ' - ' + theirs:24} {difference(against)}"
                yield f"{line} printed: {told}" if told else line.rstrip()


def verdicts(found: Mapping[str, Found], score: str = "R@1") -> Iterator[str]:
    """Lines over data sets: where each term raises its base, where it lowers it, where neither.

    Only an interval that excludes 0 counts. What the term's paper prints is the last column.
    """
    added = {name: gains(by_method(of.scored, score)) for name, of in found.items()}
    yield f"{'':16}{'up':>4}{'down':>6}{'neither':>9}  of the data sets; printed {score} of others"
    for loss in dict.fromkeys(loss for of in added.values() for loss in of):
        every = [of[loss] for of in added.values() if loss in of]
        up = sum(estimate.low > 0 for estimate in every)
        down = sum(estimate.high < 0 for estimate in every)
        told = _told(loss, LOSSES[loss].base, score)
        yield f"{loss:16}{up:4}{down:6}{len(every) - up - down:9}  {told}".rstrip()


def _told(one: str, other: str, score: str) -> str:
    """What papers print of one loss over another."""
    printed = printed_differences(one, other, score)
    return ", ".join(f"{dataset} {value:+.1f}" for _, dataset, value in printed)


def difference(found: Estimate) -> str:
    """An estimate as text, with a star where its interval excludes 0.

    Examples
    --------
    >>> difference(paired_difference([3.0, 4.1], [1.0, 2.0]))
    ' +2.05 ± 0.64*'
    """
    star = "*" if found.excludes_zero else " "
    return f"{found.mean:+6.2f} ± {found.half_width:4.2f}{star}"


# The figure of a comparison of losses: what terms add, and how that changes with λ.

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


def draw_sensitivity(axes: Axes, curves: Curves, styles: Mapping[str, Style]) -> None:
    """Differences against λ, a curve a term, on a logarithmic axis."""
    axes.axhline(0, color=MUTED, linewidth=1)
    for term, curve in curves.items():
        means = [estimate.mean for estimate in curve.values()]
        color, marker, _ = styles[term]
        axes.plot(list(curve), means, color=color, marker=marker, label=term)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("λ")
    axes.legend(frameon=False, fontsize="small")


def draw_losses(found: Mapping[str, Found], path: Path, score: str = "R@1") -> None:
    """Write a picture: a row a data set, the scored gains at the left, a base a column beside."""
    terms = {loss.term: None for loss in LOSSES.values() if loss.term is not None}
    styles = dict(zip(terms, OTHER_STYLES, strict=False))
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
