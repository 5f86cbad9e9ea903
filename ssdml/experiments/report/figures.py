"""Figures of a report: curves over the number of labels, paired differences, maps.

Each ``draw_`` function draws on axes that it is given, so that the same drawing goes into the
report (SVG that follows the page's light or dark theme) and into a picture file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator

from ssdml.datasets.budgets import Budget
from ssdml.evaluation.calibration import Reliability
from ssdml.experiments.analysis.statistics import Estimate
from ssdml.experiments.analysis.study import Ranking
from ssdml.experiments.analysis.tables import ScoreTable
from ssdml.experiments.runs.details import MapSample, MinedSample
from ssdml.graphs.plotting import draw_on
from ssdml.utils.validation import UNLABELED

INK, MUTED, GRID, PAPER = "#1b2430", "#5c6673", "#dde2e8", "#fefefe"
THEMED = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)", PAPER: "var(--paper)"}
# M. Petroff, "Accessible color sequences for data visualization", 2021.
CLASS_COLORS = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
SETTINGS: Any = {
    "font.size": 10.5,
    "svg.fonttype": "none",  # text stays text: the page's own font, and it can be searched
    "svg.hashsalt": "ssdml",
    "text.parse_math": False,  # a "$" in a file's name is a dollar
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
LINE = 24  # characters of a method's name
BORDER: Any = {"markeredgecolor": PAPER, "markeredgewidth": 0.6}
STAR: Any = {"marker": "*", "edgecolors": INK}


class Picture(NamedTuple):
    """A figure, what stands over it, and what stands under it."""

    title: str
    svg: str
    caption: str = ""


class Look(NamedTuple):
    """How a method is drawn: a color and, for those who do not see it, a marker."""

    color: str
    marker: str  # matplotlib's
    glyph: str  # the same in text


# Paul Tol's "vibrant" colors, which color-blind eyes tell apart too.
LOOKS = {
    "input": Look("#7d8794", "o", "●"),
    "pca": Look("#33bbee", "s", "■"),
    "lda": Look("#ee3377", "^", "▲"),
    "nca": Look("#009988", "v", "▼"),
    "ssdml": Look("#0077bb", "D", "◆"),
    "ssdml-residual": Look("#ee7733", "P", "✚"),
    "ssdml-paper": Look("#aa3377", "X", "✖"),
}
OTHER_LOOKS = [
    Look("#aa8800", "s", "■"),
    Look("#cc3311", "D", "◆"),
    Look("#6699cc", "^", "▲"),
    Look("#bb5588", "v", "▼"),
    Look("#44aa99", "o", "●"),
    Look("#997766", "P", "✚"),
]


def looks(methods: Sequence[str]) -> dict[str, Look]:
    """A look for every method; those without one of their own share the rest in turn."""
    others = iter(OTHER_LOOKS * len(methods))
    return {name: LOOKS[name] if name in LOOKS else next(others) for name in methods}


def in_lines(name: str) -> str:
    r"""A method's name on as many lines as its parameters need.

    Examples
    --------
    >>> in_lines("ssdml[n_neighbors=20;decay=0.9;angle=35]").split("\n")
    ['ssdml[n_neighbors=20;', 'decay=0.9;angle=35]']
    """
    lines = [""]
    for part in re.findall(r"[^;]+;?", name):
        if lines[-1] and len(lines[-1] + part) > LINE:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def most_lines(names: Iterable[str]) -> int:
    """Lines that the longest of the names takes."""
    return max(in_lines(name).count("\n") + 1 for name in names)


def draw_label_curve(
    axes: Axes,
    curves: Mapping[str, Mapping[float, Estimate]],
    looks: Mapping[str, Look],
    *,
    xlabel: str = "labels a class",
) -> None:
    """Mean score and its interval against the number of labels, a curve a method.

    Infinitely many are all of them. What else a score stands against, `xlabel` says.
    """
    labels = sorted({count for curve in curves.values() for count in curve})
    for i, (name, curve) in enumerate(curves.items()):
        shift = 0.22 * (i - (len(curves) - 1) / 2) / max(1, len(curves) - 1)
        x = [labels.index(count) + shift for count in curve]
        means, errors = _bars(list(curve.values()))
        color, marker, _ = looks[name]
        axes.errorbar(x, means, errors, color=color, marker=marker, elinewidth=1, **BORDER)
    names = ["all" if np.isinf(count) else f"{count:g}" for count in labels]
    axes.set_xticks(range(len(labels)), names)
    axes.set_xlim(-0.35, len(labels) - 0.65)
    axes.set_xlabel(xlabel)
    _rule(axes, "y")


def draw_estimates(
    axes: Axes, estimates: Mapping[str, Estimate], looks: Mapping[str, Look], *, zero: bool = True
) -> None:
    """One estimate a line, its interval as a bar; a vertical line where there is no difference."""
    names = list(estimates)
    if zero:
        axes.axvline(0, color=MUTED, linewidth=1)
    means, errors = _bars(list(estimates.values()))
    for i, name in enumerate(names):
        color, marker, _ = looks[name]
        bar: Any = {"xerr": errors[:, i : i + 1], "elinewidth": 2, "markersize": 8}
        axes.errorbar(means[i], -i, color=color, marker=marker, linestyle="none", **bar, **BORDER)
    axes.set_yticks([-i for i in range(len(names))], [in_lines(name) for name in names])
    axes.set_ylim(-len(names) + 0.4, 0.6)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.margins(x=0.12)
    _rule(axes, "x")


def draw_critical_difference(
    axes: Axes,
    methods: Sequence[str],
    ranks: Sequence[float],
    difference: float,
    groups: Sequence[tuple[int, int]],
    looks: Mapping[str, Look],
) -> None:
    """Ranks on a line, the best at the left; a bar joins methods that are not told apart.

    The diagram of Demšar, "Statistical comparisons of classifiers over multiple data sets",
    JMLR 7, 2006, Figure 1. ``ranks`` rise; ``groups`` hold first and last methods.
    """
    n, top = len(methods), -0.45 * len(groups) - 0.3
    right = max(n, 1 + difference)
    axes.plot([1, n], [0, 0], color=MUTED, linewidth=1)
    for whole in range(1, n + 1):
        axes.plot([whole, whole], [0, 0.12], color=MUTED, linewidth=1)
        axes.text(whole, 0.25, str(whole), ha="center", va="bottom", color=MUTED)
    axes.plot([1, 1 + difference], [1.25, 1.25], color=INK, marker="|", linewidth=1.5)
    text = f"critical difference {difference:.1f}"
    axes.text(1, 1.45, text, ha="left", va="bottom", color=INK)
    for i, (first, last) in enumerate(groups):
        ends = [ranks[first] - 0.04, ranks[last] + 0.04]
        axes.plot(ends, [-0.45 * (i + 1)] * 2, color=INK, linewidth=4, solid_capstyle="round")
    n_left = (n + 1) // 2
    for i, (name, rank) in enumerate(zip(methods, ranks, strict=True)):
        depth = top - 0.65 * (i + 1 if i < n_left else n - i)
        side, align = (0.85, "right") if i < n_left else (right + 0.15, "left")
        color, marker, _ = looks[name]
        axes.plot([rank, rank, side], [0, depth, depth], color=GRID, linewidth=1, zorder=0)
        axes.plot(rank, 0, color=color, marker=marker, markersize=8, linestyle="none", **BORDER)
        axes.text(side, depth, f" {in_lines(name)} {rank:.1f} ", ha=align, va="center", color=INK)
    axes.set_ylim(top - 0.65 * (n_left + 0.6), 2.3)
    axes.set_axis_off()


def draw_map(
    axes: Axes,
    points: npt.NDArray[np.floating[Any]],
    colors: npt.NDArray[np.str_],
    is_labeled: npt.NDArray[np.bool_],
) -> None:
    """Rows as dots in the colors of their classes, the labeled ones as stars."""
    x, y = points.T
    dots, stars = ~is_labeled, is_labeled
    axes.scatter(x[dots], y[dots], s=11, c=colors[dots], alpha=0.8, linewidths=0, rasterized=True)
    size, edge = (90, 0.8) if stars.sum() <= 100 else (30, 0.5)
    axes.scatter(x[stars], y[stars], s=size, c=colors[stars], linewidths=edge, **STAR)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_box_aspect(1)
    axes.margins(0.04)
    for spine in axes.spines.values():
        spine.set_visible(False)


def name_classes(
    axes: Axes,
    points: npt.NDArray[np.floating[Any]],
    y: npt.NDArray[np.int64],
    names: Sequence[str],
) -> None:
    """Write each class's name at the median of its rows."""
    from matplotlib.patheffects import withStroke

    for c, name in enumerate(names):
        if (y == c).any():
            x, height = np.median(points[y == c], axis=0)
            text = axes.text(x, height, name, ha="center", va="center", weight="bold", size=13)
            text.set_path_effects([withStroke(linewidth=3, foreground=PAPER)])


def class_colors(y: npt.NDArray[np.int64]) -> npt.NDArray[np.str_]:
    """A color a row: its class's. More than ten classes share the ten colors in turn."""
    return np.where(y < 0, MUTED, np.array(CLASS_COLORS)[y % len(CLASS_COLORS)])


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """A figure in the report's style, without pyplot's global state."""
    with matplotlib.rc_context(SETTINGS):
        yield Figure(figsize=(width, height), layout="constrained")


def as_svg(figure: Figure, description: str) -> str:
    """The figure as an ``<svg>`` element for a page: no outside reference, colors of the theme."""
    buffer = io.StringIO()
    # The salt makes the ids of one figure differ from those of the next on the page.
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": description}):
        figure.savefig(buffer, format="svg", transparent=True, dpi=180, metadata={"Date": None})
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
    for color, variable in THEMED.items():
        svg = svg.replace(color, variable)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1)


def _rule(axes: Axes, axis: Literal["x", "y"]) -> None:
    """Lines across at the ticks of one axis, and nothing else that is not data."""
    axes.grid(axis=axis, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)


def _bars(estimates: list[Estimate]) -> tuple[list[float], npt.NDArray[np.float64]]:
    """Means, and the half widths (0 where unknown) as matplotlib's errorbar wants them."""
    widths = np.array([estimate.half_width for estimate in estimates], dtype=float)
    return [estimate.mean for estimate in estimates], np.tile(np.nan_to_num(widths), (2, 1))


# Pictures of how a method learned, and of how often it is right where it is sure.

SERIES = {  # of a history: what its entries call it, and what a reader does
    "loss": "loss",
    "objective": "objective of the metric",
    "purity": "triplets that are right, %",
    "agreement": "agreement with the graph",
    "changed": "rows that changed class, share",
}


def reliability_picture(method: str, dataset: str, bins: Reliability, look: Look) -> Picture:
    """Share of what is right against confidence, a dot a bin, its area by the number of rows."""
    described = f"{dataset}: share of rows that are right against confidence, {method}"
    with new_figure(3.7, 3.7) as figure:
        axes = figure.subplots()
        axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1, linestyle="--")
        axes.plot(100 * bins.confidence, 100 * bins.right, color=look.color, linewidth=1)
        area = 12 + 240 * bins.counts / bins.counts.max()
        axes.scatter(100 * bins.confidence, 100 * bins.right, s=area, c=look.color, alpha=0.75)
        axes.set(xlim=(-2, 104), ylim=(-2, 104), xlabel="confidence, %", ylabel="right, %")
        axes.set_box_aspect(1)
        svg = as_svg(figure, described)
    caption = f"Expected calibration error {bins.error:.1f} % over {bins.counts.sum()} rows."
    return Picture(method, svg, caption)


def history_pictures(
    histories: Mapping[str, Sequence[Mapping[str, Any]]], dataset: str, looks: Mapping[str, Look]
) -> list[Picture]:
    """A picture a quantity, a curve a method; none of what nobody has more than one value of."""
    pictures = []
    for name, title in SERIES.items():
        curves = {method: _series(history, name) for method, history in histories.items()}
        curves = {method: curve for method, curve in curves.items() if len(curve) > 1}
        if not curves:
            continue
        with new_figure(3.7, 3.0) as figure:
            axes = figure.subplots()
            for method, curve in curves.items():
                rounds, values = zip(*curve, strict=True)
                axes.plot(rounds, values, color=looks[method].color, marker=looks[method].marker)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_xlabel("round")
            axes.tick_params(axis="y", labelcolor=INK)
            svg = as_svg(figure, f"{dataset}: {title} by round of {', '.join(curves)}")
        pictures.append(Picture(title, svg, ", ".join(curves)))
    return pictures


def _series(history: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Rounds and values; of what holds before and after, what came after."""
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


# Maps in two dimensions of an embedding before and after learning, from the same rows.

SHORT = 3  # characters of a class name that fits among the dots


class ClassMap(NamedTuple):
    """Where the rows of an embedding lie on the map, and which classes they have."""

    points: npt.NDArray[np.floating[Any]]  # (n, 2)
    sample: MapSample
    class_names: Sequence[str]


def project(sample: MapSample) -> npt.NDArray[np.floating[Any]]:
    """Two coordinates a row by t-SNE, the same ones each time.

    Notes
    -----
    One thread: on a busy machine the threads of t-SNE wait for each other at every step, and it
    takes ten times as long.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    rows = sample.embedding
    if rows.shape[1] == 1:  # of two classes by LDA, say: PCA begins with two columns
        rows = np.hstack([rows, np.zeros_like(rows)])
    perplexity = min(30.0, (len(sample.y) - 1) / 3)
    with threadpool_limits(1):
        tsne = TSNE(init="pca", perplexity=perplexity, random_state=0, n_jobs=1)
        points: npt.NDArray[np.floating[Any]] = tsne.fit_transform(rows)
    return points


def draw_class_map(axes: Any, drawn: ClassMap) -> None:
    """Dots in the colors of their classes; the names among them where they are short."""
    draw_map(axes, drawn.points, class_colors(drawn.sample.y), drawn.sample.is_labeled)
    names = drawn.class_names
    if len(names) <= len(CLASS_COLORS) and max(map(len, names), default=0) <= SHORT:
        name_classes(axes, drawn.points, drawn.sample.y, names)


def map_svg(drawn: ClassMap, description: str) -> str:
    """The map as an ``<svg>`` element."""
    with new_figure(5.4, 5.4) as figure:
        draw_class_map(figure.subplots(), drawn)
        return as_svg(figure, description)


# The picture of what was mined around one labeled row, and what it shows in words.

WIDTH = 5.4  # of the picture, in inches


def class_texts(class_names: Sequence[str]) -> list[str]:
    """What stands for the classes in the circles: their names if these are short, else numbers."""
    if max(map(len, class_names), default=0) <= SHORT:
        return list(class_names)
    return [str(number) for number in range(len(class_names))]


def mined_words(mined: MinedSample, class_names: Sequence[str]) -> str:
    """What the picture shows, for those who do not see it."""
    around, y = mined.around, mined.y
    alike = y == y[0]
    other = ~alike & (y != UNLABELED)
    n, n_shown = around.n_neighbors, len(around.positives)
    return (
        f"A row of class {class_names[y[0]]}. Of its class are {alike[1 : n + 1].sum()} of its {n} "
        f"nearest rows and {alike[around.positives].sum()} of the {n_shown} positives; of another "
        f"class are {other[around.negatives].sum()} of the {n_shown} negatives. It has "
        f"{mined.n_triplets} triplets, {n_shown} of them shown."
    )


def mined_svg(mined: MinedSample, class_names: Sequence[str], description: str) -> str:
    """The picture as an ``<svg>`` element: in the circles stand the true classes."""
    texts = class_texts(class_names)
    with new_figure(WIDTH, 2 * WIDTH) as figure:
        axes = figure.subplots()
        axes.set_axis_off()
        figure.draw_without_rendering()  # so that the axes are as wide as they will be
        classes = ["?" if c == UNLABELED else texts[c] for c in mined.y.tolist()]
        draw_on(axes, mined.around, classes, texts)
        axes.set_title("")  # the page says it
        figure.set_size_inches(WIDTH, WIDTH * axes.get_data_ratio())
        return as_svg(figure, description)


# Pictures of a study: the critical difference, scores against wrong labels and imbalance.

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
