"""Runs one after another, side by side, or on a cluster; a killed worker's are done again."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Any

from ssdml.datasets.base import Dataset
from ssdml.experiments.runs.details import RunDetails
from ssdml.experiments.runs.job import Outcome, attempt, failed_row
from ssdml.experiments.runs.plan import Run
from ssdml.utils.parallel import limited_threads

POLL = 0.5  # seconds between two looks at what other processes have done
MOST_DEATHS = 2  # of a worker while a run was under way; then it runs with no other beside it
MOST_DEATHS_ALONE = 3  # then the run has failed

# One run at a time in a process: memory, warnings and threads are the process's.
_ONE_AT_A_TIME = threading.Lock()


def outcomes(
    dataset: Dataset,
    left: Callable[[], list[Run]],
    take: Callable[[Run], bool],
    give_back: Callable[[Run], None],
    *,
    n_jobs: int,
    cluster: Cluster | None,
) -> Iterator[Outcome]:
    """Outcomes in the order in which they are done, until no run is left.

    Parameters
    ----------
    dataset : Dataset
    left : callable
        Runs that nobody has done, at the time of the call.
    take : callable
        Whether a run is ours to do; False where another process is at it, or has done it.
    give_back : callable
        Called with a run that was taken and whose worker died.
    n_jobs : int
        Runs at a time. 1: in this process, a thread a core; else each run has a process with one
        thread.
    cluster : Cluster or None
        Where the runs go in the place of this machine.

    Raises
    ------
    ConnectionError
        Where the cluster goes away.

    Notes
    -----
    A run whose worker died twice is done with none beside it, so that it is known which of them
    needs more memory than there is; if it ends three workers then, its outcome is a failure.
    """
    deaths: Counter[str] = Counter()
    refusals: list[OSError] = []

    def is_ours(run: Run) -> bool:
        try:
            return not refusals and take(run)
        except OSError as refusal:  # joblib waits for ever where this raises in its own thread
            refusals.append(refusal)
            return False

    while runs := left():
        calm = [run for run in runs if deaths[run.config_hash] < MOST_DEATHS]
        todo = filter(is_ours, calm or runs)
        first = next(todo, None)
        if refusals:
            raise refusals[0]
        if first is None:
            time.sleep(POLL)  # others are at all of them
            continue
        alone = not calm
        under_way: dict[str, Run] = {}
        # Alone: one run, in a process that may die.
        jobs = _noted(under_way, [first] if alone else chain([first], todo))
        try:
            for outcome in _parallel(
                dataset, jobs, 2 if alone and n_jobs == 1 else n_jobs, cluster
            ):
                del under_way[outcome.run.config_hash]
                yield outcome
        except CancelledError as lost:
            if cluster is None:
                raise
            raise ConnectionError(
                f"compare: cluster {cluster.address!r} went away, or let its work go. The runs "
                "that were finished are kept; the same command with --resume goes on, with a "
                "cluster that runs or without --cluster."
            ) from lost
        except _deadly(cluster):
            for config_hash, run in under_way.items():
                deaths[config_hash] += 1
                if alone and deaths[config_hash] >= MOST_DEATHS + MOST_DEATHS_ALONE:
                    yield _killed(dataset, run)
                else:
                    give_back(run)


def _noted(under_way: dict[str, Run], runs: Any) -> Iterator[Run]:
    for run in runs:
        under_way[run.config_hash] = run
        yield run


def _parallel(
    dataset: Dataset, runs: Iterator[Run], n_jobs: int, cluster: Cluster | None
) -> Iterator[Outcome]:
    from joblib import Parallel, delayed

    # No more are taken than are under way: what waits here, another process may do.
    settings: Any = {
        "return_as": "generator_unordered",
        "pre_dispatch": "n_jobs",
        "batch_size": 1,
    }
    if cluster is not None:
        with cluster.backend(dataset):
            yield from Parallel(**settings)(delayed(run_beside)(dataset, run) for run in runs)
    elif n_jobs == 1:
        yield from (attempt(dataset, run, n_jobs=-1) for run in runs)
    else:
        yield from Parallel(n_jobs, **settings)(delayed(run_beside)(dataset, run) for run in runs)


def run_beside(dataset: Dataset, run: Run) -> Outcome:
    """A run in a process of its own, with one thread.

    Ctrl-C is for the first process, which ends this one.
    """
    with suppress(ValueError):  # in a thread that is not the main one, as on a cluster
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    with _ONE_AT_A_TIME, limited_threads(1):
        return attempt(dataset, run, n_jobs=1)


def _deadly(cluster: Cluster | None) -> tuple[type[BaseException], ...]:
    return (BrokenProcessPool,) if cluster is None else cluster.deadly


def _killed(dataset: Dataset, run: Run) -> Outcome:
    row = failed_row(dataset, run)
    row["error"] = (
        f"WorkerKilled: the process that ran it was killed {MOST_DEATHS + MOST_DEATHS_ALONE} "
        "times. Perhaps it needs more memory than there is: fewer rows, or another machine."
    )
    return Outcome(run, row, RunDetails(run.config), f"{row['error']}\n")


# A dask cluster that runs go to: one that is there already, or one of this machine's own.

WAIT = 30  # seconds for the scheduler, and for a first worker


class Cluster:
    """Workers of dask, behind joblib.

    Parameters
    ----------
    address : str
        Of the scheduler, ``"tcp://host:8786"``; ``"local"`` starts processes on this machine.
    n_jobs : int
        How many processes "local" starts; -1: one a core.

    Raises
    ------
    ConnectionError
        Where no scheduler answers, or it has no worker.

    Notes
    -----
    Workers need ssdml of this version and no disk in common: the rows come back to this process,
    which writes them. A worker does one run at a time, however many threads it has.
    """

    def __init__(self, address: str, n_jobs: int = -1) -> None:
        self.address = address
        self._open = ExitStack()
        try:
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise ImportError(
                "--cluster needs dask's distributed: pip install 'ssdml[cluster]'."
            ) from error
        try:
            if address == "local":
                from joblib import effective_n_jobs

                workers: Any = self._open.enter_context(
                    LocalCluster(  # type: ignore[no-untyped-call]
                        n_workers=effective_n_jobs(n_jobs),
                        threads_per_worker=1,
                        dashboard_address=None,
                    )
                )
            else:
                _wait_for_scheduler(address)
                workers = address
            client: Any = Client
            self.client = self._open.enter_context(
                client(workers, timeout=WAIT, set_as_default=False)
            )
            self.client.wait_for_workers(1, timeout=WAIT)
        except (OSError, ValueError) as error:
            self.close()
            raise ConnectionError(
                f"compare: cluster must be 'local' or the address of a scheduler with workers; got "
                f"{address!r} ({error}). Start them with `dask scheduler` and `dask worker "
                "ADDRESS --nthreads 1`."
            ) from error

    @property
    def deadly(self) -> tuple[type[BaseException], ...]:
        """What is raised where workers died with a run."""
        from distributed import KilledWorker

        return (KilledWorker,)

    @contextmanager
    def backend(self, dataset: Dataset) -> Iterator[None]:
        """Within it joblib's work goes to the workers; each gets the data set once."""
        from joblib import parallel_config

        with parallel_config("dask", client=self.client, scatter=[dataset]):
            yield

    def close(self) -> None:
        """Let the workers go; those of "local" end."""
        self._open.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


def _wait_for_scheduler(address: str) -> None:
    """Raise an OSError or a ValueError where no scheduler answers.

    Before there is a client, which would leave a thread and a traceback of its own.
    """
    from dask import config
    from distributed import Security
    from distributed.comm.core import connect

    if config.get("distributed.client.security-loader", None):
        return  # only the client knows how to load it

    async def greet() -> None:
        reach: Any = connect
        security: Any = Security()  # type: ignore[no-untyped-call]
        comm = await reach(address, timeout=WAIT, **security.get_connection_args("client"))
        await comm.close()

    async def greet_in_time() -> None:
        await asyncio.wait_for(greet(), 2 * WAIT)  # once connected, it may never say a word

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(greet_in_time())
    else:  # a notebook's
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, greet_in_time()).result()
