"""Numbers of a table, in any notation: wrong ones, and those that float32 cannot hold."""

from __future__ import annotations

import decimal
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.summary import ReadingWarning
from ssdml.datasets.writing import write_rows
from tests.tables import N, assert_features

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


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        (["1", "two", "3"], "line 3, column 'a': 'two' must be a number"),
        (["1", "", "3"], "line 3, column 'a': an empty cell must be a number, not missing"),
        (["1", "NA", "null"], "line 3, column 'a': 'NA' must be a number, not missing .2 cells"),
        (["1", "2", "-inf"], "line 4, column 'a': '-inf' must be finite"),
        (["1", "1_000", "3"], "line 3, column 'a': '1_000' must be a number"),
        (["1", "0x10", "3"], "line 3, column 'a': '0x10' must be a number"),
    ],
)
def test_wrong_numbers_are_named(tmp_path, cells, problem):
    lines = [f"{cell},{i % 2},{'xy'[i % 2]}" for i, cell in enumerate(cells)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,label", *lines]))
    with pytest.raises(ValueError, match=rf"t\.csv, {problem}.*--ignore 'a' \(ignore=\['a'\]\)"):
        load_dataset(tmp_path / "t.csv")
    np.testing.assert_array_equal(load_dataset(tmp_path / "t.csv", ignore="a").X, [[0], [1], [0]])


def test_chosen_feature_of_texts_is_named(tmp_path, frame):
    frame.assign(city=["Ulm", "Bonn"] * 20).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match=r"line 2, column 'city': 'Ulm' must be a number"):
        load_dataset(tmp_path / "t.csv", features=["p", "city"])


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_decimal_commas_are_read(tmp_path, frame, separator):
    path = tmp_path / "t.csv"
    frame = frame.assign(n=np.random.default_rng(0).integers(0, 9, N), big=1234.5)
    frame["big"] = [f"1.234,{i % 7}" for i in range(N)]
    frame.to_csv(path, sep=separator, decimal=",", index=False)
    data = load_dataset(path)
    frame["big"] = [1234 + i % 7 / 10 for i in range(N)]
    assert_features(data, frame, "p", "q", "n", "big")
    assert "decimal commas" in str(data.summary)


def test_decimal_points_of_labels_stay_beside_decimal_commas(tmp_path):
    rows = [f"{i},5;{1 + i % 2}.5\n" for i in range(6)]
    (tmp_path / "t.csv").write_text("a;label\n" + "".join(rows))
    data = read_dataset(tmp_path / "t.csv", Choice())
    assert (data.class_names, data.y.tolist()) == (("1.5", "2.5"), [0, 1] * 3)
    assert data.X[:, 0].tolist() == [i + 0.5 for i in range(6)]


def test_decimal_commas_of_labels_are_no_features(tmp_path, frame):
    frame = frame.assign(label=["1,5", "2,5"] * (N // 2))
    frame.to_csv(tmp_path / "t.csv", index=False)
    data = load_dataset(tmp_path / "t.csv")
    assert_features(data, frame, "p", "q")
    assert data.class_names == ("1,5", "2,5")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'a,b,label\n"1,500",2,x\n"1,200",3,y\n',
            "'1,500' has a comma before thousands or decimals",
        ),
        (
            "a\tb\tlabel\n1,500\t2\tx\n900\t3\ty\n",
            "'1,500' has a comma before thousands or decimals",
        ),
        (
            "a\tb\tlabel\n1,500\t2.5\tx\n900\t3.5\ty\n",
            "'1,500' has a comma before thousands or decimals",
        ),
        (
            "a;b;label\n1,5;0.5;x\n2,5;0.7;y\n",
            "'0.5' has a decimal point, while column 'a' has deci",
        ),
    ],
)
def test_ambiguous_commas_are_named(tmp_path, text, problem):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"t\.csv, line 2, column '\w': {problem}"):
        load_dataset(tmp_path / "t.csv")


def test_commas_before_thousands_are_named_beside_decimal_points(tmp_path):
    rows = [f"{i / 7:.2f};{1 + i},{100 + i};{'ab'[i % 2]}\n" for i in range(9)]
    (tmp_path / "t.csv").write_text("rate;sales;label\n" + "".join(rows))
    with pytest.raises(ValueError, match="column 'sales': '1,100' has a comma before thousands or"):
        read_dataset(tmp_path / "t.csv", Choice())


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_commas_are_decimal_in_all_columns_if_in_one(tmp_path, separator):
    frame = pd.DataFrame({"a": ["1,500", "900"], "b": ["0,5", "2"], "label": ["x", "y"]})
    frame.to_csv(tmp_path / "t.csv", sep=separator, index=False)
    data = read_dataset(tmp_path / "t.csv", Choice())
    np.testing.assert_array_equal(data.X, [[1.5, 0.5], [900, 2]])
    assert not data.summary.doubts


def test_numbers_of_every_type_are_features(tmp_path, frame):
    path = tmp_path / "t.parquet"
    frame = frame.assign(
        price=[decimal.Decimal(i * 7 % 41) / 7 for i in range(1, N + 1)],
        half=np.float16(np.arange(N) % 5 / 4),
        small=np.uint8(np.arange(N) % 7),
        logical=np.arange(N) % 2 == 0,
        nullable=pd.array(np.arange(N) % 3, "Int64"),
    )
    frame["price"] = frame["price"].map(lambda price: round(price, 4))
    frame.to_parquet(path)
    names = ("p", "q", "price", "half", "small", "logical", "nullable")
    assert_features(load_dataset(path), frame.astype(dict.fromkeys(names, float)), *names)


def test_categories_of_polars_are_texts(tmp_path):
    texts = pa.array(["x", "y"], pa.string_view())  # which Arrow writes to no .parquet
    label = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 20, pa.uint8()), texts)
    table = pa.table({"a": np.sin(np.arange(N)), "label": label})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as file:
        file.write_table(table)
    assert load_dataset(tmp_path / "t.arrow").class_names == ("x", "y")


def test_logical_texts_are_features(tmp_path):
    for true, false in (("True", "false"), ("WAHR", "FALSCH"), ("vrai", "FAUX")):
        (tmp_path / "t.csv").write_text(f"a,b,label\n{true},0.5,x\n{false},0.25,y\n")
        np.testing.assert_array_equal(load_dataset(tmp_path / "t.csv").X, [[1, 0.5], [0, 0.25]])


@pytest.mark.parametrize(
    ("mark", "others", "is_told"),
    [
        (-999, SMALL, True),
        (99, SMALL, True),
        (-9999, SMALL + 0.5, True),
        (99, 80 + SMALL, False),
        (-99, -SMALL, True),
        (-1, SMALL, True),
        (-1, SMALL + 0.5, False),
        (-1, SMALL % 2, False),
        (-1, SMALL - 5, False),
    ],
)
def test_numbers_that_may_mean_missing_are_told(tmp_path, mark, others, is_told):
    data = read_dataset(written(tmp_path / "t.csv", np.where(SMALL == 3, mark, others)), Choice())
    told = f"in column b, {mark} is a number; if it means a missing value, replace it"
    assert data.summary.doubts == [told] * is_told


@pytest.mark.parametrize(("sign", "name"), [(".", "dots"), (",", "commas")])
def test_signs_that_may_separate_thousands_are_told(tmp_path, sign, name):
    lines = [f"{i % 5};{i % 7 + 1}{sign}{i:03d};{'xy'[i % 2]}\n" for i in range(N)]
    (tmp_path / "t.csv").write_text("".join(["a;b;label\n", *lines]))
    data = read_dataset(tmp_path / "t.csv", Choice())
    [doubt] = data.summary.doubts
    assert f"'1{sign}000' is read as 1; if {name} separate thousands, remove them" in doubt


def test_labels_with_commas_before_thousands_are_texts(tmp_path, frame):
    frame.assign(label=["1,000", "2,000"] * 20).to_csv(tmp_path / "t.csv", index=False)
    data = load_dataset(tmp_path / "t.csv")
    assert_features(data, frame, "p", "q")
    assert data.class_names == ("1,000", "2,000")


@pytest.mark.parametrize(
    ("separator", "cells", "is_told"),
    [
        *((";", ["512", "1.200"], True), ("\t", ["512", "1.200"], True)),
        *((";", ["0.512", "1.200"], False), ("\t", ["2.512", "1.200"], False)),
    ],
)
def test_dots_beside_numbers_below_a_thousand_are_doubted(tmp_path, separator, cells, is_told):
    rows = [separator.join((cells[i % 2], "xy"[i // 2 % 2])) for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join([f"a{separator}label", *rows]))
    doubts = read_dataset(tmp_path / "t.csv", Choice()).summary.doubts
    told = "in column a, '1.200' is read as 1.2; if dots separate thousands, remove them"
    assert (told in doubts) == is_told


@pytest.mark.parametrize("begin", [b"RIFF\0\0\0\0WAVEfmt ", b"fLaC\0", b"ID3\3", b"\xff\xfb\x90"])
def test_sounds_are_no_images(tmp_path, begin):
    rows = [{"bytes": begin + bytes(9), "path": f"{i}.wav"} for i in range(4)]
    table = pa.table({"audio": rows, "label": ["a", "b"] * 2})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="besides the label; audio cannot be used"):
        read_dataset(tmp_path / "t.parquet", Choice())
    parquet.write_table(table.append_column("x", [[0.5, 2.5, 1, 4]]), tmp_path / "t.parquet")
    assert read_dataset(tmp_path / "t.parquet", Choice()).columns == ("x",)
