"""Rows as arrays of dask."""

from __future__ import annotations


def in_chunks(X, size=50):
    """The rows, so many to a chunk."""
    import dask.array as da

    return da.from_array(X, chunks=(size, -1))
