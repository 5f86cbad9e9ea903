"""Readers of arrays and tables."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ssdml.datasets.tables import (
    label_file,
    read_csv,
    read_npy,
    read_npy_folder,
    read_npy_pair,
    read_npz,
    read_parquet,
)

X = np.array([[0.5, 1.0], [2.0, -3.0], [4.0, 0.25]])
Y = np.array(["cat", "dog", "cat"])


def assert_read(raw, labels=Y, test=None):
    np.testing.assert_array_equal(raw.items, X)
    np.testing.assert_array_equal(raw.labels, labels)
    assert raw.test is None if test is None else (raw.test == test).all()


def test_npz_with_optional_test_mask(tmp_path):
    path = tmp_path / "items.npz"
    np.savez(path, X=X, y=Y)
    assert_read(read_npz(path))
    test = np.array([False, True, False])
    np.savez(path, X=X, y=Y, test=test, notes=np.array("ignored"))
    assert_read(read_npz(path), test=test)


@pytest.mark.parametrize("n_channels", [1, 3])
def test_channels_may_come_first(tmp_path, n_channels):
    images = np.arange(2 * n_channels * 30).reshape(2, n_channels, 5, 6)
    np.savez(tmp_path / "first.npz", X=images, y=[0, 1])
    np.savez(tmp_path / "last.npz", X=images.transpose(0, 2, 3, 1), y=[0, 1])
    first, last = (read_npz(tmp_path / f"{name}.npz").items for name in ("first", "last"))
    np.testing.assert_array_equal(first, last)
    assert first.shape == (2, 5, 6, n_channels)


def test_several_arrays_are_not_an_npy(tmp_path):
    np.savez(tmp_path / "data.npz", X=X)
    with pytest.raises(ValueError, match="file with one array; got several arrays"):
        read_npy(tmp_path / "data.npz")
    with pytest.raises(ValueError, match="file with one array; got a folder"):
        read_npy(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": X}, r"must contain arrays X and y; got \['X'\]"),
        ({"X": X, "y": Y[:2]}, r"y must have 3 labels, one per row; got shape \(2,\)"),
        ({"X": X[0], "y": Y[:2]}, r"X must be an array of numbers .*; got shape \(2,\)"),
        ({"X": Y[:, None], "y": Y}, "X must be an array of numbers .*dtype <U3"),
        ({"X": X[:0], "y": Y[:0]}, r"X must be an array of numbers .*; got shape \(0, 2\)"),
        ({"X": X, "y": Y, "test": [0, 1, 0]}, "test must have 3 booleans, one per row"),
        ({"X": X, "y": Y.astype(object)}, "cannot be read .*Save plain arrays"),
    ],
)
def test_invalid_npz_is_named(tmp_path, arrays, message):
    path = tmp_path / "items.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=rf"items\.npz: {message}"):
        read_npz(path)


@pytest.mark.parametrize("kept", [0, 100, -30])
def test_truncated_npz_is_named(tmp_path, kept):
    path = tmp_path / "items.npz"
    np.savez(path, X=X, y=Y)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"items\.npz: cannot be read"):
        read_npz(path)


@pytest.mark.parametrize(
    ("items", "labels"),
    [("X.npy", "y.npy"), ("test_X.npy", "test_y.npy"), ("embeddings.npy", "embeddings_y.npy")],
)
def test_labels_are_beside_the_items(tmp_path, items, labels):
    assert label_file(tmp_path / items) == tmp_path / labels
    np.save(tmp_path / items, X)
    np.save(tmp_path / labels, Y)
    assert_read(read_npy_pair(tmp_path / items))


def test_missing_label_file_is_named(tmp_path):
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(FileNotFoundError, match=r"X\.npy: its labels must be in .*y\.npy"):
        read_npy_pair(tmp_path / "X.npy")


@pytest.mark.parametrize("kept", [0, 20, -8])
def test_truncated_npy_is_named(tmp_path, kept):
    for name, array in (("X.npy", X), ("y.npy", Y)):
        np.save(tmp_path / name, array)
    path = tmp_path / "X.npy"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"X\.npy: cannot be read"):
        read_npy_pair(path)


def test_npy_with_wrong_magic_raises(tmp_path):
    np.save(tmp_path / "y.npy", Y)
    path = tmp_path / "X.npy"
    path.write_text("0.5,1\n2,-3\n")
    begins = r"X\.npy: cannot be read \(not written by np\.save: it begins with"
    with pytest.raises(ValueError, match=rf"{begins} b'0\.5,1\\n'\)\. Save plain arrays"):
        read_npy_pair(path)
    np.savez(tmp_path / "several.npz", X=X)
    (tmp_path / "several.npz").replace(path)
    with pytest.raises(ValueError, match=f"{begins} b'PK"):
        read_npy(path, in_place=True)


def test_folder_of_training_and_test_pairs(tmp_path):
    for name, rows in (("train", [0, 1]), ("test", [2])):
        np.save(tmp_path / f"{name}_X.npy", X[rows])
        np.save(tmp_path / f"{name}_y.npy", Y[rows])
    assert_read(read_npy_folder(tmp_path), test=[False, False, True])
    assert read_npy_folder(tmp_path).texts is None
    (tmp_path / "train_text.txt").write_text("first\nsecond, \u2028ß\n", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"test_text\.txt is missing, while train_text"):
        read_npy_folder(tmp_path)
    (tmp_path / "test_text.txt").write_text("third\n", encoding="utf-8")
    assert read_npy_folder(tmp_path).texts.tolist() == ["first", "second, \u2028ß", "third"]
    (tmp_path / "train_text.txt").write_text("first\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"train_text\.txt: must contain 2 lines, one per row; got 1"
    ):
        read_npy_folder(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "a,b,label\n0.5,1,cat\n2,-3,dog\n4,0.25,cat\n",
        "Label,a,b\ncat,0.5,1\ndog,2,-3\ncat,4,0.25\n",
        "a,y,b\n0.5,cat,1\n2,dog,-3\n4,cat,0.25\n",
        "a,b,species\n0.5,1,cat\n2,-3,dog\n\n4,0.25,cat\n",
        "0.5,1,cat\n2,-3,dog\n4,0.25,cat\n",
        '\ufeff"a","b","label"\r\n"0.5","1","cat"\r\n2,-3,"dog"\r\n4,0.25,cat\r\n',
    ],
    ids=["last", "first", "y", "unnamed", "no header", "spreadsheet"],
)
def test_csv_finds_its_label(tmp_path, text):
    path = tmp_path / "items.csv"
    path.write_bytes(text.encode())
    assert_read(read_csv(path))


def test_binary_csv_is_named(tmp_path):
    (tmp_path / "items.csv").write_bytes("größe,label\n1,x\n".encode("latin-1"))
    message = r"items\.csv: cannot be read \(.*can't decode.*\)\. Save it as text in UTF-8\."
    with pytest.raises(ValueError, match=message):
        read_csv(tmp_path / "items.csv")


def test_integer_labels_and_empty_labels(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("a,b,y\n0.5,1,10\n2,-3,\n4,0.25,9\n")
    assert_read(read_csv(path), labels=[10, -1, 9])
    path.write_text("a,b,y\n0.5,1,10\n2,-3,-1\n4,0.25,b\n")
    assert_read(read_csv(path), labels=["10", "-1", "b"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": must contain at least two columns"),
        ("1\n2\n", ": must contain at least two columns"),
        ("a,label\n", r": X must be an array of numbers .*; got shape \(0, 1\)"),
        ("a,b,label\n1,2,x\n\n1,x\n", ", line 4: must have 3 columns; got 2"),
        ("a,b,label\n1,,x\n", ", line 2: must contain numbers besides the label; got ''"),
        (
            "a,b,label\n1,2,x\n1,two,x\n",
            ", line 3: must contain numbers besides the label; got 'two'",
        ),
    ],
)
def test_invalid_csv_line_is_named(tmp_path, text, message):
    path = tmp_path / "items.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"items\.csv{message}"):
        read_csv(path)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    "columns",
    [
        {"a": X[:, 0], "b": X[:, 1], "label": Y},
        {"y": Y, "text": ["one", "two", "three"], "a": X[:, 0], "b": X[:, 1]},
        {"id": [7, 8, 9], "vector": X.tolist(), "species": Y},
    ],
    ids=["columns", "text beside", "lists"],
)
def test_parquet_with_columns_of_numbers_or_lists(tmp_path, frame, columns):
    path = tmp_path / "items.parquet"
    table = frame({name: list(values) for name, values in columns.items()})
    (table.to_parquet if frame is pd.DataFrame else table.write_parquet)(path)
    assert_read(read_parquet(path))


def test_parquet_keeps_categories_and_missing_labels(tmp_path):
    path = tmp_path / "items.parquet"
    labels = pd.Categorical(["cat", None, "cat"])
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": labels}).to_parquet(path)
    assert_read(read_parquet(path), labels=["cat", None, "cat"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"a": ["x"], "label": ["y"]},
            r"must have numeric columns besides the label; got \['a'\]",
        ),
        ({"a": [[1.0], [1.0, 2.0]], "y": [0, 1]}, "the lists of 'a' must have the same length"),
        ({"a": [[1.0], None], "y": [0, 1]}, "the lists of 'a' must have the same length"),
        ({"a": [], "y": []}, "must contain rows; got none"),
    ],
)
def test_invalid_parquet_is_named(tmp_path, columns, message):
    path = tmp_path / "items.parquet"
    pl.DataFrame(columns).write_parquet(path)
    with pytest.raises(ValueError, match=rf"items\.parquet: {message}"):
        read_parquet(path)


def test_truncated_parquet_is_named(tmp_path):
    path = tmp_path / "items.parquet"
    pl.DataFrame({"a": X[:, 0], "y": Y}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"items\.parquet: cannot be read"):
        read_parquet(path)


def test_missing_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match="needs pyarrow: pip install pyarrow"):
        read_parquet(tmp_path / "items.parquet")
