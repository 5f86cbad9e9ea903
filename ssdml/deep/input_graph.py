"""The items as they are, for the graph that comes first and for the place beside the embedding."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.networks.data import Items
from ssdml.utils.labels import class_codes
from ssdml.utils.linalg import covariance, leading_axes, unit_rows
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

LARGEST_ITEM = 4096  # numbers of an item; of larger ones the input is left alone
READ = 5000  # items that are read at a time
INPUT_EDGES = 0.2  # weight of the input's edges beside those of the embedding
TRUSTED = 0.5  # share of labels that the input's graph must foretell to be used


class InputSettings(Protocol):
    """Parameters of the estimator that are read here."""

    n_neighbors: int
    decay: float
    input_edges: float | str
    input_weight: float | str
    n_jobs: int | None


class InputSide(NamedTuple):
    """Principal components of the items, scaled: of images of unit length, or of features.

    Features are divided by the root of their total variance afterwards.

    Calling it with a batch of items, flattened, gives their rows.
    """

    mean: float  # of all numbers
    center: Array  # (d,)
    axes: Array  # (d, m), orthonormal
    unit: bool
    scale: float  # that of features, whose length may be anything

    def __call__(self, flat: Array) -> Array:
        """Rows (n, m) of items (n, d)."""
        return self.projected(self.scaled(flat))

    def projected(self, rows: Array) -> Array:
        """Components of rows that are scaled."""
        return (rows - self.center) @ (self.axes / np.float32(self.scale))

    def scaled(self, flat: Array) -> Array:
        """Images less the mean, of unit length; features as they are."""
        return unit_rows(flat - np.float32(self.mean)) if self.unit else flat


def input_side(items: Items, settings: InputSettings) -> tuple[InputSide, Array] | None:
    """The components that hold 95 % of the variance, and all items as rows of them.

    None where items are too large for that.

    Raises
    ------
    ValueError
        If they are too large, and the settings ask for the input all the same.
    """
    if np.prod(items.shape) > LARGEST_ITEM:
        for name in ("input_edges", "input_weight"):
            value = getattr(settings, name)
            if value not in ("auto", 0):
                raise ValueError(
                    f"{name} must be 'auto' or 0 for items of more than {LARGEST_ITEM} "
                    f"numbers; got {value} and items of shape {items.shape}. Make them smaller, "
                    "or do without: raw numbers tell little at that size."
                )
        return None
    flat, unit = flat_items(items), len(items.shape) > 1
    side = InputSide(float(flat.mean(dtype=np.float64)), np.zeros(0), np.zeros((0, 0)), unit, 1.0)
    rows = side.scaled(flat)
    center, spread = rows.mean(axis=0, dtype=np.float64).astype(np.float32), covariance(rows)
    variance = np.trace(spread)
    side = side._replace(
        center=center,
        axes=leading_axes(spread).astype(np.float32),
        scale=1.0 if unit or not variance > 0 else float(np.sqrt(variance)),
    )
    return side, side.projected(rows)


class InputGraph(NamedTuple):
    """Graph of the items as they are, and how much its edges count beside the embedding's."""

    graph: KNNGraph
    edges: sparse.csr_array  # their weights
    weight: float  # 0: it is not used
    foretold: float | None  # share of the labels; None: they have no halves


def input_graph(
    rows: Array,
    labels: Ints,
    settings: InputSettings,
    device: str,
    rng: np.random.Generator,
) -> InputGraph:
    """Graph of rows of :func:`input_side`; "auto" trusts it where it foretells the labels."""
    graph = device_graph(rows, settings, device, rng)
    edges, weight = adjacency(graph), settings.input_edges
    share = foretold(edges, labels, settings.decay, settings.n_jobs, rng)
    if weight == "auto":
        weight = INPUT_EDGES if share is None or share > TRUSTED else 0.0
    return InputGraph(graph, edges, float(weight), share)


def flat_items(items: Items) -> Array:
    """All items as rows, (n, d), float32."""
    starts = range(0, len(items), READ)
    blocks = [np.arange(start, min(start + READ, len(items))) for start in starts]
    return np.vstack([items.batch(rows).flatten(1).cpu().numpy() for rows in blocks])


def foretold(
    edges: sparse.csr_array,
    labels: Ints,
    decay: float,
    n_jobs: int | None,
    rng: np.random.Generator,
) -> float | None:
    """Share of the labeled rows whose class weighted edges carry to them from the other half.

    None where a class has one row alone, so that halves would lack it, or where there is one class.
    """
    codes, n_classes = class_codes(labels)
    labeled = rng.permutation(np.flatnonzero(codes != UNLABELED))
    if np.bincount(codes[labeled]).min() < 2 or n_classes < 2:
        return None
    # Every second row of each class, so that no class is missing from a half.
    order = labeled[np.argsort(codes[labeled], kind="stable")]
    right = 0
    for half in (order[::2], order[1::2]):
        given = np.full(len(codes), UNLABELED)
        given[half] = codes[half]
        hidden = np.setdiff1d(order, half)
        present = np.unique(codes[half])
        carried = propagate_labels(edges, given, decay=decay, n_jobs=n_jobs)
        right += int((present[carried[hidden].argmax(axis=1)] == codes[hidden]).sum())
    return right / len(order)


# The graph of items, or of what a network makes of them: searched where the network learns.


class GraphSettings(Protocol):
    """Parameters of the estimator that are read here."""

    n_neighbors: int
    n_jobs: int | None


def device_graph(
    rows: Array, settings: GraphSettings, device: str, rng: np.random.Generator
) -> KNNGraph:
    """Graph of rows (n, d), of as many neighbors as there are at most.

    A CPU searches as :func:`~ssdml.graphs.knn_graph` does by itself, for Apple's GPUs too; another
    device exactly, which takes O(n² d) there.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> settings = SimpleNamespace(n_neighbors=10, n_jobs=None)
    >>> rows = np.array([[0.0], [1.0], [3.0]])
    >>> device_graph(rows, settings, "cpu", np.random.default_rng(0)).indices
    array([[1, 2],
           [0, 2],
           [1, 0]])
    """
    there: dict[str, Any] = {"method": "torch", "device": device}
    if device.startswith(("cpu", "mps")):
        there = {}
    return knn_graph(
        rows,
        min(settings.n_neighbors, len(rows) - 1),
        **there,
        n_jobs=settings.n_jobs,
        random_state=rng,
    )
