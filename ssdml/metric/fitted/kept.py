"""Rows, forms and graphs that a fit keeps for other labels and rows, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ssdml.classification.forms import MAX_KEPT, Form, LinearForm
from ssdml.classification.learning import HeldOut
from ssdml.classification.novelty import Novelty
from ssdml.graphs.neighbors.copies import extend_distinct, first_equal_rows
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.metric.alternation import Classes
from ssdml.metric.features import ClassRepresentation
from ssdml.metric.fitted.metric import LearnedMetric
from ssdml.metric.fitted.prediction import embed
from ssdml.metric.fitted.saving import load_metric, save_metric
from ssdml.metric.state import Learned
from ssdml.utils.labels import in_precision, index_of
from ssdml.utils.persistence import restoring
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED, check_finite, warn

GRAPHS = ("form_", "nearer_", "held_out_")  # beginnings of the names of saved arrays


class Pooled(NamedTuple):
    """Classes that were learned with all their weights, for a few more labels."""

    classes: Classes
    first: Array  # (n, C), distributions on the graph of the input
    labels: Ints  # (n,), that the weights were learned from; -1 where unlabeled


class Kept(NamedTuple):
    """Rows of a fit with their forms and graphs, for other labels."""

    X: Array
    forms: list[Form]  # with their smoothed rows
    nearer: KNNGraph | None  # of the embedding before the last round; None after one round
    pooled: Pooled | None = None  # None where it would take too much memory


def kept_pool(classes: Classes, first: Array, forms: list[Form], labels: Ints) -> Pooled | None:
    """Keep classes for a few more labels, unless they are too large."""
    if first.size > MAX_KEPT or any(form.smoothed is None for form in forms):
        return None
    return Pooled(classes, first, labels)


class KeptFit(LearnedMetric):
    """A learned metric with what its fit keeps."""

    _kept: Kept | None = None
    _index: Array | None = None  # of the samples of the fit in pandas
    _novelty: Novelty | None = None

    def _keep(self, X: Array, labels: Ints, learned: Learned) -> None:
        """Set the fitted attributes."""
        if learned.fallback_reason:
            warn(f"{type(self).__name__}: returns the input instead: {learned.fallback_reason}")
        elif learned.history and not any(r.get("n_triplets", 1) for r in learned.history):
            warn(
                f"{type(self).__name__}: found no triplets of two samples of one class and one of "
                "another, so only class probabilities and features were combined. Add samples."
            )
        self.classifier_ = learned.classifier
        self.representation_ = None
        if learned.classifier is not None and learned.represented is not None:
            self.representation_ = ClassRepresentation(learned.classifier, self.n_jobs)
        self._novelty = None
        self.labeled_rows_ = np.flatnonzero(labels != UNLABELED)
        self.held_out_ = learned.held_out
        self.input_weight_ = learned.input_weight
        self.triplets_ = learned.triplets
        self.history_ = list(learned.history)
        self.classes_ = self._classes(labels)
        self.label_distributions_ = in_precision(learned.distributions, X.dtype)
        self.transduction_ = self.classes_[learned.distributions.argmax(axis=1)]
        components = learned.components.astype(X.dtype)
        rows = X if learned.represented is None else learned.represented
        self.embedding_ = embed(rows, components, None)
        self.components_ = components  # last: it marks the estimator as fitted

    def save(self, folder: str | Path, *, graphs: bool = False) -> None:
        """Save the fitted estimator to a folder: safetensors and JSON, no code.

        ``random_state`` is saved if it is an integer; triplets and history are not. An existing
        model is replaced atomically.

        Parameters
        ----------
        folder : path
        graphs : bool
            Whether to keep the neighbor graphs and ``held_out_``, so that ``SSDML.load(folder, X)``
            can :meth:`relabel` and :meth:`extend`, and has :meth:`suspected_labels`.
        """
        more = saved(self._kept_rows("save"), self.held_out_) if graphs else {}
        save_metric(self, folder, more)

    @classmethod
    def load(cls, folder: str | Path, X: Any = None) -> Self:
        """Load an estimator saved by :meth:`save`.

        Parameters
        ----------
        folder : path
        X : array of shape (n_samples, n_features) or None
            The samples of the fit, if the model was saved with its graphs: it can then
            :meth:`relabel` and :meth:`extend`.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from sklearn.datasets import load_iris
        >>> from ssdml import SSDML
        >>> X, y = load_iris(return_X_y=True)
        >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
        >>> with TemporaryDirectory() as folder:
        ...     SSDML(random_state=0).fit(X, labels).save(folder, graphs=True)
        ...     model = SSDML.load(folder, X)
        >>> labels[1::10] = y[1::10]
        >>> len(model.relabel(labels).labeled_rows_)
        30
        """
        model, arrays = load_metric(cls, folder)
        if X is None:
            return model
        who = f"{cls.__name__}.load"
        rows = model._validate_rows(X, who, reset=False)
        check_finite(rows, who, "X")
        shape = (len(model.transduction_), model.n_features_in_)
        if rows.shape != shape:
            raise ValueError(f"{who}: X must have shape {shape}, as in the fit; got {rows.shape}.")
        if not any(name.startswith(GRAPHS) for name in arrays):
            raise ValueError(
                f"{who}: X needs a model with its graphs; {folder} has none. Omit X, or save with "
                "graphs=True."
            )
        with restoring(folder, cls.__name__, {}):
            model._kept = kept = restored(arrays, rows)
            model._index = index_of(X)
            model.held_out_ = restored_held_out(arrays)
            if model.classifier_ is not None:
                model._form(kept)  # must be there
            is_same = model._are_rows_of_fit(kept)
        if not is_same:
            raise ValueError(
                f"{who}: X must be the samples of the fit, rows and columns in their order; got "
                "others. Pass the same X."
            )
        return model

    def _kept_rows(self, method: str) -> Kept:
        check_is_fitted(self)
        if self._kept is None:
            raise ValueError(
                f"{type(self).__name__}.{method}: needs the graphs of a fit in memory with "
                "propagation='two-sided' and partition_size=None; got none. Save with graphs=True "
                "and load with X, or fit all samples again."
            )
        return self._kept

    def _unchanged_rows(self, method: str) -> Kept:
        """Return what the fit keeps, if its X, which is not copied, is still the same."""
        kept = self._kept_rows(method)
        if not self._are_rows_of_fit(kept):
            raise ValueError(
                f"{type(self).__name__}.{method}: X must be as it was in the fit; it has changed "
                "since, as by X *= 2. Fit again, or change a copy: X = 2 * X."
            )
        return kept

    def _are_rows_of_fit(self, kept: Kept) -> bool:
        if self.classifier_ is None:
            return are_rows_of(kept)
        return not len(self.classifier_.other_rows(kept.X))

    def kept_form(self) -> Form | None:
        """Rows and graph that ``classifier_`` searches; None after :meth:`load`."""
        return None if self._kept is None or self.classifier_ is None else self._form(self._kept)

    def _form(self, kept: Kept) -> Form:
        assert self.classifier_ is not None
        matrix = self.classifier_.matrix
        for form in kept.forms:
            if np.array_equal(form.linear.matrix, matrix):
                return form
        raise LookupError("classifier_matrix is that of no graph")


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
    """Restore the arrays that :func:`saved` wrote, with the rows X of the fit.

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
    forms, both = [], np.vstack([kept.X, X])
    first = first_equal_rows(both)
    for form in kept.forms:
        rows = np.vstack([form.rows, form.linear(X)])
        forms.append(Form(form.linear, rows, extend_distinct(form.graph, rows, first, n_jobs)))
    return Kept(both, forms, None)
