"""An order of the rows in which neighbours lie together in memory."""

from __future__ import annotations

from typing import Any

from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ssdml.graphs._checks import Integers


def near_order(symmetric: sparse.csr_array) -> Integers:
    """Rows of a symmetric pattern in an order in which its entries are near the diagonal.

    Examples
    --------
    >>> path = sparse.csr_array([[0, 0, 1], [0, 0, 1], [1, 1, 0]])  # 0 - 2 - 1
    >>> near_order(path).tolist()
    [1, 2, 0]
    """
    order: Integers = reverse_cuthill_mckee(symmetric, symmetric_mode=True)
    return order


def reordered(matrix: sparse.csr_array, order: Integers) -> sparse.csr_array:
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
