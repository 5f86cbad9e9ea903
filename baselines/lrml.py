"""LRML: a metric from labeled pairs and a graph Laplacian, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from ssdml.baselines.base import Problem, ScatterBaseline
from ssdml.graphs.laplacian import adjacency, pair_scatter, symmetric_normalized
from ssdml.graphs.neighbors.knn import KNNGraph
from ssdml.utils.linalg import symmetrize
from ssdml.utils.typing import Floats

if TYPE_CHECKING:
    from ssdml.baselines.batch_losses import BatchLoss


@dataclass(eq=False, repr=False, kw_only=True)
class LRML(ScatterBaseline):
    r"""Laplacian regularized metric learning.

    .. math:: \min_{M \succeq 0,\ \log|M| \ge 0} \operatorname{tr}(M H), \quad
        H = w_S \hat S - w_D \hat D + w_R \hat R, \qquad M = |H|^{1/d} H^{-1}

    with the mean scatters of similar and dissimilar labeled pairs and of the edges of a kNN graph.

    Parameters
    ----------
    n_components, n_neighbors, n_jobs, random_state
        See :class:`~ssdml.baselines.base.Baseline`.
    similar_weight, dissimilar_weight, graph_weight, ridge
        See :class:`~ssdml.baselines.base.ScatterBaseline`.
    normalized : bool
        Whether to use the symmetric normalized Laplacian, as the paper's experiments do according
        to a third-party implementation, from which the number of neighbors is taken, too.

    Attributes
    ----------
    components_, classes_, transduction_, label_distributions_, embedding_
        See :class:`~ssdml.baselines.base.Baseline`.
    info_ : dict
        ``dissimilar_weight`` as used, and ``value`` of the objective.

    Notes
    -----
    The objective is Eq. (2) of Dutta et al. (2021). Ours, as the paper's text was not available:
    the closed form, derived from the Karush-Kuhn-Tucker conditions; means instead of sums; the
    bound on ``dissimilar_weight``; the ridge; the default weights. O(k n d + n d² + d³).

    References
    ----------
    .. [1] Hoi, Liu, Chang, "Semi-supervised distance metric learning for collaborative image
       retrieval", CVPR 2008; "... and clustering", ACM TOMCCAP 6(3), 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> bool(LRML().fit(X, labels).score(X, y) > 0.9)
    True
    """

    n_neighbors: int = 6
    normalized: bool = False

    _parameter_constraints = ScatterBaseline._parameter_constraints | {"normalized": ["boolean"]}

    def _learn(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        regularizer = edge_scatter(problem.X, problem.graph, normalized=self.normalized)
        H, used = self._combine(problem.pairs, regularizer)
        M = least_trace(H)
        return M, {"dissimilar_weight": used, "value": float((M * H).sum())}

    def _batch_loss(self, problem: Problem, info: dict[str, Any]) -> BatchLoss:
        from ssdml.baselines.batch_losses import LaplacianLoss

        edges, pulls = laplacian_parts(problem.graph, normalized=self.normalized)
        used = info["dissimilar_weight"]
        return LaplacianLoss(edges, self.similar_weight, used, self.graph_weight, pulls)


def least_trace(H: Floats) -> Floats:
    """Minimize ``tr(M H)`` over M of determinant 1, for a positive definite H.

    Examples
    --------
    >>> least_trace(np.diag([1.0, 4.0]))
    array([[2. , 0. ],
           [0. , 0.5]])
    """
    _, log_determinant = np.linalg.slogdet(H)
    return symmetrize(np.exp(log_determinant / len(H)) * np.linalg.inv(H))


def edge_scatter(X: Floats, graph: KNNGraph, *, normalized: bool = False) -> Floats:
    """Compute the mean scatter (d, d) of the graph's edges, by its Laplacian.

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
    """A Laplacian as weights of pairs and of rows."""

    edges: sparse.csr_array  # symmetric
    pulls: Floats | None  # (n,), weights of the squared distances to the mean


def laplacian_parts(graph: KNNGraph, *, normalized: bool) -> LaplacianParts:
    r"""Split the plain or the symmetric normalized Laplacian into weights of pairs and rows.

    .. math:: I - S = (\operatorname{diag}(S 1) - S) + \operatorname{diag}(1 - S 1), \qquad
        S = D^{-1/2} W D^{-1/2}

    so a normalized Laplacian weighs rows in addition to the edges, those of S.

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
