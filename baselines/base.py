"""What the baselines share: rows, labels and a graph come in, a Mahalanobis matrix goes out."""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy.linalg import eigh
from sklearn.base import BaseEstimator, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from ssdml.baselines.pairs import LabeledPairs, labeled_pairs
from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.metric.base import embed
from ssdml.metric.prediction import InductiveMetric, neighbors_among
from ssdml.utils.linalg import best_factor, covariance, in_range, symmetrize, total_variance
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED

if TYPE_CHECKING:
    from ssdml.baselines.batch_losses import BatchLoss

NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]


class Problem(NamedTuple):
    """What a baseline learns from."""

    X: Floats  # (n, d), float64, less the mean, with total variance 1
    scale: float  # what the rows were divided by
    labels: Ints  # -1 where unlabeled
    graph: KNNGraph
    pairs: LabeledPairs
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
            -1 where unlabeled. Without any label the metric is learned from the graph alone, with
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
        """Rows in float64 without offset and scale, their graph and their labeled pairs.

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
        return Problem(rows, scale, labels, graph, labeled_pairs(rows, labels), rng)

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

    def _warn_of(self, pairs: LabeledPairs, labels: Ints) -> None:
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


# The linear objective that LRML and ISDML share, kept bounded from below.
#
# ``tr(M H)`` with ``H = w_S S - w_D D + w_R R`` has a minimum over M of determinant 1 only where H is
# positive definite; so the weight of the dissimilar pairs is lowered where it must be.

SAFE = 0.9  # share of the largest weight at which the objective stays bounded


class Balance(NamedTuple):
    """H, and the weight of the dissimilar pairs in it."""

    H: Floats
    dissimilar_weight: float


def balanced(
    similar: Floats,
    dissimilar: Floats,
    regularizer: Floats,
    *,
    weights: tuple[float, float | None, float],
    ridge: float,
    who: str,
) -> Balance:
    """H of the weighted scatters, positive definite.

    Parameters
    ----------
    similar, dissimilar, regularizer : arrays of shape (d, d)
        Positive semidefinite.
    weights : tuple of three numbers
        Of each. The second is lowered to 0.9 of the largest that leaves H positive semidefinite,
        with a warning; None: it is that. 0 where nothing is dissimilar.
    ridge : float
        Share of the identity that is mixed into what is attracted.
    who : str
        Beginning of the warning.

    Examples
    --------
    >>> I = np.eye(2)
    >>> balanced(I, I, 0 * I, weights=(1.0, None, 1.0), ridge=0.0, who="LRML").dissimilar_weight
    0.9
    """
    asked = weights[1]
    attracted = weights[0] * similar + weights[2] * regularizer
    attracted = attracted + ridge * _level(attracted) * np.eye(len(attracted))
    largest = largest_weight(attracted, dissimilar)
    used = lowered(asked, largest, "dissimilar_weight", who) if np.isfinite(largest) else 0.0
    return Balance(symmetrize(attracted - used * dissimilar), used)


def lowered(asked: float | None, largest: float, name: str, who: str) -> float:
    """The weight asked for, or 0.9 of the largest if that is less, with a warning.

    None asks for as much as there may be, in silence.

    Examples
    --------
    >>> lowered(0.5, 1.0, "graph_weight", "APIT"), lowered(None, 1.0, "graph_weight", "APIT")
    (0.5, 0.9)
    """
    most = SAFE * largest
    if asked is None or asked <= most:
        return most if asked is None else asked
    warnings.warn(
        f"{who}: {name} must be at most {most:.3g}, 0.9 of where the system is no longer positive "
        f"definite; got {asked}. Takes {most:.3g}.",
        stacklevel=7,
    )
    return most


def largest_weight(attracted: Floats, dissimilar: Floats) -> float:
    """Largest w with ``attracted - w * dissimilar`` positive semidefinite; infinity if all are.

    Examples
    --------
    >>> largest_weight(np.diag([1.0, 4.0]), np.diag([1.0, 2.0]))
    1.0
    """
    try:
        top = eigh(dissimilar, attracted, eigvals_only=True)[-1]
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "X must vary in every direction by more than the rounding of its largest numbers, or "
            f"its scatters are singular; got {error} Look for a row far from all others, or scale "
            "the features."
        ) from error
    return float(1 / top) if top > 0 else float("inf")


def _level(matrix: Floats) -> float:
    """Mean eigenvalue, or 1 for zeros: as in :func:`ssdml.utils.linalg.shrink`."""
    return float(np.trace(matrix) / len(matrix)) or 1.0
