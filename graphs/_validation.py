"""What neighbors and weights from outside must be, before anything walks on them.

Compiled code trusts row numbers: one that is out of range would read foreign memory. Nothing is
mended here but the form: dtypes are widened, duplicate entries of a matrix are summed, in a copy.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ssdml.utils.parallel import BLOCK_ROWS, row_blocks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import working_dtype

ASYMMETRY = 1e-6  # relative to the largest weight: more than float32 rounding leaves
TIDY = "knn_graph((indices, distances), n_neighbors, method='precomputed')"


def check_ranking(indices: Any, distances: Any, who: str) -> tuple[Ints, Array]:
    """Neighbors as int64 with distances as floats, once each row names others, from near to far.

    O(n k log k) time; temporary arrays are those of a block of rows.
    """
    indices, distances = np.asarray(indices), np.asarray(distances)
    check_numbers(indices, distances, who)
    if indices.ndim != 2 or 0 in indices.shape or distances.shape != indices.shape:
        raise ValueError(
            f"{who}: indices and distances must share one shape (n_samples, n_neighbors), at "
            f"least 1 of either; got {indices.shape} and {distances.shape}."
        )
    numbers = indices.astype(np.int64, copy=False)
    lengths = distances.astype(working_dtype(distances.dtype), copy=False)
    for block in row_blocks(len(numbers), BLOCK_ROWS):
        _check_numbers_of_rows(numbers[block], block.start, len(numbers), who)
        _check_lengths(lengths[block], block.start, who)
    return numbers, lengths


def check_numbers(indices: npt.NDArray[Any], distances: npt.NDArray[Any], who: str) -> None:
    """Raise unless indices are integers and distances real numbers."""
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{who}: indices must be integers; got dtype {indices.dtype}.")
    if distances.dtype.kind not in "iuf":
        raise TypeError(f"{who}: distances must be real numbers; got dtype {distances.dtype}.")


def _check_numbers_of_rows(indices: Ints, start: int, n: int, who: str) -> None:
    """Raise unless the rows from ``start`` on name rows of the graph, others, each once."""
    outside = (indices < 0) | (indices >= n)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise ValueError(
            f"{who}: indices must be rows from 0 to n - 1 = {n - 1}; got {indices[row, column]} "
            f"at row {start + row}, column {column}. Where -1 marks a missing neighbor, {TIDY} "
            "leaves it out."
        )
    own = indices == np.arange(start, start + len(indices))[:, None]
    if own.any():
        row, column = np.argwhere(own)[0]
        raise ValueError(
            f"{who}: indices must not name the row itself; got {start + row} at row {start + row}, "
            f"column {column}. {TIDY} leaves it out."
        )
    ordered = np.sort(indices, axis=1)
    twice = ordered[:, 1:] == ordered[:, :-1]
    if twice.any():
        row, column = np.argwhere(twice)[0]
        raise ValueError(
            f"{who}: indices must name each neighbor of a row once; got {ordered[row, column]} "
            f"twice in row {start + row}. Keep the nearer of the two."
        )


def _check_lengths(distances: Array, start: int, who: str) -> None:
    """Raise unless distances are finite, not negative and in order."""
    wrong = ~(np.isfinite(distances) & (distances >= 0))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{who}: distances must be finite and at least 0; got {distances[row, column]} at row "
            f"{start + row}, column {column}. Scale rows down whose distances overflow; use "
            "np.maximum(distances, 0) against rounding."
        )
    falling = distances[:, 1:] < distances[:, :-1]
    if falling.any():
        row, column = np.argwhere(falling)[0]
        raise ValueError(
            f"{who}: distances must not fall along a row; got {distances[row, column + 1]} after "
            f"{distances[row, column]} in row {start + row}. {TIDY} sorts them."
        )


def check_weights(matrix: Any, who: str, name: str) -> sparse.csr_array:
    """Symmetric finite weights in float64, duplicates summed, columns sorted; O(nnz).

    Shares the caller's arrays where these are so already, and never writes to them.
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
            "Drop such edges, or mend what they were computed from."
        )
    _check_symmetric(weights, who, name)
    return weights


def check_matrix(matrix: Any, who: str, name: str) -> None:
    """Raise unless a matrix, sparse or not, is real, square, not empty and sound."""
    array = matrix if sparse.issparse(matrix) else np.asarray(matrix)
    check_real(array, who, name)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"{who}: {name} must be square; got shape {array.shape}.")
    if 0 in array.shape:
        raise ValueError(f"{who}: {name} must not be empty; got shape {array.shape}.")
    check_sound(array, who, name)


def check_real(array: Any, who: str, name: str) -> None:
    """Raise unless an array, sparse or not, holds real numbers."""
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{who}: {name} must hold real numbers; got dtype {array.dtype}.")


def check_sound(array: Any, who: str, name: str) -> None:
    """Raise where a compressed sparse array names rows or columns that it does not have."""
    if not hasattr(array, "check_format"):
        return
    try:
        # On a shallow copy: SciPy sets attributes as it checks.
        copy.copy(array).check_format(full_check=True)
    except ValueError as error:
        raise ValueError(
            f"{who}: {name} must be a sound sparse array; SciPy says of this one: {error}. "
            "Build it as a coo_array, which checks rows and columns."
        ) from error


def _check_symmetric(weights: sparse.csr_array, who: str, name: str) -> None:
    difference = abs(weights - weights.T)
    if difference.nnz and difference.data.max() > ASYMMETRY * np.abs(weights.data).max():
        worst = difference.data.argmax()
        raise ValueError(
            f"{who}: {name} must be symmetric; weights differ by {difference.data[worst]:.3g} from "
            f"their transpose, {_edge(difference, worst)}. Use ({name} + {name}.T) / 2."
        )


def check_not_negative(weights: sparse.csr_array, who: str, name: str) -> None:
    """Raise on a weight below 0, naming its edge."""
    if weights.nnz and weights.data.min() < 0:
        raise ValueError(
            f"{who}: {name} must hold weights of at least 0; got "
            f"{_entry(weights, weights.data.argmin())}. Use {name}.maximum(0) to drop such edges."
        )


def check_invertible(sums: Array, who: str, name: str) -> None:
    """Raise where the sum of a row overflows, or is so small that its inverse does."""
    wrong = ~np.isfinite(sums) | ((sums != 0) & (np.abs(sums) < np.finfo(np.float64).tiny))
    if wrong.any():
        row = wrong.argmax()
        raise ValueError(
            f"{who}: {name} must have rows whose sum can be divided by; row {row} sums to "
            f"{sums[row]:.3g}. Multiply all weights by one number."
        )


def _entry(weights: sparse.csr_array, position: Any) -> str:
    return f"{weights.data[position]:.3g} {_edge(weights, position)}"


def _edge(weights: sparse.csr_array, position: Any) -> str:
    """The ends of a stored weight, as text."""
    row = np.searchsorted(weights.indptr, position, side="right") - 1
    return f"from row {row} to row {weights.indices[position]}"
