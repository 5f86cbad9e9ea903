"""The turns of the alternation: features, triplets on a graph, the metric, the graph again."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ssdml.angular import angular_objective
from ssdml.conclusion import Learned, Settings, State, finished, input_alone, judge, split_rows
from ssdml.features import Backbone, Identity, Residual, Whitening
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs._search import part_of
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.masses import ClassMasses
from ssdml.graphs.neighbors import knn_graph
from ssdml.graphs.propagation import propagate_affinities, propagate_labels
from ssdml.graphs.triplets import Triplets, mine_triplets
from ssdml.linalg import Matrix, product
from ssdml.progress import Stages
from ssdml.sampling import partitions
from ssdml.stiefel import StiefelResult, minimize_on_stiefel, random_orthonormal

Array = npt.NDArray[Any]
Classes = npt.NDArray[np.int64]

N_TRIPLETS = 50_000
METRIC_STEPS = 3  # of conjugate gradients from the discriminants; more fit the noise of borders
PAPER_STEPS = 10  # the same in seed 003
TRAINING = 0.8  # share of a round that a backbone learns, for the progress


class MiningSettings(Protocol):
    """What :func:`mine` reads."""

    @property
    def decay(self) -> float:
        """Of the propagation, between 0 and 1."""

    @property
    def propagation(self) -> str:
        """One- or two-sided."""

    @property
    def n_jobs(self) -> int | None:
        """Threads of the propagation."""

    @property
    def mining(self) -> str:
        """Strategy."""


def alternate(
    state: State, rounds: int, settings: Settings, rng: np.random.Generator, stages: Stages
) -> Learned:
    """Learn features, mine triplets and learn L in turn.

    Under a backbone the graph is renewed between rounds. A linear embedding's own graph is the
    worse one (it took MNIST's propagated labels from 96 to 93 % right), so there the input's
    stays, and the second round adds the rows that judged the first.
    """
    if len(np.unique(state.classes)) < 2:
        return input_alone(state, settings, "its labels lead to one class alone. Label others.")
    first, backbone = state, _new_backbone(state.X, settings)
    seen, judged = split_rows(state, rng)
    history: list[dict[str, Any]] = []
    for number in range(rounds):
        with stages(f"round {number + 1}") as show:
            rows = seen if number == 0 else np.arange(len(state.X))
            training = part_of(show, 0.0, TRAINING)
            backbone.learn(state.X[rows], state.classes[rows], int(rng.integers(2**31)), training)
            triplets = _mine(state, settings, rng)
            history.append(turn(backbone, state.X, triplets, settings))
            if backbone.losses:
                history[-1]["loss"] = backbone.losses[-1]
            embedding = backbone.embed(state.X)
            if number == 0:
                choice = judge(state, embedding, judged, settings.input_weight, rng)
            if number < rounds - 1 and settings.backbone is not None:
                before, state = state, _renewed(state, embedding, settings, rng)
                history[-1]["changed"] = float((before.classes != state.classes).mean())
    last = judge(first, embedding, judged, choice.weight, rng)
    verdicts = (choice, last)
    return finished(first, state, backbone, embedding, verdicts, settings, triplets, history)


def learn_by_partitions(
    state: State, rounds: int, settings: Settings, rng: np.random.Generator, stages: Stages
) -> Learned:
    """Learn L alone, on the rows as they are, one random partition after another (seed 003)."""
    backbone = Identity(random_orthonormal(*_metric_shape(state.X, settings), rng))
    history: list[dict[str, Any]] = []
    labeled = state.labels != UNLABELED
    known, unknown = np.flatnonzero(labeled), np.flatnonzero(~labeled)
    parts = partitions(known, unknown, rounds, settings.partition_size, rng)
    for number, rows in enumerate(parts):
        with stages(f"partition {number + 1}"):
            X, labels = state.X[rows], state.labels[rows]
            k = min(state.graph.n_neighbors, len(rows) - 1)
            graph = knn_graph(X, k, n_jobs=settings.n_jobs, random_state=rng)
            part = State(X, labels, graph, state.distributions[rows])
            mined = _mine(part, settings, rng)
            history.append(turn(backbone, X, mined, settings))
            triplets = mined.among(rows)
    _, judged = split_rows(state, rng)
    embedding = backbone.embed(state.X)
    choice = judge(state, embedding, judged, settings.input_weight, rng)
    return finished(state, state, backbone, embedding, (choice,), settings, triplets, history)


def _new_backbone(X: Array, settings: Settings) -> Backbone:
    if settings.backbone is None:
        return Whitening()
    return Residual(X, angle=settings.angle, device=settings.device)


def _metric_shape(X: Array, settings: Settings) -> tuple[int, int]:
    d = X.shape[1]
    return d, settings.n_components or max(1, d // 2)


def _mine(state: State, settings: Settings, rng: np.random.Generator) -> Triplets:
    return mine(state, settings, N_TRIPLETS if settings.partition_size is None else None, rng)


def mine(
    state: State, settings: MiningSettings, n_triplets: int | None, rng: np.random.Generator
) -> Triplets:
    """Triplets on the graph: from the propagated classes, or from one-sided affinities."""
    affinities: Any = ClassMasses(state.distributions)
    if settings.propagation == "one-sided":
        affinities = propagate_affinities(
            state.graph, state.labels, decay=settings.decay, n_jobs=settings.n_jobs
        )
    triplets = mine_triplets(
        state.graph, affinities, strategy=settings.mining, n_triplets=n_triplets, random_state=rng
    )
    # Confidence is high beside a labelled row; its root lets the rest of a class be heard.
    return triplets._replace(weight=np.sqrt(triplets.weight))


def turn(backbone: Backbone, X: Array, triplets: Triplets, settings: Settings) -> dict[str, Any]:
    """Learn L on the backbone's features; what it did, for the history."""
    if not len(triplets.anchor):
        return {"n_triplets": 0}
    literal = settings.partition_size is not None
    result = learn_metric(
        backbone.features(X),
        triplets,
        backbone.L,
        angle=settings.angle,
        max_iter=PAPER_STEPS if literal else METRIC_STEPS,
        rescale=not literal,
    )
    backbone.L = result.point
    objective = (result.initial_value, result.value)
    return {"n_triplets": len(triplets.anchor), "objective": objective, "n_iter": result.n_iter}


def _renewed(state: State, embedding: Array, settings: Settings, rng: np.random.Generator) -> State:
    """The classes that labels give along the edges of the input and of the embedding together.

    Early labels are better than late ones where an embedding drifts: what the input's graph knows
    is kept, and the embedding's edges come beside it.
    """
    nearer = knn_graph(embedding, state.graph.n_neighbors, n_jobs=settings.n_jobs, random_state=rng)
    weights = adjacency(state.graph) + adjacency(nearer)
    return state._replace(
        edges=weights,
        distributions=propagate_labels(
            weights, state.labels, decay=settings.decay, n_jobs=settings.n_jobs
        ),
    )


def learn_metric(
    features: Array,
    triplets: Triplets,
    L: Matrix,
    *,
    angle: float,
    max_iter: int,
    rescale: bool,
    device: str = "cpu",
) -> StiefelResult:
    """Orthonormal L that lowers the angular objective of the triplets, from a given start.

    With ``rescale``, anchors and positives are 1 apart under the first L, in the mean of squares:
    the objective is not invariant to scale, and far apart all triplets look alike.
    """
    scale = spread_of_positives(features, triplets, L) if rescale else 1.0
    objective = angular_objective(features, triplets, angle=angle, scale=scale, device=device)
    return minimize_on_stiefel(objective, L, max_iter=max_iter)


def spread_of_positives(features: Array, triplets: Triplets, L: Matrix) -> float:
    """Root of the mean squared distance under L from anchors to positives; 1 if it is 0."""
    projected = product(features, L)
    gaps = projected[triplets.anchor] - projected[triplets.positive]
    spread = float(np.sqrt((gaps**2).sum(axis=1).mean()))
    return spread if spread > 0 else 1.0
