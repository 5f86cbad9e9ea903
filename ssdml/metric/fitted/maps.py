"""Two-dimensional maps of the rows under a learned metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ssdml.classification.forms import principal_form
from ssdml.graphs.neighbors.knn import knn_graph, nearest_rows
from ssdml.graphs.plotting import as_axes
from ssdml.utils.linalg import covariance, top_eigenvectors
from ssdml.utils.parallel import one_blas_thread
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAP_NEIGHBORS = 10
PLACED_BY = 5  # nearest rows whose positions give that of a new one
MAX_NAMES = 150  # of classes, written on a map
# No grays; told apart with any color vision (0.1 in Oklab or more), with a contrast of 3 or more to
# a white page, and on a black one: the same classes in about the same hues.
CLASS_COLORS = (
    *("#0692ff", "#fb1a0b", "#2a904f", "#660092", "#fd18e3"),
    *("#1b4c00", "#c9769a", "#1807d9", "#a21a51", "#6a61a3"),
)
DARK_CLASS_COLORS = (
    *("#85c5fe", "#fe240a", "#1da670", "#785bad", "#ff5cba"),
    *("#b2d000", "#ffaab3", "#0154ff", "#c21a75", "#b081ff"),
)
DOT_AREA = 20_000.0  # of all dots together, in square points
GRAY = "#bbbbbb"  # without a class


@one_blas_thread()  # descent amplifies the last bits, which depend on its threads
def map_rows(embedding: Array, *, n_jobs: int | None = None) -> Array:
    """Lay out rows in two dimensions by t-SNE on their neighbor graph.

    It begins at the first two principal components, so the arrangement of clusters is theirs. Up to
    three rows keep these.

    Parameters
    ----------
    embedding : array of shape (n, l)
        At least two rows.
    n_jobs : int or None
        Threads; never changes the result.

    Returns
    -------
    points : ndarray of shape (n, 2), float32

    Examples
    --------
    >>> map_rows(np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0]])).shape
    (3, 2)
    """
    from ssdml.graphs.layout import neighbor_embedding  # loads numba

    axes = top_eigenvectors(covariance(embedding), min(2, embedding.shape[1]))
    init = np.zeros((len(embedding), 2))
    init[:, : axes.shape[1]] = (embedding - embedding.mean(axis=0)) @ axes
    k = min(MAP_NEIGHBORS, (len(embedding) - 1) // 3)
    if k == 0:
        return init.astype(np.float32)
    searched = principal_form(embedding)(embedding)
    graph = knn_graph(searched, k, n_jobs=n_jobs, random_state=0)
    return neighbor_embedding(graph, init, n_jobs=n_jobs)


def place_rows(
    points: Array, references: Array, queries: Array, *, n_jobs: int | None = None
) -> Array:
    """Place new rows at the median of the positions of their nearest references.

    Parameters
    ----------
    points : array of shape (n, 2)
        Positions of the references.
    references : array of shape (n, l)
    queries : array of shape (q, l)
    n_jobs : int or None

    Returns
    -------
    placed : ndarray of shape (q, 2)

    Examples
    --------
    >>> points, rows = np.array([[0.0, 5.0], [1.0, 5.0], [8.0, 8.0]]), np.array([[0.0], [1], [2]])
    >>> place_rows(points, rows, np.array([[0.5]]))
    array([[1., 5.]])
    """
    k = min(PLACED_BY, len(references))
    nearest, _ = nearest_rows(references, queries, k, n_jobs=n_jobs)
    return np.median(points[nearest], axis=1)


def medoids(points: Array, codes: Ints) -> tuple[Ints, Ints]:
    """Codes that occur, and the row of each that is nearest to the median position of its rows.

    Examples
    --------
    >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0], [5.0, 5.0]])
    >>> medoids(points, np.array([0, 0, 0, 2]))
    (array([0, 2]), array([1, 3]))
    """
    found, rows = np.unique(codes), []
    for code in found:
        members = np.flatnonzero(codes == code)
        gaps = points[members] - np.median(points[members], axis=0)
        rows.append(members[(gaps**2).sum(axis=1).argmin()])
    return found, np.array(rows, dtype=np.int64)


def spread_colors(points: Array, codes: Ints, n_classes: int) -> Ints:
    """Color of each class, an index into ``CLASS_COLORS``; classes of one color are far apart.

    Parameters
    ----------
    points : array of shape (n, 2)
    codes : array of shape (n,), int
        Classes of the rows; -1 counts for none.
    n_classes : int
        Up to ten classes have a color of their own.

    Returns
    -------
    colors : ndarray of shape (n_classes,), int

    Examples
    --------
    The last three of 13 classes on a line take the colors farthest away:

    >>> line = np.column_stack([np.arange(13.0), np.zeros(13)])
    >>> spread_colors(line, np.arange(13), 13).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    """
    colors = np.arange(n_classes) % len(CLASS_COLORS)
    found, rows = medoids(points, codes)
    places, found = points[rows][found >= 0], found[found >= 0]
    taken = np.full((len(CLASS_COLORS), len(found)), np.inf)  # distance of a color to each class
    if n_classes > len(CLASS_COLORS):
        for place, code in enumerate(found.tolist()):
            colors[code] = taken[:, place].argmax()
            gaps = np.linalg.norm(places - places[place], axis=1)
            taken[colors[code]] = np.minimum(taken[colors[code]], gaps)
    return colors


def draw_map(
    points: Array,
    codes: Ints,
    names: Any,
    *,
    marked: Ints | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Draw rows in the colors of their classes, and the name of each class at its medoid.

    Parameters
    ----------
    points : array of shape (n, 2)
    codes : array of shape (n,), int
        Indices into ``names``; -1 is gray.
    names : sequence of str
        Of at most 150 classes; more are not written.
    marked : array of int or None
        Rows with a black edge, such as labeled ones.
    axes : matplotlib.axes.Axes or None
        None: draw on a new figure of pyplot.

    Returns
    -------
    axes : matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]])
    >>> axes = draw_map(points, np.array([0, 0, 1]), ["cat", "dog"], axes=Figure().subplots())
    >>> [text.get_text() for text in axes.texts]
    ['cat', 'dog']
    """
    axes = as_axes(axes, "plot_map", width=8.0, height=8.0)
    palette = np.array([*np.array(CLASS_COLORS)[spread_colors(points, codes, len(names))], GRAY])
    colors = palette[np.where(codes == UNLABELED, len(names), codes)]
    area = float(np.clip(DOT_AREA / len(points), 1, 30))
    axes.scatter(
        points[:, 0], points[:, 1], s=area, c=colors, linewidths=0, rasterized=len(points) > 5000
    )
    if marked is not None and len(marked):
        x, y = points[marked].T
        axes.scatter(x, y, area + 12, colors[marked], edgecolors="black", linewidths=0.8)
    found, rows = medoids(points, codes)
    if len(found) <= MAX_NAMES:
        for code, row in zip(found, rows, strict=True):
            if code != UNLABELED:
                box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.7}
                place = float(points[row, 0]), float(points[row, 1])
                axes.text(*place, str(names[code]), fontsize=7, ha="center", va="center", bbox=box)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xticks([])
    axes.set_yticks([])
    return axes
