"""The raw input of a deep estimator: its graph, and its projection beside the embedding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from ssdml.classification.learning import without_copies
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors.copies import first_equal_rows, graph_of_distinct
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.neighbors.rows import Rows
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.networks.data import Samples
from ssdml.utils.labels import class_codes
from ssdml.utils.linalg import leading_axes, total_variance, unit_rows
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

LARGEST_SAMPLE = 4096  # numbers per sample; the raw input of larger samples is ignored
BLOCK_SAMPLES = 5000  # samples per read
INPUT_EDGES = 0.2  # weight of the input's edges beside those of the embedding
TRUSTED = 0.5  # propagation accuracy above which "auto" uses the input graph


class InputProjection(NamedTuple):
    """Project samples onto principal components.

    Images are centered and scaled to unit length first; features are divided by the root of their
    total variance.
    """

    mean: float  # of all numbers
    center: Array  # (d,)
    axes: Array  # (d, m), orthonormal
    unit: bool
    scale: float  # of features; 1 for images

    def __call__(self, flat: Array) -> Array:
        """Project samples of shape (n, d) to rows of shape (n, m)."""
        return self.project(self.normalize(flat))

    def project(self, rows: Array) -> Array:
        """Project normalized rows."""
        return (rows - self.center) @ (self.axes / np.float32(self.scale))

    def normalize(self, flat: Array) -> Array:
        """Center images and scale them to unit length; return features unchanged."""
        return unit_rows(flat - np.float32(self.mean)) if self.unit else flat


def project_input(
    samples: Samples, input_edges: float | str = "auto", input_weight: float | str = "auto"
) -> tuple[InputProjection, Array, Ints] | None:
    """Fit the projection that keeps 95% of the variance, and apply it to all samples.

    Returns the projection, the projected samples and the first sample that equals each; None if
    a sample has more than 4,096 numbers. Raises ValueError if the input was asked for
    nevertheless.
    """
    if np.prod(samples.shape) > LARGEST_SAMPLE:
        for name, value in (("input_edges", input_edges), ("input_weight", input_weight)):
            if value not in ("auto", 0):
                raise ValueError(
                    f"{name} must be 'auto' or 0 for samples of more than {LARGEST_SAMPLE} "
                    f"numbers; got {value} and samples of shape {samples.shape}. Resize the "
                    "samples or leave it out: raw input is not informative at that size."
                )
        return None
    flat, unit = flat_samples(samples), len(samples.shape) > 1
    mean = float(flat.mean(dtype=np.float64))
    projection = InputProjection(mean, np.zeros(0), np.zeros((0, 0)), unit, 1.0)
    rows = projection.normalize(flat)
    variance = total_variance(rows, ddof=1)
    projection = projection._replace(
        center=rows.mean(axis=0, dtype=np.float64).astype(np.float32),
        axes=leading_axes(rows).astype(np.float32),
        scale=1.0 if unit or not variance > 0 else float(np.sqrt(variance)),
    )
    return projection, projection.project(rows), first_equal_rows(flat)


def flat_samples(samples: Samples) -> Array:
    """Return all samples as rows of shape (n, d), float32."""
    starts = range(0, len(samples), BLOCK_SAMPLES)
    blocks = [np.arange(start, min(start + BLOCK_SAMPLES, len(samples))) for start in starts]
    return np.vstack([samples.batch(rows).flatten(1).cpu().numpy() for rows in blocks])


class InputGraph(NamedTuple):
    """Graph of the raw input."""

    graph: KNNGraph
    edges: sparse.csr_array
    first: Ints  # the first sample that equals each: copies are no neighbors of each other
    weight: float  # of the edges beside those of the embedding; 0: the graph is not used
    propagation_accuracy: float | None


def input_graph(
    rows: Array, first: Ints, labels: Ints, estimator: Any, device: str, rng: np.random.Generator
) -> InputGraph:
    """Build the graph of projected samples; "auto" uses it if it predicts held-out labels."""
    n_jobs, weight = estimator.n_jobs, estimator.input_edges
    graph = device_graph(rows, estimator.n_neighbors, device, rng, first=first, n_jobs=n_jobs)
    edges = adjacency(graph)
    accuracy = propagation_accuracy(edges, labels, first, estimator.decay, n_jobs, rng)
    if weight == "auto":
        weight = INPUT_EDGES if accuracy is None or accuracy > TRUSTED else 0.0
    return InputGraph(graph, edges, first, float(weight), accuracy)


def propagation_accuracy(
    edges: sparse.csr_array,
    labels: Ints,
    first: Ints,
    decay: float,
    n_jobs: int | None,
    rng: np.random.Generator,
) -> float | None:
    """Two-fold propagation accuracy on the labeled samples, without copies.

    None if a class has a single labeled sample, or if there is only one class.
    """
    codes, n_classes = class_codes(labels)
    labeled = rng.permutation(np.flatnonzero(codes != UNLABELED))
    labeled = without_copies(labeled, codes, first)
    if np.bincount(codes[labeled]).min() < 2 or n_classes < 2:
        return None
    # Every second sample of each class, so that both folds hold every class.
    order = labeled[np.argsort(codes[labeled], kind="stable")]
    right = 0
    for known, hidden in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        given = np.full(len(codes), UNLABELED)
        given[known] = codes[known]
        propagated = propagate_labels(edges, given, decay=decay, n_jobs=n_jobs)
        right += int((propagated[hidden].argmax(axis=1) == codes[hidden]).sum())
    return right / len(order)


def device_graph(
    rows: Array,
    n_neighbors: int,
    device: str,
    rng: np.random.Generator,
    *,
    first: Ints | None = None,
    n_jobs: int | None = None,
) -> KNNGraph:
    """Build the graph of rows (n, d) on the device, with at most n - 1 neighbors.

    Copies, of which ``first`` has the number of the first, are not neighbors of each other.

    The search is exact on a GPU, in O(n² d), and as :func:`~ssdml.graphs.knn_graph` chooses on a
    CPU, which serves Apple's GPUs too.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [3.0]])
    >>> device_graph(rows, 10, "cpu", np.random.default_rng(0)).indices
    array([[1, 2],
           [0, 2],
           [1, 0]])
    """
    search: dict[str, Any] = {"method": "torch", "device": device}
    if device.startswith(("cpu", "mps")):
        search = {}
    k = min(n_neighbors, len(rows) - 1)
    first = np.arange(len(rows)) if first is None else first
    graph = graph_of_distinct(rows, k, first, **search, n_jobs=n_jobs, random_state=rng)
    return graph if graph.rows is not None else replace(graph, rows=Rows.of(rows))
