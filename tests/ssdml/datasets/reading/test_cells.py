"""Numbers of a table: those that float32 cannot hold, and long integers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.columns import Choice
from ssdml.datasets.reading.summary import ReadingWarning
from ssdml.datasets.writing import write_rows

N = 40
LABELS = np.array(["x", "y", "", ""], object)[np.arange(N) % 4]
TABLES = [".csv", ".tsv", ".jsonl", ".parquet", ".feather", ".xlsx"]
PLACES = {".csv": "line 7", ".tsv": "line 7", ".jsonl": "line 6", ".xlsx": "row 7"}
SMALL = np.arange(N) % 7


def written(path, numbers, *, vectors=False):
    """Write two features and labels; return the path."""
    X = np.stack([np.sin(np.arange(N)), numbers], axis=1)
    if path.suffix == ".npy":
        np.save(path, X)
        np.save(path.with_name(f"{path.stem}_y.npy"), np.where(LABELS == "", -1, LABELS == "x"))
    elif path.suffix == ".npz":
        np.savez(path, X=X, y=np.where(LABELS == "", -1, LABELS == "x"))
    else:
        features = {"a": X[:, 0], "b": numbers}
        if vectors:
            features = {"v": np.fromiter((row.tolist() for row in X), object, N)}
        write_rows(path, {**features, "label": LABELS})
    return path


@pytest.mark.parametrize(
    ("number", "others"), [(1e300, SMALL), (-1e39, SMALL + 0.5)], ids=["integers", "fractions"]
)
@pytest.mark.parametrize("suffix", [*TABLES, ".npy", ".npz"])
def test_numbers_beyond_float32_are_refused_by_their_place(tmp_path, suffix, number, others):
    path = written(tmp_path / f"t{suffix}", np.where(np.arange(N) == 5, number, others))
    place = rf"{re.escape(str(path))}, {PLACES.get(suffix, 'row 5')}, column 'b': .*e\+"
    if suffix in (".npy", ".npz"):
        place = rf"{re.escape(str(path))}: .*e\+\d+ at row 5, column 1\. Scale"
    with pytest.raises(ValueError, match=place) as error:
        load_dataset(path)
    assert "within ±3.4e38, the range of float32" in str(error.value)
    if suffix in TABLES:
        assert load_dataset(path, ignore="b").X.shape == (N, 1)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_vectors_beyond_float32_are_refused_by_their_place(tmp_path, suffix):
    numbers = np.where(np.arange(N) == 5, 1e300, SMALL)
    path = written(tmp_path / f"t{suffix}", numbers, vectors=True)
    place = rf"t{suffix}, {PLACES.get(suffix, 'row 5')}, column 'v': .* within ±3\.4e38"
    with pytest.raises(ValueError, match=place):
        load_dataset(path)


@pytest.mark.parametrize("suffix", [*TABLES, ".npy", ".npz"])
def test_numbers_that_become_zeros_are_doubted(tmp_path, suffix):
    path = written(tmp_path / f"t{suffix}", 1e-50 * (1 + SMALL))
    name = "column 1" if suffix in (".npy", ".npz") else "column 'b'"
    with pytest.warns(ReadingWarning, match=f"below 1e-45 are zeros in float32; scale {name}"):
        assert not load_dataset(path).X[:, 1].any()


@pytest.mark.parametrize(
    ("numbers", "is_key"),
    [
        (2**60 + 1009 * np.random.default_rng(0).permutation(N), True),
        ((2.0**60 + 1e9 * np.random.default_rng(0).permutation(N)), True),
        ([f"{12 + i % 7}{i:020d}" for i in range(N)], True),
        (np.where(np.arange(N) == 5, 10**17, SMALL), False),
        (6.02e23 * (1 + np.sin(np.arange(N))), False),
        (1e15 + np.random.default_rng(0).permutation(10**6)[:N] * 1e9, False),
    ],
    ids=["64 bits", "as floats", "22 digits", "one long", "moles", "wide"],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_long_integers_are_keys_and_quantities_are_not(tmp_path, suffix, numbers, is_key):
    path = tmp_path / f"t{suffix}"
    write_rows(path, {"a": np.sin(np.arange(N)), "b": np.array(numbers), "label": LABELS})
    data = read_dataset(path, Choice())
    assert data.columns == (("a",) if is_key else ("a", "b"))
    assert ("16 or more digits, like ids" in str(data.summary)) == is_key
