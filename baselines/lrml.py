"""LRML: labeled pairs and the Laplacian of a kNN graph, in closed form."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils._param_validation import Interval

from ssdml.baselines.base import NOT_NEGATIVE, Baseline, Problem, balanced
from ssdml.graphs.laplacian import adjacency, pair_scatter, symmetric_normalized
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.utils.linalg import symmetrize
from ssdml.utils.typing import Floats

if TYPE_CHECKING:
    from ssdml.baselines.batch_losses import BatchLoss


class LRML(Baseline):
    r"""Laplacian regularized metric learning.

    .. math:: \min_{M \succeq 0,\ \log|M| \ge 0} \operatorname{tr}(M H), \quad
        H = w_S \hat S - w_D \hat D + w_R \hat R, \qquad M = |H|^{1/d} H^{-1}

    with the mean scatters of similar and dissimilar labeled pairs, and that of the graph's edges.

    Parameters
    ----------
    n_components : int or None
        Rows of M's factor, which keep the distances under M as well as so many can; None: as
        many as features.
    n_neighbors : int
        Of the graph, whose edges are those of either end.
    similar_weight, graph_weight : float
        Of the mean scatters.
    dissimilar_weight : float or None
        None: 0.9 of the largest with which H is positive semidefinite.
    ridge : float
        Share of the identity beside what is attracted.
    normalized : bool
        Whether the graph's Laplacian is the symmetric normalized one of the paper's experiments.
    n_jobs : int or None
        Threads of the neighbor search.
    random_state : int, RandomState or None
        Of the search, where it is not exact.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
    info_ : dict
        ``dissimilar_weight`` that was used, ``value`` of the objective.
    classes_, transduction_, label_distributions_, embedding_ : ndarray
        As those of :class:`ssdml.SSDML`.

    Warns
    -----
    UserWarning
        If ``dissimilar_weight`` had to be lowered, for the objective to be bounded; if there are
        no labels, or no similar or dissimilar pairs, whose term is then left out.

    Notes
    -----
    The objective is seed 003's Eq. (2). The closed form is ours, from the conditions of Karush,
    Kuhn and Tucker; so are means in the place of sums, the bound on ``dissimilar_weight``, the
    ridge and the default weights: the paper's are not known to us. O(k n d + n d² + d³).

    References
    ----------
    .. [1] Hoi, Liu, Chang, "Semi-supervised distance metric learning for collaborative image
       retrieval", CVPR 2008; ACM TOMCCAP 6(3), 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> bool(LRML().fit(X, labels).score(X, y) > 0.9)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Baseline._shared_constraints,
        "similar_weight": NOT_NEGATIVE,
        "dissimilar_weight": [*NOT_NEGATIVE, None],
        "graph_weight": NOT_NEGATIVE,
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "normalized": ["boolean"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 6,
        similar_weight: float = 1.0,
        dissimilar_weight: float | None = None,
        graph_weight: float = 1.0,
        ridge: float = 1e-3,
        normalized: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.similar_weight = similar_weight
        self.dissimilar_weight = dissimilar_weight
        self.graph_weight = graph_weight
        self.ridge = ridge
        self.normalized = normalized
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        H, used = balanced(
            problem.pairs.similar,
            problem.pairs.dissimilar,
            edge_scatter(problem.X, problem.graph, normalized=self.normalized),
            weights=(self.similar_weight, self.dissimilar_weight, self.graph_weight),
            ridge=self.ridge,
            who="LRML",
        )
        M = least_trace(H)
        return M, {"dissimilar_weight": used, "value": float((M * H).sum())}

    def _batch_loss(self, problem: Problem, info: dict[str, Any]) -> BatchLoss:
        from ssdml.baselines.batch_losses import LaplacianLoss

        edges, pulls = laplacian_parts(problem.graph, normalized=self.normalized)
        used = info["dissimilar_weight"]
        return LaplacianLoss(edges, self.similar_weight, used, self.graph_weight, pulls)


def least_trace(H: Floats) -> Floats:
    """The M with determinant 1 for which ``tr(M H)`` is least: ``det(H)^(1/d) H^-1``.

    Parameters
    ----------
    H : array of shape (d, d)
        Positive definite.

    Examples
    --------
    >>> least_trace(np.diag([1.0, 4.0]))
    array([[2. , 0. ],
           [0. , 0.5]])
    """
    _, log_determinant = np.linalg.slogdet(H)
    return symmetrize(np.exp(log_determinant / len(H)) * np.linalg.inv(H))


def edge_scatter(X: Floats, graph: KNNGraph, *, normalized: bool = False) -> Floats:
    """Mean scatter of the graph's edges, each of weight 1, (d, d).

    With ``normalized`` the symmetric normalized Laplacian takes the place of the plain one.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> edge_scatter(X, knn_graph(X, 1))
    array([[2.5]])
    """
    edges, pulls = laplacian_parts(graph, normalized=normalized)
    total = pair_scatter(X, edges)
    if pulls is not None:
        rows = X - X.mean(axis=0)
        total += symmetrize(rows.T @ (pulls[:, None] * rows))
    return total / (edges.sum() / 2)


class LaplacianParts(NamedTuple):
    """A Laplacian as weights of pairs, and of rows."""

    edges: sparse.csr_array  # symmetric
    pulls: npt.NDArray[np.float64] | None  # (n,), of the rows' squared distances to their mean


def laplacian_parts(graph: KNNGraph, *, normalized: bool) -> LaplacianParts:
    r"""The plain Laplacian of the graph's edges, or the symmetric normalized one.

    .. math:: I - S = (\operatorname{diag}(S 1) - S) + \operatorname{diag}(1 - S 1), \qquad
        S = D^{-1/2} W D^{-1/2}

    so beside its edges, those of S, a normalized Laplacian weighs rows.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> graph = knn_graph(np.array([[0.0], [1.0], [3.0]]), 1)
    >>> edges, pulls = laplacian_parts(graph, normalized=True)
    >>> edges.toarray().round(3)
    array([[0.   , 0.707, 0.   ],
           [0.707, 0.   , 0.707],
           [0.   , 0.707, 0.   ]])
    >>> pulls.round(3)
    array([ 0.293, -0.414,  0.293])
    """
    weights = adjacency(graph, weights="uniform")
    if not normalized:
        return LaplacianParts(weights, None)
    edges = symmetric_normalized(weights)
    return LaplacianParts(edges, 1 - edges.sum(axis=1))
