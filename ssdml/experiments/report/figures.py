"""Figures of the report: curves, differences, ranks, calibration, histories, maps.

The ``draw_`` functions draw on given axes, for the report and for image files. The others return
pictures for the report: SVG in the colors of the page's theme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator

from ssdml.datasets.budgets import DRAWS, Budget
from ssdml.evaluation.calibration import Reliability
from ssdml.experiments.analysis.formats import number, percent
from ssdml.experiments.analysis.statistics import Estimate
from ssdml.experiments.analysis.study import Ranking
from ssdml.experiments.analysis.tables import HEADLINE, ScoreTable, headline_table
from ssdml.experiments.report.styles import Style, max_lines, wrap_name
from ssdml.experiments.runs.details import MapSample
from ssdml.metric.fitted.maps import CLASS_COLORS, map_rows, medoids, spread_colors
from ssdml.utils.typing import Floats, Ints

INK, MUTED, GRID, PAPER = "#1b2430", "#5c6673", "#dde2e8", "#fefefe"
THEME = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)", PAPER: "var(--paper)"}
SETTINGS: Any = {
    "font.size": 10.5,
    "svg.fonttype": "none",  # keep text searchable and in the page's font
    "svg.hashsalt": "ssdml",
    "text.parse_math": False,  # names may contain "$"
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.facecolor": PAPER,
    "axes.prop_cycle": cycler("color", CLASS_COLORS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "grid.color": GRID,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
}
BORDER: Any = {"markeredgecolor": PAPER, "markeredgewidth": 0.6}
MAX_CLASS_NAME = 12  # characters of a class name drawn on a map
MOST_PERCENT = 101.5  # end of an axis of scores: whole markers at 100%
CURVE_SCORES = ("NMI", "accuracy")
CURVE_SIZE = 5.4, 3.9
LEAST_ROUNDS = 3  # of a training history
HISTORY_TITLES = {
    "loss": "loss",
    "objective": "objective of the metric",
    "purity": "correct triplets, %",
    "agreement": "agreement with the graph",
    "changed": "share of samples that changed class",
}
CORRUPTIONS: dict[str, Callable[[Budget], float]] = {
    "wrong labels, %": lambda budget: 100 * budget.noise,
    "largest class over smallest": lambda budget: budget.imbalance,
}


class Picture(NamedTuple):
    """A figure with its title and caption."""

    title: str
    svg: str
    caption: str = ""


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Make a figure in the report's style, without pyplot's global state."""
    with matplotlib.rc_context(SETTINGS):
        yield Figure(figsize=(width, height), layout="constrained")


def as_svg(figure: Figure, description: str) -> str:
    """Convert a figure to an ``<svg>`` element without external references."""
    buffer = io.StringIO()
    # The salt makes the ids of the figures on a page distinct.
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": description}):
        figure.savefig(buffer, format="svg", transparent=True, dpi=120, metadata={"Date": None})
    svg = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
    for unwanted in (
        r"<metadata>.*?</metadata>",
        r"<style.*?</style>",
        r' xmlns(:\w+)?="[^"]*"',
        r'(?<=<g) id="[^"]*"',
        r'(?<=<svg) width="[^"]*" height="[^"]*"',
        r" font-family: [^;]*;",
    ):
        svg = re.sub(unwanted, "", svg, flags=re.DOTALL)
    for color, variable in THEME.items():
        svg = svg.replace(color, variable)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


def draw_curves(
    axes: Axes,
    curves: Mapping[str, Mapping[float, Estimate]],
    styles: Mapping[str, Style],
    *,
    xlabel: str = "labels per class",
) -> None:
    """Draw mean and interval against the number of labels, one curve per method.

    An infinite number stands for all labels.
    """
    counts = sorted({count for curve in curves.values() for count in curve})
    for i, (name, curve) in enumerate(curves.items()):
        shift = 0.22 * (i - (len(curves) - 1) / 2) / max(1, len(curves) - 1)
        x = [counts.index(count) + shift for count in curve]
        means, errors = _error_bars(list(curve.values()))
        axes.errorbar(x, means, errors, **styles[name].drawn(6), elinewidth=1, **BORDER)
    names = ["all" if np.isinf(count) else f"{count:g}" for count in counts]
    axes.set_xticks(range(len(counts)), names)
    axes.set_xlim(-0.35, len(counts) - 0.65)
    axes.set_xlabel(xlabel)
    axes.set_ylim(top=min(axes.get_ylim()[1], MOST_PERCENT))
    _show_grid(axes, "y")


def score_curves(
    tables: Sequence[ScoreTable],
    score: str,
    methods: Sequence[str],
    place: Callable[[Budget], float],
) -> dict[str, dict[float, Estimate]]:
    """Estimates of a score per method, by a number that the budgets of the tables differ in.

    Parameters
    ----------
    tables : sequence of ScoreTable
    score : str
    methods : sequence of str
        Methods to show; those without an estimate are left out.
    place : callable
        The number of a budget.
    """
    curves: dict[str, dict[float, Estimate]] = {method: {} for method in methods}
    for table in tables:
        for line in table.lines:
            if line.method in curves and (estimate := line.scores[score].estimate).n:
                curves[line.method][place(table.budget)] = estimate
    return {method: curve for method, curve in curves.items() if curve}


def label_curves(
    tables: Sequence[ScoreTable], headline: ScoreTable, score: str
) -> dict[str, dict[float, Estimate]]:
    """Estimates of a score by the number of labels, of the methods in the headline's order."""
    methods = [line.method for line in headline.lines if line.n_ok]
    return score_curves(tables, score, methods, lambda budget: budget.order[-1])


def curve_pictures(tables: Sequence[ScoreTable], styles: Mapping[str, Style]) -> list[Picture]:
    """Scores against the number of labels; empty for a single budget."""
    if len(tables) < 2:
        return []
    budget, headline = tables[0].budget, headline_table(tables)
    xlabel = DRAWS[budget.draw].format("labels")
    pictures = []
    for score in CURVE_SCORES:
        curves = label_curves(tables, headline, score)
        with new_figure(*CURVE_SIZE) as figure:
            draw_curves(figure.subplots(), curves, styles, xlabel=xlabel)
            description = f"{headline.dataset}: {score} against {xlabel}, {budget.condition}"
            pictures.append(Picture(score, as_svg(figure, description.rstrip(", "))))
    return pictures


def robustness_pictures(
    tables: Sequence[ScoreTable], headline: ScoreTable, styles: Mapping[str, Style]
) -> list[Picture]:
    """Score with the headline's number of labels against label noise and imbalance."""
    base = headline.budget
    has_accuracy = any(line.scores["accuracy"].estimate.n for line in headline.lines)
    score = "accuracy" if has_accuracy else "R@1"
    methods = [line.method for line in headline.lines if line.n_ok]
    pictures = []
    for xlabel, place in CORRUPTIONS.items():
        others = [other for other in CORRUPTIONS.values() if other is not place]
        alike = [
            table
            for table in tables
            if (table.budget.n_labels, table.budget.draw) == (base.n_labels, base.draw)
            and all(other(table.budget) == other(base) for other in others)
        ]
        curves = score_curves(alike, score, methods, place)
        if len({x for curve in curves.values() for x in curve}) > 1:
            with new_figure(*CURVE_SIZE) as figure:
                draw_curves(figure.subplots(), curves, styles, xlabel=xlabel)
                svg = as_svg(figure, f"{headline.dataset}: {score} against {xlabel}")
            pictures.append(Picture(f"{score} with {base.amount}", svg))
    return pictures


def draw_estimates(
    axes: Axes, estimates: Mapping[str, Estimate], styles: Mapping[str, Style], *, zero: bool = True
) -> None:
    """Draw one estimate per line with its interval; ``zero`` marks no difference."""
    if zero:
        axes.axvline(0, color=MUTED, linewidth=1)
    means, errors = _error_bars(list(estimates.values()))
    for i, name in enumerate(estimates):
        bar: Any = {"xerr": errors[:, i : i + 1], "elinewidth": 2, "linestyle": "none"}
        axes.errorbar(means[i], -i, **styles[name].drawn(8), **bar, **BORDER)
    n = len(estimates)
    axes.set_yticks([-i for i in range(n)], [wrap_name(name) for name in estimates])
    axes.set_ylim(-n + 0.4, 0.6)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.margins(x=0.12)
    _show_grid(axes, "x")


def differences_of(table: ScoreTable, score: str) -> dict[str, Estimate]:
    """Paired differences of the other methods from the reference, where there are any."""
    others = [line for line in table.lines if line.n_ok and line.method != table.reference]
    found = {line.method: line.scores[score].difference for line in others}
    return {method: difference for method, difference in found.items() if difference.n}


def difference_pictures(table: ScoreTable, styles: Mapping[str, Style]) -> list[Picture]:
    """Paired differences from the reference, one picture per headline score."""
    pictures = []
    for score in HEADLINE:
        estimates = differences_of(table, score)
        if not estimates:
            continue
        height = 0.6 + len(estimates) * (0.15 + 0.18 * max_lines(estimates))
        with new_figure(3.7, height) as figure:
            draw_estimates(figure.subplots(), estimates, styles)
            svg = as_svg(figure, f"{table.dataset}: {score}, difference from {table.reference}")
        pictures.append(Picture(score, svg))
    return pictures


def draw_critical_difference(axes: Axes, ranking: Ranking, styles: Mapping[str, Style]) -> None:
    """Draw a critical-difference diagram (Demšar, 2006, Figure 1), the best method at the left.

    A bar joins methods that do not differ significantly.
    """
    methods, groups = ranking.methods, ranking.groups
    ranks, difference = ranking.test.ranks.tolist(), ranking.test.critical_difference
    n, top = len(methods), -0.45 * len(groups) - 0.3
    right = max(n, 1 + difference)
    axes.plot([1, n], [0, 0], color=MUTED, linewidth=1)
    for tick in range(1, n + 1):
        axes.plot([tick, tick], [0, 0.12], color=MUTED, linewidth=1)
        axes.text(tick, 0.25, str(tick), ha="center", va="bottom", color=MUTED)
    axes.plot([1, 1 + difference], [1.25, 1.25], color=INK, marker="|", linewidth=1.5)
    text = f"critical difference {difference:.1f}"
    axes.text(1, 1.45, text, ha="left", va="bottom", color=INK)
    axes.text(1, 2.4, f"mean rank by {ranking.by}", ha="left", va="bottom", color=MUTED)
    for i, (first, last) in enumerate(groups):
        ends = [ranks[first] - 0.04, ranks[last] + 0.04]
        axes.plot(ends, [-0.45 * (i + 1)] * 2, color=INK, linewidth=4, solid_capstyle="round")
    n_left = (n + 1) // 2
    for i, (name, rank) in enumerate(zip(methods, ranks, strict=True)):
        depth = top - 0.65 * (i + 1 if i < n_left else n - i)
        side, align = (0.85, "right") if i < n_left else (right + 0.15, "left")
        axes.plot([rank, rank, side], [0, depth, depth], color=GRID, linewidth=1, zorder=0)
        axes.plot(rank, 0, **styles[name].drawn(8), linestyle="none", **BORDER)
        axes.text(side, depth, f" {wrap_name(name)} {rank:.1f} ", ha=align, va="center", color=INK)
    axes.set_ylim(top - 0.65 * (n_left + 0.6), 3.2)
    axes.set_axis_off()


def ranking_figure(ranking: Ranking, styles: Mapping[str, Style]) -> Figure:
    """The critical-difference diagram of a ranking."""
    methods = ranking.methods
    with new_figure(6.4, 1.8 + 0.2 * len(methods) * max_lines(methods)) as figure:
        draw_critical_difference(figure.subplots(), ranking, styles)
    return figure


def ranking_picture(ranking: Ranking, dataset: str, styles: Mapping[str, Style]) -> Picture:
    """The same for the report, described by its ranks."""
    pairs = zip(ranking.methods, ranking.test.ranks, strict=True)
    ranks = ", ".join(f"{method} {rank:.1f}" for method, rank in pairs)
    svg = as_svg(ranking_figure(ranking, styles), f"{dataset}: mean rank by {ranking.by}: {ranks}")
    return Picture("Mean rank", svg)


def reliability_picture(method: str, dataset: str, bins: Reliability, style: Style) -> Picture:
    """Accuracy against confidence, one dot per bin, its area by the number of samples."""
    x, y = 100 * bins.confidence, 100 * bins.accuracy
    with new_figure(3.0, 3.0) as figure:
        axes = figure.subplots()
        axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1, linestyle="--")
        axes.plot(x, y, color=style.color, linewidth=1, clip_on=False)
        area = 12 + 240 * bins.counts / bins.counts.max()
        axes.scatter(x, y, s=area, c=style.color, alpha=0.75, clip_on=False)
        axes.set(xlim=(-2, 104), ylim=(-2, 104), xlabel="confidence, %", ylabel="accuracy, %")
        axes.set_box_aspect(1)
        svg = as_svg(figure, f"{dataset}: accuracy against confidence of {method}")
    n = number(int(bins.counts.sum()), 0)
    error = f"Expected calibration error {percent(bins.error)} over {n} samples."
    return Picture(method, svg, error)


def history_pictures(
    histories: Mapping[str, Sequence[Mapping[str, Any]]], dataset: str, styles: Mapping[str, Style]
) -> list[Picture]:
    """Training histories from zero, one picture per quantity with three values or more."""
    pictures = []
    for name, title in HISTORY_TITLES.items():
        curves = {method: _series(history, name) for method, history in histories.items()}
        curves = {method: curve for method, curve in curves.items() if len(curve) >= LEAST_ROUNDS}
        if not curves:
            continue
        with new_figure(3.0, 2.4) as figure:
            axes = figure.subplots()
            for method, curve in curves.items():
                rounds, values = zip(*curve, strict=True)
                axes.plot(rounds, values, **styles[method].drawn(6))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_xlabel("round")
            axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))  # small changes look small
            axes.tick_params(axis="y", labelcolor=INK)
            svg = as_svg(figure, f"{dataset}: {title} per round of {', '.join(curves)}")
        pictures.append(Picture(title, svg, ", ".join(curves)))
    return pictures


def _series(history: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Rounds and values of a quantity; the last value of a list."""
    found = []
    for i, entry in enumerate(history):
        value = entry.get(name)
        if isinstance(value, dict):
            value = value.get("both")
        if isinstance(value, list | tuple):
            value = value[-1] if value else None
        if isinstance(value, int | float) and np.isfinite(value):
            found.append((i + 1, float(value)))
    return found


class ClassMap(NamedTuple):
    """Positions of samples on a map, with their classes."""

    points: Floats  # (n, 2)
    sample: MapSample
    class_names: Sequence[str]
    colors: Ints  # (n_classes,), indices into CLASS_COLORS


def class_maps(samples: Mapping[str, MapSample], class_names: Sequence[str]) -> list[ClassMap]:
    """Lay out the same samples by several methods; classes have their colors on the last map."""
    if not samples:
        return []
    points = [map_rows(sample.embedding, n_jobs=1) for sample in samples.values()]
    last = list(samples.values())[-1]
    colors = spread_colors(points[-1], last.y, len(class_names))
    pairs = zip(points, samples.values(), strict=True)
    return [ClassMap(places, sample, class_names, colors) for places, sample in pairs]


def draw_class_map(axes: Axes, class_map: ClassMap) -> None:
    """Draw samples in the colors of their classes: dots, and stars for labeled ones.

    Up to ten classes are named at their medoids, if their names are short.
    """
    points, sample, names, chosen = class_map
    palette = np.array([*np.array(CLASS_COLORS)[chosen], MUTED])  # the last: without a class
    (x, y), colors, stars = points.T, palette[sample.y], sample.is_labeled
    dots = ~stars
    axes.scatter(x[dots], y[dots], s=11, c=colors[dots], linewidths=0, rasterized=True)
    size, edge = (45, 0.6) if stars.sum() <= 100 else (16, 0.4)
    star: Any = {"s": size, "linewidths": edge, "marker": "*", "edgecolors": INK}
    axes.scatter(x[stars], y[stars], c=colors[stars], **star)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_box_aspect(1)
    axes.margins(0.04)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if len(names) > len(CLASS_COLORS) or max(map(len, names), default=0) > MAX_CLASS_NAME:
        return
    for code, row in zip(*medoids(points, sample.y), strict=True):
        if code >= 0:
            left, height = points[row]
            text = axes.text(left, height, names[code], ha="center", va="center", weight="bold")
            text.set_path_effects([withStroke(linewidth=3, foreground=PAPER)])


def map_picture(method: str, dataset: str, class_map: ClassMap) -> Picture:
    """The map of a method's embedding."""
    with new_figure(5.4, 5.4) as figure:
        draw_class_map(figure.subplots(), class_map)
        return Picture(method, as_svg(figure, f"{dataset}: samples by {method}"))


def _show_grid(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Show grid lines of one axis instead of spines and ticks."""
    axes.grid(axis=axis, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)


def _error_bars(estimates: list[Estimate]) -> tuple[list[float], Floats]:
    """Means, and half widths (0 where unknown) in the form of errorbar."""
    widths = np.array([estimate.half_width for estimate in estimates], dtype=float)
    return [estimate.mean for estimate in estimates], np.tile(np.nan_to_num(widths), (2, 1))
