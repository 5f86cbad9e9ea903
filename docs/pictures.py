"""The picture of README.md: digits before and after, for light and dark pages.

``python docs/pictures.py`` draws ``images/digits.png`` and ``images/digits-dark.png``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from sklearn.preprocessing import normalize

from ssdml import SSDML
from ssdml.datasets import label_scarce_split, load_dataset
from ssdml.metric.fitted.maps import CLASS_COLORS, DARK_CLASS_COLORS, map_rows, medoids
from ssdml.utils.typing import Array, Floats, Ints

IMAGES = Path(__file__).resolve().parent / "images"
STYLES = {  # ink, page, colors of the classes
    "digits.png": ("#1f2328", "white", CLASS_COLORS),
    "digits-dark.png": ("#f0f6fc", "#0d1117", DARK_CLASS_COLORS),
}


def maps() -> tuple[dict[str, Floats], Ints, Array]:
    """Maps of test and labeled digits before and after, their classes, which are labeled."""
    digits = load_dataset("digits")
    split = label_scarce_split(digits, labels_per_class=5, seed=0)
    X = normalize(digits.X - digits.X.mean())
    model = SSDML(random_state=0).fit(X[split.train], split.partial_labels(digits.y))
    shown = np.concatenate([split.test, split.labeled])
    drawn = {
        title: map_rows(rows)
        for title, rows in (("pixels", X[shown]), ("SSDML, 50 labels", model.transform(X[shown])))
    }
    return drawn, digits.y[shown], np.isin(shown, split.labeled)


def draw(path: Path, drawn: dict[str, Floats], classes: Ints, labeled: Array) -> None:
    """Two maps on a transparent page, large enough for a phone."""
    ink, page, colors = STYLES[path.name]
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    for axes, (title, points) in zip(figure.subplots(1, 2), drawn.items(), strict=True):
        centers = medoids(points, classes)[1]
        for code, color in enumerate(colors):
            own = classes == code
            axes.scatter(*points[own & ~labeled].T, s=14, color=color, linewidths=0)
            known = points[own & labeled].T
            axes.scatter(*known, s=70, marker="*", color=color, edgecolors=ink, linewidths=0.7)
            middle = points[centers[code]]
            name = axes.text(*middle, str(code), color=ink, fontsize=22, weight="bold")
            name.set(ha="center", va="center")
            name.set_path_effects([withStroke(linewidth=4, foreground=page)])
        axes.set_title(title, color=ink, fontsize=22)
        axes.set_axis_off()
    figure.savefig(path, dpi=130, transparent=True)


if __name__ == "__main__":
    found = maps()
    for name in STYLES:
        draw(IMAGES / name, *found)
