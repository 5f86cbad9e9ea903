"""Pictures of how a method learned, and of how often it is right where it is sure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from ssdml.evaluation import Reliability
from ssdml.experiments.figures import INK, MUTED, Look, Picture, as_svg, new_figure

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
