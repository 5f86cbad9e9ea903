"""Tables that are written, of every type of column."""

from __future__ import annotations

import datetime
import os
from decimal import Decimal

import openpyxl
import pandas as pd
import pyarrow as pa
import pytest

from ssdml.datasets.reading.formats.tables import read_table
from ssdml.datasets.reading.table import Table
from ssdml.datasets.writing import WRITERS, write_rows

UTC = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
COLUMNS = {
    "nothing": pa.nulls(2),
    "date": pa.array([datetime.date(2024, 1, 1)] * 2),
    "zoned": pa.array([UTC] * 2),
    "time": pa.array([datetime.time(1)] * 2),
    "decimal": pa.array([Decimal("1.5")] * 2),
    "category": pa.array(["a", "b"]).dictionary_encode(),
    "vector": pa.array([[0.5, 0.25], None]),
    "bytes": pa.array([b"x", b"y"]),
    "image": pa.array([{"bytes": b"x", "path": "x.png"}] * 2),
    "logical": pa.array([True, None]),
    "large": pa.array([2**60, 1]),
    "half": pa.array([1.5, 2.5], pa.float16()),
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_columns_of_every_type_are_written(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    write_rows(path, COLUMNS | {"label": ["a", "b"]})
    found = read_table(path).columns.to_pydict()
    assert found["label"] == ["a", "b"]
    assert found["category"] == ["a", "b"]
    assert str(found["vector"][0]) == "[0.5, 0.25]"
    assert float(found["decimal"][0]) == 1.5
    assert str(found["date"][0]).startswith("2024-01-01")
    assert str(found["zoned"][0]).startswith("2024-01-01 00:00:00")
    assert ("bytes" in found) == (suffix in (".parquet", ".feather", ".jsonl"))


@pytest.mark.parametrize("suffix", WRITERS)
def test_folders_whose_names_are_not_unicode_hold_tables(tmp_path, suffix):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    write_rows(folder / f"t{suffix}", {"a": [0.5, 1.5], "label": ["x", "y"]})
    found = read_table(folder / f"t{suffix}").columns.to_pydict()
    assert list(map(float, found["a"])) == [0.5, 1.5]


def test_a_csv_keeps_the_form_of_excel(tmp_path):
    path = tmp_path / "t.csv"
    columns = {"größe": pa.array([0.5, None]), "label": ["a;b", "c"]}
    like = Table(path, pa.table({}), str, separator=";", decimal=",")
    write_rows(path, columns, like=like)
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    found = pd.read_csv(path, sep=";", decimal=",")
    assert found["größe"][0] == 0.5
    assert found["label"].tolist() == ["a;b", "c"]


def test_excel_keeps_texts_and_long_integers(tmp_path):
    path = tmp_path / "t.xlsx"
    columns = {
        "=name": ["=1+1", "=)", "#N/A"],
        "key": [1234567890123456789, None, 1234567890123456788],
        "n": [10**14, 2, 3],
    }
    write_rows(path, {name: pa.array(values) for name, values in columns.items()})
    sheet = openpyxl.load_workbook(path).active
    assert {cell.data_type for cell in sheet["A"]} == {"s"}
    found = {title: values for title, *values in sheet.iter_cols(values_only=True)}
    assert found == columns | {"key": ["1234567890123456789", None, "1234567890123456788"]}


@pytest.mark.parametrize(
    ("text", "what"), [("a\x0bb", "control characters"), ("x" * 40_000, "more than 32,767 char")]
)
def test_texts_that_excel_cannot_hold_are_refused(tmp_path, text, what):
    with pytest.raises(ValueError, match=f"cannot hold {what}.* in column 'note'. Write .csv"):
        write_rows(tmp_path / "t.xlsx", {"id": [1, 2], "note": ["a", text]})
    assert not (tmp_path / "t.xlsx").exists()
