"""Dask arrays: recognition, checks and maps over blocks."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import sparse

from ssdml.utils.dask_arrays import (
    check_block,
    check_dask_array,
    check_known_chunks,
    is_dask,
    map_row_blocks,
)

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")


@pytest.fixture
def X(rng):
    return rng.standard_normal((10, 3))


@pytest.fixture
def chunked(X):
    return da.from_array(X, chunks=(4, -1))


def test_is_dask_recognizes_collections(X, chunked):
    class Own(da.Array):
        pass

    assert is_dask(chunked)
    assert is_dask(dask.delayed(X))
    assert is_dask(Own.__new__(Own, {}, "own", chunks=((1,),), dtype=float))
    assert not any(is_dask(other) for other in (X, X.tolist(), sparse.csr_array(X), None))


def test_fit_in_memory_does_not_import_dask(monkeypatch, rng):
    """`tests/test_layout.py` sees that no module imports it when loaded."""
    from ssdml import SSDML

    class Refused:
        @staticmethod
        def find_spec(name, *_):
            assert name.split(".")[0] not in ("dask", "distributed")

    for name in [name for name in sys.modules if name.split(".")[0] in ("dask", "distributed")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Refused, *sys.meta_path])
    y = np.where(np.arange(40) < 9, np.arange(40) % 2, -1)
    X = rng.standard_normal((40, 2)) + 9 * (np.arange(40) % 2)[:, None]
    SSDML(random_state=0).fit(X, y).predict(X)


def unknown_columns(X):
    return X.T[X.sum(axis=0) > 0].T


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda X: dask.delayed(X), TypeError, "X must be a dask array; got a Delayed"),
        (lambda X: X[:, 0], ValueError, r"two dimensions .*; got shape \(10,\). Use X.reshape"),
        (lambda X: X.map_blocks(sparse.csr_array), TypeError, r"got csr_array.*block\.toarray\(\)"),
        (lambda X: dask.array.ma.masked_greater(X, 0), TypeError, r"masked blocks\. Impute them"),
        (lambda X: X.astype(object), TypeError, r"numeric; got dtype object. Use X.astype\('float"),
        (lambda X: X.astype(complex), TypeError, "X must be numeric; got dtype complex128"),
        (
            lambda X: X.rechunk({1: 1}),
            ValueError,
            r"one chunk; got 3 chunks .*X.rechunk\({1: -1}\)",
        ),
        (unknown_columns, ValueError, r"got shape \(10, nan\). Call X.compute_chunk_sizes\(\)"),
    ],
    ids="delayed 1-D sparse masked objects complex columns unknown-columns".split(),
)
def test_unsupported_arrays_raise(chunked, spoil, error, message):
    with pytest.raises(error, match=f"who: .*{message}"):
        check_dask_array(spoil(chunked), "who")


@pytest.mark.parametrize("kind", [bool, np.int8, np.float16, np.float32, np.float64])
def test_numbers_of_any_kind_are_accepted(chunked, kind):
    check_dask_array(chunked.astype(kind), "who")


def test_unknown_chunk_sizes_raise_until_computed(chunked):
    filtered = chunked[chunked[:, 0] > 0]
    check_dask_array(filtered, "who")
    with pytest.raises(
        ValueError, match=r"who: X must have known chunk sizes; got shape \(nan, 3\)"
    ):
        check_known_chunks(filtered, "who")
    check_known_chunks(filtered.compute_chunk_sizes(), "who")


@pytest.mark.parametrize(
    ("block", "error", "message"),
    [
        (sparse.csr_array(np.eye(2)), TypeError, r"got a csr_array.*block.toarray\(\)"),
        (np.eye(2)[:1], ValueError, r"got \(1, 2\) for \(2, 2\). Call X.compute_chunk_sizes\(\)"),
        (
            np.array([[0, 1], [np.inf, 0]]),
            ValueError,
            "X must be finite; got inf at row 7, column 0",
        ),
    ],
    ids=["sparse", "shape", "infinite"],
)
def test_block_that_contradicts_the_array_raises(block, error, message):
    with pytest.raises(error, match=f"who: .*{message}"):
        check_block(block, (2, 2), np.float64, "who", first_row=6)


def doubled(rows):
    return np.hstack([rows, rows])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int16])
def test_map_over_blocks_equals_map_over_rows(X, chunked, kind):
    mapped = map_row_blocks(chunked.astype(kind), doubled, 6, "who")
    assert mapped.chunks == ((4, 4, 2), (6,))
    result = mapped.compute()
    assert result.dtype == mapped.dtype == (np.float32 if kind == np.float32 else np.float64)
    np.testing.assert_array_equal(result, doubled(X.astype(kind)))


def test_blocks_of_unknown_size_are_mapped(X, chunked):
    filtered = chunked[chunked[:, 0] > 0]
    result = map_row_blocks(filtered, doubled, 6, "who").compute()
    np.testing.assert_array_equal(result, doubled(X[X[:, 0] > 0]))


def test_nonfinite_entry_raises_when_computed(X):
    X[5, 1] = np.nan
    chunked = da.from_array(X, chunks=(4, -1))
    mapped = map_row_blocks(chunked, doubled, 6, "who")
    np.testing.assert_array_equal(mapped[:4].compute(), doubled(X[:4]))
    with pytest.raises(ValueError, match="who: X must be finite; got nan at row 5, column 1"):
        mapped.compute()
    unknown = map_row_blocks(chunked[chunked[:, 0] > -99], doubled, 6, "who")
    with pytest.raises(
        ValueError, match="who: block 1: X must be finite; got nan at row 1, column"
    ):
        unknown.compute()
