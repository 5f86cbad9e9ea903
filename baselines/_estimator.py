"""What the baselines share: rows, labels and a graph come in, a Mahalanobis matrix goes out."""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from ssdml.baselines._pairs import LabelledPairs, labelled_pairs
from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.neighbors import KNNGraph, knn_graph
from ssdml.graphs.propagation import propagate_labels
from ssdml.induction import InductiveMetric, neighbors_among
from ssdml.linalg import covariance, in_range, symmetrize, total_variance
from ssdml.metric import embed
from ssdml.projections import best_factor
from ssdml.utils.typing import Array, Floats, Ints

if TYPE_CHECKING:
    from ssdml.baselines._batch_losses import BatchLoss


NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]


class Problem(NamedTuple):
    """What a baseline learns from."""

    X: Floats  # (n, d), float64, less the mean, with total variance 1
    scale: float  # what the rows were divided by
    labels: Ints  # -1 where unlabelled
    graph: KNNGraph
    pairs: LabelledPairs
    rng: np.random.Generator


class Baseline(InductiveMetric, BaseEstimator, metaclass=ABCMeta):
    """Estimator of a matrix M; what a method adds is :meth:`_learn`.

    ``components_`` is the best factor of ``n_components`` rows of M, scaled to trace d: a metric
    orders rows alike at any scale. ``info_`` and ``n_iter_`` stay behind when a model is saved.
    """

    random_state: Any

    _is_scale_free = True  # whether the objective means nothing by the scale of M
    _without: dict[str, str] = {  # noqa: RUF012
        "labels": "the metric comes from the graph alone",
        "dissimilar": "that term is left out",
        "similar": "that term is left out",
    }
    _shared_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    @abstractmethod
    def _learn(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        """M (d, d), and what is worth telling of how it came about."""

    @abstractmethod
    def _batch_loss(self, problem: Problem, info: dict[str, Any]) -> BatchLoss:
        """The objective on mini-batches, for a network under the metric that was learned."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,), int
            -1 where unlabelled. Without any label the metric is learned from the graph alone, with
            a warning.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If X has fewer than two rows, holds NaN or infinity, or has fewer columns than
            ``n_components``; if y has another length.

        Warns
        -----
        UserWarning
            If pairs of a kind are missing, or rows for ``n_neighbors``.
        ConvergenceWarning
            If ``max_iter`` steps did not come to ``tol``.
        """
        X, labels = self._training_rows(X, y)
        self._check_n_components(X.shape[1])
        rng = np.random.default_rng(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        problem = self._pose(X, labels, rng)
        M, self.info_ = self._solve(problem)
        if "n_iter" in self.info_:
            self.n_iter_ = max(1, self.info_["n_iter"])
        self._keep(X, labels, problem.graph, M)
        return self

    def _pose(self, X: Array, labels: Ints, rng: np.random.Generator) -> Problem:
        """Rows in float64 without offset and scale, their graph and their labelled pairs.

        Numbers such as thresholds and weights then mean the same in any unit.
        """
        rows = X.astype(np.float64)
        rows -= rows.mean(axis=0)
        rows, unit = in_range(rows)
        deviation = float(np.sqrt(total_variance(rows))) or 1.0
        rows /= deviation
        scale = float(np.ldexp(deviation, unit))
        k = neighbors_among(self.n_neighbors, len(X), type(self).__name__, stacklevel=5)
        graph = knn_graph(rows, k, n_jobs=self.n_jobs, random_state=rng)
        return Problem(rows, scale, labels, graph, labelled_pairs(rows, labels), rng)

    def _solve(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        """What :meth:`_learn` finds; told are labels that lack, and steps that did not suffice."""
        self._warn_of(problem.pairs, problem.labels)
        M, info = self._learn(problem)
        if not info.get("converged", True):
            warnings.warn(
                f"{type(self).__name__}: max_iter={self.get_params()['max_iter']} steps must come "
                f"to tol={self.get_params()['tol']}; they did not. Raise either.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return M, info

    def _warn_of(self, pairs: LabelledPairs, labels: Ints) -> None:
        """Say what the labels lack, and what the method makes of it."""
        if not (labels != UNLABELED).any():
            lack, kind = "no row has a label", "labels"
        elif not pairs.n_dissimilar:
            lack, kind = "the labels know one class alone, so no pair is dissimilar", "dissimilar"
        elif not pairs.n_similar:
            lack, kind = "every class has one label, so no pair is similar", "similar"
        else:
            return
        warnings.warn(f"{type(self).__name__}: {lack}; {self._without[kind]}.", stacklevel=5)

    def _keep(self, X: Array, labels: Ints, graph: KNNGraph, M: Floats) -> None:
        self.classes_ = np.unique(labels[labels != UNLABELED])
        distributions = np.zeros((len(X), 0), X.dtype)
        transduction = np.full(len(X), UNLABELED)
        if len(self.classes_):
            distributions = propagate_labels(graph, labels, n_jobs=self.n_jobs).astype(X.dtype)
            transduction = self.classes_[distributions.argmax(axis=1)]
        self.label_distributions_, self.transduction_ = distributions, transduction
        self.representation_, self.input_weight_, self.triplets_ = None, 0.0, None
        count = self.n_components or X.shape[1]
        components = factor(M, covariance(in_range(X)[0]), count).astype(X.dtype)
        self.embedding_ = embed(X, components, None)
        self.components_ = components

    def predict_proba(self, X: Any) -> Array:
        """Distribution of the classes at each row, as SSDML has it.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)

        Returns
        -------
        distributions : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        if self.__sklearn_is_fitted__() and not len(self.classes_):
            raise ValueError(
                f"{type(self).__name__}: predict needs classes; it was fitted without any label. "
                "Fit it with labels of some rows."
            )
        return super().predict_proba(X)


def factor(M: Floats, spread: Floats, count: int, *, scaled: bool = True) -> Floats:
    """Rows C (count, d) that keep the distances under M, which is scaled to trace d before.

    As well as so many can, in the mean of squares over rows of this covariance: M alone does not
    tell, for it is large where the rows hardly vary. With ``scaled=False`` it is not scaled.

    Examples
    --------
    >>> factor(np.diag([1.0, 3.0]), np.diag([6.0, 1.0]), 1)
    array([[0.70710678, 0.        ]])
    """
    symmetric = symmetrize(M)
    values, vectors = np.linalg.eigh(symmetric)
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    trace = np.trace(symmetric)
    scale = len(M) / trace if scaled and trace > 0 else 1.0
    return np.sqrt(scale) * best_factor(root, spread, count)
