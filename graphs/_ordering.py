"""An order of the rows in which neighbours lie together in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ssdml.graphs.coarsening import cluster_basis, coarse_product, nearest_seeds
from ssdml.utils.typing import Array, Ints

CLUSTER_ROWS, MAX_CLUSTERS = 100, 1000  # rows of a cluster; at 10^6, ten times as many still do


def near_order(symmetric: sparse.csr_array) -> Ints:
    """Rows of a symmetric matrix in an order in which rows with an entry in common lie together.

    Rows join clusters, and clusters follow one another as the leaves of their tree: linked by the
    average of what they have in common. Products take a third of the time at 10^6 rows.

    Examples
    --------
    >>> groups = np.arange(600) % 2  # two, and each row knows all of its own
    >>> order = near_order(sparse.csr_array((groups[:, None] == groups).astype(float)))
    >>> int(np.abs(np.diff(groups[order])).sum())
    1
    """
    n = symmetric.shape[0]
    clusters = nearest_seeds(symmetric, min(MAX_CLUSTERS, max(1, n // CLUSTER_ROWS)))
    basis = cluster_basis(clusters, np.ones(n))
    places = leaf_places(coarse_product(symmetric, basis))
    # Rows that no seed reaches, -1, come last.
    order: Ints = np.argsort(np.append(places, len(places))[clusters], kind="stable")
    return order


def leaf_places(common: Array) -> Ints:
    """Place of each cluster among the leaves of the tree, given what each two have in common."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(common) < 2:
        return np.zeros(len(common), dtype=np.intp)
    common = common - np.diag(np.diag(common))
    roots = np.sqrt(common.sum(axis=1))
    roots[roots == 0] = 1
    apart = 1 - common / roots / roots[:, None]
    np.fill_diagonal(apart, 0)
    leaves = leaves_list(linkage(squareform(apart, checks=False), "average"))
    return np.argsort(leaves)


def reordered(matrix: sparse.csr_array, order: Ints) -> sparse.csr_array:
    """Rows and columns in the order given; columns sorted, in the narrowest type that holds them.

    Examples
    --------
    >>> reordered(sparse.csr_array([[0, 5], [7, 0]]), [1, 0]).toarray().tolist()
    [[0, 7], [5, 0]]
    """
    moved = sparse.csr_array(matrix[order][:, order])
    moved.sort_indices()
    dtype = index_type(moved)
    moved.indices, moved.indptr = moved.indices.astype(dtype), moved.indptr.astype(dtype)
    return moved


def index_type(matrix: Any) -> Any:
    """Type of its indices: int32 where that numbers all its columns and entries."""
    return sparse.get_index_dtype(maxval=max(*matrix.shape, matrix.nnz))
