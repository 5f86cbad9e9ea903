"""The turns of the alternation: features, triplets on a graph, the metric, the graph again."""

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
from ssdml.angular import angular_objective
from ssdml.features import Backbone, Identity, Residual, Whitening
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.masses import ClassMasses
from ssdml.graphs.neighbors import KNNGraph, knn_graph
from ssdml.graphs.propagation import propagate_affinities, propagate_labels
from ssdml.graphs.triplets import Triplets, mine_triplets
from ssdml.linalg import Matrix
from ssdml.progress import Stages
from ssdml.projections import best_factor
from ssdml.representation import ResidualRepresentation
from ssdml.stiefel import StiefelResult, minimize_on_stiefel, random_orthonormal

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]

JUDGED_ROWS = 2000  # rows that compare metrics by their nearest neighbours
REFERENCE_ROWS = 10_000  # rows that those are searched among
HELD_OUT = 0.2  # share of the unlabelled rows that a backbone does not see in its first round
N_TRIPLETS = 50_000
MIN_JUDGED_ROWS = 50  # fewer say nothing
METRIC_STEPS = 5  # of conjugate gradients from the discriminants; more fit the noise of borders
PAPER_STEPS = 10  # the same in seed 003


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


def alternate(
    state: State, rounds: int, settings: Settings, rng: np.random.Generator, stages: Stages
) -> Learned:
    """Learn features, mine triplets and learn L in turn.

    Under a backbone the graph is renewed between rounds. A linear embedding's own graph is the
    worse one (it took MNIST's propagated labels from 96 to 93 % right), so there the input's
    stays, and the second round adds the rows that judged the first.
    """
    if len(np.unique(state.classes)) < 2:
        return _input_alone(state, settings, "one class is all that its labels tell of")
    backbone = _new_backbone(state.X, settings)
    seen, judged = _split_rows(state, rng)
    first_weights, history = adjacency(state.graph), []
    for number in range(rounds):
        with stages(f"round {number + 1}"):
            rows = seen if number == 0 else np.arange(len(state.X))
            backbone.learn(state.X[rows], state.classes[rows], int(rng.integers(2**31)))
            triplets = _mine(state, settings, rng)
            history.append(_turn(backbone, state.X, triplets, settings))
            embedding = backbone.embed(state.X)
            if number == 0:
                choice = _judge(state, embedding, judged, settings, rng)
            if number < rounds - 1 and settings.backbone is not None:
                state = _renewed(state, first_weights, embedding, settings)
    return _finished(state, backbone, embedding, choice, settings, triplets, history)


def learn_by_partitions(
    state: State, rounds: int, settings: Settings, rng: np.random.Generator, stages: Stages
) -> Learned:
    """Learn L alone, on the rows as they are, one random partition after another (seed 003)."""
    backbone = Identity(random_orthonormal(*_metric_shape(state.X, settings), rng))
    history: list[dict[str, Any]] = []
    for number, rows in enumerate(_partitions(state.labels, rounds, settings, rng)):
        with stages(f"partition {number + 1}"):
            X, labels = state.X[rows], state.labels[rows]
            k = min(state.graph.n_neighbors, len(rows) - 1)
            part = State(
                X, labels, knn_graph(X, k, n_jobs=settings.n_jobs), state.distributions[rows]
            )
            mined = _mine(part, settings, rng)
            history.append(_turn(backbone, X, mined, settings))
            triplets = Triplets(*(rows[ends] for ends in mined[:3]), mined.weight)
    _, judged = _split_rows(state, rng)
    embedding = backbone.embed(state.X)
    choice = _judge(state, embedding, judged, settings, rng)
    return _finished(state, backbone, embedding, choice, settings, triplets, history)


def _new_backbone(X: Array, settings: Settings) -> Backbone:
    if settings.backbone is None:
        return Whitening()
    return Residual(X, angle=settings.angle, device=settings.device)


def _metric_shape(X: Array, settings: Settings) -> tuple[int, int]:
    d = X.shape[1]
    return d, settings.n_components or max(1, d // 2)


def _split_rows(
    state: State, rng: np.random.Generator
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows that train in the first round, and rows that judge the metric after it.

    The two are apart, so that nothing learned by heart is judged.
    """
    everything = np.arange(len(state.X))
    unlabeled = rng.permutation(np.flatnonzero(state.labels == UNLABELED))
    judged = unlabeled[: min(JUDGED_ROWS, int(HELD_OUT * len(unlabeled)))]
    if len(judged) < MIN_JUDGED_ROWS:
        return everything, everything
    return np.setdiff1d(everything, judged), judged


def _partitions(
    labels: Classes, rounds: int, settings: Settings, rng: np.random.Generator
) -> list[npt.NDArray[np.intp]]:
    """The labelled rows with so many unlabelled ones, disjoint until all have had their turn."""
    labeled, unlabeled = np.flatnonzero(labels != UNLABELED), np.flatnonzero(labels == UNLABELED)
    size = min(settings.partition_size or len(labels), len(unlabeled))
    laps = -(-rounds * size // max(1, len(unlabeled)))
    order = np.concatenate([rng.permutation(unlabeled) for _ in range(max(1, laps))])
    parts = [order[i * size : (i + 1) * size] for i in range(rounds)]
    return [np.unique(np.concatenate([labeled, part])) for part in parts]


def _mine(state: State, settings: Settings, rng: np.random.Generator) -> Triplets:
    """Triplets on the graph: from the propagated classes, or from one-sided affinities."""
    budget = N_TRIPLETS if settings.partition_size is None else None
    affinities: Any = ClassMasses(state.distributions)
    if settings.propagation == "one-sided":
        affinities = propagate_affinities(state.graph, state.labels, decay=settings.decay)
    triplets = mine_triplets(
        state.graph, affinities, strategy=settings.mining, n_triplets=budget, random_state=rng
    )
    # Confidence is high beside a labelled row; its root lets the rest of a class be heard.
    return triplets._replace(weight=np.sqrt(triplets.weight))


def _turn(backbone: Backbone, X: Array, triplets: Triplets, settings: Settings) -> dict[str, Any]:
    """Learn L on the backbone's features; what it did, for the history."""
    record: dict[str, Any] = {"n_triplets": len(triplets.anchor)}
    if record["n_triplets"]:
        features = np.asarray(backbone.features(X), dtype=np.float64)
        steps = METRIC_STEPS if settings.partition_size is None else PAPER_STEPS
        result = learn_metric(features, triplets, backbone.L, angle=settings.angle, max_iter=steps)
        backbone.L = result.point
        record |= {"objective": (result.initial_value, result.value), "n_iter": result.n_iter}
    return record


def _renewed(state: State, first_weights: Any, embedding: Array, settings: Settings) -> State:
    """The classes that labels give along the edges of the input and of the embedding together.

    Early labels are better than late ones where an embedding drifts: what the input's graph knows
    is kept, and the embedding's edges come beside it.
    """
    nearer = knn_graph(embedding, state.graph.n_neighbors, n_jobs=settings.n_jobs)
    weights = first_weights + adjacency(nearer)
    return state._replace(
        distributions=propagate_labels(weights, state.labels, decay=settings.decay)
    )


def _judge(
    state: State,
    embedding: Array,
    judged: npt.NDArray[np.intp],
    settings: Settings,
    rng: np.random.Generator,
) -> InputWeight:
    """How much of the input to keep, judged by the classes that the graph gave the rows."""
    rows = np.union1d(judged, rng.permutation(len(state.X))[:REFERENCE_ROWS])
    fixed = None if settings.input_weight == "auto" else (float(settings.input_weight),)
    return choose_input_weight(
        embedding[rows] / _relative_spread(embedding, state.X),
        state.X[rows],
        state.classes[rows],
        np.searchsorted(rows, judged),
        weights=fixed or INPUT_WEIGHTS,
    )


def _finished(
    state: State,
    backbone: Backbone,
    embedding: Array,
    choice: InputWeight,
    settings: Settings,
    triplets: Triplets,
    history: list[dict[str, Any]],
) -> Learned:
    """The metric with the input beside it, or the input alone if that is better."""
    learned = _blended(state, backbone, embedding, choice.weight, settings)
    if settings.guard:
        complaint = _complaint(state, learned, choice)
        if complaint:
            learned = _input_alone(state, settings, complaint)
    history[0] |= choice._asdict()
    return learned._replace(triplets=triplets, history=tuple(history))


def _blended(
    state: State, backbone: Backbone, embedding: Array, weight: float, settings: Settings
) -> Learned:
    """M = A + weight² I, with A scaled to the spread of the input, as one map of few columns."""
    d = state.X.shape[1]
    scale = _relative_spread(embedding, state.X)
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
        blocks = best_factor(blocks, np.cov(rows, rowvar=False, dtype=np.float64), width)
    return Learned(blocks, representation, weight, state.distributions)


def _input_alone(state: State, settings: Settings, complaint: str) -> Learned:
    d = state.X.shape[1]
    components = np.eye(d)
    if settings.n_components is not None and settings.n_components < d:
        covariance = np.cov(state.X, rowvar=False, dtype=np.float64)
        components = best_factor(components, covariance, settings.n_components)
    return Learned(components, None, np.inf, state.distributions, complaint=complaint)


def _complaint(state: State, learned: Learned, choice: InputWeight) -> str:
    """In what the learned metric is worse than the input; empty if in nothing."""
    if choice.is_worse:
        return (
            f"nearest neighbours agree in class on {choice.agreement:.1%} of the rows, "
            f"{choice.input_agreement:.1%} with the input"
        )
    labeled = state.labels != UNLABELED
    rows, labels = state.X[labeled], state.labels[labeled]
    by_input = nearest_mean_agrees(rows, labels)
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
    ratio = embedding.var(axis=0, dtype=np.float64).sum() / max(
        X.var(axis=0, dtype=np.float64).sum(), np.finfo(float).tiny
    )
    return float(np.sqrt(ratio)) if 0 < ratio < np.inf else 1.0


def learn_metric(
    features: Array, triplets: Triplets, L: Matrix, *, angle: float, max_iter: int
) -> StiefelResult:
    """Orthonormal L that lowers the angular objective of the triplets, from a given start.

    Features are scaled so that anchors and positives are 1 apart under the first L, in the mean
    of squares: the objective is not invariant to scale, and far apart all triplets look alike.
    """
    scaled = features / spread_of_positives(features, triplets, L)
    return minimize_on_stiefel(
        angular_objective(scaled, triplets, angle=angle), L, max_iter=METRIC_STEPS
    )


def spread_of_positives(features: Array, triplets: Triplets, L: Matrix) -> float:
    """Root of the mean squared distance under L from anchors to positives; 1 if it is 0."""
    projected = features @ L
    gaps = projected[triplets.anchor] - projected[triplets.positive]
    spread = float(np.sqrt((gaps**2).sum(axis=1).mean()))
    return spread if spread > 0 else 1.0
