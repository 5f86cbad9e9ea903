"""A study with runs of a given length, in processes that can be killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ssdml.datasets import Budget, Dataset
from ssdml.experiments import METHODS, compare

RUNS_PER_SEED = 4


class Slow(BaseEstimator):
    """Return the input after a pause; write a line to `trace` per fit."""

    def __init__(self, pause: float, trace: Path) -> None:
        self.pause = pause
        self.trace = trace

    def fit(self, X, y):
        time.sleep(self.pause)
        with self.trace.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return self

    def transform(self, X):
        return X


class Deadly(Slow):
    """Kill the process, each time or once."""

    def fit(self, X, y):
        with suppress(FileExistsError):
            self.trace.with_name("dead").touch(exist_ok=bool(self.pause))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y)


def toy() -> Dataset:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 30)
    X = (rng.normal(size=(90, 4)) + 4 * np.eye(4)[y]).astype(np.float32)
    return Dataset("toy", X, y, ("a", "b", "c"))


def study(
    out: Path, n_seeds: int, pause: float = 0.05, *, deadly: str = "", **settings: Any
) -> None:
    """Four runs per seed; six with the method that kills, "once" or "always".

    The exit status is the number of failed runs.
    """
    warnings.simplefilter("ignore")
    trace = out.with_name("fits")
    METHODS["slow"] = lambda seed, n_jobs: Slow(pause, trace)
    METHODS["deadly"] = lambda seed, n_jobs: Deadly(float(deadly == "always"), trace)
    rows = compare(
        toy(),
        ["input", "slow"] + ["deadly"] * bool(deadly),
        out=out,
        seeds=range(n_seeds),
        labels_per_class=[1, Budget(8, "natural")],
        **settings,
        resume=True,
    )
    sys.exit(sum(row["status"] != "ok" for row in rows))


def started_anew(out: Path, n_seeds: int, **settings: Any) -> subprocess.Popen[bytes]:
    """Start the study in a new interpreter, with workers of joblib or dask."""
    call = f"study(Path({str(out)!r}), {n_seeds}, **{settings!r})"
    script = f"from pathlib import Path\nfrom tests.toy_study import study\n{call}"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    return subprocess.Popen([sys.executable, "-c", script], env=environment)


def started(*given, **settings) -> multiprocessing.Process:
    """Start the study in a process whose imports are done by its server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.toy_study"])
    process = context.Process(target=study, args=given, kwargs=settings)
    process.start()
    return process
