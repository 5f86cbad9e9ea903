"""New labels, and new rows, for a fitted model: what needs no label is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ssdml.classification.forms import Form
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.metric.alternation import (
    ONE_CLASS,
    combine,
    input_weight,
    learn_classes,
    rescaled,
)
from ssdml.metric.features import Whitening
from ssdml.metric.selection import fall_back, input_alone
from ssdml.metric.state import Learned, State
from ssdml.utils.labels import as_column
from ssdml.utils.typing import Array, Indices, Ints

if TYPE_CHECKING:
    from ssdml.metric.estimator import SSDML


class Kept(NamedTuple):
    """What a fit keeps for other labels: rows, their forms and graphs."""

    X: Array
    forms: list[Form]  # with their smoothed rows
    nearer: KNNGraph | None  # of the embedding before the last round; None after one round


def learn_again(kept: Kept, labels: Ints, model: SSDML) -> Learned:
    """Learn classes and metric from labels on the graphs of an earlier fit.

    Labels and evidence spread on the graph of the input, and then on it and the earlier graph of
    the embedding together. L are the discriminants of the classes, where a fit goes on to
    triplets.
    """
    classes = learn_classes(kept.forms, labels, n_jobs=model.n_jobs)
    distributions = classes.distributions(model.n_jobs)
    if kept.nearer is not None:
        distributions = classes.renewed(distributions, kept.nearer, model.n_jobs)
    alone = input_alone(kept.X, distributions, model.n_components)
    scaled = rescaled(kept.X, classes.form.linear.column_scale)
    state = State(scaled, labels, classes.form.graph, distributions)
    if len(np.unique(state.classes)) < 2:
        return alone._replace(fallback_reason=ONE_CLASS)
    feature_map = Whitening()
    feature_map.learn(scaled, state.classes)
    weight, held_out = input_weight(state, classes, model), classes.evidence.held_out
    learned = combine(
        kept.X, feature_map, weight, classes.form, distributions, model.n_components
    )._replace(held_out=held_out, triplets=model.triplets_, history=tuple(model.history_))
    return fall_back(learned, alone, held_out, kept.X.__getitem__) if model.guard else learned


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
