"""Blocks of rows and limits on threads."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import psutil
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from ssdml.graphs import knn_graph
from ssdml.utils.parallel import LoadedLibraries, SharedSetting, count_threads, row_blocks, threads


@pytest.mark.parametrize("step", [0, 1, 2, 5, 6])
def test_row_blocks_cover_each_row_once(step):
    rows = np.arange(5)
    blocks = [rows[block] for block in row_blocks(5, step)]
    np.testing.assert_array_equal(np.concatenate(blocks), rows)
    assert max(map(len, blocks)) <= max(1, step)


def test_rows_wider_than_a_block_are_ranked(rng):
    """In 2^15 columns the candidates of a single row are more than a block holds."""
    X = rng.standard_normal((40, 2**15)).astype(np.float32)
    graph = knn_graph(X, 10)
    away = np.linalg.norm(X[:, None] - X[graph.indices], axis=2)
    np.testing.assert_allclose(graph.distances, away, rtol=1e-5)
    gram = X.astype(np.float64) @ X.T
    exact = np.diag(gram)[:, None] + np.diag(gram) - 2 * gram
    np.fill_diagonal(exact, np.inf)
    np.testing.assert_array_equal(graph.indices, np.argsort(exact, axis=1)[:, :10])


def test_threads_are_counted_as_in_joblib():
    cores = joblib.cpu_count()
    assert [count_threads(n_jobs, "fit") for n_jobs in (None, 1, 3, -1)] == [1, 1, 3, cores]
    with joblib.parallel_config(n_jobs=4):
        assert [count_threads(None, "fit"), count_threads(2, "fit")] == [4, 2]
    with pytest.raises(ValueError, match=r"^fit: n_jobs must .*; got 0\. Pass"):
        count_threads(0, "fit")


def test_pool_worker_may_use_threads():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(count_threads, (3, "fit")) == 3


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_last_of_two_users_restores_blas_threads():
    """Each in its turn begins; the first ends before the second, which must not keep the limit."""
    with threadpool_limits(3, "blas"):
        first, second = threads(1), threads(1)
        for one in (first, second):
            one.__enter__()
            assert blas_threads() == {1}
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {3}


def shared_blas_threads():
    """Of those whose threads belong to the process; with OpenMP each has its own limit."""
    return {
        pool["num_threads"]
        for pool in threadpool_info()
        if pool["user_api"] == "blas" and pool.get("threading_layer") != "openmp"
    }


def test_blas_limit_ends_with_living_threads():
    """Limits are heeded of one thread alone, until it dies; a pool's never do."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        first, second = threads(1), threads(1)
        with threadpool_limits(3, "blas"):
            one.submit(first.__enter__).result()
            assert shared_blas_threads() <= {1}
            other.submit(second.__enter__).result()
            one.submit(first.__exit__, None, None, None).result()
            assert shared_blas_threads() <= {1}
            other.submit(second.__exit__, None, None, None).result()
            assert shared_blas_threads() <= {3}
        with threadpool_limits(2, "blas"):
            assert shared_blas_threads() <= {2}


def test_libraries_are_searched_again_after_an_import(monkeypatch):
    searches = []
    monkeypatch.setattr("ssdml.utils.parallel.ThreadpoolController", lambda: searches.append(1))
    libraries = LoadedLibraries()
    libraries()
    libraries()
    assert len(searches) == 1
    monkeypatch.setitem(sys.modules, "a_module_with_its_own_blas", sys)
    libraries()
    assert len(searches) == 2


def counted(events):
    def make():
        events.append("made")
        return lambda: events.append("restored")

    return SharedSetting(make)


def test_a_shared_setting_is_made_and_restored_once():
    events = []
    setting = counted(events)
    with setting():
        with setting(), setting():
            assert events == ["made"]
    assert events == ["made", "restored"]
    with pytest.raises(KeyError), setting():
        raise KeyError
    assert events == ["made", "restored"] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_is_not_locked_by_the_threads_of_its_parent():
    """Another thread holds the setting, and its lock, when the process is forked."""
    events = []
    setting = counted(events)
    setting._lock.acquire()
    setting._n_users = 1
    setting._restore = lambda: events.append("restored")
    child = os.fork()
    if not child:
        status = 1
        try:
            with setting():
                pass
            status = 0 if events == ["restored"] else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + 30
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            pytest.fail("the fork waits for a thread that it does not have")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


ORPHANS = """
import os, sys, time
from joblib import Parallel, delayed
from ssdml.utils.parallel import leave_with_parent

def work(i):
    print(os.getpid(), flush=True)
    time.sleep(600)

Parallel(2, initializer=leave_with_parent, initargs=(os.getpid(),))(
    delayed(work)(i) for i in range(2)
)
"""


@pytest.mark.skipif(os.name == "nt", reason="kills as POSIX does")
def test_workers_end_soon_after_their_parent_is_killed():
    command = [sys.executable, "-c", ORPHANS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        workers = [psutil.Process(int(process.stdout.readline())) for _ in range(2)]
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.stdout.close()
    _, alive = psutil.wait_procs({*workers, *children}, timeout=20)
    for one in alive:
        one.kill()
    assert not alive
