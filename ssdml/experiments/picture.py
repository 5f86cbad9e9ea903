"""The picture of a comparison: the map before and after, and the scores beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ssdml.experiments.figures import MUTED, PAPER, draw_estimates, in_lines, looks, new_figure
from ssdml.experiments.maps import draw_class_map
from ssdml.experiments.sections import Section
from ssdml.experiments.tables import ScoreTable
from ssdml.files import whole_file

SCORES = ("NMI", "accuracy")


def write_picture(path: Path, section: Section) -> Path:
    """Save the picture as PNG: a map a panel, then the scores of every method."""
    mosaic: Any = [[*section.atlas.maps, SCORES[0]], [*section.atlas.maps, SCORES[1]]]
    widths = [1.25] * len(section.atlas.maps) + [1.0]
    with new_figure(4.4 * sum(widths), 5.2) as figure:
        axes = figure.subplot_mosaic(mosaic, width_ratios=widths)
        for method, drawn in section.atlas.maps.items():
            draw_class_map(axes[method], drawn)
            axes[method].set_title(_map_title(method, section.headline))
        for score in SCORES:
            _draw_score(axes[score], section.headline, score)
        with whole_file(path) as unfinished:
            figure.savefig(unfinished, format="png", dpi=150, facecolor=PAPER)
    return path


def _map_title(method: str, table: ScoreTable) -> str:
    return "before: the input" if method == "input" else f"after: {in_lines(method)}"


def _draw_score(axes: Any, table: ScoreTable, score: str) -> None:
    lines = [line for line in table.lines if line.n_ok]
    estimates = {line.method: line.scores[score].estimate for line in lines}
    draw_estimates(axes, estimates, looks(list(estimates)), zero=False)
    axes.set_title(f"{score}, % (mean and 95 % interval, {len(table.seeds)} seeds)", color=MUTED)
