"""Linear maps that keep the distances between rows as well as so many columns can."""

from __future__ import annotations

import numpy as np

from ssdml.linalg import covariance, symmetrize, top_eigenvectors, with_signs
from ssdml.utils.typing import Array, Floats

GRAPH_VARIANCE = 0.95  # share of the variance that the neighbours are searched in


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
