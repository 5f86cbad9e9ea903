"""ISDML: a metric from density-weighted edges, by Riemannian steepest descent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.baselines.base import Problem, ScatterBaseline
from ssdml.graphs.laplacian import pair_scatter
from ssdml.graphs.neighbors.knn import KNNGraph, directed_csr
from ssdml.metric.fitted.base import COUNT, POSITIVE
from ssdml.metric.stiefel import check_docstrings
from ssdml.utils.linalg import symmetrize
from ssdml.utils.parallel import row_blocks
from ssdml.utils.typing import Floats
from ssdml.utils.validation import warn

if TYPE_CHECKING:
    from ssdml.baselines.batch_losses import BatchLoss


TILE = 2048  # side of a block of squared distances: 32 MB
VANISHING = 1e-38  # weights below this count as zero
MAX_DENSE_ROWS = 60_000  # beyond, the density counts neighbors only
JUMPS = 5  # to the farthest row
NEWTON_RADIUS = 0.5  # a Newton step descends if the gradient is shorter


@dataclass(eq=False, repr=False, kw_only=True)
class ISDML(ScatterBaseline):
    r"""Intrinsic semi-supervised metric learning.

    .. math:: \min_{M \succ 0} \operatorname{tr}(M H) - \log|M|, \quad
        H = w_S \hat S - w_D \hat D + w_R \hat R, \quad
        \hat R \propto \sum_{i,\, j \in N_k(i)} \beta_i
        e^{-|z_i - z_j|^2 / 2 \sigma^2} (z_i - z_j)(z_i - z_j)^\top

    by steepest descent along the geodesics of the positive definite matrices. β is the density at
    a row, σ a length between the smallest and the largest distance.

    Parameters
    ----------
    n_components, n_neighbors, n_jobs, random_state
        See :class:`~ssdml.baselines.base.Baseline`.
    bandwidth : float
        v: σ lies 1 / v of the way from the smallest to the largest distance.
    density : {"auto", "all", "neighbors"}
        Rows that the density at a row counts; "auto": all of up to 60,000, else its neighbors.
    similar_weight, dissimilar_weight, graph_weight, ridge
        See :class:`~ssdml.baselines.base.ScatterBaseline`.
    max_iter : int
        Maximum number of descent steps.
    tol : float
        The descent stops when the norm of the Riemannian gradient is at most ``tol * d``.

    Attributes
    ----------
    components_, n_iter_, classes_, transduction_, label_distributions_, embedding_
        See :class:`~ssdml.baselines.base.Baseline`.
    info_ : dict
        ``dissimilar_weight`` as used, ``sigma``, weights of the ``edges``, and ``values`` of the
        objective at each step.

    Notes
    -----
    The edge weights and σ follow Eqs. (2), (7), (8) and Section IV of the paper, by a
    secondary description, whose defaults are v = 10 and 10 neighbors. The rest is our
    reconstruction, as the paper's text was not available: the labeled term, means instead of sums,
    the barrier ``-log|M|``, without which the objective is unbounded, the ridge, the window of the
    density (σ), and the rule for ``dissimilar_weight``. Beyond 60,000 rows the density counts
    neighbors alone, and the largest distance is approximate. The exact minimum is ``H^-1``; the
    descent approaches it and a Newton step completes it. O(n² d) if the density counts all rows,
    O(d³) per step.

    References
    ----------
    .. [1] Ying, Wen, Shi, Peng, Peng, Qiao, "Manifold preserving: an intrinsic approach for
       semisupervised distance metric learning", IEEE TNNLS 29(7), 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> labels = np.where(np.arange(150) % 10 == 0, y, -1)
    >>> bool(ISDML().fit(X, labels).score(X, y) > 0.9)
    True
    """

    bandwidth: float = 10.0
    density: str = "auto"
    max_iter: int = 500
    tol: float = 1e-6

    _parameter_constraints = ScatterBaseline._parameter_constraints | {
        "bandwidth": [Interval(Real, 1, None, closed="left")],
        "density": [StrOptions({"auto", "all", "neighbors"})],
        "max_iter": COUNT,
        "tol": POSITIVE,
    }

    def _learn(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        sigma = kernel_width(problem.X, problem.graph, self.bandwidth)
        density = self.density
        if density == "auto":
            density = "all" if len(problem.X) <= MAX_DENSE_ROWS else "neighbors"
        weights = density_weights(problem.X, problem.graph, sigma, density=density)
        regularizer = pair_scatter(problem.X, weights) / (weights.sum() / 2)
        H, used = self._combine(problem.pairs, regularizer)
        found = descend(H, max_iter=self.max_iter, tol=self.tol)
        info = {"dissimilar_weight": used, "sigma": sigma, "values": found.values}
        info |= {"edges": weights, "n_iter": len(found.values) - 1, "converged": found.converged}
        return found.M, info

    def _batch_loss(self, problem: Problem, info: dict[str, Any]) -> BatchLoss:
        from ssdml.baselines.batch_losses import LaplacianLoss

        used = info["dissimilar_weight"]
        return LaplacianLoss(info["edges"], self.similar_weight, used, self.graph_weight)


class Descent(NamedTuple):
    """Result of a descent."""

    M: Floats
    values: list[float]  # of the objective, at each step
    converged: bool


def descend(H: Floats, *, max_iter: int, tol: float) -> Descent:
    """Minimize ``tr(M H) - log|M|`` by steepest descent on the positive definite matrices.

    The affine-invariant metric gives the gradient ``M (H - M^-1) M``. The start is the best
    multiple of the identity. A line search cannot resolve the objective below its rounding, 1e-16,
    and so the distance to the minimum below 1e-8; a final Newton step squares that distance.

    ``tol`` is the tolerance of the gradient norm over d.

    Examples
    --------
    >>> descend(np.diag([1.0, 4.0]), max_iter=100, tol=1e-9).M.round(6)
    array([[1.  , 0.  ],
           [0.  , 0.25]])
    """
    check_docstrings()
    from pymanopt import Problem as OnManifold, function
    from pymanopt.manifolds import SymmetricPositiveDefinite
    from pymanopt.optimizers import SteepestDescent

    d = len(H)
    manifold = SymmetricPositiveDefinite(d)
    problem = OnManifold(
        manifold,
        function.numpy(manifold)(lambda M: barrier_objective(M, H)),
        euclidean_gradient=function.numpy(manifold)(lambda M: H - np.linalg.inv(M)),
    )
    optimizer = SteepestDescent(
        max_iterations=max_iter,
        min_gradient_norm=tol * d,
        max_time=np.inf,
        verbosity=0,
        log_verbosity=1,
    )
    start = np.eye(d) * d / np.trace(H)
    slope = start @ (H - np.linalg.inv(start)) @ start
    if manifold.norm(start, slope) <= tol * d:
        return Descent(start, [barrier_objective(start, H)], True)
    found = optimizer.run(problem, initial_point=start)
    values = [float(value) for value in found.log["iterations"]["cost"]]
    M = symmetrize(found.point)
    slope = M @ H @ M - M
    if manifold.norm(M, slope) < NEWTON_RADIUS:
        M = symmetrize(M - slope)
        values.append(barrier_objective(M, H))
    return Descent(M, values, found.iterations < max_iter)


def barrier_objective(M: Floats, H: Floats) -> float:
    """Compute ``tr(M H) - log|M|``; infinity if M is not positive definite.

    Examples
    --------
    >>> barrier_objective(np.eye(2), np.diag([1.0, 4.0]))
    5.0
    """
    sign, log_determinant = np.linalg.slogdet(M)
    return float((M * H).sum() - log_determinant) if sign > 0 else float("inf")


def kernel_width(X: Floats, graph: KNNGraph, bandwidth: float) -> float:
    """Compute ``D_min + (D_max - D_min) / bandwidth`` of the distances; 1 if all rows are equal.

    O(n² d) for up to 60,000 rows; beyond, D_max comes from :func:`far_apart` in O(n d).

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> round(kernel_width(X, knn_graph(X, 1), 10.0), 6)
    1.2
    """
    least = float(graph.distances[:, 0].min())
    if len(X) <= MAX_DENSE_ROWS:
        largest = float(np.sqrt(max(tile.max() for _, _, tile in _squared_distances(X))))
    else:
        largest = far_apart(X)
    return least + (largest - least) / bandwidth or 1.0


def far_apart(X: Floats) -> float:
    """Approximate the largest distance by five jumps to the farthest row.

    Examples
    --------
    >>> far_apart(np.array([[0.0], [1.0], [3.0]]))
    3.0
    """
    row, largest = X.mean(axis=0), 0.0
    for _ in range(JUMPS):
        distances = np.linalg.norm(X - row, axis=1)
        row, largest = X[distances.argmax()], float(distances.max())
    return largest


def density_weights(
    X: Floats, graph: KNNGraph, sigma: float, *, density: str = "all"
) -> sparse.csr_array:
    """Compute edge weights ``W + W^T`` with ``W_ij = beta_i exp(-d_ij² / 2 sigma²)``.

    beta is the Parzen density of all rows or of the neighbors, over its maximum.

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> W = density_weights(X, knn_graph(X, 1), 1.2)
    >>> round(float(W.toarray()[2, 1]), 4)
    0.0765
    """
    similarity = np.exp(-0.5 * (graph.distances / sigma) ** 2)
    if density == "neighbors":
        sums = similarity.sum(axis=1)
    else:
        sums = np.zeros(len(X))
        for left, right, tile in _squared_distances(X):
            tile *= -0.5 / sigma**2
            np.exp(tile, out=tile)
            if left == right:
                np.fill_diagonal(tile, 0)  # a row does not count itself
            else:
                sums[right] += tile.sum(axis=0)
            sums[left] += tile.sum(axis=1)
    beta = sums / max(sums.max(), np.finfo(np.float64).tiny)
    weights = beta[:, None] * similarity
    if (weights < VANISHING).mean() > 0.5:
        warn(
            "ISDML: bandwidth must keep most edge weights above 0; with sigma = "
            f"{sigma:.3g} more than half vanish. Lower it."
        )
    directed = directed_csr(graph, weights)
    return sparse.csr_array(directed + directed.T)


def _squared_distances(X: Floats) -> Iterator[tuple[slice, slice, Floats]]:
    """Yield blocks of squared distances with their slices, each pair of rows once."""
    squares = np.einsum("ij,ij->i", X, X)[:, None]
    ones = np.ones_like(squares)
    # |x|² + |y|² - 2 x y in one product: each block is written once.
    first, second = np.hstack([-2 * X, squares, ones]), np.hstack([X, ones, squares])
    places = row_blocks(len(X), TILE)
    for number, left in enumerate(places):
        for right in places[number:]:
            tile = first[left] @ second[right].T
            yield left, right, np.maximum(tile, 0, out=tile)
