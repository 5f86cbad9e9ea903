"""Threads of BLAS, OpenMP, faiss and torch, so that processes side by side do not share cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@contextmanager
def limited_threads(n_threads: int) -> Iterator[None]:
    """At most so many threads of each library, of those that load meanwhile too.

    Notes
    -----
    OpenBLAS heeds this in the main thread of a process, where joblib's processes work. Workers of
    dask work in another one; there the variables count, which their nannies set to 1.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with limited_threads(1):
    ...     {pool["num_threads"] for pool in threadpool_info()} <= {1}
    True
    """
    from threadpoolctl import threadpool_limits

    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ |= dict.fromkeys(VARIABLES, str(n_threads))
    torch = sys.modules.get("torch")
    n_torch = None if torch is None else torch.get_num_threads()
    if torch is not None:
        torch.set_num_threads(n_threads)
    try:
        with threadpool_limits(limits=n_threads):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if torch is not None:
            torch.set_num_threads(n_torch)
