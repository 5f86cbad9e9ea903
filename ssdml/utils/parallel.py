"""Products with tall arrays on several threads, and limits on threads.

Blocks of rows depend on the shape only, and sums are in order: results do not depend on the number
of threads.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from numbers import Integral
from threading import Lock, Thread
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from threadpoolctl import OpenBLASController, ThreadpoolController, threadpool_limits

from ssdml.utils.typing import Array

BLOCK_ROWS = 2**11
MOST_JOBS = 2**31 - 1  # that OpenMP takes
PARENT_INTERVAL = 0.5  # seconds between two looks at the parent
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
S = TypeVar("S")
T = TypeVar("T")


class Threads:
    """Maps functions over blocks of rows, one thread per block; serially without a pool."""

    def __init__(self, pool: ThreadPoolExecutor | None = None) -> None:
        self._map = map if pool is None else pool.map

    def map(self, function: Callable[[slice], T], n_rows: int, step: int = BLOCK_ROWS) -> list[T]:
        """Return the results of the blocks, in order."""
        return self.each(function, row_blocks(n_rows, step))

    def each(self, function: Callable[[S], T], items: Iterable[S]) -> list[T]:
        """Return the results of the items, in order."""
        items = list(items)
        return list((self._map if len(items) > 1 else map)(function, items))

    def sum(self, function: Callable[[slice], Array], n_rows: int) -> Array:
        """Sum the results, in order."""
        return np.sum(self.map(function, n_rows), axis=0)

    def gram(self, left: Array, right: Array) -> Array:
        """Compute ``left.T @ right`` in float64."""

        def product(block: slice) -> Array:
            return (left[block].T @ right[block]).astype(np.float64)

        return self.sum(product, len(left))

    def product(self, left: Array, right: Array) -> Array:
        """Compute ``left @ right`` in the precision of ``left``, for a small ``right``."""
        product = np.empty((len(left), right.shape[1]), left.dtype)

        def work(block: slice) -> None:
            product[block] = left[block] @ right.astype(left.dtype)

        self.map(work, len(left))
        return product

    def subtract_product(self, target: Array, left: Array, right: Array) -> None:
        """Compute ``target -= left @ right``, in place."""

        def work(block: slice) -> None:
            target[block] -= left[block] @ right.astype(left.dtype)

        self.map(work, len(left))


class ParallelMatrix:
    """A sparse matrix with products on several threads."""

    def __init__(self, matrix: sparse.csr_array, threads: Threads) -> None:
        self.shape, self.dtype, self.threads = matrix.shape, matrix.dtype, threads
        self._parts = [matrix[block] for block in row_blocks(matrix.shape[0], BLOCK_ROWS)]

    def astype(self, dtype: Any) -> ParallelMatrix:
        """Return the matrix in this precision."""
        if dtype == self.dtype:
            return self
        other = copy.copy(self)
        other._parts = [part.astype(dtype) for part in self._parts]
        other.dtype = np.dtype(dtype)
        return other

    def __matmul__(self, block: Array) -> Array:
        product = np.empty((self.shape[0], *block.shape[1:]), block.dtype)

        def work(rows: slice) -> None:
            product[rows] = self.part(rows, block)

        self.threads.map(work, self.shape[0])
        return product

    def part(self, rows: slice, block: Array) -> Array:
        """Return the rows of the product in one of the blocks."""
        return self._parts[rows.start // BLOCK_ROWS] @ block


SERIAL = Threads()


@contextmanager
def threads(n_threads: int) -> Iterator[Threads]:
    """Provide threads with serial BLAS in each."""
    with one_blas_thread():
        if n_threads == 1:
            yield SERIAL
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield Threads(pool)


class SharedSetting:
    """A setting of the whole process: its first user makes it, the last one restores it.

    Parameters
    ----------
    make : callable
        Makes the setting and returns a function that restores what was there.

    Examples
    --------
    >>> content = ["before"]
    >>> def make():
    ...     content.append("during")
    ...     return content.pop
    >>> setting = SharedSetting(make)
    >>> with setting(), setting():
    ...     content
    ['before', 'during']
    >>> content
    ['before']
    """

    def __init__(self, make: Callable[[], Callable[[], Any]]) -> None:
        self._make, self._n_users, self._lock = make, 0, Lock()
        self._restore: Callable[[], Any] | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_others)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold the setting."""
        with self._lock:
            if self._restore is None:
                self._restore = self._make()
            self._n_users += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_users = max(0, self._n_users - 1)
                if not self._n_users and self._restore is not None:
                    restore, self._restore = self._restore, None
                    restore()

    def _forget_others(self) -> None:
        """In a forked process no other thread is left to unlock; the next user restores."""
        self._lock, self._n_users = Lock(), 0


class LoadedLibraries:
    """threadpoolctl's controller, which searches for libraries anew after an import only.

    A search takes some milliseconds, as long as the prediction of a few samples.
    """

    def __init__(self) -> None:
        self._found: tuple[int, ThreadpoolController] | None = None

    def __call__(self) -> ThreadpoolController:
        """Return the controller of all libraries that are loaded."""
        n_modules = len(sys.modules)
        if self._found is None or self._found[0] != n_modules:
            self._found = n_modules, ThreadpoolController()
        return self._found[1]


loaded_libraries = LoadedLibraries()


def _limit_blas() -> Callable[[], None]:
    release_openblas()
    limits = loaded_libraries().limit(limits=1, user_api="blas")

    def restore() -> None:
        release_openblas()
        limits.restore_original_limits()
        release_openblas()

    return restore


def release_openblas() -> None:
    """Let any thread set the threads of OpenBLAS.

    threadpoolctl reserves that to the first one as long as it lives, and dask's threads live on.
    """
    OpenBLASController.clear_controlling_thread(force=True)


one_blas_thread = SharedSetting(_limit_blas)


def row_blocks(n_rows: int, step: int) -> list[slice]:
    """Split rows into slices of at most ``step``, at least 1.

    Examples
    --------
    >>> row_blocks(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, step)
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def count_threads(n_jobs: int | None, who: str) -> int:
    """Return the number of threads for ``n_jobs``, as joblib does: None is 1, -1 all.

    Errors begin with ``who``.
    """
    from joblib import effective_n_jobs, parallel_config

    if n_jobs is not None:
        error = ValueError if isinstance(n_jobs, Integral) else TypeError
        if not isinstance(n_jobs, Integral) or not 0 < abs(n_jobs) <= MOST_JOBS:
            raise error(
                f"{who}: n_jobs must be None or a whole number other than 0; got {n_jobs!r}. Pass "
                "the number of threads, or of processes, or -1 for one per core."
            )
    if n_jobs is None:
        return int(effective_n_jobs(None))  # of a surrounding parallel_config
    with parallel_config("threading"):  # joblib refuses nested processes, not threads
        return int(effective_n_jobs(n_jobs))


def leave_with_parent(parent: int) -> None:
    """End this process soon after the process ``parent`` ends, which may be killed.

    An initializer of workers: they would wait for tasks for minutes, or finish theirs for nobody.
    """
    import psutil

    def watch() -> None:
        # On Windows the number of the parent stays when it ends.
        while os.getppid() == parent and psutil.pid_exists(parent):
            time.sleep(PARENT_INTERVAL)
        os._exit(1)

    Thread(target=watch, daemon=True, name="leave with parent").start()


@contextmanager
def limited_threads(n_threads: int) -> Iterator[None]:
    """Limit the threads of BLAS, OpenMP, faiss and torch, also if they are imported meanwhile.

    Notes
    -----
    OpenBLAS obeys in the main thread of a process, where joblib's workers run. Dask's workers run
    in another thread, where the variables count, which their nannies set to 1.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with limited_threads(1):
    ...     {pool["num_threads"] for pool in threadpool_info()} <= {1}
    True
    """
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ |= dict.fromkeys(THREAD_VARIABLES, str(n_threads))
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
