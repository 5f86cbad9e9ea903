"""Base class of APLLR and APIT: a prior corrected by propagated affinities."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ssdml.baselines.base import (
    BOUND_SHARE,
    Baseline,
    Problem,
    cap_weight,
    largest_weight,
)
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.graphs.propagation.affinities import propagate_affinities
from ssdml.graphs.propagation.class_masses import class_masses, transition_matrix, walk_visits
from ssdml.graphs.propagation.solvers import krylov_propagator
from ssdml.metric.fitted.base import DECAY, NOT_NEGATIVE
from ssdml.utils.labels import class_codes, one_hot
from ssdml.utils.linalg import symmetrize
from ssdml.utils.parallel import count_threads
from ssdml.utils.typing import Array, Floats, Ints
from ssdml.utils.validation import UNLABELED

if TYPE_CHECKING:
    from ssdml.baselines.batch_losses import AffinityLoss, BatchLoss

TOL = 1e-9  # error of propagated entries, relative to the largest


@dataclass(eq=False, repr=False, kw_only=True)
class PropagatedBaseline(Baseline):
    """Base class of methods whose metric stays near a prior; a method implements ``_prior``.

    Parameters
    ----------
    decay : float
        Decay of the propagation, between 0 and 1.
    graph_weight : float or None
        η; None: 1, or 0.9 of the largest value that keeps M positive definite if that is smaller.
    """

    decay: float = 0.99
    graph_weight: float | None = None

    _parameter_constraints = Baseline._parameter_constraints | {
        "decay": DECAY,
        "graph_weight": [*NOT_NEGATIVE, None],
    }

    @abstractmethod
    def _prior(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        """Return M_0 (d, d) and entries of ``info_``."""

    def _learn(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        prior, info = self._prior(problem)
        scatter = propagated_scatter(
            problem.X, problem.labels, problem.graph, decay=self.decay, n_jobs=self.n_jobs
        )
        M, used = near_prior(prior, scatter, self.graph_weight, type(self).__name__)
        return M, {"graph_weight": used, **info}

    def _batch_loss(self, problem: Problem, info: dict[str, Any]) -> BatchLoss:
        return affinity_loss(problem.labels, problem.graph, decay=self.decay, n_jobs=self.n_jobs)


class Near(NamedTuple):
    """Result of :func:`near_prior`."""

    M: Floats
    graph_weight: float  # as used


def propagated_scatter(
    X: Floats,
    labels: Ints,
    graph: KNNGraph,
    *,
    decay: float,
    n_jobs: int | None = None,
) -> Floats:
    r"""Compute ``Z^T (diag(W 1) - W) Z / n`` for one-sided propagated affinities W.

    .. math:: W = \operatorname{sym}(P W_0), \quad P = (1 - \gamma)(I - \gamma Q)^{-1}

    W_0 is 1 for a row with itself and for labeled rows of one class, -1 for two classes. W is not
    formed: ``Z^T W Z`` needs P on the d columns of ``W_0 Z``, and ``W 1`` on one more, and P^T 1,
    the expected visits of each row.

    Notes
    -----
    O(i k n d) for i steps of the solver: about 100 at decay 0.99, more as it approaches 1.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> X = np.array([[0.0], [1.0]])
    >>> propagated_scatter(X, np.array([0, 1]), knn_graph(X, 1), decay=0.5).round(6)
    array([[-0.166667]])
    """
    ones = np.ones((len(X), 1))
    rows = X - X.mean(axis=0)
    columns = with_labels(np.hstack([rows, ones]), labels)
    scale = max(float(np.abs(columns).max()), np.finfo(np.float64).tiny)
    n_threads = count_threads(n_jobs, "propagated_scatter")
    spread = krylov_propagator(transition_matrix(graph), decay, tol=TOL, n_threads=n_threads)
    known = scale * spread(columns / scale)
    visits = np.array(walk_visits(graph, decay=decay, tol=TOL)[:, None], np.float64)  # P^T 1
    degrees = (known[:, -1:] + with_labels(visits, labels)) / 2
    return symmetrize(rows.T @ (degrees * rows - known[:, :-1])) / len(X)


def affinity_loss(
    labels: Ints, graph: KNNGraph, *, decay: float, n_jobs: int | None = None
) -> AffinityLoss:
    """Return the mini-batch loss with the same affinities, on edges and pairs with a label."""
    from ssdml.baselines.batch_losses import AffinityLoss

    codes, n_classes = class_codes(labels)
    masses: Array = np.zeros((len(labels), 1))
    if n_classes:
        masses = class_masses(graph, labels, decay=decay, n_jobs=n_jobs).masses
    edges = propagate_affinities(graph, labels, decay=decay, n_jobs=n_jobs)
    return AffinityLoss(edges, masses, codes)


def with_labels(columns: Floats, labels: Ints) -> Floats:
    """Multiply W_0 by columns (n, m).

    Examples
    --------
    >>> with_labels(np.array([[1.0], [2.0], [5.0]]), np.array([0, 1, -1])).ravel()
    array([-1.,  1.,  5.])
    """
    codes, _ = class_codes(labels)
    known = codes != UNLABELED
    sums = one_hot(labels).T @ columns  # per class
    result = columns.copy()
    result[known] = 2 * sums[codes[known]] - sums.sum(axis=0)
    return result


def near_prior(prior: Floats, scatter: Floats, graph_weight: float | None, who: str) -> Near:
    r"""Minimize ``D(M, M_0) + η tr(M K)`` with the log-det divergence D.

    .. math:: M = (M_0^{-1} + \eta K)^{-1}

    η is lowered to 0.9 of the largest value that keeps the inverse positive semidefinite, with a
    warning; None: 1, or that value if it is smaller.

    Examples
    --------
    >>> near_prior(np.eye(2), np.diag([1.0, 0.0]), 1.0, "APIT").M
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    base = symmetrize(np.linalg.inv(prior))
    largest = largest_weight(base, -scatter)
    if graph_weight is None:
        weight = min(1.0, BOUND_SHARE * largest)
    else:
        weight = cap_weight(graph_weight, largest, "graph_weight", who)
    return Near(symmetrize(np.linalg.inv(base + weight * scatter)), weight)
