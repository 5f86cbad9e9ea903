"""New labels, and new rows, for a fitted model: what needs no label is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ssdml.classification.forms import MAX_KEPT, Form, LinearForm
from ssdml.classification.learning import HeldOut
from ssdml.classification.new_rows import interpolator
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.metric.alternation import (
    ONE_CLASS,
    Classes,
    beside_classes,
    combine,
    input_weight,
    learn_classes,
    rescaled,
    update_classes,
)
from ssdml.metric.features import Whitening
from ssdml.metric.selection import fall_back, input_alone
from ssdml.metric.state import Learned, State
from ssdml.utils.labels import as_column
from ssdml.utils.typing import Array, Indices, Ints
from ssdml.utils.validation import UNLABELED

if TYPE_CHECKING:
    from ssdml.metric.estimator import SSDML


GRAPHS = ("form_", "nearer_", "held_out_")  # beginnings of the names of saved arrays
MOST_ADDED = 0.25  # labels, relative to those that the weights of the pool were learned from


class Pooled(NamedTuple):
    """Classes that were learned with all their weights, for a few more labels."""

    classes: Classes
    first: Array  # (n, C), distributions on the graph of the input
    labels: Ints  # (n,), that the weights were learned from; -1 where unlabeled


class Kept(NamedTuple):
    """What a fit keeps for other labels: rows, their forms and graphs."""

    X: Array
    forms: list[Form]  # with their smoothed rows
    nearer: KNNGraph | None  # of the embedding before the last round; None after one round
    pooled: Pooled | None = None  # None where it would take too much memory


def kept_pool(classes: Classes, first: Array, forms: list[Form], labels: Ints) -> Pooled | None:
    """Keep classes for a few more labels, unless they are too large."""
    if first.size > MAX_KEPT or any(form.smoothed is None for form in forms):
        return None
    return Pooled(classes, first, labels)


def few_added(before: Ints, labels: Ints) -> bool:
    """Whether the labels, -1 where missing, are the earlier ones and at most a quarter more.

    An earlier label that is another one now was an error that the weights were learned from.

    Examples
    --------
    >>> few_added(np.array([0, 1, 0, 1, -1]), np.array([0, 1, 0, 1, 0]))
    True
    >>> few_added(np.array([0, 1, 0, 1, -1]), np.array([0, 1, 0, 0, -1]))
    False
    """
    known = before != UNLABELED
    added = (labels[~known] != UNLABELED).sum()
    return bool((labels[known] == before[known]).all() and added <= MOST_ADDED * known.sum())


def relabeled(
    kept: Kept, labels: Ints, model: SSDML, *, same_classes: bool
) -> tuple[Kept, Learned]:
    """Learn from other labels: learn everything again, or only the classes if few were added."""
    pooled = kept.pooled
    fell_back = np.isinf(model.input_weight_)
    if pooled is None or fell_back or not same_classes or not few_added(pooled.labels, labels):
        return learn_again(kept, labels, model)
    return update(kept, pooled, labels, model)


def update(kept: Kept, pooled: Pooled, labels: Ints, model: SSDML) -> tuple[Kept, Learned]:
    """Learn the classes from a few more labels, with the weights of the pool and the metric."""
    classes, first = pooled.classes, pooled.first
    before = model.label_distributions_
    classes = update_classes(classes, kept.forms, labels, before, n_jobs=model.n_jobs)
    if kept.nearer is None:
        distributions = classes.distributions(model.n_jobs)
    else:
        first = first.copy()
        first[classes.evidence.labeled] = classes.evidence.labels
        distributions = classes.renewed(first, kept.nearer, model.n_jobs)
    classifier = interpolator(classes.form, distributions)
    represented = None
    if model.representation_ is not None:
        represented = beside_classes(kept.X, classifier, classes.form)
    learned = Learned(
        model.components_,
        model.input_weight_,
        distributions,
        classifier,
        represented,
        classes.evidence.held_out,
        model.triplets_,
        tuple(model.history_),
    )
    return kept._replace(pooled=Pooled(classes, first, pooled.labels)), learned


def learn_again(kept: Kept, labels: Ints, model: SSDML) -> tuple[Kept, Learned]:
    """Learn classes and metric from labels on the graphs of an earlier fit.

    Labels and evidence spread on the graph of the input, and then on it and the earlier graph of
    the embedding together. L are the discriminants of the classes, where a fit goes on to
    triplets.
    """
    classes, first = learn_classes(kept.forms, labels, n_jobs=model.n_jobs)
    distributions = first
    kept = kept._replace(pooled=kept_pool(classes, first, kept.forms, labels))
    if kept.nearer is not None:
        distributions = classes.renewed(first, kept.nearer, model.n_jobs)
    alone = input_alone(kept.X, distributions, model.n_components)
    scaled = rescaled(kept.X, classes.form.linear.column_scale)
    state = State(scaled, labels, classes.form.graph, distributions)
    if len(np.unique(state.classes)) < 2:
        return kept, alone._replace(fallback_reason=ONE_CLASS)
    feature_map = Whitening()
    feature_map.learn(scaled, state.classes)
    weight, held_out = input_weight(classes, model), classes.evidence.held_out
    learned = combine(
        kept.X, feature_map, weight, classes.form, distributions, model.n_components
    )._replace(held_out=held_out, triplets=model.triplets_, history=tuple(model.history_))
    if model.guard:
        learned = fall_back(learned, alone, held_out, kept.X.__getitem__)
    return kept, learned


def saved(kept: Kept, held_out: HeldOut | None) -> dict[str, Array]:
    """Arrays of forms, graphs and held-out labels, by name; the rows are left out."""
    graphs = {f"form_{i}": form.graph for i, form in enumerate(kept.forms)}
    if kept.nearer is not None:
        graphs["nearer"] = kept.nearer
    arrays: dict[str, Array] = {}
    for name, graph in graphs.items():
        arrays |= {f"{name}_indices": graph.indices, f"{name}_distances": graph.distances}
    for i, form in enumerate(kept.forms):
        parts = form.linear._asdict()
        arrays |= {f"form_{i}_{k}": v for k, v in parts.items() if v is not None}
    if held_out is not None and len(held_out.rows):
        arrays |= {f"held_out_{k}": v for k, v in held_out._asdict().items()}
    return arrays


def restored(arrays: Mapping[str, Array], X: Array) -> Kept:
    """What :func:`saved` wrote, with the rows X of the fit.

    Raises
    ------
    ValueError, KeyError
        If arrays are missing or do not fit X.
    """

    def graph(name: str) -> KNNGraph:
        found = KNNGraph(arrays[f"{name}_indices"], arrays[f"{name}_distances"])
        if found.n_samples != len(X):
            raise ValueError(f"graphs must have {len(X)} rows; got {found.n_samples}")
        return found

    forms: list[Form] = []
    while f"form_{len(forms)}_mean" in arrays or not forms:
        name = f"form_{len(forms)}"
        fields = [f"{name}_{field}" for field in LinearForm._fields]
        linear = LinearForm(*(arrays[field] for field in fields if field in arrays))
        if any(part is not None and part.shape[:1] != X.shape[1:] for part in linear):
            raise ValueError(f"forms must have {X.shape[1]} columns; got {len(linear.mean)}")
        rows = linear(X)
        forms.append(Form(linear, rows, graph(name), {} if rows.size <= MAX_KEPT else None))
    return Kept(X, forms, graph("nearer") if "nearer_indices" in arrays else None)


def are_rows_of(kept: Kept) -> bool:
    """Whether most of 100 rows are as far from their last neighbor as the graph says."""
    _, rows, graph, _ = kept.forms[0]
    some = np.linspace(0, len(rows) - 1, min(len(rows), 100)).astype(int)
    last = graph.distances[some, -1]
    found = np.linalg.norm(rows[some] - rows[graph.indices[some, -1]], axis=1)
    slack = 1e-3 * last + 1e-5 * np.linalg.norm(rows[some], axis=1)  # of float32
    return bool((np.abs(found - last) <= slack).mean() > 0.5)


def restored_held_out(arrays: Mapping[str, Array]) -> HeldOut | None:
    """Held-out labels that :func:`saved` wrote, if any.

    Raises
    ------
    KeyError
        If arrays are missing.
    """
    if "held_out_rows" not in arrays:
        return None
    return HeldOut(*(arrays[f"held_out_{field}"] for field in HeldOut._fields))


def extended(kept: Kept, X: Array, n_jobs: int | None) -> Kept:
    """Add rows to the graphs of all forms; smoothed rows and the graph of the embedding go."""
    forms = []
    for form in kept.forms:
        new = form.linear(X)
        graph = form.graph.extend(new, X=form.rows, n_jobs=n_jobs)
        forms.append(Form(form.linear, np.vstack([form.rows, new]), graph))
    return Kept(np.vstack([kept.X, X]), forms, None)


def joined_labels(n_samples: int, labeled: Indices, classes: Array, y: Any, who: str) -> Array:
    """Labels of the earlier rows, None where there is none, and those of the new ones.

    Examples
    --------
    >>> joined_labels(3, np.array([1]), np.array(["cat"]), ["dog", None], "who")
    array([None, 'cat', None, 'dog', None], dtype=object)
    """
    new = as_column(y, who)
    labels = np.full(n_samples + len(new), None, dtype=object)
    labels[labeled] = classes
    labels[n_samples:] = new
    return labels
