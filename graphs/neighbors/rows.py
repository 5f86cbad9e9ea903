"""Rows read in parts: files and half precision are never converted as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from mmap import ALLOCATIONGRANULARITY, mmap
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ssdml.utils.labels import column_names
from ssdml.utils.parallel import row_blocks
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import check_finite, check_rows, check_table, working_dtype

CHUNK_ENTRIES = 2**21  # entries of a temporary array: 8 MB in float32

Change = Callable[[Array], Array]  # of rows, each by itself


class Part(NamedTuple):
    """A matrix, and the change made to its rows when they are read."""

    matrix: npt.NDArray[Any]
    change: Change | None = None


class Rows:
    """Stacked matrices, converted and changed as they are read.

    Parameters
    ----------
    parts : sequence of Part
        Matrices with the same number of columns.
    dtype : dtype
        Rows are converted to it, then changed.
    names : list of str or None
        Of the columns, if they have any.
    """

    def __init__(
        self, parts: Sequence[Part], dtype: npt.DTypeLike, names: list[str] | None = None
    ) -> None:
        self._parts, self.dtype, self.names = tuple(parts), np.dtype(dtype), names
        self._starts = np.cumsum([0, *(len(part.matrix) for part in parts)])

    @classmethod
    def of(cls, matrix: npt.NDArray[Any], names: list[str] | None = None) -> Self:
        """Take a matrix in its dtype, without checks."""
        return cls([Part(matrix)], matrix.dtype, names)

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self._parts[0].matrix.shape[1])

    def __getitem__(self, index: slice | Ints) -> Array:
        """Read the rows of a slice, or of an array of row numbers of any shape."""
        if len(self._parts) == 1:
            return self._read(self._parts[0], index)
        if isinstance(index, slice):
            index = np.arange(len(self))[index]
        rows = np.empty((*index.shape, self.n_features), self.dtype)
        for part, start in zip(self._parts, self._starts, strict=False):
            inside = (start <= index) & (index < start + len(part.matrix))
            rows[inside] = self._read(part, index[inside] - start)
        return rows

    def _read(self, part: Part, index: slice | Ints) -> Array:
        check_file(part.matrix, "ssdml.graphs")
        rows: Array = np.ascontiguousarray(part.matrix[index], self.dtype)
        return rows if part.change is None else part.change(rows)

    def __add__(self, below: Rows) -> Rows:
        """Stack rows of the same dtype below these."""
        return Rows(self._parts + below._parts, self.dtype, self.names)

    def blocks(self) -> list[slice]:
        """Return slices of all rows, small enough to be converted one at a time."""
        return row_blocks(len(self), CHUNK_ENTRIES // self.n_features)

    def read_through(self, change: Change) -> Rows:
        """Change the rows each time they are read."""
        return Rows([_then(part, change) for part in self._parts], self.dtype)

    def changed(self, change: Change) -> Rows:
        """Change the rows: now if they are in memory in this dtype, else when read."""
        return Rows([self._changed(part, change) for part in self._parts], self.dtype)

    def _changed(self, part: Part, change: Change) -> Part:
        matrix = part.matrix
        if part.change is not None or matrix.dtype != self.dtype or is_mapped(matrix):
            return _then(part, change)
        now = np.empty_like(matrix)
        for block in row_blocks(len(matrix), CHUNK_ENTRIES // self.n_features):
            now[block] = change(matrix[block])
        return Part(now)

    def as_dtype(self, dtype: npt.DTypeLike) -> Rows:
        """Return the rows in another dtype."""
        return Rows(self._parts, dtype)


def _then(part: Part, change: Change) -> Part:
    """Add a change to the part."""
    before = part.change
    return part._replace(change=change if before is None else lambda rows: change(before(rows)))


def open_rows(X: Any, who: str, name: str = "X") -> Rows:
    """Check rows; memory-mapped files and half precision are not converted until they are read.

    Half precision is read as float32, integers as float64. ``Rows`` are not checked again.
    """
    if isinstance(X, Rows):
        return X
    if not (is_mapped(X) or getattr(X, "dtype", None) == np.float16):
        return Rows.of(check_rows(X, who, name), column_names(X))
    check_file(X, who, name)
    table = check_table(X, who, name)
    rows = Rows([Part(table)], working_dtype(table.dtype))
    for block in rows.blocks():
        check_finite(rows[block], who, name, first_row=block.start)
    return rows


def is_mapped(X: Any) -> bool:
    """Return whether an array is in a memory-mapped file."""
    return _mapping(X)[0] is not None


def check_file(X: Any, who: str, name: str = "X") -> None:
    """Raise if the file of a memory-mapped array has been truncated.

    Reading beyond its end would kill the process.
    """
    mapping, offset = _mapping(X)
    if mapping is None:
        return
    try:
        n_bytes = mapping.size()
    except (OSError, ValueError):  # memory without a file
        return
    wanted = offset - offset % ALLOCATIONGRANULARITY + len(mapping)
    if n_bytes < wanted:
        raise ValueError(
            f"{who}: {name} must be in a file of at least {wanted} bytes, as when it was opened; "
            f"got {n_bytes}. Write it again, and open it again."
        )


def _mapping(X: Any) -> tuple[mmap | None, int]:
    """Return the memory map below an array, and the offset of its file, or None."""
    offset = 0
    while isinstance(X, np.ndarray):
        offset, X = getattr(X, "offset", 0), X.base
    return (X, offset) if isinstance(X, mmap) else (None, 0)
