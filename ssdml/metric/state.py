"""Records of a fit: its state between rounds and its result."""

from __future__ import annotations

from typing import Any, NamedTuple

from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.triplets import Triplets
from ssdml.metric.features import ResidualRepresentation
from ssdml.utils.typing import Array, Floats, Ints


class State(NamedTuple):
    """Training rows with their labels, graph and propagated class distributions."""

    X: Array  # (n, d)
    labels: Ints  # (n,), -1 where unlabeled
    graph: KNNGraph  # of the input
    distributions: Array  # (n, n_classes)
    edges: Any = None  # graph or sparse array along which the labels were propagated

    @property
    def classes(self) -> Ints:
        """Most probable class of each row, as a column of ``distributions``."""
        return self.distributions.argmax(axis=1)


class Learned(NamedTuple):
    """The metric ``representation(X) @ components.T`` and how it was learned."""

    components: Floats
    representation: ResidualRepresentation | None
    input_weight: float
    distributions: Array
    triplets: Triplets | None = None
    history: tuple[dict[str, Any], ...] = ()
    fallback_reason: str = ""  # why the input was returned; empty if it was not
    edges: Any = None  # along which the labels were propagated; None if in several graphs
