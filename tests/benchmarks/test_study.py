"""Overhead of the runner of a study, and the gain of a second worker.

Runs sleep for a known time, so that other load does not distort the ratios.
"""

from __future__ import annotations

import time
import warnings

import pytest
from sklearn.base import BaseEstimator

from ssdml.datasets import load_dataset
from ssdml.experiments import METHODS, compare
from ssdml.experiments.runs.grid import make_runs
from ssdml.experiments.runs.job import run_one


class Pause(BaseEstimator):
    """Return the input after a pause."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def fit(self, X, y):
        time.sleep(self.seconds)
        return self

    def transform(self, X):
        return X


@pytest.fixture
def digits():
    return load_dataset("digits")


def seconds_of(work):
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


@pytest.mark.parametrize("n_seeds", [20])
def test_runner_overhead_is_below_three_percent(benchmark, digits, tmp_path, monkeypatch, n_seeds):
    """Time of `compare` outside of jobs, against fits of one second."""
    monkeypatch.setitem(METHODS, "pause", lambda seed, n_jobs: Pause(1.0))
    runs = make_runs(digits, {"pause": METHODS["pause"]}, [5], range(n_seeds))
    run_one(digits, runs[0])  # exclude imports
    inside = []

    def timed(*args, **kwargs):
        taken, outcome = seconds_of(lambda: run_one(*args, **kwargs))
        inside.append(taken)
        return outcome

    monkeypatch.setattr("ssdml.experiments.runs.execution.run_one", timed)
    settings = {"out": tmp_path, "seeds": range(n_seeds), "features": "raw"}
    whole, rows = benchmark.pedantic(
        lambda: seconds_of(lambda: compare(digits, ["pause"], **settings))
    )
    fits = sum(row["seconds"]["fit"] for row in rows)
    share = (whole - sum(inside)) / fits
    benchmark.extra_info["runner, % of the fits"] = 100 * share
    assert share < 0.03


def test_two_workers_take_at_most_60_percent(benchmark, digits, tmp_path, monkeypatch):
    """Workers are started before the measurement."""
    monkeypatch.setitem(METHODS, "pause", lambda seed, n_jobs: Pause(2.0))
    settings = {"methods": ["pause"], "features": "raw"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(digits, out=tmp_path / "warm", seeds=range(4), n_jobs=2, **settings)
        one, _ = seconds_of(
            lambda: compare(digits, out=tmp_path / "1", seeds=range(12), **settings)
        )
        settings |= {"out": tmp_path / "2", "seeds": range(12), "n_jobs": 2}
        two, rows = benchmark.pedantic(lambda: seconds_of(lambda: compare(digits, **settings)))
    assert {row["status"] for row in rows} == {"ok"}
    benchmark.extra_info["two workers, time of one"] = two / one
    assert two <= 0.6 * one
