"""Pictures of a row among its neighbors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from ssdml.graphs.neighbors.knn import KNNGraph, check_graph
from ssdml.graphs.propagation.class_masses import ClassMasses
from ssdml.graphs.triplets import Triplets, affinity_lookup
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED, as_list, check_count, check_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

ALIKE, UNLIKE = "#0077bb", "#d55e00"  # blue and vermilion, safe for color-blind readers
LARGEST = 28.0  # points across a row
RING_ROWS = 10  # rows on the first ring, twice as many on the second, and so on
LEAST_GAP = 0.6  # between rows, where rings are 1 apart: 2 sin(π / 10) is 0.62
CURVE_POINTS = 21


def draw_neighborhood(
    graph: KNNGraph,
    anchor: int,
    *,
    affinities: ClassMasses | sparse.csr_array | Any = None,
    y: Any = None,
    triplets: Triplets | None = None,
    names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    max_nodes: int = 100,
    axes: Axes | None = None,
) -> Axes:
    """Draw a row, its neighbors, and the triplets mined for it.

    The anchor is in the middle, its neighbors are around it, and the other rows of its triplets on
    outer rings. On each ring the positives come first, then rows in order of affinity,
    counterclockwise. The same arguments give the same picture.

    Parameters
    ----------
    graph : KNNGraph
        Its edges among the rows shown are drawn.
    anchor : int
        A row of the graph.
    affinities : ClassMasses, sparse array or ndarray of shape (n_samples, n_samples), or None
        Drawn on the edges: the larger, the wider; blue and solid above 0, orange and dashed below,
        thin and gray at 0 or without affinities. Class masses are read as by
        :func:`mine_triplets`.
    y : array of shape (n_samples,), int, or None
        Rows are colored by label, in turn from matplotlib's color cycle; unlabeled rows (-1) are
        hollow.
    triplets : Triplets or None
        Only those of the anchor are drawn.
    names : sequence of n_samples str, or None
        Short texts to write into the rows. None: their numbers.
    class_names : sequence of str, or None
        Names of the labels 0, 1, ... in the legend. None: the labels.
    max_nodes : int
        More rows are refused.
    axes : matplotlib.axes.Axes or None
        None: draw on a new figure of pyplot.

    Returns
    -------
    axes : matplotlib.axes.Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from ssdml.graphs import Triplets
    >>> graph = KNNGraph(np.array([[1, 2], [0, 2], [1, 0]]), np.ones((3, 2)))
    >>> mined = Triplets(np.array([0]), np.array([1]), np.array([2]), np.ones(1))
    >>> axes = draw_neighborhood(
    ...     graph, 0, y=[4, -1, -1], triplets=mined, axes=Figure().subplots())
    >>> axes.get_title()
    'Row 0 (labeled 4): 2 neighbors, 1 triplet'
    """
    who, n = "draw_neighborhood", check_graph(graph, "draw_neighborhood").n_samples
    if isinstance(anchor, bool | np.bool_) or not isinstance(anchor, int | np.integer):
        raise TypeError(f"{who}: anchor must be an integer; got {anchor!r}.")
    if not 0 <= anchor < n:
        raise ValueError(
            f"{who}: anchor must be a row of the graph, from 0 to {n - 1}; got {anchor}."
        )
    check_count(max_nodes, "max_nodes", who)
    if triplets is not None:
        _check_ends(triplets, n)
    labels = None if y is None else check_labels(y, n, who)
    # Lists: a column of pandas would be read by its index.
    if names is not None:
        names = [*map(str, as_list(names, "names", who, "texts", in_order=True))]
    if names is not None and len(names) != n:
        raise ValueError(f"{who}: names must hold {n} texts, one per row; got {len(names)}.")
    if class_names is not None:
        class_names = as_list(class_names, "class_names", who, "texts", in_order=True)
        _check_named(labels, len(class_names))
    lookup = None if affinities is None else affinity_lookup(affinities, n, who).evidence
    shown = neighborhood(
        int(anchor), graph.indices.__getitem__, affinity=lookup, y=labels, triplets=triplets
    )
    if len(shown.rows) > max_nodes:
        raise ValueError(
            f"{who}: the neighborhood of row {anchor} must have at most max_nodes={max_nodes} "
            f"rows; got {len(shown.rows)}. Pass fewer of its triplets, a graph of fewer "
            "neighbors, or raise max_nodes."
        )
    axes = as_axes(axes, who, width=6.0, height=7.6)
    texts = [str(row) if names is None else names[row] for row in shown.rows]
    draw_on(axes, shown, texts, class_names)
    return axes


def as_axes(axes: Axes | None, who: str, *, width: float, height: float) -> Axes:
    """Return the axes to draw on: the given ones, or those of a new figure of pyplot."""
    if axes is None:
        from matplotlib import pyplot

        return pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    if not hasattr(axes, "add_collection"):
        raise TypeError(
            f"{who}: axes must be matplotlib's Axes or None; got {type(axes).__name__}. Pass "
            "pyplot.gca()."
        )
    return axes


def _check_named(labels: Ints | None, n_names: int) -> None:
    """Raise unless the labels are numbers of so many names."""
    known = np.empty(0, int) if labels is None else labels[labels != UNLABELED]
    strange = known[(known < 0) | (known >= n_names)]
    if strange.size:
        raise ValueError(
            f"draw_neighborhood: class_names must name each label, from 0 on; got {n_names} names "
            f"and the label {strange[0]}. Number the classes by encode_partial_labels."
        )


def _check_ends(triplets: Triplets, n: int) -> None:
    if not isinstance(triplets, tuple) or len(triplets) < 3:
        raise TypeError(
            f"draw_neighborhood: triplets must be Triplets or None; got {triplets!r}. Pass what "
            "mine_triplets returns."
        )
    lengths = [len(end) for end in triplets[:3]]
    if len(set(lengths)) > 1:
        raise ValueError(
            "draw_neighborhood: triplets must have as many anchors as positives and negatives; "
            f"got {lengths}."
        )
    ends = np.concatenate(triplets[:3])
    if ends.size and ends.dtype.kind not in "iu":
        raise TypeError(
            f"draw_neighborhood: triplets must hold rows, integers; got dtype {ends.dtype}."
        )
    outside = ends[(ends < 0) | (ends >= n)]
    if outside.size:
        raise ValueError(
            f"draw_neighborhood: triplets must be of rows of the graph, from 0 to {n - 1}; "
            f"got row {outside[0]}."
        )


class Neighborhood(NamedTuple):
    """An anchor and the rows around it; edges and triplets hold positions in ``rows``."""

    rows: Ints  # (m,): the anchor, its neighbors from near to far, other rows of its triplets
    n_neighbors: int
    edges: Ints  # (n_edges, 2), smaller position first: the edges of the graph between the rows
    affinities: Array  # (n_edges,), 0 if unknown
    labels: Ints | None  # (m,), -1 where unlabeled
    positives: Ints  # (n_triplets,)
    negatives: Ints  # (n_triplets,)


def neighborhood(
    anchor: int,
    neighbors: Callable[[Ints], Ints],
    *,
    affinity: Callable[[Ints, Ints], Array] | None = None,
    y: Ints | None = None,
    triplets: Triplets | None = None,
) -> Neighborhood:
    """Collect the rows around an anchor.

    ``neighbors`` returns the neighbors of rows, (m, k), and ``affinity`` the affinities of pairs,
    so that the graph of all rows need not exist.
    """
    near = neighbors(np.array([anchor]))[0].tolist()
    positives: list[int] = []
    negatives: list[int] = []
    if triplets is not None:
        anchors, *ends = map(np.asarray, triplets[:3])
        positives, negatives = (end[anchors == anchor].tolist() for end in ends)
    place = {row: i for i, row in enumerate(dict.fromkeys([anchor, *near, *positives, *negatives]))}
    rows = np.array(list(place))
    pairs = {
        (min(i, place[j]), max(i, place[j]))
        for i, others in enumerate(neighbors(rows).tolist())
        for j in others
        if j in place
    }
    edges = np.array(sorted(pairs))
    return Neighborhood(
        rows=rows,
        n_neighbors=len(near),
        edges=edges,
        affinities=np.zeros(len(edges)) if affinity is None else affinity(*rows[edges.T]),
        labels=None if y is None else y[rows],
        positives=np.array([place[row] for row in positives], dtype=np.int64),
        negatives=np.array([place[row] for row in negatives], dtype=np.int64),
    )


def draw_on(
    axes: Axes, shown: Neighborhood, texts: Sequence[str], class_names: Sequence[str] | None = None
) -> None:
    """Draw a neighborhood on the axes, with legend and title; ``texts`` go into the rows."""
    circles = rings(shown)
    places, reach = positions(circles), len(circles) - 0.65
    _draw_edges(axes, shown, places)
    dots = _draw_rows(axes, shown.labels, places, class_names) + _draw_marks(axes, shown, places)
    axes.set_title(_title(shown, class_names))
    axes.set_axis_off()
    legend = axes.legend(
        loc="lower center", ncols=2, frameon=False, markerscale=7 / LARGEST, labelspacing=0.7
    )
    # The legend is inside the axes, below the rings, where no layout can cut it off.
    points = 72 / axes.figure.dpi
    box, below = axes.get_window_extent(), legend.get_window_extent().height * points
    width, height = box.width * points, box.height * points
    unit = max(min(width, height - below), 0.2 * height) / (2 * reach)  # points from ring to ring
    axes.set(xlim=(-reach, reach), ylim=(-reach - below / unit, reach), aspect="equal")
    # A diamond around a row is 1.3 √2 times as wide: it fits between the next ones.
    diameter = min(LARGEST, LEAST_GAP / (1.3 * np.sqrt(2)) * unit)
    for dot in dots:
        dot.set_sizes(dot.get_sizes() * (diameter / LARGEST) ** 2)
    size = diameter * min(0.5, 1.4 / max(1, *map(len, texts)))
    middle: Any = {"ha": "center", "va": "center_baseline", "zorder": 4}
    for i, ((x, y), text) in enumerate(zip(places, texts, strict=True)):
        label = UNLABELED if shown.labels is None else int(shown.labels[i])
        color = None if label == UNLABELED else _text_color_on(_fill(axes, label))
        axes.text(x, y, text, size=size, color=color, **middle)


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
        # The widest first: below the others, and in the legend.
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

    edge = rcParams["text.color"]
    look: Any = {"s": LARGEST**2, "edgecolors": edge, "linewidths": 0.8, "zorder": 2}
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


def _fill(axes: Axes, label: int) -> Any:
    """Return the color of a label, or that of the background if unlabeled."""
    from matplotlib import rcParams

    cycle = rcParams["axes.prop_cycle"].by_key().get("color", ["C0"])
    return axes.get_facecolor() if label == UNLABELED else cycle[label % len(cycle)]


def _text_color_on(color: Any) -> str:
    """Return black or white, whichever has more contrast on the color."""
    from matplotlib.colors import to_rgb

    luminance = np.array(to_rgb(color)) ** 2.2 @ [0.2126, 0.7152, 0.0722]
    return "#000000" if luminance > 0.18 else "#ffffff"


def _title(shown: Neighborhood, class_names: Sequence[str] | None) -> str:
    row = f"Row {shown.rows[0]}"
    if shown.labels is not None:
        row += f" ({_label_name(int(shown.labels[0]), class_names)})"
    parts = ((shown.n_neighbors, "neighbor"), (len(shown.positives), "triplet"))
    counts = [f"{n or 'no'} {what}{'' if n == 1 else 's'}" for n, what in parts]
    return f"{row}: {', '.join(counts)}"


def _label_name(label: int, class_names: Sequence[str] | None) -> str:
    if label == UNLABELED:
        return "unlabeled"
    return f"labeled {label if class_names is None else class_names[label]}"


def rings(shown: Neighborhood) -> list[list[int]]:
    """Arrange the neighbors on rings around the anchor, and the other rows on outer ones.

    On each ring the positives come first and the negatives last; otherwise, rows are in order of
    affinity to the anchor.
    """
    role, likeness = np.zeros((2, len(shown.rows)))
    role[shown.positives] += 1
    role[shown.negatives] -= 1
    at_anchor = shown.edges[:, 0] == 0
    likeness[shown.edges[at_anchor, 1]] = shown.affinities[at_anchor]
    last = shown.n_neighbors + 1
    found = [[0]]
    for left in (list(range(1, last)), list(range(last, len(shown.rows)))):
        while left:
            room = RING_ROWS * len(found)
            ring, left = left[:room], left[room:]
            found.append(sorted(ring, key=lambda i: (-role[i], -likeness[i])))
    return found


def positions(rings: list[list[int]]) -> Array:
    """Place each row, (m, 2): the anchor at the origin, the rings 1 apart."""
    import networkx

    n_rows = sum(map(len, rings))
    # Half a step of a full second ring: its rows show through the gaps of the first.
    rotate = np.pi / (2 * RING_ROWS)
    layout = networkx.shell_layout(
        networkx.empty_graph(n_rows), rings, rotate=rotate, scale=len(rings)
    )
    return np.array([layout[i] for i in range(n_rows)], dtype=np.float64)


def curves(starts: Array, ends: Array) -> Array:
    """Compute a line for each edge, (n_edges, 21, 2), straight only from the anchor.

    The middle of a curve avoids the anchor, which a straight line across a ring would seem to end
    at, and the row between two others of a ring.
    """
    middles = (starts + ends) / 2
    radii = np.linalg.norm(middles, axis=1)
    outer = np.maximum(np.linalg.norm(starts, axis=1), np.linalg.norm(ends, axis=1))
    aside = (ends - starts)[:, ::-1] * [-1, 1]
    # Rows that face each other have their middle at the origin, to the precision of networkx.
    directions = np.where(radii[:, None] > 1e-6, middles, aside)
    directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    wanted = np.clip(radii, 0.45, outer - 0.35)[:, None] * directions
    is_straight = ~starts.any(axis=1, keepdims=True)
    controls = np.where(is_straight, middles, 2 * wanted - middles)  # of a quadratic Bézier curve
    t = np.linspace(0, 1, CURVE_POINTS)[:, None]
    return (
        (1 - t) ** 2 * starts[:, None] + 2 * t * (1 - t) * controls[:, None] + t**2 * ends[:, None]
    )
