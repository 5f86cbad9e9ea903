"""Classifiers without a metric, the references of a comparison."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from ssdml.experiments.methods.estimators import EstimatorWrapper
from ssdml.graphs.laplacian import neighbor_weights
from ssdml.graphs.neighbors.knn import KNNGraph, directed_csr, knn_graph, nearest_rows
from ssdml.graphs.propagation.poisson import poisson_learning
from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.typing import Array
from ssdml.utils.validation import UNLABELED

FOLDS = 5
SHARPNESS = 4.0  # of the weights of Calder et al. (2020)


class LabeledRowsClassifier(ClassifierMixin, EstimatorWrapper):
    """A classifier of the labeled samples alone, its parameters chosen on them.

    Parameters
    ----------
    classifier : estimator
    grid : dict of sequences, or None
        Values of parameters to choose among by the accuracy in stratified 5-fold cross-validation,
        or with as many folds as the largest class has labels; the first one wins a tie. None: no
        choice.

    Attributes
    ----------
    estimator_ : estimator
        Fitted on all labeled samples. If no class has two labels, with the parameters of
        ``classifier``.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y = np.array([[0.0], [0.1], [1.0], [1.1], [0.2]]), np.array([0, 0, 1, 1, -1])
    >>> model = LabeledRowsClassifier(KNeighborsClassifier(3), {"n_neighbors": [3, 1]}).fit(X, y)
    >>> model.estimator_.n_neighbors, model.predict(X).tolist()
    (1, [0, 0, 1, 1, 0])
    """

    def __init__(self, classifier: Any, grid: Mapping[str, Sequence[Any]] | None = None) -> None:
        self.classifier = classifier
        self.grid = grid

    def fit(self, X: Array, y: Array) -> Self:
        """Choose the parameters and fit, on the samples with ``y != -1``."""
        is_labeled = np.asarray(y) != UNLABELED
        X, y = X[is_labeled], y[is_labeled]
        self.estimator_ = clone(self.classifier).set_params(**self._best(X, y)).fit(X, y)
        return self

    def _best(self, X: Array, y: Array) -> dict[str, Any]:
        n_folds = min(FOLDS, np.unique(y, return_counts=True)[1].max(initial=0))
        if self.grid is None or n_folds < 2:
            return {}
        folds = StratifiedKFold(n_folds, shuffle=True, random_state=0)
        search = GridSearchCV(self.classifier, dict(self.grid), cv=folds, refit=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of small classes, and of values that fit no fold
            best: dict[str, Any] = search.fit(X, y).best_params_
        return best


class PoissonClassifier(ClassifierMixin, BaseEstimator):
    """Poisson learning on the graph of all samples, with its published weights.

    Parameters
    ----------
    n_neighbors : int
    class_prior : "labeled", "uniform", array of shape (n_classes,), or None
        Share of the samples that each class gets; see `ssdml.graphs.poisson_learning`.
    n_jobs : int or None

    Attributes
    ----------
    scores_ : ndarray of shape (n_samples, n_classes)
        Of the samples of the fit.
    transduction_ : ndarray of shape (n_samples,)
        Their classes.

    Notes
    -----
    A new sample takes the class with the largest mean score of its nearest samples, weighted as
    edges are: with these edges alone, it is the solution of the equation at one more row.

    Examples
    --------
    >>> X, y = np.array([[0.0], [0.1], [0.3], [1.0], [1.1], [1.3]]), [0, -1, -1, 1, -1, -1]
    >>> model = PoissonClassifier(n_neighbors=3).fit(X, np.array(y))
    >>> model.transduction_.tolist(), model.predict(np.array([[0.2], [1.2]])).tolist()
    ([0, 0, 0, 1, 1, 1], [0, 1])
    """

    def __init__(
        self, n_neighbors: int = 10, class_prior: Any = None, n_jobs: int | None = None
    ) -> None:
        self.n_neighbors = n_neighbors
        self.class_prior = class_prior
        self.n_jobs = n_jobs

    def fit(self, X: Array, y: Array) -> Self:
        """Compute the scores of all samples; -1 means unlabeled."""
        graph = knn_graph(X, self.n_neighbors, n_jobs=self.n_jobs)
        weights = poisson_weights(graph)
        self.scores_ = poisson_learning(
            weights, y, class_prior=self.class_prior, n_jobs=self.n_jobs
        )
        self.rows_ = X
        self.classes_ = np.unique(y[y != UNLABELED])
        self.transduction_ = self.classes_[self.scores_.argmax(axis=1)]
        return self

    def predict(self, X: Array) -> Array:
        """Predict the classes of new samples."""
        indices, distances = nearest_rows(self.rows_, X, self.n_neighbors, n_jobs=self.n_jobs)
        weights = neighbor_weights(distances, SHARPNESS)
        codes = [
            np.einsum("nk,nkc->nc", weights[rows], self.scores_[indices[rows]]).argmax(axis=1)
            for rows in row_blocks(len(X), BLOCK_ROWS)
        ]
        return self.classes_[np.concatenate(codes)]


def poisson_weights(graph: KNNGraph) -> sparse.csr_array:
    """Compute the weights of Calder et al. (2020), those of neighbors in both directions, added.

    Examples
    --------
    >>> poisson_weights(knn_graph(np.array([[0.0], [1.0], [3.0]]), 1)).toarray().round(3)
    array([[0.   , 0.037, 0.   ],
           [0.037, 0.   , 0.018],
           [0.   , 0.018, 0.   ]])
    """
    directed = directed_csr(graph, neighbor_weights(graph.distances, SHARPNESS))
    return sparse.csr_array(directed + directed.T)
