"""Runs on a dask cluster: the same rows, workers that die, a scheduler that goes away."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import pytest
from sklearn.base import BaseEstimator
from threadpoolctl import threadpool_info, threadpool_limits

from ssdml.datasets import Budget
from ssdml.experiments import compare
from ssdml.experiments.runs.execution import run_beside
from ssdml.experiments.runs.job import attempt
from ssdml.experiments.runs.plan import plan_runs
from ssdml.experiments.runs.results import RESULTS, read_rows
from ssdml.utils.parallel import VARIABLES, limited_threads
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


def test_a_cluster_comes_to_the_same_rows(blobs, tmp_path, cluster, broken_method):
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


def test_a_scheduler_that_goes_away_leaves_what_is_done_and_says_how_to_go_on(
    blobs, tmp_path, cluster
):
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
def test_a_cluster_that_does_not_answer_is_named(blobs, tmp_path, address, monkeypatch):
    monkeypatch.setattr("ssdml.experiments.runs.execution.WAIT", 1)
    with pytest.raises(ConnectionError, match=rf"got '{address}' .*dask scheduler"):
        compare(blobs, ["input"], out=tmp_path, cluster=address)


def test_who_accepts_and_says_nothing_is_no_scheduler(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr("ssdml.experiments.runs.execution.WAIT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=rf"got '{address}' .*dask scheduler"):
            compare(blobs, ["input"], out=tmp_path, cluster=address)


def test_it_is_told_in_a_notebook_as_well(blobs, tmp_path, cluster):
    async def cell(address):
        return compare(blobs, ["input"], seeds=[0], out=tmp_path, cluster=address)

    with pytest.raises(ConnectionError, match="got 'nowhere' "):
        asyncio.run(cell("nowhere"))
    assert len(asyncio.run(cell(cluster.scheduler_address))) == 1


def test_without_distributed_it_says_what_to_install(blobs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'ssdml\[cluster\]'"):
        compare(blobs, ["input"], out=tmp_path, cluster="local")


def test_a_run_beside_others_has_one_thread(blobs, monkeypatch):
    class Counting(BaseEstimator):
        def fit(self, X, y=None):
            raise RuntimeError({pool["num_threads"] for pool in threadpool_info()})

    monkeypatch.setattr(signal, "signal", lambda *given: None)  # Ctrl-C ends this process yet
    (run,) = plan_runs(blobs, {"counting": lambda seed, n_jobs: Counting()}, [2], [0])
    with threadpool_limits(2):
        errors = [done(blobs, run).row["error"] for done in (run_beside, attempt)]
    assert errors == ["RuntimeError: {1}", "RuntimeError: {2}"]


def test_threads_are_given_back(monkeypatch):
    import torch

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]
    with limited_threads(1):
        assert torch.get_num_threads() == 1
        assert {os.environ[name] for name in VARIABLES} == {"1"}
    after = torch.get_num_threads(), [pool["num_threads"] for pool in threadpool_info()]
    assert after == before
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


@pytest.mark.slow  # workers that import all of ssdml
def test_the_run_of_a_worker_that_dies_is_done_by_another(tmp_path):
    process = started_anew(tmp_path / "out", 2, cluster="local", n_jobs=2, deadly="once")
    assert process.wait(240) == 0
    assert len(read_rows(tmp_path / "out" / RESULTS)) == 12
