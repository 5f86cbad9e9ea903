"""What a fit ends with: the input beside what was learned, or the input alone if that is better."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.triplets import Triplets
from ssdml.metric.features import ResidualRepresentation
from ssdml.utils.typing import Array, Floats, Ints


class Settings(Protocol):
    """Parameters of the estimator that the alternation reads."""

    n_components: int | None
    decay: float
    propagation: str
    mining: str
    input_weight: float | str
    angle: float
    backbone: str | None
    guard: bool
    partition_size: int | None
    device: str
    n_jobs: int | None


class State(NamedTuple):
    """What is known of the rows: their labels, their graph, and what it says of their classes."""

    X: Array  # (n, d)
    labels: Ints  # (n,), -1 where unlabeled
    graph: KNNGraph
    distributions: Array  # (n, n_classes)
    edges: Any = None  # along which they were spread; None: those of the graph

    @property
    def classes(self) -> Ints:
        """Likeliest class of each row, as a column of ``distributions``."""
        return self.distributions.argmax(axis=1)

    @property
    def spread_along(self) -> Any:
        """Edges that the labels went along."""
        return self.graph if self.edges is None else self.edges


class Learned(NamedTuple):
    """A metric, ``representation(X) @ components.T``, and how it came about."""

    components: Floats
    representation: ResidualRepresentation | None
    input_weight: float
    distributions: Array
    triplets: Triplets | None = None
    history: tuple[dict[str, Any], ...] = ()
    complaint: str = ""  # why the input was returned in its place
    edges: Any = None  # along which the distributions were spread; None: many graphs
