"""Blocks of rows and limits on threads."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from ssdml.graphs import knn_graph
from ssdml.utils.parallel import count_threads, row_blocks, threads


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
    assert [count_threads(n_jobs) for n_jobs in (None, 1, 3, -1)] == [1, 1, 3, cores]
    with joblib.parallel_config(n_jobs=4):
        assert [count_threads(None), count_threads(2)] == [4, 2]
    with pytest.raises(ValueError, match="n_jobs"):
        count_threads(0)


def test_pool_worker_may_use_threads():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(count_threads, (3,)) == 3


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
