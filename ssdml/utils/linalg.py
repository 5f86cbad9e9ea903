"""Dense linear algebra, in float64: small matrices, and sums over the rows of tall ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.utils.typing import Array, Floats

BLOCK_ENTRIES = 2**20  # of a tall matrix, that are in float64 at once: 8 MB


def symmetrize(matrix: npt.ArrayLike) -> Floats:
    """Mean of a square matrix and its transpose.

    Examples
    --------
    >>> symmetrize([[0.0, 2.0], [0.0, 0.0]])
    array([[0., 1.],
           [1., 0.]])
    """
    square = np.asarray(matrix, dtype=np.float64)
    return (square + square.T) / 2


def shrink(scatter: npt.ArrayLike, shrinkage: float) -> Floats:
    """Scatter drawn toward the multiple of the identity that has its trace.

    A matrix of zeros is drawn toward the identity, so that the result is positive definite
    whenever ``shrinkage > 0`` and ``scatter`` is positive semidefinite.

    Examples
    --------
    >>> shrink([[4.0, 0.0], [0.0, 0.0]], 0.5)
    array([[3., 0.],
           [0., 1.]])
    """
    symmetric = symmetrize(scatter)
    level = np.trace(symmetric) / len(symmetric) or 1.0
    return (1 - shrinkage) * symmetric + shrinkage * level * np.eye(len(symmetric))


def inverse_sqrt(matrix: npt.ArrayLike) -> Floats:
    """Symmetric S with ``S @ matrix @ S`` the identity; ``matrix`` is positive definite.

    Eigenvalues below the largest one's rounding error are lifted to it. O(d³).

    Examples
    --------
    >>> inverse_sqrt([[4.0, 0.0], [0.0, 1.0]])
    array([[0.5, 0. ],
           [0. , 1. ]])
    """
    values, vectors = np.linalg.eigh(symmetrize(matrix))
    floor = max(values[-1], np.finfo(float).tiny) * len(values) * np.finfo(float).eps
    scaled: Floats = vectors / np.sqrt(np.maximum(values, floor))
    return scaled @ vectors.T


def top_eigenvectors(matrix: npt.ArrayLike, count: int) -> Floats:
    """Orthonormal columns for the ``count`` largest eigenvalues, largest first.

    Signs are fixed: the entry of largest magnitude in each column is positive.

    Examples
    --------
    >>> top_eigenvectors([[1.0, 0.0], [0.0, 2.0]], 1)
    array([[0.],
           [1.]])
    """
    return with_signs(np.linalg.eigh(symmetrize(matrix))[1][:, ::-1][:, :count])


def with_signs(vectors: Floats) -> Floats:
    """Columns, each with the sign that makes its entry of largest magnitude positive.

    Examples
    --------
    >>> with_signs(np.array([[0.0, 1.0], [-2.0, 0.5]]))
    array([[0. , 1. ],
           [2. , 0.5]])
    """
    peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    fixed: Floats = vectors * np.sign(peaks) + 0.0  # + 0.0 turns -0 into 0
    return fixed


def nearest_orthonormal(matrix: npt.ArrayLike) -> Floats:
    """Polar factor: the matrix of orthonormal columns nearest to ``matrix`` (d, l), l <= d.

    Examples
    --------
    >>> nearest_orthonormal([[2.0], [0.0]])
    array([[1.],
           [0.]])
    """
    left, _, right = np.linalg.svd(np.asarray(matrix, dtype=np.float64), full_matrices=False)
    polar: Floats = left @ right
    return polar


def unit_rows(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows divided by their Euclidean length; a row of zeros stays zero.

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def float64_blocks(rows: npt.NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
    """Rows in float64, some at a time, each time with their place: no copy of them all is made.

    Examples
    --------
    >>> rows = np.ones((3, BLOCK_ENTRIES // 2), dtype=np.float32)
    >>> [(place.start, block.shape[0], block.dtype.name) for place, block in float64_blocks(rows)]
    [(0, 2, 'float64'), (2, 1, 'float64')]
    """
    step = max(1, BLOCK_ENTRIES // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        place = slice(start, start + step)
        yield place, np.asarray(rows[place], dtype=np.float64)


def covariance(rows: npt.NDArray[Any]) -> Floats:
    """Covariance of the rows (n, d), with n - 1 for their number: (d, d). O(n d²).

    Examples
    --------
    >>> covariance(np.array([[0.0, 1.0], [2.0, 1.0]], dtype=np.float32))
    array([[2., 0.],
           [0., 0.]])
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for _, block in float64_blocks(rows):
        centered = block - mean
        total += centered.T @ centered
    return total / max(len(rows) - 1, 1)


def in_range(rows: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], int]:
    """Rows over a power of two, exactly, so that no square overflows or vanishes; its exponent.

    Examples
    --------
    >>> in_range(np.array([[3e200, -6e200]]))
    (array([[ 0.48990757, -0.97981513]]), 667)
    """
    exponent = int(np.frexp(np.abs(rows).max())[1])
    return np.asarray(np.ldexp(rows, -exponent)), exponent


def total_variance(rows: npt.NDArray[Any]) -> float:
    """Mean squared distance of the rows (n, d) to their mean.

    Examples
    --------
    >>> total_variance(np.array([[0.0, 1.0], [2.0, 1.0]]))
    1.0
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    total = 0.0
    for _, block in float64_blocks(rows):
        offsets = block - mean
        offsets *= offsets
        total += float(offsets.sum())
    return total / len(rows)


def check_spread(X: npt.NDArray[Any], who: str) -> None:
    """Raise where the variance of the rows, or a sum over their features, overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        spread = total_variance(X)
    if not np.isfinite(spread * X.shape[1]):
        raise ValueError(f"{who}: X must have a finite variance; it overflows. Scale X down.")


def product(rows: npt.NDArray[Any], matrix: Floats) -> Floats:
    """``rows @ matrix`` in float64, for rows (n, d) of any precision.

    Examples
    --------
    >>> product(np.array([[1, 2], [3, 4]], dtype=np.float32), np.array([[1.0], [1.0]]))
    array([[3.],
           [7.]])
    """
    result = np.empty((len(rows), matrix.shape[1]))
    for place, block in float64_blocks(rows):
        np.matmul(block, matrix, out=result[place])
    return result


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


# Linear maps that keep the distances between rows as well as so many columns can.

GRAPH_VARIANCE = 0.95  # share of the variance that the neighbors are searched in


def graph_rows(X: Array) -> Array:
    """Principal components that hold 95 % of the variance: the rest slows the search down.

    Rows of at most 32 features are returned as they are.
    """
    if X.shape[1] <= 32:
        return X
    spread = covariance(X)
    if not np.trace(spread) > 0:
        return X
    axes = leading_axes(spread)
    components: Array = (X - X.mean(axis=0)) @ axes.astype(X.dtype)
    return components


def leading_axes(spread: Floats) -> Floats:
    """Eigenvectors of a covariance (d, d) that hold 95 % of the variance; one if there is none.

    Examples
    --------
    >>> leading_axes(np.diag([10.0, 0.1, 0.0]))
    array([[1.],
           [0.],
           [0.]])
    """
    ascending, vectors = np.linalg.eigh(symmetrize(spread))
    values, count = ascending[::-1], 1
    if values[0] > 0:
        count += int(np.searchsorted(np.cumsum(values) / values.sum(), GRAPH_VARIANCE))
    return with_signs(vectors[:, ::-1][:, :count])


def best_factor(blocks: Floats, covariance: Floats, n_components: int) -> Floats:
    """Best ``n_components`` columns of the rows ``x @ blocks.T``, for x of this covariance.

    Distances are kept as well as a linear map of them can, in the mean of squares; exactly, if
    ``n_components`` is the rank of ``blocks``.

    Parameters
    ----------
    blocks : array of shape (m, d)
    covariance : array of shape (d, d)
    n_components : int

    Returns
    -------
    components : ndarray of shape (n_components, d)

    Examples
    --------
    >>> best_factor(np.diag([3.0, 1.0]), np.eye(2), 1)
    array([[3., 0.]])
    """
    # A little of the identity keeps directions in which the rows happen not to vary.
    level = np.trace(covariance) / len(covariance) or 1.0
    spread = blocks @ (covariance + 1e-9 * level * np.eye(len(covariance))) @ blocks.T
    components: Floats = top_eigenvectors(spread, n_components).T @ blocks
    return components


def random_orthonormal(d: int, n_components: int, rng: np.random.Generator) -> Floats:
    """Random matrix of shape (d, n_components) with orthonormal columns, uniform on the manifold.

    Examples
    --------
    >>> L = random_orthonormal(3, 2, np.random.default_rng(0))
    >>> bool(np.allclose(L.T @ L, np.eye(2)))
    True
    """
    return nearest_orthonormal(rng.standard_normal((d, n_components)))
