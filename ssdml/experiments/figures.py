"""Figures of a report: curves over the number of labels, paired differences, maps.

Each ``draw_`` function draws on axes that it is given, so that the same drawing goes into the
report (SVG that follows the page's light or dark theme) and into a picture file.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

from ssdml.experiments.statistics import Estimate

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
    """How a method is drawn: a colour and, for those who do not see it, a marker."""

    color: str
    marker: str  # matplotlib's
    glyph: str  # the same in text


# Paul Tol's "vibrant" colours, which colour-blind eyes tell apart too.
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
    """Rows as dots in the colours of their classes, the labelled ones as stars."""
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
    """A colour a row: its class's. More than ten classes share the ten colours in turn."""
    return np.where(y < 0, MUTED, np.array(CLASS_COLORS)[y % len(CLASS_COLORS)])


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """A figure in the report's style, without pyplot's global state."""
    with matplotlib.rc_context(SETTINGS):
        yield Figure(figsize=(width, height), layout="constrained")


def as_svg(figure: Figure, description: str) -> str:
    """The figure as an ``<svg>`` element for a page: no outside reference, colours of the theme."""
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
