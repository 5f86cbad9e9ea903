"""Scatter within and between classes, and the linear map that whitens the former."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ssdml.linalg import (
    Matrix,
    float64_blocks,
    inverse_sqrt,
    nearest_orthonormal,
    shrink,
    top_eigenvectors,
)


class ClassScatter(NamedTuple):
    """Covariances within and between classes; they add up to that of all rows."""

    mean: npt.NDArray[np.float64]  # (d,)
    within: Matrix  # (d, d)
    between: Matrix


def class_means(rows: npt.ArrayLike, classes: npt.ArrayLike) -> Matrix:
    """Mean of the rows of each class, in float64; zeros for a class without rows.

    Parameters
    ----------
    rows : array of shape (n, d)
    classes : array of shape (n,), int
        Class of each row, from 0.

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
    counts = np.bincount(codes)
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
    confidence favour the rows beside a labelled one, and the scatter within classes comes out too
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
    within = np.zeros_like(between)
    for place, block in float64_blocks(X):
        residuals = block - means[codes[place]]
        within += residuals.T @ residuals
    return ClassScatter(mean, within / len(X), between)


def whitening(scatter: ClassScatter, *, shrinkage: float = 0.1) -> Matrix:
    """Symmetric map T under which the (shrunk) scatter within classes is the identity.

    Examples
    --------
    >>> whitening(ClassScatter(np.zeros(1), np.array([[4.0]]), np.eye(1)))
    array([[0.5]])
    """
    return inverse_sqrt(shrink(scatter.within, shrinkage))


def discriminants(scatter: ClassScatter, transform: Matrix, count: int) -> Matrix:
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
