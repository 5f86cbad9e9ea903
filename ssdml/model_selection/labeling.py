"""Which samples to label next."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ssdml.classification.forms import Form, LinearForm, linear_forms
from ssdml.graphs.laplacian import adjacency
from ssdml.graphs.neighbors.knn import knn_graph
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.metric.estimator import SSDML
from ssdml.utils.parallel import count_threads, threads
from ssdml.utils.typing import Array, Floats, Indices
from ssdml.utils.validation import check_count, check_rows

N_NEIGHBORS = 10
REACH = 0.8  # of the smoothed rows that are clustered
MAX_CLUSTERED = 20_000  # rows
CERTAIN = 0.05  # least weight of a row


class Candidates(NamedTuple):
    """Rows to choose from."""

    smoothed: Array  # (n, r)
    distances: Floats  # (n,), to the neighbors on average
    weights: Floats  # (n,), how much is to be learned about them
    labeled: Indices


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
    one sample: among those of at least median weight, the one nearest to its neighbors.

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
        candidates = _of_model(model, n_jobs)
    elif hasattr(model, "get_params"):
        raise TypeError(
            "suggest_labels: model must be an SSDML, or samples; got "
            f"{type(model).__name__}. Pass the SSDML in it, such as model[-1] of a Pipeline, or "
            "samples, such as model.transform(X) of a network."
        )
    else:
        candidates = _of_samples(check_rows(model, "suggest_labels", "model"), n_jobs)
    free = len(candidates.smoothed) - len(candidates.labeled)
    if n > free:
        raise ValueError(
            f"suggest_labels: n must be at most the number of unlabeled samples, {free}; got {n}."
        )
    return _choose(candidates, n)


def _of_model(model: SSDML, n_jobs: int | None) -> Candidates:
    check_is_fitted(model)
    classifier, labeled = model.classifier_, model.labeled_rows_
    if classifier is None or labeled is None or model.reference_rows_ is not None:
        raise ValueError(
            "suggest_labels: model must be an SSDML with a classifier_ of all training samples; "
            "got one of a dask array, of one class, by partitions or of an earlier version. Fit "
            "SSDML() in memory, or pass the samples."
        )
    kept = model.kept_form()
    form = kept or _form(classifier.form, classifier.rows, n_jobs)
    top = np.sort(np.partition(model.label_distributions_, -2, axis=1)[:, -2:], axis=1)
    weights = (1 - (top[:, 1] - top[:, 0])).astype(np.float64)
    np.maximum(weights, model.novelty_score(), out=weights)
    return _candidates(form, weights, labeled, model.n_jobs if n_jobs is None else n_jobs)


def _of_samples(X: Array, n_jobs: int | None) -> Candidates:
    linear = linear_forms(X, few=True)[0]
    form = _form(linear, linear(X), n_jobs)
    return _candidates(form, np.ones(len(X)), np.empty(0, np.int64), n_jobs)


def _form(linear: LinearForm, rows: Array, n_jobs: int | None) -> Form:
    k = min(N_NEIGHBORS, len(rows) - 1)
    return Form(linear, rows, knn_graph(rows, k, n_jobs=n_jobs, random_state=0))


def _candidates(form: Form, weights: Floats, labeled: Indices, n_jobs: int | None) -> Candidates:
    with threads(count_threads(n_jobs, "suggest_labels")) as pool:
        smoothed = form.view(REACH, Diffusion(adjacency(form.graph), pool))
    distances = form.graph.distances.mean(axis=1, dtype=np.float64)
    return Candidates(smoothed, distances, np.maximum(weights, CERTAIN), labeled)


def _choose(candidates: Candidates, n: int) -> Indices:
    smoothed, distances, weights, labeled = candidates
    free = np.ones(len(smoothed), bool)
    free[labeled] = False
    n_clusters = min(len(labeled) + n, len(smoothed))
    some = np.arange(len(smoothed))
    if len(some) > max(MAX_CLUSTERED, n_clusters):
        rng = np.random.default_rng(0)
        some = np.sort(rng.choice(some, max(MAX_CLUSTERED, n_clusters), replace=False))
    model = KMeans(n_clusters, n_init=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of equal rows: fewer clusters do
        model.fit(smoothed[some], sample_weight=weights[some])
    clusters = model.predict(smoothed)
    masses = np.bincount(clusters, weights * free, minlength=n_clusters)
    n_labeled = np.bincount(clusters[labeled], minlength=n_clusters)
    chosen: list[int] = []
    while len(chosen) < n:  # again if there are fewer clusters than samples to suggest
        for cluster in np.lexsort((-masses, n_labeled)):
            members = np.flatnonzero((clusters == cluster) & free)
            if len(members) and len(chosen) < n:
                members = members[weights[members] >= np.median(weights[members])]
                chosen.append(int(members[distances[members].argmin()]))
                free[chosen[-1]] = False
    return np.array(chosen)
