"""Minimize objectives over matrices of orthonormal columns, by pymanopt."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import expit

from ssdml.graphs.triplets import Triplets
from ssdml.utils.linalg import angular_factor, nearest_orthonormal
from ssdml.utils.typing import Floats, Indices

ORTHONORMAL_TOL = 1e-8
Objective = Callable[[Floats], tuple[float, Floats]]


class StiefelResult(NamedTuple):
    """The point found and how the search ended."""

    point: Floats  # (d, l), orthonormal columns
    value: float
    initial_value: float
    n_iter: int
    gradient_norm: float
    converged: bool  # the Riemannian gradient vanished, or no step lowered the value


def minimize_on_stiefel(
    objective: Objective,
    initial: npt.ArrayLike,
    *,
    max_iter: int = 10,
    min_gradient_norm: float = 1e-6,
) -> StiefelResult:
    """Minimize an objective over matrices of orthonormal columns, by conjugate gradients.

    Parameters
    ----------
    objective : callable
        Maps L of shape (d, l) to its value and Euclidean gradient (d, l).
    initial : array of shape (d, l)
        Orthonormal columns, l <= d.
    max_iter : int
    min_gradient_norm : float
        Stop when the norm of the Riemannian gradient falls below this.

    Returns
    -------
    result : StiefelResult
        Its value is at most the initial one.

    Raises
    ------
    ValueError
        If ``initial`` is not orthonormal, or the objective is not finite there.

    Notes
    -----
    Calls are independent, as each makes its own optimizer. Non-finite values count as infinite,
    so the line search steps back from them. Value and gradient come from one evaluation.

    References
    ----------
    .. [1] Townsend, Koep, Weichwald, "Pymanopt: a Python toolbox for optimization on manifolds",
       JMLR 17(137), 2016.
    .. [2] Absil, Mahony, Sepulchre, "Optimization algorithms on matrix manifolds", 2008, §8.3.

    Examples
    --------
    The smallest eigenvalue of a symmetric matrix:

    >>> A = np.diag([3.0, 1.0, 2.0])
    >>> result = minimize_on_stiefel(
    ...     lambda L: (np.trace(L.T @ A @ L), 2 * A @ L), np.full((3, 1), 3**-0.5), max_iter=50)
    >>> round(result.value, 6)
    1.0
    """
    check_docstrings()
    from pymanopt.manifolds import Stiefel

    class Frames(Stiefel):
        def retraction(self, point: Floats, tangent_vector: Floats) -> Floats:
            # As pymanopt's, without np.vectorize, which takes longer than a small factorization.
            Q, R = np.linalg.qr(point + tangent_vector)
            return Q * np.where(np.diagonal(R) < 0, -1.0, 1.0)

    start = _check_start(initial)
    search = Frames(*start.shape), nearest_orthonormal
    return _minimize(objective, start, *search, max_iter, min_gradient_norm)


def minimize_freely(
    objective: Objective,
    initial: npt.ArrayLike,
    *,
    max_iter: int = 10,
    min_gradient_norm: float = 1e-6,
) -> StiefelResult:
    """Minimize an objective over all matrices of a shape, by Euclidean conjugate gradients.

    The search of :func:`minimize_on_stiefel` without its constraint, for comparison.

    Parameters
    ----------
    objective, max_iter, min_gradient_norm
        See :func:`minimize_on_stiefel`.
    initial : array of shape (d, l)

    Examples
    --------
    >>> goal = np.array([[2.0], [0.5]])
    >>> found = minimize_freely(
    ...     lambda L: (((L - goal) ** 2).sum(), 2 * (L - goal)), np.eye(2, 1), max_iter=50)
    >>> np.abs(found.point - goal).max() < 1e-6
    np.True_
    """
    check_docstrings()
    from pymanopt.manifolds import Euclidean

    class Plane(Euclidean):
        def inner_product(self, point: Floats, one: Floats, other: Floats) -> np.float64:
            # Not a float: dividing by a zero gradient must not raise, as on the manifold.
            return np.float64(super().inner_product(point, one, other))

    start = np.array(initial, dtype=np.float64)
    search = Plane(*start.shape), np.asarray
    return _minimize(objective, start, *search, max_iter, min_gradient_norm)


def check_docstrings() -> None:
    """Raise unless Python keeps docstrings: pymanopt extends its own as it is imported."""
    if sys.flags.optimize > 1:
        raise RuntimeError(
            "fit: python must keep docstrings, for pymanopt; got -OO or PYTHONOPTIMIZE=2. Use -O."
        )


@np.errstate(all="ignore")  # overflows are found by their results
def _minimize(
    objective: Objective,
    start: Floats,
    manifold: Any,
    project: Callable[[Floats], Floats],
    max_iter: int,
    min_gradient_norm: float,
) -> StiefelResult:
    """Run conjugate gradients on a manifold; ``project`` removes what rounding adds."""
    from pymanopt import Problem, function
    from pymanopt.optimizers import ConjugateGradient

    cached = _Cached(objective)
    initial_value, gradient = cached(start)
    if not (math.isfinite(initial_value) and np.isfinite(gradient).all()):
        raise ValueError(
            "conjugate gradients: objective must be finite at the initial point; "
            f"got value {initial_value}. Scale X down."
        )
    slope = _gradient_norm(manifold, start, gradient)
    if max_iter < 1 or slope <= min_gradient_norm:
        converged = slope <= min_gradient_norm
        return StiefelResult(start, initial_value, initial_value, 0, slope, converged)

    problem = Problem(
        manifold,
        function.numpy(manifold)(cached.value),
        euclidean_gradient=function.numpy(manifold)(cached.gradient),
    )
    optimizer = ConjugateGradient(
        max_iterations=max_iter,
        min_gradient_norm=min_gradient_norm,
        max_time=math.inf,
        verbosity=0,
    )
    found = optimizer.run(problem, initial_point=start)
    point = project(found.point)
    value, gradient = cached(point)
    cached.release()
    if not value <= initial_value:  # also true of NaN
        return StiefelResult(start, initial_value, initial_value, found.iterations, slope, False)
    slope = _gradient_norm(manifold, point, gradient)
    converged = slope <= min_gradient_norm or found.iterations < max_iter
    return StiefelResult(point, value, initial_value, found.iterations, slope, converged)


class _Cached:
    """Objective that caches its last evaluation, as pymanopt asks for value and gradient apart."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._point: Floats | None = None
        self._result: tuple[float, Floats] = (math.inf, np.empty(0))

    def __call__(self, point: Floats) -> tuple[float, Floats]:
        if self._point is None or not np.array_equal(point, self._point):
            value, gradient = self._objective(point)
            # The line search would take a NaN for a decrease, but not infinity.
            self._result = (float(value) if math.isfinite(value) else math.inf, gradient)
            self._point = point.copy()
        return self._result

    def release(self) -> None:
        """Drop the objective and its rows, because pymanopt's problem is a reference cycle."""
        del self._objective

    def value(self, point: Floats) -> float:
        return self(point)[0]

    def gradient(self, point: Floats) -> Floats:
        return self(point)[1]


def _check_start(initial: npt.ArrayLike) -> Floats:
    start = np.array(initial, dtype=np.float64)
    if start.ndim != 2 or start.shape[0] < start.shape[1]:
        raise ValueError(
            "minimize_on_stiefel: initial must be of shape (d, l) with l <= d; "
            f"got shape {start.shape}."
        )
    deviation = float(np.abs(start.T @ start - np.eye(start.shape[1])).max(initial=0.0))
    if not deviation <= ORTHONORMAL_TOL:
        raise ValueError(
            "minimize_on_stiefel: initial must have orthonormal columns; "
            f"got |LᵀL - I| = {deviation:.1e}. Apply ssdml.utils.linalg.nearest_orthonormal."
        )
    return start


def _gradient_norm(manifold: Any, point: Floats, gradient: Floats) -> float:
    return float(np.linalg.norm(manifold.euclidean_to_riemannian_gradient(point, gradient)))


def angular_objective(
    rows: npt.ArrayLike,
    triplets: Triplets,
    *,
    angle: float = 40.0,
    scale: float = 1.0,
    device: str = "cpu",
) -> Objective:
    r"""Weighted mean of the angular losses of triplets, as a function of L with its gradient.

    .. math:: J(L) = \sum_i w_i \log(1 + e^{m_i}), \quad
        m_i = \delta_L^2(a_i, p_i) - 4 \tan^2\!\alpha \; \delta_L^2(n_i, (a_i + p_i) / 2)

    with :math:`\delta_L(u, v) = |L^\top (u - v)|` and weights that sum to 1.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features)
    triplets : Triplets
        With weights of at least 0, not all 0.
    angle : float
        α in degrees.
    scale : float
        Divisor of the rows.
    device : str
        A GPU computes in double precision and holds two arrays (T, d) of differences.

    Returns
    -------
    objective : callable
        Maps L of shape (n_features, n_components) to J and dJ/dL.

    Notes
    -----
    O(n d l + T l) per call for T triplets on n distinct rows: differences are taken after the
    projection, so no array of T x d is formed. [1]_ has the sum instead of the weighted mean.

    References
    ----------
    .. [1] Dutta, Harandi, Sekhar, "Semi-supervised metric learning: a deep resurrection",
       AAAI 2021, Eq. (3).

    Examples
    --------
    >>> X = np.array([[0.0], [0.0], [1.0]])
    >>> triplet = Triplets(*map(np.array, ([0], [1], [2], [1.0])))
    >>> value, gradient = angular_objective(X, triplet, angle=45.0)(np.eye(1))
    >>> round(value, 6), gradient.round(6)  # m = -4
    (0.01815, array([[-0.14389]]))
    """
    used, ends = np.unique(np.stack(triplets[:3]), return_inverse=True)
    points = np.asarray(rows)[used].astype(np.float64, copy=False)  # indexing copies
    points /= scale
    anchor, positive, negative = ends.reshape(3, -1)
    weights = np.asarray(triplets.weight, dtype=np.float64) / np.sum(triplets.weight)
    factor = angular_factor(angle)
    if not device.startswith(("cpu", "mps")):  # Apple's GPUs have no double precision
        return _device_objective(points, (anchor, positive, negative), weights, factor, device)
    to_positive, to_middle = _incidences(anchor, positive, negative, len(used))
    from_positive, from_middle = to_positive.T, to_middle.T

    def objective(L: Floats) -> tuple[float, Floats]:
        projected = points @ L  # (n, l)
        gaps, middle = to_positive @ projected, to_middle @ projected  # (T, l)
        margins = (gaps**2).sum(axis=1) - factor * (middle**2).sum(axis=1)
        slopes = (weights * expit(margins))[:, None]
        # dJ/dL = 2 Σ w σ(m) [(a-p)(a-p)ᵀ - 4 tan²α (n-c)(n-c)ᵀ] L
        pulls = from_positive @ (slopes * gaps) - factor * (from_middle @ (slopes * middle))
        return float(weights @ np.logaddexp(0, margins)), 2 * (points.T @ pulls)

    return objective


def _device_objective(
    points: Floats, ends: tuple[Indices, ...], weights: Floats, factor: float, device: str
) -> Objective:
    """Compute the same on a GPU by dense products, which add in a fixed order."""
    import torch

    rows = torch.from_numpy(points).to(device)
    anchor, positive, negative = (rows[torch.from_numpy(end).to(device)] for end in ends)
    gaps, middles = anchor - positive, negative - (anchor + positive) / 2  # (T, d)
    shares = torch.from_numpy(weights).to(device)

    def objective(L: Floats) -> tuple[float, Floats]:
        metric = torch.tensor(L, device=device)
        near, far = gaps @ metric, middles @ metric  # (T, l)
        margins = near.square().sum(dim=1) - factor * far.square().sum(dim=1)
        slopes = (shares * margins.sigmoid())[:, None]
        pulls = gaps.T @ (slopes * near) - factor * (middles.T @ (slopes * far))
        value = shares @ torch.logaddexp(margins, torch.zeros_like(margins))
        return float(value), 2 * pulls.cpu().numpy()

    return objective


def _incidences(
    anchor: Indices, positive: Indices, negative: Indices, n: int
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Sparse (T, n) maps from rows to a - p and to n - (a + p) / 2."""
    count = len(anchor)
    ranks = np.arange(count)

    def incidence(*terms: tuple[Indices, float]) -> sparse.csr_array:
        values = np.concatenate([np.full(count, value) for _, value in terms])
        columns = np.concatenate([ends for ends, _ in terms])
        entries = (values, (np.tile(ranks, len(terms)), columns))
        return sparse.csr_array(sparse.coo_array(entries, shape=(count, n)))

    return (
        incidence((anchor, 1.0), (positive, -1.0)),
        incidence((negative, 1.0), (anchor, -0.5), (positive, -0.5)),
    )
