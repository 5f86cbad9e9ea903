"""Which samples to label next."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from ssdml.classification.forms import Form, LinearForm, linear_forms, warn_of_hidden_columns
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors.copies import (
    first_at_no_distance,
    first_equal_rows,
    graph_among,
    graph_of_distinct,
)
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.metric.estimator import SSDML
from ssdml.utils.linalg import check_spread, warn_of_far_row
from ssdml.utils.parallel import count_threads, one_blas_thread, threads
from ssdml.utils.typing import Array, Floats, Indices, Ints
from ssdml.utils.validation import check_count, check_rows

N_NEIGHBORS = 10
REACH = 0.8  # of the smoothed rows that are clustered
MAX_CLUSTERED = 20_000  # rows
CERTAIN = 0.05  # least weight of a row


class Candidates(NamedTuple):
    """Distinct rows to choose from; a copy has the label of the first row that equals it."""

    form: Form  # of m rows
    weights: Floats  # (m,), how much is to be learned about them
    first: Ints  # (n,), first row that equals each
    labeled: Indices  # of the n rows


def suggest_labels(model: Any, n: int = 10, *, n_jobs: int | None = None) -> Indices:
    """Choose the samples whose labels would help most: typical, uncertain, one per region.

    Parameters
    ----------
    model : SSDML or array of shape (n_samples, n_features)
        A fitted model; or the samples alone, before any has a label.
    n : int
        At most the number of unlabeled samples.
    n_jobs : int or None
        Threads; None: those of the model.

    Returns
    -------
    rows : ndarray of shape (n,), int
        Unlabeled training samples, the most useful first. Label all of them, then call
        ``SSDML.relabel`` and this function again.

    Notes
    -----
    As in TypiClust [1]_, k-means finds as many clusters as there are labels and suggestions
    together; here, of at most 20,000 random samples, smoothed over the graph. Samples are weighted
    by their uncertainty, 1 minus the difference of the two largest class probabilities, or by their
    ``SSDML.novelty_score`` if that is larger. Each of the heaviest clusters without a label yields
    one sample: among those of at least median weight, the one nearest to its neighbors. Copies of a
    sample count once; they come last, if n asks for more than the others.

    References
    ----------
    .. [1] Hacohen, Dekel, Weinshall, "Active learning on a budget: opposite strategies suit high
       and low budgets", ICML 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> rows = suggest_labels(X / 16, 20)  # none is labeled yet
    >>> len(set(y[rows]))
    10
    >>> labels = np.full(len(y), -1)
    >>> labels[rows] = y[rows]
    >>> model = SSDML(random_state=0).fit(X / 16, labels)
    >>> bool(np.isin(suggest_labels(model, 5), rows).any())
    False
    """
    check_count(n, "n", "suggest_labels")
    if isinstance(model, SSDML):
        n_jobs = model.n_jobs if n_jobs is None else n_jobs
        candidates = _of_model(model, n_jobs)
    elif hasattr(model, "get_params"):
        raise TypeError(
            "suggest_labels: model must be an SSDML, or samples; got "
            f"{type(model).__name__}. Pass the SSDML in it, such as model[-1] of a Pipeline, or "
            "samples, such as model.transform(X) of a network."
        )
    else:
        candidates = _of_samples(check_rows(model, "suggest_labels", "model"), n_jobs)
    free = np.setdiff1d(np.arange(len(candidates.first)), candidates.labeled)
    if n > len(free):
        way_out = f"Pass n={len(free)}." if len(free) else "All are labeled: add samples."
        raise ValueError(
            "suggest_labels: n must be at most the number of unlabeled samples, "
            f"{len(free)}; got {n}. {way_out}"
        )
    chosen = _choose(candidates, n, n_jobs)
    copies = np.setdiff1d(free, chosen)
    return np.concatenate([chosen, copies[: n - len(chosen)]])


def _of_model(model: SSDML, n_jobs: int | None) -> Candidates:
    check_is_fitted(model)
    classifier, labeled = model.classifier_, model.labeled_rows_
    if classifier is None or labeled is None or model.reference_rows_ is not None:
        raise ValueError(
            "suggest_labels: model must be an SSDML with a classifier_ of all training samples; "
            "got one of a dask array, of one class, by partitions or of an earlier version. Fit "
            "SSDML() in memory, or pass the samples."
        )
    top = np.sort(np.partition(model.label_distributions_, -2, axis=1)[:, -2:], axis=1)
    weights = (1 - (top[:, 1] - top[:, 0])).astype(np.float64)
    np.maximum(weights, model.novelty_score(), out=weights)
    form = model.kept_form()
    if form is None:
        first = first_equal_rows(classifier.rows)
        if classifier.distinct is not None:  # others may be equal in this form alone
            first[classifier.distinct] = classifier.distinct
        form = _form(classifier.form, classifier.rows, first, n_jobs)
    first = first_at_no_distance(form.graph)
    distinct = np.unique(first)
    if len(distinct) < len(first):
        form = Form(form.linear, form.rows[distinct], graph_among(form.graph, distinct))
    return Candidates(form, weights[distinct], first, labeled)


def _of_samples(X: Array, n_jobs: int | None) -> Candidates:
    first = first_equal_rows(X)
    distinct = np.unique(first)
    if len(distinct) < 2:
        raise ValueError(
            f"suggest_labels: model must hold at least 2 different samples; got 1 in {len(X)} rows."
            " Check how they were made."
        )
    squares = check_spread(X, "suggest_labels", "model")
    warn_of_far_row(X, squares, squares.sum(), "suggest_labels", "model")
    X = X if len(distinct) == len(X) else X[distinct]
    linear = linear_forms(X, few=True)[0]
    warn_of_hidden_columns(X, linear, "suggest_labels", "model")
    form = _form(linear, linear(X), np.arange(len(X)), n_jobs)
    return Candidates(form, np.ones(len(X)), first, np.empty(0, np.int64))


def _form(linear: LinearForm, rows: Array, first: Ints, n_jobs: int | None) -> Form:
    k = min(N_NEIGHBORS, len(rows) - 1)
    return Form(linear, rows, graph_of_distinct(rows, k, first, n_jobs=n_jobs, random_state=0))


def _choose(candidates: Candidates, n: int, n_jobs: int | None) -> Indices:
    """Choose at most n distinct rows."""
    form, weights, first, labeled = candidates
    weights = np.maximum(weights, CERTAIN)
    with threads(count_threads(n_jobs, "suggest_labels")) as pool:
        smoothed = form.view(REACH, Diffusion(adjacency(form.graph), pool))
    distances = form.graph.distances.mean(axis=1, dtype=np.float64)
    distinct = np.unique(first)
    free = ~np.isin(distinct, first[labeled])
    known = np.flatnonzero(~free)
    n = min(n, len(distinct) - len(known))
    n_clusters = min(len(known) + n, len(smoothed))
    some = np.arange(len(smoothed))
    if len(some) > max(MAX_CLUSTERED, n_clusters):
        rng = np.random.default_rng(0)
        some = np.sort(rng.choice(some, max(MAX_CLUSTERED, n_clusters), replace=False))
    model = KMeans(n_clusters, n_init=1, random_state=0)
    # Several threads would sum in an order of their own.
    with warnings.catch_warnings(), one_blas_thread(), threadpool_limits(1, "openmp"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # of equal rows: fewer clusters do
        model.fit(smoothed[some], sample_weight=weights[some])
        clusters = model.predict(smoothed)
    masses = np.bincount(clusters, weights * free, minlength=n_clusters)
    n_labeled = np.bincount(clusters[known], minlength=n_clusters)
    chosen: list[int] = []
    while len(chosen) < n:  # again if there are fewer clusters than samples to suggest
        for cluster in np.lexsort((-masses, n_labeled)):
            members = np.flatnonzero((clusters == cluster) & free)
            if len(members) and len(chosen) < n:
                members = members[weights[members] >= np.median(weights[members])]
                chosen.append(int(members[distances[members].argmin()]))
                free[chosen[-1]] = False
    return distinct[chosen]
