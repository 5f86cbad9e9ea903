"""The items as they are, for the graph that comes first and for the place beside the embedding."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.masses import class_codes
from ssdml.graphs.neighbors import KNNGraph
from ssdml.graphs.propagation import propagate_labels
from ssdml.items import Items
from ssdml.linalg import covariance, top_eigenvectors, unit_rows
from ssdml.projections import GRAPH_VARIANCE

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]

LARGEST_ITEM = 4096  # numbers of an item; of larger ones the input is left alone
READ = 5000  # items that are read at a time


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
        return (self._scaled(flat) - self.center) @ (self.axes / np.float32(self.scale))

    def _scaled(self, flat: Array) -> Array:
        return unit_rows(flat - np.float32(self.mean)) if self.unit else flat


def input_side(items: Items) -> InputSide | None:
    """The components that hold 95 % of the variance; None where items are too large for that."""
    size = int(np.prod(items.shape))
    if size > LARGEST_ITEM:
        return None
    flat = flat_items(items)
    unit = len(items.shape) > 1
    side = InputSide(float(flat.mean(dtype=np.float64)), np.zeros(0), np.zeros((0, 0)), unit, 1.0)
    rows = side._scaled(flat)
    spread = covariance(rows)
    values = np.maximum(np.linalg.eigvalsh(spread)[::-1], 0)
    count = 1
    if values.sum() > 0:
        count += int(np.searchsorted(np.cumsum(values) / values.sum(), GRAPH_VARIANCE))
    axes = top_eigenvectors(spread, min(count, size)).astype(np.float32)
    scale = 1.0 if unit or not values.sum() > 0 else float(np.sqrt(values.sum()))
    return side._replace(
        scale=scale, center=rows.mean(axis=0, dtype=np.float64).astype(np.float32), axes=axes
    )


def flat_items(items: Items) -> Array:
    """All items as rows, (n, d), float32."""
    starts = range(0, len(items), READ)
    blocks = [np.arange(start, min(start + READ, len(items))) for start in starts]
    return np.vstack([items.batch(rows).flatten(1).cpu().numpy() for rows in blocks])


def foretold(
    graph: KNNGraph, labels: Classes, decay: float, n_jobs: int | None, rng: np.random.Generator
) -> float:
    """Share of the labelled rows whose class the graph carries to them from the other half.

    1 where a class has one row alone, so that halves would lack it.
    """
    codes, n_classes = class_codes(labels)
    labeled = rng.permutation(np.flatnonzero(codes != UNLABELED))
    if np.bincount(codes[labeled]).min() < 2 or n_classes < 2:
        return 1.0
    # Every second row of each class, so that no class is missing from a half.
    order = labeled[np.argsort(codes[labeled], kind="stable")]
    edges, right = adjacency(graph), 0
    for half in (order[::2], order[1::2]):
        given = np.full(len(codes), UNLABELED)
        given[half] = codes[half]
        hidden = np.setdiff1d(order, half)
        present = np.unique(codes[half])
        carried = propagate_labels(edges, given, decay=decay, n_jobs=n_jobs)
        right += int((present[carried[hidden].argmax(axis=1)] == codes[hidden]).sum())
    return right / len(order)
