"""The angular triplet objective of an orthonormal metric, with its gradient, as pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import expit

from ssdml.graphs.triplets import Triplets
from ssdml.linalg import Matrix

Objective = Callable[[Matrix], tuple[float, Matrix]]


def angular_factor(angle: float) -> float:
    """``4 tan² angle``, the weight of the negative's distance; ``angle`` in degrees.

    Examples
    --------
    >>> round(angular_factor(45.0), 12)
    4.0
    """
    if not 0 < angle < 90:
        raise ValueError(f"angular_factor: angle must lie between 0 and 90 degrees; got {angle}.")
    return 4 * math.tan(math.radians(angle)) ** 2


def angular_objective(
    rows: npt.ArrayLike,
    triplets: Triplets,
    *,
    angle: float = 40.0,
    scale: float = 1.0,
    device: str = "cpu",
) -> Objective:
    r"""Function of L that gives the weighted mean of the angular losses and its gradient.

    .. math:: J(L) = \sum_i w_i \log(1 + e^{m_i}), \quad
        m_i = \delta_L^2(a_i, p_i) - 4 \tan^2\!\alpha \; \delta_L^2(n_i, (a_i + p_i) / 2)

    with :math:`\delta_L(u, v) = |L^\top (u - v)|` and weights that sum to 1.

    Parameters
    ----------
    rows : array of shape (n_samples, n_features)
    triplets : Triplets
        Rows of anchors, positives and negatives, with weights of at least 0, not all 0.
    angle : float
        α in degrees.
    scale : float
        Rows are divided by it.
    device : str
        Of torch, in double precision; it holds the differences of the rows, two arrays (T, d). On
        the CPU NumPy computes, and forms none.

    Returns
    -------
    objective : callable
        Takes L of shape (n_features, n_components); returns J and dJ/dL of L's shape.

    Notes
    -----
    O(n d l + T l) a call for T triplets on n distinct rows: differences are taken after the
    projection, so no array of T x d is formed. Differs from [1]_ in one way: a weighted mean
    stands for the sum.

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
    points = np.asarray(rows)[used].astype(np.float64, copy=False)  # a copy by its index
    points /= scale
    anchor, positive, negative = ends.reshape(3, -1)
    weights = np.asarray(triplets.weight, dtype=np.float64) / np.sum(triplets.weight)
    factor = angular_factor(angle)
    if not device.startswith(("cpu", "mps")):  # Apple's GPUs know no double precision
        return _device_objective(points, (anchor, positive, negative), weights, factor, device)
    to_positive, to_middle = _incidences(anchor, positive, negative, len(used))

    def objective(L: Matrix) -> tuple[float, Matrix]:
        projected = points @ L  # (n, l)
        gaps, middle = to_positive @ projected, to_middle @ projected  # (T, l)
        margins = (gaps**2).sum(axis=1) - factor * (middle**2).sum(axis=1)
        slopes = (weights * expit(margins))[:, None]
        # dJ/dL = 2 Σ w σ(m) [(a-p)(a-p)ᵀ - 4 tan²α (n-c)(n-c)ᵀ] L
        pulls = to_positive.T @ (slopes * gaps) - factor * (to_middle.T @ (slopes * middle))
        return float(weights @ np.logaddexp(0, margins)), 2 * (points.T @ pulls)

    return objective


def _device_objective(
    points: Matrix,
    ends: tuple[npt.NDArray[np.intp], ...],
    weights: npt.NDArray[np.float64],
    factor: float,
    device: str,
) -> Objective:
    """The same on a device of torch: products of dense matrices, which sum in a fixed order."""
    import torch

    there = torch.from_numpy(points).to(device)
    anchor, positive, negative = (there[torch.from_numpy(rows).to(device)] for rows in ends)
    gaps, middles = anchor - positive, negative - (anchor + positive) / 2  # (T, d)
    share = torch.from_numpy(weights).to(device)

    def objective(L: Matrix) -> tuple[float, Matrix]:
        metric = torch.tensor(L, device=device)
        near, far = gaps @ metric, middles @ metric  # (T, l)
        margins = near.square().sum(dim=1) - factor * far.square().sum(dim=1)
        slopes = (share * margins.sigmoid())[:, None]
        pulls = gaps.T @ (slopes * near) - factor * (middles.T @ (slopes * far))
        value = share @ torch.logaddexp(margins, torch.zeros_like(margins))
        return float(value), 2 * pulls.cpu().numpy()

    return objective


def _incidences(
    anchor: npt.NDArray[np.intp],
    positive: npt.NDArray[np.intp],
    negative: npt.NDArray[np.intp],
    n: int,
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Sparse (T, n) maps from rows to a - p and to n - (a + p) / 2."""
    count = len(anchor)
    ranks = np.arange(count)

    def incidence(*terms: tuple[npt.NDArray[np.intp], float]) -> sparse.csr_array:
        values = np.concatenate([np.full(count, value) for _, value in terms])
        columns = np.concatenate([ends for ends, _ in terms])
        entries = (values, (np.tile(ranks, len(terms)), columns))
        return sparse.csr_array(sparse.coo_array(entries, shape=(count, n)))

    return (
        incidence((anchor, 1.0), (positive, -1.0)),
        incidence((negative, 1.0), (anchor, -0.5), (positive, -0.5)),
    )
