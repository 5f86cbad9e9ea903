"""Execute runs: in this process, in several, or on a dask cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs, parallel_config

from ssdml.datasets.base import Dataset
from ssdml.experiments.runs.details import RunDetails
from ssdml.experiments.runs.grid import Run
from ssdml.experiments.runs.job import Outcome, failed_row, run_one
from ssdml.utils.parallel import leave_with_parent, limited_threads

WAIT = 30  # seconds for the scheduler, and for its workers
KILLED = (
    "WorkerKilled: the process was killed twice, the second time with no other run beside it. It "
    "may be out of memory: use fewer samples or another machine."
)

_ONE_AT_A_TIME = threading.Lock()  # peak memory, warnings and thread limits are per process


def execute(
    dataset: Dataset, pending: Callable[[], Iterator[Run]], *, n_jobs: int | None
) -> Iterator[Outcome]:
    """Execute runs and yield their outcomes as they end.

    Parameters
    ----------
    dataset : Dataset
    pending : callable
        Gives the runs that are left at the time of the call.
    n_jobs : int or None
        Processes, with one thread each; 1: this process, with one thread per core. None: as many
        as the surrounding `joblib.parallel_config` has workers.

    Notes
    -----
    When a worker dies, the runs under way are repeated one at a time; one that ends its worker
    again has failed.
    """
    if n_jobs is not None and effective_n_jobs(n_jobs) == 1:
        yield from (run_one(dataset, run, n_jobs=-1) for run in pending())
        return
    worker_death = _worker_death(n_jobs is None)
    under_way: dict[str, Run] = {}

    def begun() -> Iterator[Run]:
        for run in pending():
            under_way[run.config_hash] = run
            yield run

    while True:
        under_way.clear()
        try:
            for outcome in _parallel(dataset, begun(), n_jobs):
                del under_way[outcome.run.config_hash]
                yield outcome
            return
        except worker_death:
            for run in list(under_way.values()):
                try:
                    yield from _parallel(dataset, [run], n_jobs)
                except worker_death:
                    row = failed_row(dataset, run) | {"error": KILLED}
                    yield Outcome(run, row, RunDetails(run.config), f"{KILLED}\n")


def _worker_death(on_cluster: bool) -> type[Exception]:
    """Error raised if a worker dies."""
    if not on_cluster:
        return BrokenProcessPool
    from distributed import KilledWorker

    return KilledWorker


def _parallel(dataset: Dataset, runs: Iterable[Run], n_jobs: int | None) -> Iterator[Outcome]:
    own = {} if n_jobs is None else {"initializer": leave_with_parent, "initargs": (os.getpid(),)}
    # One run per worker is dispatched, no more: another process on the folder may do the others.
    parallel = Parallel(
        n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1, **own
    )
    yield from parallel(delayed(run_in_worker)(dataset, run) for run in runs)


def run_in_worker(dataset: Dataset, run: Run) -> Outcome:
    """Execute a run in a worker, with one thread; Ctrl-C is left to the main process."""
    with suppress(ValueError):  # in a thread, as on a cluster
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with _ONE_AT_A_TIME, limited_threads(1):
        return run_one(dataset, run, n_jobs=1)


@contextmanager
def dask_workers(address: str, n_jobs: int, dataset: Dataset) -> Iterator[None]:
    """Make dask workers the backend of joblib, and send each the data set once.

    Parameters
    ----------
    address : str
        Of the scheduler, ``"tcp://host:8786"``; ``"local"`` starts `n_jobs` processes here.
    n_jobs : int
    dataset : Dataset

    Raises
    ------
    ConnectionError
        If no scheduler with workers answers, or it goes away.

    Notes
    -----
    Workers need this version of ssdml and no common disk: rows come back to this process. A worker
    does one run at a time, however many threads it has.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ImportError(
            "--cluster needs dask's distributed: pip install 'ssdml[cluster]'."
        ) from error
    with ExitStack() as stack:
        try:
            workers, n_workers = address, 1
            if address == "local":
                n_workers = effective_n_jobs(n_jobs)
                local: Any = LocalCluster(  # type: ignore[no-untyped-call]
                    n_workers=n_workers, threads_per_worker=1, dashboard_address=None
                )
                workers = stack.enter_context(local)
            else:
                _find_scheduler(address)
            client: Any = Client(  # type: ignore[no-untyped-call]
                workers, timeout=WAIT, set_as_default=False
            )
            stack.enter_context(client)
            client.wait_for_workers(n_workers, timeout=WAIT)  # all get the data: one may die
        except (OSError, ValueError) as error:
            raise ConnectionError(
                f"compare: cluster must be 'local' or the address of a scheduler with workers; got "
                f"{address!r} ({error}). Start them with `dask scheduler` and `dask worker "
                "ADDRESS --nthreads 1`."
            ) from error
        stack.enter_context(parallel_config("dask", client=client, scatter=[dataset]))
        try:
            yield
        except CancelledError as lost:
            raise ConnectionError(
                f"compare: cluster {address!r} went away or cancelled its work. Finished runs are "
                "kept; resume with --resume, on another cluster or without --cluster."
            ) from lost


def _find_scheduler(address: str) -> None:
    """Raise an OSError or a ValueError if no scheduler answers.

    A Client that finds none would print a traceback of its own, or wait forever.
    """
    from dask import config
    from distributed import Security
    from distributed.comm.core import connect

    if config.get("distributed.client.security-loader", None):
        return  # only the client can load it

    async def greet() -> None:
        security: Any = Security()  # type: ignore[no-untyped-call]
        arguments = security.get_connection_args("client")
        reach: Any = connect
        comm = await asyncio.wait_for(reach(address, timeout=WAIT, **arguments), 2 * WAIT)
        await comm.close()

    with ThreadPoolExecutor(1) as thread:  # a notebook has a loop in this one
        thread.submit(asyncio.run, greet()).result()
