"""Records of a fit: its state between rounds and its result."""

from __future__ import annotations

from typing import Any, NamedTuple

from ssdml.classification.forms import Form
from ssdml.classification.learning import HeldOut
from ssdml.classification.new_rows import ClassInterpolator, DirectScores
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.triplets import Triplets
from ssdml.utils.typing import Array, Floats, Ints


class State(NamedTuple):
    """Training rows with their labels, graph and class distributions."""

    X: Array  # (n, d)
    labels: Ints  # (n,), -1 where unlabeled
    graph: KNNGraph  # of the input
    distributions: Array  # (n, n_classes)

    @property
    def classes(self) -> Ints:
        """Most probable class of each row, as a column of ``distributions``."""
        return self.distributions.argmax(axis=1)


class Classified(NamedTuple):
    """Rows with the class probabilities that a classifier of new rows interpolates."""

    X: Array  # (n, d), as they were given
    distributions: Array  # (n, n_classes)
    form: Form | None = None  # with their graph; None: without such a classifier
    direct: DirectScores | None = None  # their scores by the pool without a graph


class Learned(NamedTuple):
    """The metric ``representation(X) @ components.T`` and how it was learned."""

    components: Floats
    input_weight: float  # infinite for the input alone
    distributions: Array
    classifier: ClassInterpolator | None = None  # of new rows; None: by votes of neighbors
    represented: Array | None = None  # rows that are kept; None: the input
    held_out: HeldOut | None = None
    triplets: Triplets | None = None
    history: tuple[dict[str, Any], ...] = ()
    nearer: KNNGraph | None = None  # graph of the embedding before the last round
    fallback_reason: str = ""  # why the input was returned; empty if it was not
