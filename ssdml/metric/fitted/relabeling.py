"""New labels, and new rows, for a fitted model: what needs no label is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ssdml.classification.learning import update_evidence
from ssdml.classification.suspects import SuspectedLabels, suspects
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.metric.alternation import (
    ONE_CLASS,
    combine,
    fit_interpolator,
    input_weight,
    learn_classes,
    on_both,
    rescaled,
)
from ssdml.metric.features import Whitening
from ssdml.metric.fitted.kept import Kept, KeptFit, Pooled, extended, kept_pool
from ssdml.metric.selection import fall_back, input_alone
from ssdml.metric.state import Learned, State
from ssdml.utils.labels import as_labels, check_order, warn_of_order
from ssdml.utils.linalg import check_spread, warn_of_far_row
from ssdml.utils.parallel import count_threads, one_blas_thread, threads
from ssdml.utils.typing import Array, Indices, Ints
from ssdml.utils.validation import UNLABELED, check_finite

if TYPE_CHECKING:
    from ssdml.metric.estimator import SSDML


MOST_ADDED = 0.25  # labels, relative to those that the weights of the pool were learned from


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
    if pooled is not None and same_classes and not fell_back and few_added(pooled.labels, labels):
        return update(kept, pooled, labels, model)
    return learn_again(kept, labels, model)


def update(kept: Kept, pooled: Pooled, labels: Ints, model: SSDML) -> tuple[Kept, Learned]:
    """Learn the classes from a few more labels, with the weights of the pool and the metric."""
    earlier, before = pooled.classes.evidence, model.label_distributions_
    graphs, first = [adjacency(form.graph) for form in kept.forms], pooled.first.copy()
    with threads(count_threads(model.n_jobs, "SSDML")) as pool:
        diffusions = [Diffusion(graph, pool) for graph in graphs]
        evidence = update_evidence(earlier, kept.forms, labels, diffusions, before)
        first[evidence.labeled] = evidence.labels
        if kept.nearer is None:
            distributions = evidence.on(diffusions[evidence.form])
        else:
            weights = graphs[evidence.form]
            distributions = on_both(evidence, weights, kept.nearer, first, pool)
    classes = pooled.classes._replace(evidence=evidence)
    classifier, represented = fit_interpolator(
        classes.of_rows(kept.X, distributions), represent=model.representation_ is not None
    )
    learned = Learned(
        components=model.components_,
        input_weight=model.input_weight_,
        distributions=distributions,
        classifier=classifier,
        represented=represented,
        held_out=classes.evidence.held_out,
        triplets=model.triplets_,
        history=tuple(model.history_),
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
    scaled = rescaled(kept.X, classes.form)
    state = State(scaled, labels, classes.form.graph, distributions)
    if len(np.unique(state.classes)) < 2:
        return kept, alone._replace(fallback_reason=ONE_CLASS)
    feature_map = Whitening()
    feature_map.learn(scaled, state.classes)
    rows, weight = classes.of_rows(kept.X, distributions), input_weight(classes, model)
    learned = combine(rows, feature_map, weight, model.n_components)
    held_out, history = classes.evidence.held_out, tuple(model.history_)
    learned = learned._replace(held_out=held_out, triplets=model.triplets_, history=history)
    if model.guard:
        learned = fall_back(learned, alone, held_out, kept.X.__getitem__)
    return kept, learned


class RelabelingMixin(KeptFit):
    """Mixin of estimators that learn from other labels, and more rows, after a fit."""

    @one_blas_thread()
    def relabel(self, y: Any) -> Self:
        """Learn from other labels of the same training samples, without refitting.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            All labels, as for :meth:`fit`, which may name other classes.

        Returns
        -------
        self : SSDML

        Raises
        ------
        ValueError
            After a fit of a dask array, with one-sided propagation or by partitions, after
            :meth:`load` without X, and if X has changed since the fit, which does not copy it.

        Notes
        -----
        The graphs of the fit are reused. If y adds at most a quarter to
        the labels of the fit, and no class, the weights of the classifiers, the class prior and the
        metric are kept, and classifiers continue from their coefficients: about a tenth of the time
        of a fit. New labels enter ``held_out_`` with the probabilities from before they were given.
        Otherwise all of these are learned again (L as the discriminants of the classes, without
        triplets), in 30% to 60% of the time. Either way the accuracy is within half a point of
        that of a new fit. After :meth:`load`, all are learned again, as the coefficients of the
        classifiers are not saved. ``triplets_``, ``history_`` and ``stage_seconds_`` stay those of
        the fit.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from ssdml import SSDML
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where(np.arange(len(y)) < 10, y, -1)
        >>> model = SSDML(random_state=0).fit(X / 16, labels)
        >>> before = model.score(X / 16, y)
        >>> labels[:100] = y[:100]
        >>> model.relabel(labels).score(X / 16, y) > before
        True
        """
        kept = self._unchanged_rows("relabel")
        warn_of_order(self._index, y, f"{type(self).__name__}.relabel")
        labels = self._read_labels(y, len(kept.X), "Label some rows.")
        same = np.array_equal(self._classes(labels), self.classes_)
        with np.errstate(under="ignore"):  # as in fit
            self._kept, learned = relabeled(kept, labels, self, same_classes=same)
            self._keep(kept.X, labels, learned)
        return self

    @one_blas_thread()
    def extend(self, X: Any, y: Any = None) -> Self:
        """Add training samples to a fitted model.

        Parameters
        ----------
        X : array of shape (n_new, n_features)
        y : array-like of shape (n_new,) or None
            Labels, as for :meth:`fit`; None: all unlabeled. Earlier samples keep theirs.

        Returns
        -------
        self : SSDML

        Notes
        -----
        New rows are scaled as in the fit and join its graphs, in O(n_new n d) time. Then classes
        and metric are learned as by :meth:`relabel`, but without the graph of the embedding. Fit
        again after the samples have doubled, or if new ones are unlike the others.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from ssdml import SSDML
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
        >>> model = SSDML(random_state=0).fit(X[:900] / 16, labels[:900])
        >>> len(model.extend(X[900:] / 16).transduction_)
        1797
        """
        kept, who = self._unchanged_rows("extend"), f"{type(self).__name__}.extend"
        check_order(X, y, who)
        with np.errstate(over="ignore"):  # beyond the precision of the fit: inf
            new = self._validate_rows(X, who, reset=False).astype(kept.X.dtype, copy=False)
        check_finite(new, who, "X")
        squares = check_spread(np.vstack([kept.X, new]), who)
        warn_of_far_row(new, squares[len(kept.X) :], squares.sum(), who)
        given = as_labels([None] * len(new) if y is None else y, who)
        if len(given) != len(new):
            raise ValueError(f"{who}: y must have {len(new)} labels, as X; got {len(given)}.")
        rows = self.labeled_rows_
        assert rows is not None
        joined = joined_labels(len(kept.X), rows, self.transduction_[rows], given)
        labels = self._read_labels(joined, len(kept.X) + len(new), "Label some rows.")
        self._index = None  # of both parts
        with np.errstate(under="ignore"):  # as in fit
            kept = extended(kept, new, self.n_jobs)
            self._kept, learned = learn_again(kept, labels, self)
            self._keep(kept.X, labels, learned)
        return self

    def suspected_labels(self) -> SuspectedLabels:
        """List training labels that are more likely wrong than right, the likeliest errors first.

        Each label is compared with the prediction of classifiers from other labels, given how often
        these contradict labels in general; see
        ``ssdml.classification.suspects.error_probabilities``. At most 5,000 labels are checked, and
        none that is the only one of its class. Of copies of a sample, only the first is listed.

        Returns
        -------
        suspects : SuspectedLabels
            ``rows``, their ``labels``, the ``classes`` predicted from the other labels, and as
            ``confidences`` the probability that the label is wrong.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from ssdml import SSDML
        >>> X, y = load_digits(return_X_y=True)
        >>> labels = np.where(np.arange(len(y)) < 100, y, -1)
        >>> labels[0] = 7  # it is a 0
        >>> suspects = SSDML(random_state=0).fit(X, labels).suspected_labels()
        >>> first = suspects.rows.tolist().index(0)
        >>> first < 3, int(suspects.labels[first]), int(suspects.classes[first])
        (True, 7, 0)
        """
        check_is_fitted(self)
        if self.held_out_ is None or not len(self.held_out_.rows):
            raise ValueError(
                f"{type(self).__name__}.suspected_labels: needs held-out labels; got none. Fit "
                "rows in memory with two labels of a class; models saved without graphs do not "
                "keep them."
            )
        return suspects(self.held_out_, self.classes_)


def joined_labels(n_samples: int, labeled: Indices, classes: Array, new: Array) -> Array:
    """Labels of the earlier rows, None where there is none, and those of the new ones.

    Examples
    --------
    >>> joined_labels(3, np.array([1]), np.array(["cat"]), np.array(["dog", None]))
    array([None, 'cat', None, 'dog', None], dtype=object)
    """
    labels = np.full(n_samples + len(new), None, dtype=object)
    labels[labeled] = classes
    labels[n_samples:] = new
    return labels
