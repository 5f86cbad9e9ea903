"""Symmetric adjacency matrices, their Laplacians, and scatter weighted by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from ssdml.graphs._checks import Floats, choose

if TYPE_CHECKING:
    from ssdml.graphs.neighbors import KNNGraph

# A row with k duplicates has scale 0. A tenth of the median scale keeps it tied to what lies around.
SCALE_FLOOR = 0.1


def adjacency(graph: KNNGraph, *, weights: str = "heat") -> sparse.csr_array:
    """Symmetric weights on the edges of the graph and their reverses."""
    values = choose(WEIGHTS, weights, "adjacency: weights")(graph)
    n, k = graph.indices.shape
    starts = np.arange(0, n * k + 1, k)
    directed = sparse.csr_array(
        (values.ravel().astype(np.float64), graph.indices.ravel(), starts), shape=(n, n)
    )
    symmetric = directed.maximum(directed.T).tocsr()
    symmetric.eliminate_zeros()
    return symmetric


def _heat(graph: KNNGraph) -> Floats:
    lengths = graph.distances.astype(np.float64)
    if graph.metric == "cosine":
        lengths = np.sqrt(2 * lengths)  # |u - v| of the unit rows
    scales = lengths[:, -1]
    positive = scales[scales > 0]
    if not positive.size:
        return np.ones_like(lengths)
    scales = np.maximum(scales, SCALE_FLOOR * np.median(positive))
    return np.exp(-(lengths**2) / (scales[:, None] * scales[graph.indices]))


def _cosine(graph: KNNGraph) -> Floats:
    if graph.metric != "cosine":
        raise ValueError(
            f"adjacency: weights='cosine' must come with metric='cosine'; got a graph of metric "
            f"{graph.metric!r}. Build it with knn_graph(X, n_neighbors, metric='cosine')."
        )
    return np.maximum(1 - graph.distances.astype(np.float64), 0) ** 3


def _uniform(graph: KNNGraph) -> Floats:
    return np.ones_like(graph.distances, dtype=np.float64)


WEIGHTS = {"heat": _heat, "cosine": _cosine, "uniform": _uniform}


def laplacian(adjacency: Any, *, normalization: str | None = None) -> sparse.csr_array:
    """Graph Laplacian."""
    raise NotImplementedError
