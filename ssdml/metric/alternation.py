"""Alternate between features, triplets on the graph, and the metric L."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors.exact import part_of
from ssdml.graphs.neighbors.knn import knn_graph
from ssdml.graphs.propagation.affinities import propagate_affinities
from ssdml.graphs.propagation.class_masses import ClassMasses
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.graphs.triplets import Triplets, mine_triplets
from ssdml.metric.features import FeatureMap, Residual, Whitening
from ssdml.metric.selection import candidate_weights, combine, input_alone, split_rows, validate
from ssdml.metric.state import Learned, State
from ssdml.metric.stiefel import StiefelResult, angular_objective, minimize_on_stiefel
from ssdml.networks.sampling import partitions
from ssdml.utils.linalg import product, random_orthonormal
from ssdml.utils.progress import Stages
from ssdml.utils.typing import Array, Floats
from ssdml.utils.validation import UNLABELED

if TYPE_CHECKING:
    from ssdml.metric.estimator import SSDML

N_TRIPLETS = 50_000
METRIC_STEPS = 3  # of conjugate gradients from the discriminants; more overfit class borders
PAPER_STEPS = 10  # the same in Dutta et al. (2021)
PAPER_PARTITIONS = 5  # Dutta et al. (2021): 50 epochs in all, 10 per partition
TRAINING = 0.8  # share of a round spent on training a backbone, for the progress bar
ONE_CLASS = "propagation finds a single class. Label at least one other."


def count_rounds(model: SSDML, n_unlabeled: int) -> int:
    """Rounds or partitions of a fit: ``max_rounds``, or the default of the mode."""
    if model.max_rounds is not None:
        return int(model.max_rounds)
    if model.partition_size is not None:
        return max(1, min(PAPER_PARTITIONS, -(-n_unlabeled // model.partition_size)))
    return 2 if model.backbone is None else 3


def alternate(
    state: State, rounds: int, model: SSDML, rng: np.random.Generator, stages: Stages
) -> Learned:
    """Learn features, mine triplets and learn L, for a number of rounds.

    With a backbone, the graph is updated between rounds. The graph of a linear embedding is worse
    than that of the input (accuracy of the propagated labels on MNIST: 93 against 96 %), so there
    the graph stays, and the second round adds the validation rows.
    """
    if len(np.unique(state.classes)) < 2:
        return input_alone(state, model.n_components, ONE_CLASS)
    first, feature_map = state, _new_feature_map(state.X, model)
    training, validation = split_rows(state, rng)
    history: list[dict[str, Any]] = []
    for number in range(rounds):
        with stages(f"round {number + 1}") as show:
            rows = training if number == 0 else np.arange(len(state.X))
            seed, progress = int(rng.integers(2**31)), part_of(show, 0.0, TRAINING)
            feature_map.learn(state.X[rows], state.classes[rows], seed, progress)
            triplets = mine(state, model, N_TRIPLETS, rng)
            history.append(update_metric(feature_map, state.X, triplets, model))
            if feature_map.losses:
                history[-1]["loss"] = feature_map.losses[-1]
            embedding = feature_map.embed(state.X)
            if number == 0:
                weights = candidate_weights(model.input_weight)
                choice = validate(state, embedding, validation, weights, rng)
            if number < rounds - 1 and model.backbone is not None:
                before, state = state, _update_labels(state, embedding, model, rng)
                history[-1]["changed"] = float((before.classes != state.classes).mean())
    last = validate(first, embedding, validation, (choice.weight,), rng)
    choices = (choice, last)
    return combine(first, state, feature_map, embedding, choices, model, triplets, history)


def learn_by_partitions(
    state: State, rounds: int, model: SSDML, rng: np.random.Generator, stages: Stages
) -> Learned:
    """Learn L alone on random partitions of the rows, one after another (Dutta et al., 2021)."""
    d = state.X.shape[1]
    n_components = model.n_components or max(1, d // 2)
    feature_map = FeatureMap(random_orthonormal(d, n_components, rng))
    history: list[dict[str, Any]] = []
    labeled = state.labels != UNLABELED
    known, unknown = np.flatnonzero(labeled), np.flatnonzero(~labeled)
    parts = partitions(known, unknown, rounds, model.partition_size, rng)
    for number, rows in enumerate(parts):
        with stages(f"partition {number + 1}"):
            X, labels = state.X[rows], state.labels[rows]
            k = min(state.graph.n_neighbors, len(rows) - 1)
            graph = knn_graph(X, k, n_jobs=model.n_jobs, random_state=rng)
            part = State(X, labels, graph, state.distributions[rows])
            mined = mine(part, model, None, rng)
            history.append(update_metric(feature_map, X, mined, model))
            triplets = mined.among(rows)
    _, validation = split_rows(state, rng)
    embedding = feature_map.embed(state.X)
    choice = validate(state, embedding, validation, candidate_weights(model.input_weight), rng)
    return combine(state, state, feature_map, embedding, (choice,), model, triplets, history)


def _new_feature_map(X: Array, model: SSDML) -> FeatureMap:
    if model.backbone is None:
        return Whitening()
    return Residual(X, angle=model.angle, device=model.device)


def mine(state: State, model: Any, n_triplets: int | None, rng: np.random.Generator) -> Triplets:
    """Mine triplets on the graph, from the propagated classes or from one-sided affinities.

    ``model`` has ``propagation``, ``mining``, ``decay`` and ``n_jobs``; ``n_triplets`` None: all.
    """
    affinities: Any = ClassMasses(state.distributions)
    if model.propagation == "one-sided":
        affinities = propagate_affinities(
            state.graph, state.labels, decay=model.decay, n_jobs=model.n_jobs
        )
    triplets = mine_triplets(
        state.graph, affinities, strategy=model.mining, n_triplets=n_triplets, random_state=rng
    )
    # Confidence peaks next to labeled rows; its root gives the rest of a class more weight.
    return triplets._replace(weight=np.sqrt(triplets.weight))


def update_metric(
    feature_map: FeatureMap, X: Array, triplets: Triplets, model: SSDML
) -> dict[str, Any]:
    """Update L on the features; return what to keep in the history."""
    if not len(triplets.anchor):
        return {"n_triplets": 0}
    by_partitions = model.partition_size is not None
    result = learn_metric(
        feature_map.features(X),
        triplets,
        feature_map.L,
        angle=model.angle,
        max_iter=PAPER_STEPS if by_partitions else METRIC_STEPS,
        rescale=not by_partitions,
    )
    feature_map.L = result.point
    objective = (result.initial_value, result.value)
    return {"n_triplets": len(triplets.anchor), "objective": objective, "n_iter": result.n_iter}


def _update_labels(state: State, embedding: Array, model: SSDML, rng: np.random.Generator) -> State:
    """Propagate the labels along the edges of the input and of the embedding together.

    The edges of the input stay because early labels are better where the embedding drifts.
    """
    nearer = knn_graph(embedding, state.graph.n_neighbors, n_jobs=model.n_jobs, random_state=rng)
    edges = adjacency(state.graph) + adjacency(nearer)
    distributions = propagate_labels(edges, state.labels, decay=model.decay, n_jobs=model.n_jobs)
    return state._replace(edges=edges, distributions=distributions)


def learn_metric(
    features: Array,
    triplets: Triplets,
    L: Floats,
    *,
    angle: float,
    max_iter: int,
    rescale: bool,
    device: str = "cpu",
) -> StiefelResult:
    """Minimize the angular objective of the triplets over orthonormal L, starting at ``L``.

    The objective depends on the scale: far apart, all triplets look alike. With ``rescale``, the
    mean squared distance of anchors to positives is 1 under the initial L.
    """
    scale = _spread_of_positives(features, triplets, L) if rescale else 1.0
    objective = angular_objective(features, triplets, angle=angle, scale=scale, device=device)
    return minimize_on_stiefel(objective, L, max_iter=max_iter)


def _spread_of_positives(features: Array, triplets: Triplets, L: Floats) -> float:
    projected = product(features, L)
    gaps = projected[triplets.anchor] - projected[triplets.positive]
    spread = float(np.sqrt((gaps**2).sum(axis=1).mean()))
    return spread if spread > 0 else 1.0
