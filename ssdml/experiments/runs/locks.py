"""Which runs somebody is at: a lock a run, which the system takes back from a process that dies."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from filelock import FileLock, Timeout

from ssdml.experiments.runs.plan import Run


class Claim(NamedTuple):
    """A run that a process is at, and since when, in seconds of the epoch."""

    config_hash: str
    title: str
    host: str
    pid: int
    since: float


class Claims:
    """Runs that this process is at; no other process of the folder begins one of them.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from ssdml.datasets import load_dataset
    >>> from ssdml.experiments.runs.plan import plan_runs
    >>> from ssdml.experiments import METHODS
    >>> (run,) = plan_runs(load_dataset("digits"), {"pca": METHODS["pca"]}, [5], [0])
    >>> with TemporaryDirectory() as out, Claims(Path(out)) as mine, Claims(Path(out)) as others:
    ...     mine.take(run), others.take(run)
    (True, False)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: dict[str, FileLock] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for config_hash in list(self._held):
            self.release(config_hash)

    def take(self, run: Run) -> bool:
        """Begin with a run, unless another process is at it."""
        lock = _lock(self.folder, run.config_hash)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        self._held[run.config_hash] = lock
        claim = Claim(run.config_hash, run.title, platform.node(), os.getpid(), time.time())
        path = self.folder / f"{run.config_hash}.json"
        path.write_text(json.dumps(claim._asdict()), encoding="utf-8")
        return True

    def release(self, config_hash: str, *, done: bool = False) -> None:
        """Be at it no longer; the lock of a run that is done and written goes, too.

        Who takes a lock looks into the results then, and leaves alone what is done: so two that
        hold a lock of the same name, one gone and one new, do no harm.
        """
        (self.folder / f"{config_hash}.json").unlink(missing_ok=True)
        lock = self._held.pop(config_hash)
        lock.release()
        if done:
            (self.folder / f"{config_hash}.lock").unlink(missing_ok=True)


def read_claims(folder: Path) -> list[Claim]:
    """Runs that living processes are at, the oldest first."""
    return sorted(_living(folder), key=lambda claim: claim.since)


def _living(folder: Path) -> Iterator[Claim]:
    for path in folder.glob("*.json"):
        lock = _lock(folder, path.stem)
        try:
            with lock.acquire(blocking=False):
                continue  # whoever held it has died
        except Timeout:
            pass
        try:
            yield Claim(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue  # it has just ended, or has just begun


def _lock(folder: Path, config_hash: str) -> FileLock:
    # joblib takes the next run in a thread of its own.
    return FileLock(folder / f"{config_hash}.lock", thread_local=False)
