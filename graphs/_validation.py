"""Checks of neighbors and weights that come from outside.

Compiled code trusts row numbers: one out of range would read foreign memory. Dtypes are widened and
duplicate entries of a matrix are summed, in a copy; nothing else is repaired.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import as_array, check_count, working_dtype

ASYMMETRY = 1e-6  # relative to the largest weight: more than float32 rounding leaves
WEIGHTS_OF = {  # a graph of another kind, by a method: what to pass
    "to_csr": "ssdml.graphs.adjacency({})",
    "adjacency": "networkx.to_scipy_sparse_array({})",
}


def check_n_neighbors(n_neighbors: Any, most: int, bound: str, who: str) -> int:
    """Check for an integer from 1 to ``most``; ``bound`` names the origin of the limit."""
    check_count(n_neighbors, "n_neighbors", who)
    if n_neighbors > most:
        raise ValueError(f"{who}: n_neighbors must be at most {bound} = {most}; got {n_neighbors}.")
    return int(n_neighbors)


def check_ranking(indices: Any, distances: Any, who: str) -> tuple[Ints, Array]:
    """Return neighbors as int64 and distances as floats, if they are a neighbor graph.

    O(n k log k) time, in blocks of rows.
    """
    indices, distances = as_array(indices, who, "indices"), as_array(distances, who, "distances")
    check_numbers(indices, distances, who)
    if indices.ndim != 2 or 0 in indices.shape or distances.shape != indices.shape:
        raise ValueError(
            f"{who}: indices and distances must share one shape (n_samples, n_neighbors), at "
            f"least 1 of either; got {indices.shape} and {distances.shape}."
        )
    numbers = indices.astype(np.int64, copy=False)
    lengths = distances.astype(working_dtype(distances.dtype), copy=False)
    for block in row_blocks(len(numbers), BLOCK_ROWS):
        rows = np.repeat(np.arange(len(numbers))[block], numbers.shape[1])
        check_edges(rows, numbers[block].ravel(), lengths[block].ravel(), len(numbers), who)
        falling = lengths[block, 1:] < lengths[block, :-1]
        if falling.any():
            row, column = np.argwhere(falling)[0]
            row += block.start
            raise ValueError(
                f"{who}: distances must not fall along a row; got {lengths[row, column + 1]} after "
                f"{lengths[row, column]} in row {row}. knn_graph((indices, distances), "
                "n_neighbors, method='precomputed') sorts them."
            )
    return numbers, lengths


def check_numbers(indices: npt.NDArray[Any], distances: npt.NDArray[Any], who: str) -> None:
    """Raise unless indices are integers and distances real numbers."""
    if indices.dtype.kind not in "iu":
        raise TypeError(
            f"{who}: indices must be integers; got dtype {indices.dtype}. Pass (indices, "
            "distances) in this order."
        )
    if distances.dtype.kind not in "iuf":
        raise TypeError(f"{who}: distances must be real numbers; got dtype {distances.dtype}.")


def check_edges(rows: Ints, columns: Ints, distances: Array, n: int, who: str) -> None:
    """Raise unless edges lead to other rows from 0 to n - 1, once each, at possible distances."""
    outside = (columns < 0) | (columns >= n)
    if outside.any():
        first = outside.argmax()
        raise ValueError(
            f"{who}: indices must be rows from 0 to n - 1 = {n - 1}; got {columns[first]} in row "
            f"{rows[first]}. Number rows from 0; knn_graph(method='precomputed') reads -1 as a "
            "missing neighbor."
        )
    if (rows == columns).any():
        raise ValueError(
            f"{who}: indices must not name the row itself; got {rows[(rows == columns).argmax()]} "
            "in this row. knn_graph(method='precomputed') leaves it out."
        )
    wrong = ~(np.isfinite(distances) & (distances >= 0))
    if wrong.any():
        first = wrong.argmax()
        raise ValueError(
            f"{who}: distances must be finite and at least 0; got {distances[first]} from row "
            f"{rows[first]} to row {columns[first]}. Drop missing neighbors, scale down rows whose "
            "distances overflow, or use np.maximum(distances, 0) against rounding."
        )
    keys = np.sort(rows * n + columns)
    twice = keys[1:] == keys[:-1]
    if twice.any():
        row, column = divmod(int(keys[twice.argmax()]), n)
        raise ValueError(
            f"{who}: indices must name each neighbor of a row once; got {column} twice in row "
            f"{row}. Keep the nearer of the two."
        )


def check_weights(matrix: Any, who: str, name: str) -> sparse.csr_array:
    """Return symmetric finite weights in float64, duplicates summed, columns sorted; O(nnz).

    Shares the caller's arrays where possible, and never writes to them.
    """
    check_matrix(matrix, who, name)
    weights = sparse.csr_array(matrix, dtype=np.float64)
    if not weights.has_canonical_format:
        weights = weights.copy()
        weights.sum_duplicates()
    infinite = ~np.isfinite(weights.data)
    if infinite.any():
        raise ValueError(
            f"{who}: {name} must be finite; got {_entry(weights, infinite.argmax())}. "
            "Drop such edges, or correct what they were computed from."
        )
    difference = abs(weights - weights.T)
    if difference.nnz and difference.data.max() > ASYMMETRY * np.abs(weights.data).max():
        worst = difference.data.argmax()
        raise ValueError(
            f"{who}: {name} must be symmetric; weights differ by {difference.data[worst]:.3g} from "
            f"their transpose, {_edge(difference, worst)}. Use ({name} + {name}.T) / 2, or "
            f"for distances, knn_graph({name}, n_neighbors, method='precomputed')."
        )
    return weights


def check_matrix(matrix: Any, who: str, name: str) -> None:
    """Raise unless a matrix, sparse or not, is real, square, not empty and sound."""
    if (call := weights_of(matrix, name)) is not None:
        raise TypeError(
            f"{who}: {name} must be an array of weights; got {type(matrix).__name__}. Pass {call}."
        )
    array = matrix if sparse.issparse(matrix) else as_array(matrix, who, name)
    check_real(array, who, name)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"{who}: {name} must be square; got shape {array.shape}.")
    if 0 in array.shape:
        raise ValueError(f"{who}: {name} must not be empty; got shape {array.shape}.")
    check_sound(array, who, name)


def weights_of(graph: Any, name: str) -> str | None:
    """Name the call that turns a graph of another kind into weights; None for arrays."""
    calls = (call.format(name) for key, call in WEIGHTS_OF.items() if hasattr(graph, key))
    return next(calls, None)


def check_real(array: Any, who: str, name: str) -> None:
    """Raise unless an array, sparse or not, holds real numbers."""
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{who}: {name} must hold real numbers; got dtype {array.dtype}.")


def check_sound(array: Any, who: str, name: str) -> None:
    """Raise if a compressed sparse array names rows or columns that it does not have."""
    if not hasattr(array, "check_format"):
        return
    try:
        # On a shallow copy: SciPy sets attributes during the check.
        copy.copy(array).check_format(full_check=True)
    except ValueError as error:
        raise ValueError(
            f"{who}: {name} must be a sound sparse array; SciPy reports: {error}. "
            "Build it as a coo_array, which checks rows and columns."
        ) from error


def check_not_negative(weights: sparse.csr_array, who: str, name: str) -> None:
    """Raise on a weight below 0, naming its edge."""
    if weights.nnz and weights.data.min() < 0:
        raise ValueError(
            f"{who}: {name} must hold weights of at least 0; got "
            f"{_entry(weights, weights.data.argmin())}. Use {name}.maximum(0) to drop such edges."
        )


def check_invertible(sums: Array, who: str, name: str) -> None:
    """Raise if the sum of a row overflows, or is so small that its inverse does."""
    wrong = ~np.isfinite(sums) | ((sums != 0) & (np.abs(sums) < np.finfo(np.float64).tiny))
    if wrong.any():
        row = wrong.argmax()
        raise ValueError(
            f"{who}: {name} must have row sums that can be divided by; row {row} sums to "
            f"{sums[row]:.3g}. Multiply all weights by one number."
        )


def _entry(weights: sparse.csr_array, position: Any) -> str:
    return f"{weights.data[position]:.3g} {_edge(weights, position)}"


def _edge(weights: sparse.csr_array, position: Any) -> str:
    """Name the two ends of a stored weight."""
    row = np.searchsorted(weights.indptr, position, side="right") - 1
    return f"from row {row} to row {weights.indices[position]}"
