"""Base class of the linear baselines: rows, labels and a graph in, a Mahalanobis matrix out."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.linalg import eigh
from sklearn.base import BaseEstimator, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ssdml.baselines.pairs import LabeledPairs, labeled_pairs
from ssdml.graphs.neighbors.knn import KNNGraph, knn_graph, limit_neighbors
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.metric.fitted.base import COUNT, N_JOBS, NOT_NEGATIVE, POSITIVE
from ssdml.metric.fitted.metric import LearnedMetric
from ssdml.metric.fitted.prediction import embed
from ssdml.utils.linalg import best_factor, covariance, scale_exactly, symmetrize, total_variance
from ssdml.utils.parallel import one_blas_thread
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED, warn

if TYPE_CHECKING:
    from ssdml.baselines.batch_losses import BatchLoss

BOUND_SHARE = 0.9  # a weight is at most this share of the largest that keeps a problem bounded


class Problem(NamedTuple):
    """Input of a baseline."""

    X: Floats  # (n, d), float64, centered, of total variance 1
    scale: float  # by which the rows were divided
    labels: Ints  # -1 where unlabeled
    graph: KNNGraph
    pairs: LabeledPairs
    rng: np.random.Generator


@dataclass(eq=False, repr=False)
class Baseline(LearnedMetric, BaseEstimator, metaclass=ABCMeta):
    """Base class of estimators of a Mahalanobis matrix M.

    A method implements ``_learn``, and declares its own parameters as keyword-only dataclass
    fields: these make the constructor.

    Parameters
    ----------
    n_components : int or None
        Rows of ``components_``: the factor of M that best preserves the distances. None: as many
        as features.
    n_neighbors : int
        Neighbors in the graph.
    n_jobs : int or None
        Threads of the neighbor search and the propagation.
    random_state : int, RandomState or None
        Seeds the drawing of pairs, and the neighbor search if it is approximate.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Factor of M, scaled to trace n_features: the scale of a metric does not change the order
        of distances.
    info_ : dict
        Diagnostics of the fit, listed by each method; not saved.
    n_iter_ : int
        Iterations, if the method iterates; not saved.
    classes_, transduction_, label_distributions_, embedding_ : ndarray
        See :class:`ssdml.SSDML`.

    Warns
    -----
    UserWarning
        If similar or dissimilar pairs are missing, if there are no more rows than
        ``n_neighbors``, or if a given weight had to be lowered to keep the problem bounded.
    ConvergenceWarning
        If the method does not reach ``tol`` within ``max_iter`` steps.
    """

    n_components: int | None = None
    _: KW_ONLY
    n_neighbors: int = 10
    n_jobs: int | None = None
    random_state: Any = None

    _is_scale_free: ClassVar[bool] = True  # whether the objective ignores the scale of M
    # What the method does without labels, dissimilar pairs, similar pairs.
    _without: ClassVar[dict[str, str]] = {
        "labels": "the metric comes from the graph alone",
        "dissimilar": "that term is left out",
        "similar": "that term is left out",
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [*COUNT, None],
        "n_neighbors": COUNT,
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
    }

    @abstractmethod
    def _learn(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        """Return M (d, d) and ``info_``."""

    @abstractmethod
    def _batch_loss(self, problem: Problem, info: dict[str, Any]) -> BatchLoss:
        """Return the objective on mini-batches, for a network under the learned metric."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Integers, -1 where unlabeled; or names or booleans, with None, NaN or another mark of
            :func:`ssdml.datasets.encode_partial_labels` where unlabeled. Without any label the
            metric is learned from the graph alone, with a warning.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If X has fewer than two rows, holds NaN or infinity, or has fewer columns than
            ``n_components``; if y has another length.
        """
        self._forget()
        X, labels = self._training_rows(X, y, may_underflow=True)
        self._check_n_components(X.shape[1])
        rng = np.random.default_rng(
            check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        )
        # Exponentials of far rows are 0, whatever the caller has set. Sums depend on the number of
        # threads, which other fits may limit.
        with np.errstate(under="ignore"), one_blas_thread():
            problem = self._pose(X, labels, rng)
            M, self.info_ = self._solve(problem)
            if "n_iter" in self.info_:
                self.n_iter_ = max(1, self.info_["n_iter"])
            self._keep(X, labels, problem.graph, M)
        return self

    def _pose(self, X: Array, labels: Ints, rng: np.random.Generator) -> Problem:
        """Center and scale the rows, so that parameters mean the same in any unit."""
        rows = X.astype(np.float64)
        rows -= rows.mean(axis=0)
        rows, unit = scale_exactly(rows)
        deviation = float(np.sqrt(total_variance(rows))) or 1.0
        rows /= deviation
        scale = float(np.ldexp(deviation, unit))
        k = limit_neighbors(self.n_neighbors, len(X), type(self).__name__)
        graph = knn_graph(rows, k, n_jobs=self.n_jobs, random_state=rng)
        return Problem(rows, scale, labels, graph, labeled_pairs(rows, labels), rng)

    def _solve(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        """Call :meth:`_learn`; warn of missing labels and of missing convergence."""
        self._warn_of_missing_pairs(problem.pairs, problem.labels)
        M, info = self._learn(problem)
        if not info.get("converged", True):
            warn(
                f"{type(self).__name__}: max_iter={self.get_params()['max_iter']} steps must come "
                f"to tol={self.get_params()['tol']}; they did not. Raise either.",
                ConvergenceWarning,
            )
        return M, info

    def _warn_of_missing_pairs(self, pairs: LabeledPairs, labels: Ints) -> None:
        if not (labels != UNLABELED).any():
            problem, missing = "no row has a label", "labels"
        elif not pairs.n_dissimilar:
            problem, missing = "only one class is labeled, so no pair is dissimilar", "dissimilar"
        elif not pairs.n_similar:
            problem, missing = "every class has one label, so no pair is similar", "similar"
        else:
            return
        warn(f"{type(self).__name__}: {problem}; {self._without[missing]}.")

    def _keep(self, X: Array, labels: Ints, graph: KNNGraph, M: Floats) -> None:
        self.classes_ = self._classes(labels)
        distributions = np.zeros((len(X), 0), X.dtype)
        transduction = np.full(len(X), UNLABELED)
        if len(self.classes_):
            distributions = propagate_labels(graph, labels, n_jobs=self.n_jobs).astype(X.dtype)
            transduction = self.classes_[distributions.argmax(axis=1)]
        self.label_distributions_, self.transduction_ = distributions, transduction
        self.representation_, self.input_weight_, self.triplets_ = None, 0.0, None
        count = self.n_components or X.shape[1]
        components = factor(M, covariance(scale_exactly(X)[0]), count).astype(X.dtype)
        self.embedding_ = embed(X, components, None)
        self.components_ = components  # the last: with it, the estimator is fitted

    def predict_proba(self, X: Any) -> Array:
        """Predict class probabilities, as :class:`ssdml.SSDML` does.

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
                "Fit it with some labels."
            )
        return super().predict_proba(X)


def factor(M: Floats, spread: Floats, count: int, *, scaled: bool = True) -> Floats:
    """Factor M into C (count, d) with ``C.T @ C`` near M, scaled to trace d unless told otherwise.

    C minimizes the mean squared error of the distances between rows of covariance ``spread``. M
    alone does not determine C, being large where the rows hardly vary.

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


@dataclass(eq=False, repr=False, kw_only=True)
class ScatterBaseline(Baseline):
    """Base class of methods that minimize tr(M H), H a weighted sum of scatters.

    Parameters
    ----------
    similar_weight, graph_weight : float
        w_S and w_R.
    dissimilar_weight : float or None
        w_D; None: 0.9 of the largest value for which H is positive semidefinite.
    ridge : float
        Multiple of the identity added to H, in units of the mean eigenvalue of w_S S + w_R R.
    """

    similar_weight: float = 1.0
    dissimilar_weight: float | None = None
    graph_weight: float = 1.0
    ridge: float = 1e-3

    _parameter_constraints = Baseline._parameter_constraints | {
        "similar_weight": NOT_NEGATIVE,
        "dissimilar_weight": [*NOT_NEGATIVE, None],
        "graph_weight": NOT_NEGATIVE,
        "ridge": POSITIVE,
    }

    def _combine(self, pairs: LabeledPairs, regularizer: Floats) -> tuple[Floats, float]:
        """Return a positive definite ``H = w_S S - w_D D + w_R R + ridge I``, and w_D as used.

        tr(M H) has a minimum over M of determinant 1 only if H is positive definite.
        """
        attracted = self.similar_weight * pairs.similar + self.graph_weight * regularizer
        level = float(np.trace(attracted) / len(attracted)) or 1.0
        attracted = attracted + self.ridge * level * np.eye(len(attracted))
        largest, used = largest_weight(attracted, pairs.dissimilar), 0.0
        if largest < np.inf:
            name = "dissimilar_weight"
            used = cap_weight(self.dissimilar_weight, largest, name, type(self).__name__)
        return symmetrize(attracted - used * pairs.dissimilar), used


def cap_weight(weight: float | None, largest: float, name: str, who: str) -> float:
    """Lower the weight to 0.9 of the largest, with a warning; None: that value, silently.

    Examples
    --------
    >>> cap_weight(0.5, 1.0, "graph_weight", "APIT"), cap_weight(None, 1.0, "graph_weight", "APIT")
    (0.5, 0.9)
    """
    bound = BOUND_SHARE * largest
    if weight is None or weight <= bound:
        return bound if weight is None else weight
    warn(
        f"{who}: {name} must be at most {bound:.3g} to keep the problem positive definite; got "
        f"{weight}. {bound:.3g} is used."
    )
    return bound


def largest_weight(attracted: Floats, dissimilar: Floats) -> float:
    """Return the largest w for which ``attracted - w * dissimilar`` is positive semidefinite.

    Infinity if there is none.

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
