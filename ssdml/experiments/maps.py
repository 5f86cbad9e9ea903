"""Maps in two dimensions of an embedding before and after learning, from the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.experiments.details import MapSample
from ssdml.experiments.figures import (
    CLASS_COLORS,
    as_svg,
    class_colors,
    draw_map,
    name_classes,
    new_figure,
)

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
    """Dots in the colours of their classes; the names among them where they are short."""
    draw_map(axes, drawn.points, class_colors(drawn.sample.y), drawn.sample.is_labeled)
    names = drawn.class_names
    if len(names) <= len(CLASS_COLORS) and max(map(len, names), default=0) <= SHORT:
        name_classes(axes, drawn.points, drawn.sample.y, names)


def map_svg(drawn: ClassMap, description: str) -> str:
    """The map as an ``<svg>`` element."""
    with new_figure(5.4, 5.4) as figure:
        draw_class_map(figure.subplots(), drawn)
        return as_svg(figure, description)
