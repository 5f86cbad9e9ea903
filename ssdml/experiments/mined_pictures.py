"""The picture of what was mined around one labelled row, and what it shows in words."""

from __future__ import annotations

from collections.abc import Sequence

from ssdml.experiments.figures import as_svg, new_figure
from ssdml.experiments.maps import SHORT
from ssdml.experiments.neighborhoods import MinedSample
from ssdml.graphs._artists import draw_on
from ssdml.graphs._checks import UNLABELED

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
