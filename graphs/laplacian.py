"""Adjacency matrices, Laplacians, and scatter of weighted pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from ssdml.graphs._validation import (
    check_invertible,
    check_not_negative,
    check_weights,
    weights_of,
)
from ssdml.utils.typing import Array
from ssdml.utils.validation import check_rows, choose

if TYPE_CHECKING:
    from ssdml.graphs.neighbors.knn import KNNGraph

SCALE_FLOOR = 0.1  # share of the median scale: a row with k duplicates keeps its other neighbors
WEIGHT_FLOOR = 1e-10  # keeps an outlier within reach of labels


def adjacency(graph: KNNGraph, *, weights: str = "heat") -> sparse.csr_array:
    r"""Compute symmetric weights on the edges of the graph and their reverses.

    .. math:: w_{ij} = \exp(-d_{ij}^2 / (s_i s_j)) \quad\text{or}\quad \max(\cos_{ij}, 0)^3
        \quad\text{or}\quad 1

    Parameters
    ----------
    graph : KNNGraph
    weights : {"heat", "cosine", "uniform"}
        "heat" tunes itself: s_i is the distance from row i to its k-th neighbor. "cosine" needs
        a graph of cosine distances.

    Returns
    -------
    adjacency : csr_array of shape (n, n)
        Zero diagonal, no stored zeros; duplicates have weight 1.

    Notes
    -----
    In a graph of cosine distances, d_ij of "heat" is the length ``|u_i - u_j|`` between unit rows.
    Two floors are ours: s_i is at least a tenth of the median of the positive ones (otherwise a
    row with k duplicates would lose its other neighbors), and a weight at least 1e-10 (otherwise
    an outlier's would underflow).

    References
    ----------
    .. [1] Zelnik-Manor, Perona, "Self-tuning spectral clustering", NeurIPS 2004, Eq. (1).

    Examples
    --------
    >>> from ssdml.graphs import knn_graph
    >>> adjacency(knn_graph([[0.0], [1.0], [3.0]], 1), weights="uniform").toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    from ssdml.graphs.neighbors.knn import check_graph, directed_csr

    check_graph(graph, "adjacency")
    directed = directed_csr(graph, choose(WEIGHTS, weights, "adjacency: weights")(graph))
    symmetric = sparse.csr_array(directed.maximum(directed.T))
    symmetric.eliminate_zeros()
    return symmetric


def symmetric_weights(graph: Any, who: str) -> sparse.csr_array:
    """Return the weights of a KNNGraph, or check those of a symmetric sparse array."""
    from ssdml.graphs.neighbors.knn import KNNGraph

    if isinstance(graph, KNNGraph):
        return adjacency(graph, weights="cosine" if graph.metric == "cosine" else "heat")
    if not sparse.issparse(graph):
        raise TypeError(
            f"{who}: graph must be a KNNGraph or a sparse array of weights; "
            f"got {type(graph).__name__}. Build a graph by knn_graph(X, n_neighbors), or pass "
            f"{weights_of(graph, 'graph') or 'scipy.sparse.csr_array(weights)'}."
        )
    weights = check_weights(graph, who, "graph")
    check_not_negative(weights, who, "graph")
    with np.errstate(over="ignore"):  # reported by the check
        check_invertible(_degrees(weights), who, "graph")
    return weights


def _heat(graph: KNNGraph) -> Array:
    lengths = graph.distances.astype(np.float64)
    if graph.metric == "cosine":
        lengths = np.sqrt(2 * lengths)  # |u - v|² = 2 (1 - cos) for unit rows
    scales = heat_scales(lengths[:, -1])
    return heat(lengths, scales, scales[graph.indices])


def heat_scales(farthest: Array) -> Array:
    """Scales of "heat" weights, from the distance of each row to its k-th neighbor, (n,)."""
    positive = farthest[farthest > 0]
    if not positive.size:
        return np.ones_like(farthest)
    return np.maximum(farthest, SCALE_FLOOR * np.median(positive))


@np.errstate(under="ignore")  # weights of long edges are 0, whatever the caller has set
def heat(lengths: Array, own: Array, others: Array) -> Array:
    """Weights of edges of given lengths (n, k), from the scales of their ends, (n,) and (n, k)."""
    weights: Array = np.exp(-(lengths / own[:, None]) * (lengths / others))
    return np.maximum(weights, WEIGHT_FLOOR)


@np.errstate(under="ignore")
def neighbor_weights(distances: Array, sharpness: float = 1.0) -> Array:
    r"""Compute the weights :math:`e^{-s d_{ij}^2 / d_{ik}^2}` of the k neighbors of each row.

    Examples
    --------
    >>> neighbor_weights(np.array([[0.0, 1.0, 2.0]]), 4.0).round(3)
    array([[1.   , 0.368, 0.018]])
    """
    farthest = np.maximum(distances[:, -1:], np.finfo(distances.dtype).tiny)
    return np.exp(-sharpness * (distances / farthest) ** 2)


def _cosine(graph: KNNGraph) -> Array:
    if graph.metric != "cosine":
        raise ValueError(
            f"adjacency: weights='cosine' must come with a graph of metric 'cosine'; got "
            f"{graph.metric!r}. Build it with knn_graph(X, n_neighbors, metric='cosine')."
        )
    return np.maximum(1 - graph.distances.astype(np.float64), 0) ** 3


def _uniform(graph: KNNGraph) -> Array:
    return np.ones(graph.distances.shape)


WEIGHTS = {"heat": _heat, "cosine": _cosine, "uniform": _uniform}


def laplacian(adjacency: Any, *, normalization: str | None = None) -> sparse.csr_array:
    r"""Compute the Laplacian ``D - W`` of a symmetric adjacency, or a normalized form of it.

    .. math:: D - W, \qquad D^{-1/2} (D - W) D^{-1/2}, \qquad D^{-1} (D - W)

    Parameters
    ----------
    adjacency : sparse array or ndarray of shape (n, n)
        Symmetric. The diagonal cancels in D - W but counts in D. Weights may be negative, but the
        normalized forms need positive row sums.
    normalization : {None, "symmetric", "random_walk"}

    Returns
    -------
    laplacian : csr_array of shape (n, n)
        Rows without edges are zero in all three forms.

    Examples
    --------
    >>> laplacian(sparse.csr_array([[0.0, 2.0], [2.0, 0.0]])).toarray()
    array([[ 2., -2.],
           [-2.,  2.]])
    """
    if normalization is not None:
        choose(NORMALIZATIONS, normalization, "laplacian: normalization")
    weights = check_weights(adjacency, "laplacian", "adjacency")
    degrees = _degrees(weights)
    difference = sparse.csr_array(sparse.diags_array(degrees) - weights)
    if normalization is None:
        return difference
    check_invertible(degrees, "laplacian", "adjacency")
    cancelled = (degrees < 0) | ((degrees == 0) & (abs(weights).sum(axis=1) > 0))
    if cancelled.any():
        row = cancelled.argmax()
        raise ValueError(
            "laplacian: normalization must be None if the weights of a row sum to 0 or less; "
            f"row {row} sums to {degrees[row]:.3g}."
        )
    left, right = NORMALIZATIONS[normalization]
    inverse = _inverse(degrees)
    return sparse.csr_array(
        sparse.diags_array(inverse**left) @ difference @ sparse.diags_array(inverse**right)
    )


NORMALIZATIONS = {"symmetric": (0.5, 0.5), "random_walk": (1.0, 0.0)}  # powers of 1/D


def symmetric_normalized(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Compute ``D^-1/2 W D^-1/2``; rows without edges stay zero."""
    roots = np.sqrt(_inverse(_degrees(adjacency)))
    rows = np.repeat(np.arange(len(roots)), np.diff(adjacency.indptr))
    # One product for both ends: the result is symmetric to the last bit.
    data = adjacency.data * (roots[rows] * roots[adjacency.indices])
    return sparse.csr_array((data, adjacency.indices, adjacency.indptr), shape=adjacency.shape)


def row_normalized(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Compute ``D^-1 W``; rows without edges stay zero."""
    data = adjacency.data * np.repeat(_inverse(_degrees(adjacency)), np.diff(adjacency.indptr))
    return sparse.csr_array((data, adjacency.indices, adjacency.indptr), shape=adjacency.shape)


def _inverse(degrees: Array) -> Array:
    """Compute reciprocals, and 0 for rows without edges."""
    return np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)


def pair_scatter(embeddings: Any, weights: Any) -> Array:
    r"""Sum the outer products of all pairwise differences, weighted.

    .. math:: \sum_{i<j} w_{ij} (z_i - z_j)(z_i - z_j)^\top
        = Z^\top (\operatorname{diag}(W 1) - W) Z

    Parameters
    ----------
    embeddings : array of shape (n, d)
    weights : sparse array or ndarray of shape (n, n)
        Symmetric; the diagonal cancels. May be negative.

    Returns
    -------
    scatter : ndarray of shape (d, d), float64
        Symmetric; positive semidefinite if no weight is negative.

    Notes
    -----
    O(nnz · d + n · d²) time. Rows are centered first, against rounding.

    Examples
    --------
    >>> W = sparse.csr_array([[0.0, 2.0], [2.0, 0.0]])
    >>> pair_scatter(np.array([[0.0, 0.0], [1.0, 3.0]]), W)
    array([[ 2.,  6.],
           [ 6., 18.]])
    """
    rows = check_rows(embeddings, "pair_scatter", "embeddings").astype(np.float64)
    matrix = check_weights(weights, "pair_scatter", "weights")
    if matrix.shape[0] != len(rows):
        raise ValueError(
            f"pair_scatter: weights must have shape {(len(rows), len(rows))}, as many rows as "
            f"embeddings; got {matrix.shape}."
        )
    return unchecked_scatter(rows, matrix)


def unchecked_scatter(rows: Array, weights: sparse.csr_array) -> Array:
    """Compute :func:`pair_scatter` of float64 rows and canonical symmetric weights.

    For loops: the check of the weights takes longer than the sum.
    """
    rows = rows - rows.mean(axis=0)
    scatter: Array = rows.T @ (_degrees(weights)[:, None] * rows - weights @ rows)
    return (scatter + scatter.T) / 2


def _degrees(weights: sparse.csr_array) -> Array:
    return np.asarray(weights.sum(axis=1), dtype=np.float64).ravel()
