"""Runs in other processes and on dask: the same rows, workers that die, schedulers that leave."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from concurrent.futures.process import BrokenProcessPool

import psutil
import pytest
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_info, threadpool_limits

from ssdml.datasets import Budget
from ssdml.experiments import compare
from ssdml.experiments.runs.execution import run_in_worker
from ssdml.experiments.runs.grid import make_runs
from ssdml.experiments.runs.job import run_one
from ssdml.experiments.runs.results import RESULTS, read_rows
from ssdml.utils.parallel import THREAD_VARIABLES, limited_threads
from tests.toy_study import started_anew

distributed = pytest.importorskip("distributed")


@pytest.fixture
def cluster():
    """A scheduler and a worker in this process: nothing to start, nothing to import."""
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        yield cluster


def scores(rows):
    return [(row["config_hash"], row["status"], row["scores"]) for row in rows]


def test_cluster_gives_the_same_rows(blobs, tmp_path, cluster, broken_method):
    settings = {
        "methods": ["input", "lda", broken_method],
        "seeds": [0, 1],
        "labels_per_class": [2, Budget(9, "natural", noise=0.2)],
    }
    there = compare(blobs, out=tmp_path / "a", cluster=cluster.scheduler_address, **settings)
    here = compare(blobs, out=tmp_path / "b", **settings)
    assert scores(there) == scores(here)
    for folder in ("details", "errors", "splits"):
        names = [sorted(p.name for p in (tmp_path / out / folder).iterdir()) for out in "ab"]
        assert names[0] == names[1]


def test_lost_scheduler_keeps_finished_runs(blobs, tmp_path, cluster):
    def leave(n_done, n_runs, title):
        if n_done == 3:
            cluster.close()

    settings = {"methods": ["input", "pca"], "out": tmp_path, "seeds": range(20)}
    with pytest.raises(ConnectionError, match=r"cluster 'inproc.*' went away.*kept.*--resume"):
        compare(blobs, cluster=cluster.scheduler_address, progress=leave, **settings)
    kept = read_rows(tmp_path / RESULTS)
    assert 3 <= len(kept) < 40
    rows = compare(blobs, resume=True, **settings)
    assert len(rows) == len(read_rows(tmp_path / RESULTS)) == 40
    assert read_rows(tmp_path / RESULTS)[: len(kept)] == kept


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nowhere", "locale"])
def test_cluster_without_answer_is_named(blobs, tmp_path, address, monkeypatch):
    monkeypatch.setattr("ssdml.experiments.runs.execution.WAIT", 1)
    with pytest.raises(ConnectionError, match=rf"got '{address}' .*dask scheduler"):
        compare(blobs, ["input"], out=tmp_path, cluster=address)


def test_silent_server_is_no_scheduler(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr("ssdml.experiments.runs.execution.WAIT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=rf"got '{address}' .*dask scheduler"):
            compare(blobs, ["input"], out=tmp_path, cluster=address)


def test_cluster_works_in_a_notebook(blobs, tmp_path, cluster):
    async def cell(address):
        return compare(blobs, ["input"], seeds=[0], out=tmp_path, cluster=address)

    with pytest.raises(ConnectionError, match="got 'nowhere' "):
        asyncio.run(cell("nowhere"))
    assert len(asyncio.run(cell(cluster.scheduler_address))) == 1


def test_missing_distributed_names_the_extra(blobs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'ssdml\[cluster\]'"):
        compare(blobs, ["input"], out=tmp_path, cluster="local")


def test_run_in_a_worker_has_one_thread(blobs, monkeypatch):
    class Counting(BaseEstimator):
        def fit(self, X, y=None):
            raise RuntimeError({pool["num_threads"] for pool in threadpool_info()})

    monkeypatch.setattr(signal, "signal", lambda *given: None)  # keep Ctrl-C for this process
    (run,) = make_runs(blobs, {"counting": lambda seed, n_jobs: Counting()}, [2], [0])
    with threadpool_limits(2):
        errors = [done(blobs, run).row["error"] for done in (run_in_worker, run_one)]
    assert errors[0] == "RuntimeError: {1}"
    assert "2" in errors[1]  # OpenBLAS may keep the limit of an earlier thread


def test_thread_limits_are_restored(monkeypatch):
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]
    with limited_threads(1):
        assert torch.get_num_threads() == 1
        assert {os.environ[name] for name in THREAD_VARIABLES} == {"1"}
    after = torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]
    assert after == before
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


@pytest.mark.slow  # workers that import all of ssdml
def test_run_of_a_dead_dask_worker_is_repeated(tmp_path):
    process = started_anew(tmp_path / "out", 2, cluster="local", n_jobs=2, deadly="once")
    assert process.wait(240) == 0
    assert len(read_rows(tmp_path / "out" / RESULTS)) == 12


@pytest.mark.slow  # each worker imports all of ssdml
def test_run_of_a_killed_worker_is_repeated(tmp_path):
    assert started_anew(tmp_path / "out", 1, n_jobs=2, deadly="once").wait(240) == 0
    assert len(read_rows(tmp_path / "out" / RESULTS)) == 6


@pytest.mark.slow  # workers die, and others start
def test_run_that_kills_every_worker_fails(tmp_path):
    assert started_anew(tmp_path / "out", 1, n_jobs=2, deadly="always").wait(290) == 2
    failed = [row for row in read_rows(tmp_path / "out" / RESULTS) if row["status"] != "ok"]
    assert {row["method"] for row in failed} == {"deadly"}
    assert all("was killed twice" in row["error"] for row in failed)


@pytest.mark.slow  # each worker imports all of ssdml
@pytest.mark.skipif(os.name == "nt", reason="kills as POSIX does")
@pytest.mark.parametrize("settings", [{"n_jobs": 2}, {"n_jobs": 2, "cluster": "local"}])
def test_no_worker_outlives_a_killed_study(tmp_path, settings):
    process = started_anew(tmp_path / "out", 50, pause=1.0, **settings)
    results = tmp_path / "out" / RESULTS
    while not (results.exists() and results.stat().st_size):
        assert process.poll() is None
        time.sleep(0.1)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    assert len(workers) >= 2
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def test_runs_of_a_dead_worker_are_repeated_alone(blobs, tmp_path, monkeypatch):
    """One of six runs kills each worker: it fails, and the others are done once each."""
    alone = []

    def parallel(dataset, runs, n_jobs):
        some = list(runs)
        alone.append(len(some) == 1)
        for run in some:
            if (run.method, run.split.seed) == ("pca", 1):
                raise BrokenProcessPool
            yield run_one(dataset, run)

    monkeypatch.setattr("ssdml.experiments.runs.execution._parallel", parallel)
    rows = compare(blobs, ["input", "pca"], out=tmp_path, seeds=range(3), n_jobs=2)
    failed = [row for row in rows if row["status"] != "ok"]
    assert [(row["method"], row["seed"]) for row in failed] == [("pca", 1)]
    assert "WorkerKilled: the process was killed twice" in failed[0]["error"]
    assert "out of memory: use fewer samples or another machine" in failed[0]["error"]
    assert len(read_rows(tmp_path / RESULTS)) == 6
    assert sum(alone) == 3
