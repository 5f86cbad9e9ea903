"""What a fit ends with: the input beside what was learned, or the input alone if that is better."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

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
from ssdml.linalg import Matrix, covariance, total_variance
from ssdml.projections import best_factor
from ssdml.representation import ResidualRepresentation

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

JUDGED_ROWS = 2000  # rows that compare metrics by their nearest neighbours
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
    labels: Classes  # (n,), -1 where unlabelled
    graph: KNNGraph
    distributions: Array  # (n, n_classes)

    @property
    def classes(self) -> Classes:
        """Likeliest class of each row, as a column of ``distributions``."""
        return self.distributions.argmax(axis=1)


class Learned(NamedTuple):
    """A metric, ``representation(X) @ components.T``, and how it came about."""

    components: Matrix
    representation: ResidualRepresentation | None
    input_weight: float
    distributions: Array
    triplets: Triplets | None = None
    history: tuple[dict[str, Any], ...] = ()
    complaint: str = ""  # why the input was returned in its place


def split_rows(state: State, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Rows that train the features in the first round, and rows that judge the metric after it.

    The two are apart, so that no class learned by heart is judged; where few rows are unlabelled,
    rows that train judge as well.
    """
    everything = np.arange(len(state.X))
    unlabeled = rng.permutation(np.flatnonzero(state.labels == UNLABELED))
    judged = unlabeled[: min(JUDGED_ROWS, int(HELD_OUT * len(unlabeled)))]
    if len(judged) < MIN_JUDGED_ROWS:
        return everything, np.sort(rng.permutation(everything)[:JUDGED_ROWS])
    return np.setdiff1d(everything, judged), judged


def judge(
    state: State,
    embedding: Array,
    judged: Rows,
    input_weight: float | str,
    rng: np.random.Generator,
) -> InputWeight:
    """How much of the input to keep, judged by the classes that the graph gave the rows."""
    rows = np.union1d(judged, rng.permutation(len(state.X))[:REFERENCE_ROWS])
    return choose_input_weight(
        embedding[rows] / _relative_spread(embedding, state.X),
        state.X[rows],
        state.classes[rows],
        np.searchsorted(rows, judged),
        weights=INPUT_WEIGHTS if input_weight == "auto" else (float(input_weight),),
    )


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
        alone = input_alone(first, settings)
        complaint = _complaint(state, learned, alone, verdicts)
        if complaint:
            worse = f"what was learned is worse: {complaint}"
            learned = alone._replace(complaint=f"{worse}. Label more rows, or pass guard=False.")
    history[0] |= verdicts[0]._asdict()
    history[-1] |= {"agreement": verdicts[-1].agreement}
    return learned._replace(triplets=triplets, history=tuple(history))


def _blended(
    state: State, backbone: Backbone, embedding: Array, weight: float, settings: Settings
) -> Learned:
    """M = A + weight² I, with A scaled to the spread of the input, as one map of few columns."""
    d = state.X.shape[1]
    scale = _relative_spread(embedding, state.X) if weight > 0 else 1.0
    representation = backbone.representation
    if representation is None:
        blocks = np.vstack([backbone.components / scale, weight * np.eye(d)])
        rows = state.X
    else:
        n_learned = embedding.shape[1]
        blocks = np.diag(np.repeat([1 / scale, weight], [n_learned, d]))
        rows = np.hstack([embedding, state.X])
    if weight == 0:
        blocks = blocks[: embedding.shape[1]]
    width = min(settings.n_components or d, len(blocks))
    if width < len(blocks):
        blocks = best_factor(blocks, covariance(rows), width)
    return Learned(blocks, representation, weight, state.distributions)


def input_alone(state: State, settings: Settings, complaint: str = "") -> Learned:
    """The identity, or as many principal components as are asked for."""
    d = state.X.shape[1]
    components = np.eye(d)
    if settings.n_components is not None and settings.n_components < d:
        components = best_factor(components, covariance(state.X), settings.n_components)
    return Learned(components, None, np.inf, state.distributions, complaint=complaint)


def _complaint(
    state: State, learned: Learned, alone: Learned, verdicts: tuple[InputWeight, ...]
) -> str:
    """In what the learned metric is worse than the input; empty if in nothing."""
    for verdict in verdicts:
        if verdict.is_worse:
            return (
                f"nearest neighbours agree in class on {verdict.agreement:.1%} of the rows, "
                f"{verdict.input_agreement:.1%} with the input"
            )
    labeled = state.labels != UNLABELED
    rows, labels = state.X[labeled], state.labels[labeled]
    by_input = nearest_mean_agrees(rows @ alone.components.T, labels)
    represented = rows if learned.representation is None else learned.representation(rows)
    by_learned = nearest_mean_agrees(represented @ learned.components.T, labels)
    if len(by_input) and falls_short(by_learned, by_input):
        return (
            f"{by_learned.mean():.1%} of the labelled rows are nearest to their class's mean, "
            f"{by_input.mean():.1%} with the input"
        )
    return ""


def _relative_spread(embedding: Array, X: Array) -> float:
    """Root of the ratio of the total variances; 1 where either does not vary."""
    ratio = total_variance(embedding) / max(total_variance(X), np.finfo(float).tiny)
    return float(np.sqrt(ratio)) if 0 < ratio < np.inf else 1.0
