"""Dask arrays: recognition without importing dask, checks, and maps over blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.utils.typing import Array
from ssdml.utils.validation import check_finite


def is_dask(X: Any) -> bool:
    """Whether an object is a dask collection: an array, a data frame, a delayed value.

    Examples
    --------
    >>> is_dask(np.zeros(3))
    False
    """
    return any(kind.__module__.partition(".")[0] == "dask" for kind in type(X).__mro__)


def rows_dtype(X: Any) -> np.dtype[Any]:
    """Return the dtype to compute in: float32 or float64 if X has it, else float64.

    Examples
    --------
    >>> rows_dtype(np.zeros(3, dtype=np.int8)).name
    'float64'
    """
    return np.dtype(X.dtype if X.dtype in (np.float32, np.float64) else np.float64)


def check_dask_array(X: Any, who: str) -> None:
    """Raise unless X is a numeric matrix in dense blocks of whole rows."""
    from dask.array import Array as DaskArray

    if not isinstance(X, DaskArray):
        raise TypeError(
            f"{who}: X must be a dask array; got a {type(X).__name__}. "
            "For a data frame, pass X.to_dask_array(lengths=True)."
        )
    if X.ndim != 2:
        raise ValueError(
            f"{who}: X must have two dimensions (rows are samples); got shape {X.shape}. "
            "Use X.reshape(-1, 1) for one feature."
        )
    if not isinstance(X._meta, np.ndarray):
        raise TypeError(
            f"{who}: X must have NumPy blocks; got {type(X._meta).__name__}. "
            "If they are sparse, use X.map_blocks(lambda block: block.toarray())."
        )
    if isinstance(X._meta, np.ma.MaskedArray):
        raise TypeError(
            f"{who}: X must not have masked entries; got masked blocks. Impute them: "
            "dask.array.ma.filled(X, value)."
        )
    if X.dtype.kind not in "biuf":
        raise TypeError(
            f"{who}: X must be numeric; got dtype {X.dtype}. Use X.astype('float64') if its "
            "entries are numbers."
        )
    if X.numblocks[1] != 1:
        raise ValueError(
            f"{who}: X must have all columns in one chunk; got {X.numblocks[1]} chunks of columns. "
            "Use X.rechunk({1: -1})."
        )
    if np.isnan(X.shape[1]):
        check_known_chunks(X, who)


def check_known_chunks(X: Any, who: str) -> None:
    """Raise unless the size of every chunk is known."""
    if np.isnan(X.shape).any():
        raise ValueError(
            f"{who}: X must have known chunk sizes; got shape {X.shape}. Call "
            "X.compute_chunk_sizes() first."
        )


def check_block(
    block: Any, shape: tuple[int, int], dtype: npt.DTypeLike, who: str, first_row: int = 0
) -> Array:
    """Check a computed block and convert it to the dtype.

    Examples
    --------
    >>> check_block(np.ones((1, 2), dtype=int), (1, 2), np.float64, "SSDML")
    array([[1., 1.]])
    """
    if not isinstance(block, np.ndarray):
        raise TypeError(
            f"{who}: X must have NumPy blocks; got a {type(block).__name__}. "
            "If they are sparse, use X.map_blocks(lambda block: block.toarray())."
        )
    if block.shape != shape:
        raise ValueError(
            f"{who}: X must have blocks of the sizes in X.chunks; got {block.shape} for {shape}. "
            "Call X.compute_chunk_sizes() first."
        )
    rows = block.astype(dtype, copy=False)
    check_finite(rows, who, "X", first_row=first_row)
    return rows


def map_row_blocks(X: Any, function: Callable[[Array], Array], n_columns: int, who: str) -> Any:
    """Map a function lazily over the blocks of rows of a dask array.

    ``function`` maps finite rows (m, d), float32 or float64, to (m, n_columns). Chunk sizes of the
    rows may be unknown. Errors occur when a block is computed.
    """
    dtype = rows_dtype(X)
    return X.map_blocks(
        partial(_on_block, function=function, dtype=dtype, who=who),
        chunks=(X.chunks[0], (n_columns,)),
        dtype=dtype,
        meta=np.empty((0, 0), dtype=dtype),
    )


def _on_block(
    block: Any,
    function: Callable[[Array], Array],
    dtype: np.dtype[Any],
    who: str,
    block_info: dict[Any, Any],
) -> Array:
    (start, stop), (_, n_features) = block_info[0]["array-location"]
    if np.isnan(start) or np.isnan(stop):  # unknown chunk sizes
        start, n_rows = 0, len(block)
        who = f"{who}: block {block_info[0]['chunk-location'][0]}"
    else:
        n_rows = stop - start
    result = function(check_block(block, (n_rows, n_features), dtype, who, start))
    return result.astype(dtype, copy=False)
