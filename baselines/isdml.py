"""ISDML: edges weighted by the density about them, and descent along geodesics."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils._param_validation import Interval, StrOptions

from ssdml.baselines.base import NOT_NEGATIVE, Baseline, Problem, balanced
from ssdml.graphs.laplacian import pair_scatter
from ssdml.graphs.neighbors.knn import KNNGraph, directed_csr
from ssdml.utils.linalg import symmetrize
from ssdml.utils.typing import Floats

if TYPE_CHECKING:
    from ssdml.baselines.batch_losses import BatchLoss


TILE = 2048  # rows to a side of the squared distances that are held at once: 32 MB
FAINT = 1e-38
ALL_ROWS = 60_000  # up to so many the density counts all of them


class ISDML(Baseline):
    r"""Intrinsic semi-supervised metric learning.

    .. math:: \min_{M \succ 0} \operatorname{tr}(M H) - \log|M|, \quad
        H = w_S \hat S - w_D \hat D + w_R \hat R, \quad
        \hat R \propto \sum_{i,\, j \in N_k(i)} \beta_i
        e^{-|z_i - z_j|^2 / 2 \sigma^2} (z_i - z_j)(z_i - z_j)^\top

    by steepest descent along the geodesics of the positive definite matrices. β is the density at
    a row, σ a length between the least and the largest distance.

    Parameters
    ----------
    n_components : int or None
        Rows of M's factor, which keep the distances under M as well as so many can; None: as
        many as features.
    n_neighbors : int
    bandwidth : float
        v: σ is the least distance, and 1 / v of the way to the largest.
    density : {"auto", "all", "neighbors"}
        Which rows the density at a row counts; "auto": all of up to 60,000, else its neighbors.
    similar_weight, graph_weight : float
        Of the mean scatters.
    dissimilar_weight : float or None
        None: 0.9 of the largest with which H is positive semidefinite.
    ridge : float
        Share of the identity beside what is attracted.
    max_iter : int
        Steps of the descent.
    tol : float
        It ends where the gradient's length, in the metric of the manifold, is at most ``tol * d``.
    n_jobs : int or None
        Threads of the neighbor search.
    random_state : int, RandomState or None
        Of the search, where it is not exact.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
    info_ : dict
        ``dissimilar_weight`` that was used, ``sigma``, weights of the ``edges``, ``values`` of the
        objective at each step.
    n_iter_ : int
    classes_, transduction_, label_distributions_, embedding_ : ndarray
        As those of :class:`ssdml.SSDML`.

    Notes
    -----
    The form of the edges' weights and of σ is the paper's, its Eqs. (2), (7), (8) and Section IV,
    as a reader of it has them; v = 10 and 10 neighbors are that reader's defaults, which we could
    not compare with the paper. The rest is our reconstruction, for its text was not at hand: the
    labeled term, means in the place of sums, the barrier ``-log|M|`` without which nothing bounds
    the objective, the ridge, the window of the density (σ), and the rule for
    ``dissimilar_weight``. Beyond 60,000 rows the density counts neighbors alone, and the largest
    distance is that of two rows far apart, which may be less. The minimum of this
    objective is ``H^-1``; the descent comes near it, and a step of Newton to it. O(n² d) with all
    rows in the density, O(d³) a step.

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

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Baseline._shared_constraints,
        "bandwidth": [Interval(Real, 1, None, closed="left")],
        "density": [StrOptions({"auto", "all", "neighbors"})],
        "similar_weight": NOT_NEGATIVE,
        "dissimilar_weight": [*NOT_NEGATIVE, None],
        "graph_weight": NOT_NEGATIVE,
        "ridge": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_neighbors: int = 10,
        bandwidth: float = 10.0,
        density: str = "auto",
        similar_weight: float = 1.0,
        dissimilar_weight: float | None = None,
        graph_weight: float = 1.0,
        ridge: float = 1e-3,
        max_iter: int = 500,
        tol: float = 1e-6,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.bandwidth = bandwidth
        self.density = density
        self.similar_weight = similar_weight
        self.dissimilar_weight = dissimilar_weight
        self.graph_weight = graph_weight
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, problem: Problem) -> tuple[Floats, dict[str, Any]]:
        sigma = kernel_width(problem.X, problem.graph, self.bandwidth)
        density = self.density
        if density == "auto":
            density = "all" if len(problem.X) <= ALL_ROWS else "neighbors"
        weights = density_weights(problem.X, problem.graph, sigma, density=density)
        H, used = balanced(
            problem.pairs.similar,
            problem.pairs.dissimilar,
            pair_scatter(problem.X, weights) / (weights.sum() / 2),
            weights=(self.similar_weight, self.dissimilar_weight, self.graph_weight),
            ridge=self.ridge,
            who="ISDML",
        )
        found = descend(H, max_iter=self.max_iter, tol=self.tol)
        info = {"dissimilar_weight": used, "sigma": sigma, "values": found.values}
        info |= {"edges": weights, "n_iter": len(found.values) - 1, "converged": found.converged}
        return found.M, info

    def _batch_loss(self, problem: Problem, info: dict[str, Any]) -> BatchLoss:
        from ssdml.baselines.batch_losses import LaplacianLoss

        used = info["dissimilar_weight"]
        return LaplacianLoss(info["edges"], self.similar_weight, used, self.graph_weight)


NEAR = 0.5  # length of the gradient from which a step of Newton goes down


class Descent(NamedTuple):
    """The point reached, and the objective at each on the way."""

    M: Floats
    values: list[float]
    converged: bool


def descend(H: Floats, *, max_iter: int, tol: float) -> Descent:
    """Steepest descent of ``tr(M H) - log|M|`` on the positive definite matrices, by pymanopt.

    The metric of the manifold is the affine-invariant one, in which the gradient at M is
    ``M (H - M^-1) M``. It begins at the multiple of the identity that is best. A line search sees
    nothing below the objective's rounding, 1e-16, whose root is the distance to the minimum; so
    where the descent comes to, a last step is Newton's, ``M - M (H - M^-1) M``, which squares it.

    Parameters
    ----------
    H : array of shape (d, d)
        Positive definite.
    max_iter : int
    tol : float
        Of the gradient's length over d.

    Examples
    --------
    >>> descend(np.diag([1.0, 4.0]), max_iter=100, tol=1e-9).M.round(6)
    array([[1.  , 0.  ],
           [0.  , 0.25]])
    """
    from pymanopt import Problem as OnManifold, function
    from pymanopt.manifolds import SymmetricPositiveDefinite
    from pymanopt.optimizers import SteepestDescent

    d = len(H)
    manifold = SymmetricPositiveDefinite(d)
    problem = OnManifold(
        manifold,
        function.numpy(manifold)(lambda M: barred_trace(M, H)),
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
        return Descent(start, [barred_trace(start, H)], True)
    found = optimizer.run(problem, initial_point=start)
    values = [float(value) for value in found.log["iterations"]["cost"]]
    M = symmetrize(found.point)
    slope = M @ H @ M - M
    if manifold.norm(M, slope) < NEAR:
        M = symmetrize(M - slope)
        values.append(barred_trace(M, H))
    return Descent(M, values, found.iterations < max_iter)


def barred_trace(M: Floats, H: Floats) -> float:
    """``tr(M H) - log|M|``; infinity outside the positive definite matrices.

    Examples
    --------
    >>> barred_trace(np.eye(2), np.diag([1.0, 4.0]))
    5.0
    """
    sign, log_determinant = np.linalg.slogdet(M)
    return float((M * H).sum() - log_determinant) if sign > 0 else float("inf")


def kernel_width(X: Floats, graph: KNNGraph, bandwidth: float) -> float:
    """``D_min + (D_max - D_min) / bandwidth`` of the distances between distinct rows.

    Where all rows are one, 1. O(n² d) for up to 60,000 rows; for more the largest distance is that
    of a row to the farthest from it, which is taken next, some times, O(n d).

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> round(kernel_width(X, knn_graph(X, 1), 10.0), 6)
    1.2
    """
    least = float(graph.distances[:, 0].min())
    if len(X) <= ALL_ROWS:
        largest = float(np.sqrt(max(tile.max() for _, _, tile in _squared_distances(X))))
    else:
        largest = far_apart(X)
    return least + (largest - least) / bandwidth or 1.0


def far_apart(X: Floats, *, n_sweeps: int = 5) -> float:
    """Distance of two rows that are far from each other, if not the farthest.

    Examples
    --------
    >>> far_apart(np.array([[0.0], [1.0], [3.0]]))
    3.0
    """
    row, largest = X.mean(axis=0), 0.0
    for _ in range(n_sweeps):
        distances = np.linalg.norm(X - row, axis=1)
        row, largest = X[distances.argmax()], float(distances.max())
    return largest


def density_weights(
    X: Floats, graph: KNNGraph, sigma: float, *, density: str = "all"
) -> sparse.csr_array:
    """Symmetric weights ``W + W^T`` of the edges, ``W_ij = beta_i exp(-d_ij² / 2 sigma²)``.

    Parameters
    ----------
    X : array of shape (n, d)
    graph : KNNGraph
    sigma : float
    density : {"all", "neighbors"}
        Which rows the Parzen density counts; beta is it over its largest value.

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
    if (weights < FAINT).mean() > 0.5:
        warnings.warn(
            "ISDML: bandwidth must leave most neighbors in sight of each other; with sigma = "
            f"{sigma:.3g} more than half of the weights vanish. Lower it.",
            stacklevel=6,
        )
    directed = directed_csr(graph, weights)
    return sparse.csr_array(directed + directed.T)


def _squared_distances(X: Floats) -> Iterator[tuple[slice, slice, Floats]]:
    """Tiles of those of all rows, each pair of rows once, with the places of their two sides."""
    squares = np.einsum("ij,ij->i", X, X)[:, None]
    ones = np.ones_like(squares)
    # |x|² + |y|² - 2 x y in one product, so that a tile is written once.
    first, second = np.hstack([-2 * X, squares, ones]), np.hstack([X, ones, squares])
    places = [slice(start, start + TILE) for start in range(0, len(X), TILE)]
    for number, left in enumerate(places):
        for right in places[number:]:
            tile = first[left] @ second[right].T
            yield left, right, np.maximum(tile, 0, out=tile)
