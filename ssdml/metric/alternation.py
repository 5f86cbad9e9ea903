"""Alternate between classes, triplets on the graph, and the metric L."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from ssdml.classification.forms import Form, principal_form
from ssdml.classification.learning import Evidence, learn_evidence
from ssdml.classification.new_rows import ClassInterpolator, interpolator
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors.copies import first_at_no_distance, graph_of_distinct
from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph
from ssdml.graphs.propagation.affinities import propagate_affinities
from ssdml.graphs.propagation.class_masses import ClassMasses
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.graphs.triplets import Triplets, found_triplets
from ssdml.metric.features import FeatureMap, Whitening
from ssdml.metric.selection import (
    FEWEST_COLUMNS,
    balanced_weight,
    combined_components,
    combined_on_span,
    fewer_columns,
    spread,
)
from ssdml.metric.state import Classified, Learned, State
from ssdml.metric.stiefel import (
    StiefelResult,
    angular_objective,
    minimize_freely,
    minimize_on_stiefel,
)
from ssdml.networks.sampling import partitions
from ssdml.utils.linalg import covariance, product, random_orthonormal
from ssdml.utils.parallel import Threads, count_threads, threads
from ssdml.utils.progress import Stages
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED, warn

if TYPE_CHECKING:
    from ssdml.metric.estimator import SSDML

N_TRIPLETS = 20_000
METRIC_STEPS = 3  # of conjugate gradients from the discriminants; more overfit class borders
PAPER_STEPS = 10  # the same in Dutta et al. (2021)
SHORT = 0.01  # distances whose squares hardly change the objective
PAPER_PARTITIONS = 5  # Dutta et al. (2021): 50 epochs in all, 10 per partition
SECOND_GRAPH_ROWS = 70_000  # rows up to which the second round searches neighbors again
ONE_CLASS = "propagation finds a single class. Label at least one other; -1 means unlabeled."


class Classes(NamedTuple):
    """Labels and evidence of a fit, and the form of the rows whose graph they trust most."""

    form: Form
    evidence: Evidence

    def of_rows(self, X: Array, distributions: Array) -> Classified:
        """The rows as they were given, with their distributions (n, C)."""
        direct = self.evidence.direct.scores(len(X))
        return Classified(X, distributions, self.form, direct)

    def renewed(self, before: Array, nearer: KNNGraph, n_jobs: int | None) -> Array:
        """Spread them again on the graphs of the input and of an embedding together."""
        with threads(count_threads(n_jobs, "SSDML")) as pool:
            return on_both(self.evidence, adjacency(self.form.graph), nearer, before, pool)


def on_both(
    evidence: Evidence, weights: sparse.csr_array, nearer: KNNGraph, before: Array, pool: Threads
) -> Array:
    """Spread evidence over the graph of the input, given by its weights, and of an embedding."""
    return evidence.on(Diffusion(weights + adjacency(nearer), pool), beside=before)


@contextmanager
def diffusions_of(forms: list[Form], n_jobs: int | None) -> Iterator[list[Diffusion]]:
    """Provide the diffusion on each form's graph, in threads of their own."""
    with threads(count_threads(n_jobs, "SSDML")) as pool:
        yield [Diffusion(adjacency(form.graph), pool) for form in forms]


def learn_classes(forms: list[Form], labels: Ints, *, n_jobs: int | None) -> tuple[Classes, Array]:
    """Learn the evidence of a pool of classifiers; return it and the distributions (n, C)."""
    with diffusions_of(forms, n_jobs) as diffusions:
        evidence = learn_evidence(forms, labels, diffusions)
        distributions = evidence.on(diffusions[evidence.form])
    return Classes(forms[evidence.form], evidence), distributions


def count_rounds(model: SSDML, n_samples: int, n_unlabeled: int) -> int:
    """Rounds or partitions of a fit: ``max_rounds``, or the default of the mode."""
    if model.max_rounds is not None:
        return int(model.max_rounds)
    if model.partition_size is not None:
        return max(1, min(PAPER_PARTITIONS, -(-n_unlabeled // model.partition_size)))
    return 2 if n_samples <= SECOND_GRAPH_ROWS and model.propagation == "two-sided" else 1


def alternate(
    state: State,
    classes: Classes | None,
    rounds: int,
    model: SSDML,
    rng: np.random.Generator,
    stages: Stages,
) -> tuple[State, FeatureMap, dict[str, Any]]:
    """Mine triplets and learn L from the classes, and the classes on the graph of L, in turn.

    Returns the last state, the feature map with L, and ``triplets``, ``history`` and ``nearer``.
    """
    feature_map: FeatureMap = Whitening()
    history: list[dict[str, Any]] = []
    nearer = None
    for number in range(rounds):
        with stages(f"round {number + 1}"):
            if number > 0 and classes is not None:
                before = state.classes
                embedding = _side_by_side(state, feature_map)
                rows, k = principal_form(embedding)(embedding), state.graph.n_neighbors
                first = first_at_no_distance(classes.form.graph)
                nearer = graph_of_distinct(rows, k, first, n_jobs=model.n_jobs, random_state=rng)
                renewed = classes.renewed(state.distributions, nearer, model.n_jobs)
                state = state._replace(distributions=renewed)
                history[-1]["changed"] = float((before != state.classes).mean())
            feature_map.learn(state.X, state.classes)
            triplets = mine(state, model, N_TRIPLETS, rng)
            history.append(update_metric(feature_map, state.X, triplets, model))
    kept = {"triplets": triplets, "history": tuple(history), "nearer": nearer}
    return state, feature_map, kept


def learn_by_partitions(
    state: State, rounds: int, model: SSDML, rng: np.random.Generator, stages: Stages
) -> tuple[State, FeatureMap, dict[str, Any]]:
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
    stayed = n_components < d and not any(part.get("n_iter", 1) for part in history)
    if stayed and 0 < (distance := spread(state.X)) < SHORT:
        warn(
            "SSDML: X must have rows of about unit length with partition_size; the metric stayed "
            f"at its random start, as distances of {distance:.2g} hardly change the objective. "
            "Pass Normalizer().fit_transform(X), or scale X up."
        )
    return state, feature_map, {"triplets": triplets, "history": tuple(history)}


def mine(state: State, model: Any, n_triplets: int | None, rng: np.random.Generator) -> Triplets:
    """Mine triplets on the graph, from the class distributions or from one-sided affinities.

    ``model`` has ``propagation``, ``mining``, ``decay`` and ``n_jobs``; ``n_triplets`` None: all.
    """
    affinities: Any = ClassMasses(state.distributions)
    if model.propagation == "one-sided":
        affinities = propagate_affinities(
            state.graph, state.labels, decay=model.decay, n_jobs=model.n_jobs
        )
    triplets = found_triplets(
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


def _side_by_side(state: State, feature_map: FeatureMap) -> Array:
    """Class probabilities, learned metric and input of the training rows, of equal spread."""
    parts = [np.sqrt(state.distributions), feature_map.embed(state.X), state.X]
    return np.hstack([part / part.dtype.type(spread(part) or 1.0) for part in parts])


def combine(
    rows: Classified, feature_map: FeatureMap, weight: float, n_components: int | None
) -> Learned:
    """Put class probabilities, learned metric and input side by side.

    Parameters
    ----------
    rows : Classified
        Those that the classifier keeps.
    feature_map : FeatureMap
        With the metric L, on columns as scaled in the form of the rows.
    weight : float
        Of the input; 0 leaves L alone.
    n_components : int or None
    """
    X, form, components, n_classes = rows.X, rows.form, feature_map.components, 0
    n, d = X.shape
    most = n_components or max(d, FEWEST_COLUMNS)
    classifier, represented = fit_interpolator(rows, represent=weight > 0)
    if weight > 0:
        scaled, roots = rescaled(X, form), np.empty((n, 0))
        if represented is not None:
            n_classes = rows.distributions.shape[1]
            roots = represented[:, :n_classes]
        spreads = (spread(roots), spread(scaled, feature_map.components), spread(scaled))
        if n < d and most <= d:
            components = combined_on_span(components, weight, spreads, roots, scaled, most)
        else:
            components = combined_components(components, weight, n_classes, spreads)
    if (scale := column_scale(form)) is not None:
        components[:, n_classes:] *= scale
    kept = X if represented is None else represented
    components = fewer_columns(components, most, lambda: covariance(kept))
    return Learned(components, weight, rows.distributions, classifier, represented)


def fit_interpolator(
    rows: Classified, *, represent: bool
) -> tuple[ClassInterpolator | None, Array | None]:
    """Fit the classifier of new rows; ``represent`` the rows by class probabilities and input.

    Both are None without a form; the roots of the probabilities come first.
    """
    X, distributions, form, direct = rows
    if form is None:
        return None, None
    of_trees = None if direct is None else direct.of_trees
    classifier = interpolator(form, distributions, direct)
    classifier = classifier.sharpened(form, distributions, of_trees)
    if not represent:
        return classifier, None
    represented = np.empty((len(X), distributions.shape[1] + X.shape[1]), X.dtype)
    classifier.roots_at_rows(form, of_trees, out=represented[:, : distributions.shape[1]])
    represented[:, distributions.shape[1] :] = X
    return classifier, represented


def column_scale(form: Form | None) -> Floats | None:
    """Scale of the columns in a form; None if it has none."""
    return None if form is None else form.linear.column_scale


def rescaled(X: Array, form: Form | None) -> Array:
    """Multiply the columns by their scale in the form, in their dtype."""
    scale = column_scale(form)
    return X if scale is None else X * scale.astype(X.dtype)


def input_weight(classes: Classes | None, model: Any) -> float:
    """Weight of the input; without a classifier, "auto" is 1."""
    if model.input_weight != "auto":
        return float(model.input_weight)
    if classes is None:
        return 1.0
    evidence = classes.evidence
    return balanced_weight(evidence.confidence, evidence.held_out.explained)


def learn_metric(
    features: Array,
    triplets: Triplets,
    L: Floats,
    *,
    angle: float,
    max_iter: int,
    rescale: bool,
    device: str = "cpu",
    orthogonal: bool = True,
) -> StiefelResult:
    """Minimize the angular objective of the triplets over orthonormal L, starting at ``L``.

    Without ``orthogonal``, over all matrices of its shape.

    The objective depends on the scale: far apart, all triplets look alike. With ``rescale``, the
    mean squared distance of anchors to positives is 1 under the initial L.
    """
    scale = _spread_of_positives(features, triplets, L) if rescale else 1.0
    objective = angular_objective(features, triplets, angle=angle, scale=scale, device=device)
    minimize = minimize_on_stiefel if orthogonal else minimize_freely
    return minimize(objective, L, max_iter=max_iter)


def _spread_of_positives(features: Array, triplets: Triplets, L: Floats) -> float:
    projected = product(features, L)
    gaps = projected[triplets.anchor] - projected[triplets.positive]
    mean = float(np.sqrt((gaps**2).sum(axis=1).mean()))
    return mean if mean > 0 else 1.0
