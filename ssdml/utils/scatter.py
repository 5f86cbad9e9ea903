"""Scatter within and between classes, and the linear map that whitens the former."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ssdml.utils.linalg import (
    float64_blocks,
    inverse_sqrt,
    nearest_orthonormal,
    shrink,
    top_eigenvectors,
)
from ssdml.utils.typing import Floats


class ClassScatter(NamedTuple):
    """Covariances within and between classes; they add up to that of all rows."""

    mean: npt.NDArray[np.float64]  # (d,)
    within: Floats  # (d, d)
    between: Floats


class ClassMoments(NamedTuple):
    """What the rows of one place tell of the scatter of all; see :func:`pool_moments`."""

    counts: npt.NDArray[np.int64]  # (C,), rows of each class
    means: Floats  # (C, d)
    within: Floats  # (d, d), sum of the squares about the means


def class_means(rows: npt.ArrayLike, classes: npt.ArrayLike, *, n_classes: int = 0) -> Floats:
    """Mean of the rows of each class, in float64; zeros for a class without rows.

    Parameters
    ----------
    rows : array of shape (n, d)
    classes : array of shape (n,), int
        Class of each row, from 0.
    n_classes : int
        At least so many means are returned.

    Returns
    -------
    means : ndarray of shape (n_classes, d)

    Examples
    --------
    >>> class_means([[0.0], [2.0], [5.0]], [0, 0, 2])
    array([[1.],
           [0.],
           [5.]])
    """
    X, codes = np.asarray(rows), np.asarray(classes)
    counts = np.bincount(codes, minlength=n_classes)
    sums = np.zeros((len(counts), X.shape[1]))
    for place, block in float64_blocks(X):
        entries = (np.ones(len(block)), codes[place], np.arange(len(block) + 1))
        one_hot = sparse.csr_array(entries, shape=(len(block), len(counts)))
        sums += one_hot.T @ block
    return sums / np.maximum(counts, 1)[:, None]


def class_scatter(rows: npt.ArrayLike, classes: npt.ArrayLike) -> ClassScatter:
    """Mean of the rows, and their covariance split into within and between classes.

    Parameters
    ----------
    rows : array of shape (n, d)
    classes : array of shape (n,), int
        Class of each row, from 0.

    Returns
    -------
    scatter : ClassScatter

    Notes
    -----
    O(n d²), without a copy of the rows. Each row counts once, however sure its class: weights by
    confidence favor the rows beside a labeled one, and the scatter within classes comes out too
    small.

    Examples
    --------
    >>> class_scatter([[0.0], [2.0], [4.0], [6.0]], [0, 0, 1, 1])
    ClassScatter(mean=array([3.]), within=array([[1.]]), between=array([[4.]]))
    """
    X, codes = np.asarray(rows), np.asarray(classes)
    mean = X.mean(axis=0, dtype=np.float64)
    means = class_means(X, codes)  # (C, d)
    offsets = means - mean
    between = (offsets.T * np.bincount(codes)) @ offsets / len(X)
    # Not as the difference of total and between: its rounding could make it negative.
    return ClassScatter(mean, _squares_about(means, X, codes) / len(X), between)


def _squares_about(
    means: Floats, X: npt.NDArray[Any], codes: npt.NDArray[np.integer[Any]]
) -> Floats:
    """Sum of the outer squares of the rows less the means of their classes, (d, d)."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for place, block in float64_blocks(X):
        residuals = block - means[codes[place]]
        total += residuals.T @ residuals
    return total


def class_moments(rows: npt.ArrayLike, classes: npt.ArrayLike, n_classes: int) -> ClassMoments:
    """Number, means and inner squares of the classes, from which scatters are pooled.

    Parameters
    ----------
    rows : array of shape (n, d)
        There may be none.
    classes : array of shape (n,), int
        Class of each row, from 0.
    n_classes : int

    Returns
    -------
    moments : ClassMoments

    Examples
    --------
    >>> class_moments([[0.0], [2.0]], [1, 1], 2).means
    array([[0.],
           [1.]])
    """
    X, codes = np.asarray(rows), np.asarray(classes)
    means = class_means(X, codes, n_classes=n_classes)
    counts = np.bincount(codes, minlength=n_classes)
    return ClassMoments(counts, means, _squares_about(means, X, codes))


def pool_moments(parts: Sequence[ClassMoments]) -> ClassMoments:
    r"""Moments of all rows from those of disjoint parts of them, in any grouping.

    .. math:: S = \sum_p S_p + \sum_{pc} n_{pc} (m_{pc} - m_c)(m_{pc} - m_c)^\top

    are the squares about the means :math:`m_c` of all rows, from the squares :math:`S_p` about the
    means :math:`m_{pc}` of each part: no large numbers are subtracted.

    References
    ----------
    .. [1] Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
       variances", 1979, Eq. (2.1), for two parts of one class in one dimension.

    Examples
    --------
    >>> parts = [class_moments([[x]], [0], 1) for x in (0.0, 2.0, 4.0)]
    >>> pool_moments([pool_moments(parts[:2]), parts[2]])
    ClassMoments(counts=array([3]), means=array([[2.]]), within=array([[8.]]))
    """
    counts = np.sum([part.counts for part in parts], axis=0)
    sums = np.sum([part.counts[:, None] * part.means for part in parts], axis=0)
    means = sums / np.maximum(counts, 1)[:, None]
    within = np.sum([part.within for part in parts], axis=0)
    for part in parts:
        offsets = part.means - means
        within += (offsets.T * part.counts) @ offsets
    return ClassMoments(counts, means, within)


def pooled_scatter(moments: ClassMoments) -> ClassScatter:
    """What :func:`class_scatter` gives for the rows of these moments, but for rounding.

    Examples
    --------
    >>> pooled_scatter(class_moments([[0.0], [2.0], [4.0], [6.0]], [0, 0, 1, 1], 2))
    ClassScatter(mean=array([3.]), within=array([[1.]]), between=array([[4.]]))
    """
    counts, means, within = moments
    n = counts.sum()
    mean = counts @ means / n
    offsets = means - mean
    return ClassScatter(mean, within / n, (offsets.T * counts) @ offsets / n)


def whitening(scatter: ClassScatter, *, shrinkage: float = 0.1) -> Floats:
    """Symmetric map T under which the (shrunk) scatter within classes is the identity.

    Examples
    --------
    >>> whitening(ClassScatter(np.zeros(1), np.array([[4.0]]), np.eye(1)))
    array([[0.5]])
    """
    return inverse_sqrt(shrink(scatter.within, shrinkage))


def discriminants(scatter: ClassScatter, transform: Floats, count: int) -> Floats:
    """Orthonormal directions, after ``transform``, in which the classes' means differ most.

    The discriminants of Fisher and Rao if ``transform`` whitens the scatter within classes.

    Examples
    --------
    >>> scatter = ClassScatter(np.zeros(2), np.eye(2), np.diag([0.0, 3.0]))
    >>> discriminants(scatter, np.eye(2), 1)
    array([[0.],
           [1.]])
    """
    spread = transform @ scatter.between @ transform
    return nearest_orthonormal(top_eigenvectors(spread, count))
