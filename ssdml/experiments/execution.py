"""Runs one after another, side by side, or on a cluster; a killed worker's are done again."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import chain
from typing import Any

from ssdml.datasets import Dataset
from ssdml.experiments.cluster import Cluster
from ssdml.experiments.details import RunDetails
from ssdml.experiments.job import Outcome, attempt, failed_row
from ssdml.experiments.plan import Run
from ssdml.experiments.threads import limited_threads

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
