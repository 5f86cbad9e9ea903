"""The graph of items, or of what a network makes of them: searched where the network learns."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ssdml.graphs.neighbors import KNNGraph, knn_graph
from ssdml.utils.typing import Array


class GraphSettings(Protocol):
    """Parameters of the estimator that are read here."""

    n_neighbors: int
    n_jobs: int | None


def device_graph(
    rows: Array, settings: GraphSettings, device: str, rng: np.random.Generator
) -> KNNGraph:
    """Graph of rows (n, d), of as many neighbours as there are at most.

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
