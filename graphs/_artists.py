"""A neighbourhood as matplotlib draws it: edges, rows, marks of the triplets, legend, title."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ssdml.graphs._checks import UNLABELED
from ssdml.graphs._neighborhood import LEAST_GAP, Neighborhood, curves, positions, rings
from ssdml.utils.typing import Array, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

ALIKE, UNLIKE = "#0077bb", "#d55e00"  # blue and vermilion, which colour-blind eyes tell apart
LARGEST = 28.0  # points across a row


def draw_on(
    axes: Axes, shown: Neighborhood, texts: Sequence[str], class_names: Sequence[str] | None = None
) -> None:
    """Draw a neighbourhood on the axes, with its legend and title; ``texts`` go into the rows."""
    circles = rings(shown)
    places, reach = positions(circles), len(circles) - 0.65
    _draw_edges(axes, shown, places)
    dots = _draw_rows(axes, shown.labels, places, class_names) + _draw_marks(axes, shown, places)
    axes.set_title(_title(shown, class_names))
    axes.set_axis_off()
    legend = axes.legend(
        loc="lower center", ncols=2, frameon=False, markerscale=7 / LARGEST, labelspacing=0.7
    )
    # The legend stands in the axes, below the rings: no layout can cut it off.
    points = 72 / axes.figure.dpi
    box, below = axes.get_window_extent(), legend.get_window_extent().height * points
    width, height = box.width * points, box.height * points
    unit = max(min(width, height - below), 0.2 * height) / (2 * reach)  # points from ring to ring
    axes.set(xlim=(-reach, reach), ylim=(-reach - below / unit, reach), aspect="equal")
    # A diamond around a row is 1.3 √2 times as wide: it fits between the next ones.
    diameter = min(LARGEST, LEAST_GAP / (1.3 * np.sqrt(2)) * unit)
    for dot in dots:
        dot.set_sizes(dot.get_sizes() * (diameter / LARGEST) ** 2)
    _write(axes, shown.labels, places, diameter, texts)


def _draw_edges(axes: Axes, shown: Neighborhood, places: Array) -> None:
    from matplotlib import rcParams
    from matplotlib.collections import LineCollection

    lines, sizes = curves(*places[shown.edges.T]), np.abs(shown.affinities)
    widths = 0.5 + 2.5 * sizes / (sizes.max() or 1.0)
    kinds = (
        (shown.affinities > 0, ALIKE, "solid", "alike, up to {:+.2g}"),
        (shown.affinities < 0, UNLIKE, "dashed", "unlike, down to {:+.2g}"),
        (shown.affinities == 0, rcParams["grid.color"], "solid", "edge without affinity"),
    )
    for is_kind, color, style, label in kinds:
        # The widest first: under the others, and in the legend.
        order = np.flatnonzero(is_kind)[np.argsort(-sizes[is_kind], kind="stable")]
        if len(order):
            drawn = LineCollection(
                list(lines[order]),
                linewidths=widths[order],
                colors=color,
                linestyles=style,
                label=label.format(shown.affinities[order[0]]),
                zorder=1,
            )
            axes.add_collection(drawn)


def _draw_rows(
    axes: Axes, labels: Ints | None, places: Array, class_names: Sequence[str] | None
) -> list[PathCollection]:
    from matplotlib import rcParams

    look: Any = {
        "s": LARGEST**2,
        "edgecolors": rcParams["text.color"],
        "linewidths": 0.8,
        "zorder": 2,
    }
    if labels is None:
        return [axes.scatter(*places.T, facecolors=_fill(axes, UNLABELED), label="row", **look)]
    return [
        axes.scatter(
            *places[labels == label].T,
            facecolors=_fill(axes, label),
            label=_label_name(label, class_names),
            **look,
        )
        for label in sorted(set(labels.tolist()), key=lambda label: (label == UNLABELED, label))
    ]


def _draw_marks(axes: Axes, shown: Neighborhood, places: Array) -> list[PathCollection]:
    from matplotlib import rcParams

    marks: tuple[tuple[Any, str, str, str, str], ...] = (
        ([0], "o", rcParams["text.color"], "solid", "anchor"),
        (np.unique(shown.positives), "s", ALIKE, "solid", "positive of a triplet"),
        (np.unique(shown.negatives), "D", UNLIKE, "dashed", "negative of a triplet"),
    )
    look: Any = {"s": (1.3 * LARGEST) ** 2, "facecolors": "none", "linewidths": 2, "zorder": 3}
    return [
        axes.scatter(
            *places[marked].T,
            marker=marker,
            edgecolors=color,
            linestyles=style,
            label=label,
            **look,
        )
        for marked, marker, color, style, label in marks
        if len(marked)
    ]


def _write(
    axes: Axes, labels: Ints | None, places: Array, diameter: float, texts: Sequence[str]
) -> None:
    size = diameter * min(0.5, 1.4 / max(1, *map(len, texts)))
    middle: Any = {"ha": "center", "va": "center_baseline", "zorder": 4}
    for i, ((x, y), text) in enumerate(zip(places, texts, strict=True)):
        label = UNLABELED if labels is None else int(labels[i])
        color = None if label == UNLABELED else _ink_on(_fill(axes, label))
        axes.text(x, y, text, size=size, color=color, **middle)


def _fill(axes: Axes, label: int) -> Any:
    """Colour of a label, in turn from the cycle; that of the paper where there is none."""
    from matplotlib import rcParams

    cycle = rcParams["axes.prop_cycle"].by_key().get("color", ["C0"])
    return axes.get_facecolor() if label == UNLABELED else cycle[label % len(cycle)]


def _ink_on(color: Any) -> str:
    """Black or white, whichever has more contrast on the colour."""
    from matplotlib.colors import to_rgb

    luminance = np.array(to_rgb(color)) ** 2.2 @ [0.2126, 0.7152, 0.0722]
    return "#000000" if luminance > 0.18 else "#ffffff"


def _title(shown: Neighborhood, class_names: Sequence[str] | None) -> str:
    row = f"Row {shown.rows[0]}"
    if shown.labels is not None:
        row += f" ({_label_name(int(shown.labels[0]), class_names)})"
    parts = ((shown.n_neighbors, "neighbour"), (len(shown.positives), "triplet"))
    counts = [f"{n or 'no'} {what}{'' if n == 1 else 's'}" for n, what in parts]
    return f"{row}: {', '.join(counts)}"


def _label_name(label: int, class_names: Sequence[str] | None) -> str:
    if label == UNLABELED:
        return "unlabelled"
    return f"labelled {label if class_names is None else class_names[label]}"
