"""Rows read in parts: files, half precision, stacked matrices."""

from __future__ import annotations

import errno
import os
import tracemalloc
from mmap import mmap

import numpy as np
import pytest

from ssdml.graphs import knn_graph, nearest_rows
from ssdml.graphs.neighbors import exact as _search, metrics, rows as _rows
from ssdml.graphs.neighbors.rows import Part, Rows, is_mapped, open_rows


@pytest.fixture
def mapped(tmp_path):
    """Function that saves an array and maps the file to memory."""

    def put(X, order="C"):
        np.save(tmp_path / "X.npy", np.asarray(X, order=order))
        return np.load(tmp_path / "X.npy", mmap_mode="r")

    return put


@pytest.fixture
def small_chunks(monkeypatch):
    for module in (_rows, _search):
        monkeypatch.setattr(module, "CHUNK_ENTRIES", 2**12)


def test_views_of_files_are_mapped(mapped, rng):
    X = mapped(rng.random((4, 2)))
    assert all(is_mapped(view) for view in (X, X[1:], np.asarray(X), X.reshape(2, 4).T))
    assert not is_mapped(np.array(X))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("order", ["C", "F"])
def test_file_is_read_exactly(mapped, rng, dtype, order, small_chunks):
    X = (100 * rng.random((700, 9))).astype(dtype)
    rows = open_rows(mapped(X, order), "test")
    assert rows.dtype == (np.float32 if dtype in (np.float16, np.float32) else np.float64)
    numbers = rng.integers(700, size=(5, 4))
    for index in (slice(3, 50), numbers):
        read = rows[index]
        np.testing.assert_array_equal(read, X[index])
        assert (read.dtype, read.flags.c_contiguous) == (rows.dtype, True)
    assert [block.stop for block in rows.blocks()] == [455, 700]


def test_stacked_rows_are_read_as_one_matrix(rng):
    parts = [rng.random((n, 3)) for n in (4, 1, 6)]
    rows = Rows([Part(part) for part in parts[:2]], np.float64) + Rows([Part(parts[2])], np.float64)
    whole = np.vstack(parts)
    assert len(rows) == 11
    for index in (slice(None), slice(2, 8), rng.integers(11, size=(3, 5))):
        np.testing.assert_array_equal(rows[index], whole[index])


def test_changes_apply_in_order(rng):
    X = rng.random((6, 2)).astype(np.float16)
    later, now = open_rows(X, "test"), open_rows(X.astype(np.float32), "test")
    for rows in (later, now):
        twice = rows.changed(lambda part: part + 1).read_through(lambda part: part * 2)
        np.testing.assert_array_equal(twice[1:4], 2 * (X[1:4].astype(np.float32) + 1))


def test_only_rows_in_memory_are_changed_at_once(rng):
    sizes = []

    def noted(part):
        sizes.append(len(part))
        return part

    X = rng.random((6, 2)).astype(np.float32)
    for dtype, expected in ((np.float32, [6]), (np.float16, [1, 1])):
        sizes.clear()
        rows = open_rows(X.astype(dtype), "test").changed(noted)
        assert [len(rows[:1]), len(rows[1:2])] == [1, 1]
        assert sizes == expected


@pytest.mark.parametrize("method", ["exact", "ivf"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_half_precision_gives_graph_of_its_values(rng, method, metric):
    X = rng.standard_normal((1500, 6)).astype(np.float16)
    half = knn_graph(X, 5, method=method, metric=metric, random_state=0)
    single = knn_graph(X.astype(np.float32), 5, method=method, metric=metric, random_state=0)
    assert half.distances.dtype == np.float32
    np.testing.assert_array_equal(half.indices, single.indices)
    np.testing.assert_array_equal(half.distances, single.distances)


@pytest.mark.parametrize("method", ["exact", "ivf", "hnsw", "torch"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_file_gives_graph_of_its_rows(mapped, rng, method, metric, small_chunks):
    X = rng.standard_normal((1500, 6))
    found = knn_graph(mapped(X), 5, method=method, metric=metric, random_state=0)
    expected = knn_graph(X, 5, method=method, metric=metric, random_state=0)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.distances, expected.distances)


def test_queries_may_lie_in_files(mapped, rng):
    X = rng.standard_normal((90, 4)).astype(np.float32)
    expected = nearest_rows(X, X[:7].astype(np.float64), 3)
    found = nearest_rows(X.astype(np.float64), mapped(X[:7]), 3)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_opened_rows_are_not_checked_again(rng, monkeypatch):
    X = rng.standard_normal((90, 4))
    expected = nearest_rows(X, X[:7], 3)
    monkeypatch.setattr(_rows, "check_rows", lambda found, *_: found if len(found) == 7 else 1 / 0)
    for found, wanted in zip(nearest_rows(Rows.of(X), X[:7], 3), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_file_is_never_copied_whole(mapped, rng, metric, monkeypatch):
    for module in (_rows, _search):
        monkeypatch.setattr(module, "CHUNK_ENTRIES", 2**16)
    monkeypatch.setattr(_search, "GATHERED_ENTRIES", 2**16)
    monkeypatch.setattr(_search, "QUERY_BLOCK", 256)
    monkeypatch.setattr(metrics, "CENTER_ROWS", 64)
    X = mapped(rng.standard_normal((3000, 512)).astype(np.float16))
    knn_graph(X[:9], 5)  # imports
    tracemalloc.start()
    try:
        knn_graph(X, 5, metric=metric)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes  # which is half of X in float32


def test_graph_holds_rows_without_copy(rng, mapped):
    for X in (rng.random((5, 2)), mapped(rng.random((5, 2)))):
        assert np.shares_memory(knn_graph(X, 2).rows[:], X)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nan_in_file_is_named(mapped, value, small_chunks):
    X = np.ones((900, 9), np.float32)
    X[700, 2] = value
    with pytest.raises(ValueError, match=f"X must be finite; got {value} at row 700, column 2"):
        knn_graph(mapped(X), 3)


@pytest.mark.parametrize("offset", [0, 100, 2**16, 2**16 + 8])
def test_truncated_file_is_refused(tmp_path, rng, offset):
    X = np.memmap(tmp_path / "X", np.float32, "w+", offset, (60, 5))
    X[:] = rng.random((60, 5))
    X.flush()
    rows = open_rows(X, "test")
    np.testing.assert_array_equal(rows[:3], X[:3])
    os.truncate(tmp_path / "X", offset + X.nbytes - 1)
    for view in (X, X[1:], np.asarray(X), X.reshape(30, 10).T):
        with pytest.raises(ValueError, match=r"test: X must be in a file of at least .*; got \d+."):
            open_rows(view, "test")
    with pytest.raises(ValueError, match=r"X must be in a file .* Write it again, and open it"):
        rows[:3]
    with open(tmp_path / "X", "ab") as file:  # longer than before
        file.write(bytes(100))
    assert len(open_rows(X, "test")) == 60


def test_anonymous_memory_is_accepted():
    X = np.frombuffer(mmap(-1, 800)).reshape(20, 5)
    assert len(open_rows(X, "test")) == 20


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("n_reads", [1, 5, 12])
def test_disk_failure_is_raised(mapped, rng, n_jobs, n_reads, monkeypatch):
    """In the checks or in a thread of the search."""
    left, read = iter(range(n_reads)), Rows._read

    def failing(self, part, index):
        if next(left, None) is None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(self, part, index)

    X = mapped(rng.random((3000, 4)))
    with monkeypatch.context() as patch:
        patch.setattr(Rows, "_read", failing)
        with pytest.raises(OSError, match="Input/output error"):
            knn_graph(X, 3, n_jobs=n_jobs)
    assert knn_graph(X, 3, n_jobs=n_jobs).n_samples == 3000


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.ones(5), ValueError, r"two dimensions.*got shape \(5,\)"),
        (np.ones((5, 2), complex), ValueError, "must hold real numbers; got dtype complex128"),
    ],
)
def test_file_without_table_is_refused(mapped, X, error, message):
    with pytest.raises(error, match=f"knn_graph: X .*{message}"):
        knn_graph(mapped(X), 1)


def test_empty_half_precision_is_refused():
    with pytest.raises(ValueError, match=r"X must not be empty; got shape \(0, 3\)"):
        knn_graph(np.ones((0, 3), np.float16), 1)
