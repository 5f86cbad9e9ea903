"""Scatter within and between classes, whitening and discriminants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.linalg import cholesky
from scipy.linalg.lapack import dtrtri

from ssdml.utils.linalg import fix_signs, float64_blocks, shrink
from ssdml.utils.typing import Array, Floats, Ints


class ClassScatter(NamedTuple):
    """Covariances within and between classes; their sum is the covariance of all rows."""

    mean: Floats  # (d,)
    within: Floats  # (d, d)
    offsets: Floats  # (C, d), of the class means, times the root of the share of their rows

    @property
    def between(self) -> Floats:
        """Covariance between classes, (d, d)."""
        return self.offsets.T @ self.offsets


class ClassMoments(NamedTuple):
    """Sufficient statistics of some rows for the scatter of all; see :func:`pool_moments`."""

    counts: Ints  # (C,), rows per class
    means: Floats  # (C, d)
    within: Floats  # (d, d), sum of squares about the means


def class_means(rows: npt.ArrayLike, classes: npt.ArrayLike, *, n_classes: int = 0) -> Floats:
    """Compute the mean of each class in float64; zeros for a class without rows.

    ``classes`` (n,) are integers from 0; at least ``n_classes`` means are returned.

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
    """Split the covariance of the rows into scatter within and between classes.

    ``classes`` (n,) are integers from 0.

    Notes
    -----
    O(n d²), without a copy of the rows. Rows are not weighted by confidence, which would favor rows
    close to labeled ones and underestimate the scatter within classes.

    Examples
    --------
    >>> class_scatter([[0.0], [2.0], [4.0], [6.0]], [0, 0, 1, 1])
    ClassScatter(mean=array([3.]), within=array([[1.]]), offsets=array([[-1.41421356],
           [ 1.41421356]]))
    """
    X, codes = np.asarray(rows), np.asarray(classes)
    mean = X.mean(axis=0, dtype=np.float64)
    means = class_means(X, codes)  # (C, d)
    offsets = np.sqrt(np.bincount(codes) / len(X))[:, None] * (means - mean)
    # Not total minus between, which rounding could make negative.
    return ClassScatter(mean, _squares_about(means, X, codes) / len(X), offsets)


def _squares_about(means: Floats, X: Array, codes: Array) -> Floats:
    """Sum the outer squares of the rows about the means of their classes, (d, d)."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for place, block in float64_blocks(X):
        residuals = block - means[codes[place]]
        total += residuals.T @ residuals
    return total


def class_moments(rows: npt.ArrayLike, classes: npt.ArrayLike, n_classes: int) -> ClassMoments:
    """Compute counts, means and squares of the classes; there may be no rows.

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
    r"""Combine the moments of disjoint parts of the rows, in any grouping.

    .. math:: S = \sum_p S_p + \sum_{pc} n_{pc} (m_{pc} - m_c)(m_{pc} - m_c)^\top

    with the squares :math:`S_p` about the means :math:`m_{pc}` of part p, without cancellation.

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
    """Compute the :func:`class_scatter` of all rows from their moments, up to rounding.

    Examples
    --------
    >>> pooled_scatter(class_moments([[0.0], [2.0], [4.0], [6.0]], [0, 0, 1, 1], 2))
    ClassScatter(mean=array([3.]), within=array([[1.]]), offsets=array([[-1.41421356],
           [ 1.41421356]]))
    """
    counts, means, within = moments
    n = counts.sum()
    mean = counts @ means / n
    return ClassScatter(mean, within / n, np.sqrt(counts / n)[:, None] * (means - mean))


def whitening(
    scatter: ClassScatter, *, shrinkage: float = 0.1, n_features: int | None = None
) -> Floats:
    """Compute a map T (d, d) that whitens the (shrunk) scatter within classes: ``T.T @ S @ T = I``.

    ``n_features`` is the number of columns of the rows if the scatter is that of coordinates in
    their span.

    T is triangular, from the Cholesky factor: for many columns a tenth of the time of a symmetric
    one, from which it differs by a rotation.

    Examples
    --------
    >>> whitening(ClassScatter(np.zeros(1), np.array([[4.0]]), np.eye(1)))
    array([[0.5]])
    """
    inverse: Floats
    inverse, _ = dtrtri(cholesky(shrink(scatter.within, shrinkage, n_features)))
    return inverse


def discriminants(scatter: ClassScatter, transform: Floats, count: int) -> Floats:
    """Compute orthonormal directions, after ``transform``, in which the class means differ most.

    Fisher's discriminants if ``transform`` whitens the scatter within classes; at most as many as
    classes.

    Examples
    --------
    >>> offsets = np.array([[0.0, 1.0], [0.0, -1.0]])
    >>> discriminants(ClassScatter(np.zeros(2), np.eye(2), offsets), np.eye(2), 1)
    array([[0.],
           [1.]])
    """
    directions = np.linalg.svd(scatter.offsets @ transform, full_matrices=False)[2]
    return fix_signs(directions[:count].T)
