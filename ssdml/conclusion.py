"""What a fit ends with: the input beside what was learned, or the input alone if that is better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from ssdml.agreement import (
    INPUT_WEIGHTS,
    InputWeight,
    choose_input_weight,
    falls_short,
    nearest_mean_agrees,
)
from ssdml.features import Backbone
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.neighbors import KNNGraph
from ssdml.graphs.triplets import Triplets
from ssdml.linalg import covariance, total_variance
from ssdml.projections import best_factor
from ssdml.representation import ResidualRepresentation
from ssdml.utils.typing import Array, Floats, Indices, Ints

JUDGED_ROWS = 5000  # rows that compare metrics by their nearest neighbours
REFERENCE_ROWS = 10_000  # rows that those are searched among
HELD_OUT = 0.2  # share of the unlabelled rows that judge the first round, and do not train it
MIN_JUDGED_ROWS = 50  # fewer say nothing


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
    labels: Ints  # (n,), -1 where unlabelled
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


def n_held_out(n_unlabeled: int) -> int:
    """How many of the unlabelled rows judge the first round; 0 if they were too few to."""
    count = min(JUDGED_ROWS, int(HELD_OUT * n_unlabeled))
    return count if count >= MIN_JUDGED_ROWS else 0


def split_rows(state: State, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Rows that train the features in the first round, and rows that judge the metric after it.

    The two are apart, so that no class learned by heart is judged; where few rows are unlabelled,
    rows that train judge as well.
    """
    everything = np.arange(len(state.X))
    unlabeled = rng.permutation(np.flatnonzero(state.labels == UNLABELED))
    judged = unlabeled[: n_held_out(len(unlabeled))]
    if not len(judged):
        return everything, np.sort(rng.permutation(everything)[:JUDGED_ROWS])
    return np.setdiff1d(everything, judged), judged


def judge(
    state: State,
    embedding: Array,
    judged: Indices,
    input_weight: float | str,
    rng: np.random.Generator,
) -> InputWeight:
    """How much of the input to keep, judged by the classes that the graph gave the rows."""
    rows = np.union1d(judged, rng.permutation(len(state.X))[:REFERENCE_ROWS])
    return verdict(
        embedding[rows] / _spread_of(embedding, state.X),
        state.X[rows],
        state.classes[rows],
        np.searchsorted(rows, judged),
        input_weight,
    )


def verdict(
    learned: Array, inputs: Array, classes: Ints, judged: Indices, input_weight: float | str
) -> InputWeight:
    """The weight of the input, given or chosen, and how rows agree with their neighbours then."""
    weights = INPUT_WEIGHTS if input_weight == "auto" else (float(input_weight),)
    return choose_input_weight(learned, inputs, classes, judged, weights=weights)


def finished(
    first: State,
    state: State,
    backbone: Backbone,
    embedding: Array,
    verdicts: tuple[InputWeight, ...],
    settings: Settings,
    triplets: Triplets,
    history: list[dict[str, Any]],
) -> Learned:
    """The metric with the input beside it, or the input alone if that is better.

    The first verdict chose the weight, after the first round; the last judges the embedding by
    the same classes, so that a drift in later rounds does not pass unseen.
    """
    learned = _blended(state, backbone, embedding, verdicts[0].weight, settings)
    if settings.guard:
        labeled = state.labels != UNLABELED
        alone = input_alone(first, settings)
        learned = guarded(learned, alone, state.X[labeled], state.labels[labeled], verdicts)
    history[0] |= verdicts[0]._asdict()
    history[-1] |= {"agreement": verdicts[-1].agreement}
    return learned._replace(triplets=triplets, history=tuple(history))


def _blended(
    state: State, backbone: Backbone, embedding: Array, weight: float, settings: Settings
) -> Learned:
    """M = A + weight² I, with A scaled to the spread of the input, as one map of few columns."""
    d = state.X.shape[1]
    scale = _spread_of(embedding, state.X) if weight > 0 else 1.0
    representation = backbone.representation
    if representation is None:
        blocks = beside_input(backbone.components / scale, weight)
        rows = state.X
    else:
        n_learned = embedding.shape[1]
        blocks = np.diag(np.repeat([1 / scale, weight], [n_learned, d]))
        blocks = blocks[: n_learned if weight == 0 else None]
        rows = np.hstack([embedding, state.X])
    components = fewer_columns(blocks, settings.n_components or d, lambda: covariance(rows))
    return Learned(
        components, representation, weight, state.distributions, edges=state.spread_along
    )


def beside_input(components: Floats, weight: float) -> Floats:
    """The map that is learned, and below it the weighted input; nothing below for a weight of 0."""
    if weight == 0:
        return components
    return np.vstack([components, weight * np.eye(components.shape[1])])


def fewer_columns(blocks: Floats, most: int, spread: Callable[[], Floats]) -> Floats:
    """The map, or one to at most so many columns; the covariance is asked for where it is used."""
    return blocks if len(blocks) <= most else best_factor(blocks, spread(), most)


def input_alone(state: State, settings: Settings, complaint: str = "") -> Learned:
    """The identity, or as many principal components as are asked for."""
    d = state.X.shape[1]
    components = fewer_columns(np.eye(d), settings.n_components or d, lambda: covariance(state.X))
    return Learned(
        components,
        None,
        np.inf,
        state.distributions,
        complaint=complaint,
        edges=state.spread_along,
    )


def guarded(
    learned: Learned,
    alone: Learned,
    rows: Array,
    labels: Ints,
    verdicts: tuple[InputWeight, ...],
) -> Learned:
    """What was learned, or the input alone where that is better; given the labelled rows."""
    complaint = _complaint(learned, alone, rows, labels, verdicts)
    if not complaint:
        return learned
    worse = f"what was learned is worse: {complaint}"
    return alone._replace(complaint=f"{worse}. Label more rows, or pass guard=False.")


def _complaint(
    learned: Learned,
    alone: Learned,
    rows: Array,
    labels: Ints,
    verdicts: tuple[InputWeight, ...],
) -> str:
    """In what the learned metric is worse than the input; empty if in nothing."""
    for verdict in verdicts:
        if verdict.is_worse:
            return (
                f"nearest neighbours agree in class on {verdict.agreement:.1%} of the rows, "
                f"{verdict.input_agreement:.1%} with the input"
            )
    by_input = nearest_mean_agrees(rows @ alone.components.T, labels)
    represented = rows if learned.representation is None else learned.representation(rows)
    by_learned = nearest_mean_agrees(represented @ learned.components.T, labels)
    if len(by_input) and falls_short(by_learned, by_input):
        return (
            f"{by_learned.mean():.1%} of the labelled rows are nearest to their class's mean, "
            f"{by_input.mean():.1%} with the input"
        )
    return ""


def _spread_of(embedding: Array, X: Array) -> float:
    return relative_spread(total_variance(embedding), total_variance(X))


def relative_spread(of_embedding: float, of_input: float) -> float:
    """Root of the ratio of two total variances; 1 where either does not vary."""
    ratio = of_embedding / max(of_input, np.finfo(float).tiny)
    return float(np.sqrt(ratio)) if 0 < ratio < np.inf else 1.0
