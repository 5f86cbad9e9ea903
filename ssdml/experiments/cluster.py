"""A dask cluster that runs go to: one that is there already, or one of this machine's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from ssdml.datasets import Dataset

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
