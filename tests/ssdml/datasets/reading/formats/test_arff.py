"""Attributes and rows as Weka and OpenML write them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.io.arff import loadarff

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.formats.tables import read_table
from ssdml.datasets.reading.names import Choice

HEAD = """% made by hand
@RELATION 'a b'

@ATTRIBUTE length NUMERIC
@attribute 'pet al' real [1, 2]
@Attribute class {cat, 'a dog', "it's"}

@DATA
"""


@pytest.fixture
def read(tmp_path):
    def read(text, name="t.arff"):
        (tmp_path / name).write_text(text, newline="")
        return read_table(tmp_path / name)

    return read


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["t.arff", "t.csv"])
def test_attributes_are_columns(read, end, name):
    rows = "1.5, 2,cat\n% no row, but a remark\n-1 ,?,'a dog'\n\n3,4,\"it's\"\n5,6,'it\\'s'"
    table = read((HEAD + rows).replace("\n", end), name)
    assert table.columns.column_names == ["length", "pet al", "class"]
    assert [list(map(str.strip, c)) for c in table.columns.to_pydict().values()] == [
        ["1.5", "-1", "3", "5"],
        ["2", "?", "4", "6"],
        ["cat", "a dog", "it's", "it's"],
    ]
    assert [table.place(row) for row in range(4)] == [f"line {n}" for n in (9, 11, 13, 14)]


def test_rows_that_equal_names_are_data(read):
    head = "@relation r\n@attribute a {a,b}\n@attribute b {b,c}\n@data\n"
    assert read(f"{head}a,b\nb,c\na,b\n").columns.to_pydict() == {"a": [*"aba"], "b": [*"bcb"]}


def test_large_files_equal_those_of_scipy(tmp_path, rng):
    frame = pd.DataFrame(rng.normal(size=(200, 5))).assign(kind=["x", "y"] * 100)
    kinds = [*["numeric"] * 5, "{x,y}"]
    head = [f"@attribute {name} {kind}" for name, kind in zip("abcdek", kinds, strict=True)]
    rows = frame.to_csv(header=False, index=False)
    (tmp_path / "t.arff").write_text("\n".join(["@relation r", *head, "@data", rows]))
    data = read_dataset(tmp_path / "t.arff", Choice())
    rows, _ = loadarff(tmp_path / "t.arff")
    np.testing.assert_allclose(data.X, np.stack([rows[name] for name in "abcde"], 1), rtol=1e-6)
    assert [data.class_names[code] for code in data.y] == [k.decode() for k in rows["k"]]


SERIES = "# a remark\n@problemName t\n@timeStamps false\n@classLabel true up down\n@data\n"


def test_series_have_a_column_per_time(tmp_path):
    lines = {"TRAIN": "1,2.5,3:up\n\n-2,0,1:down\n", "TEST": "2,2,2:up\n"}
    for part, rows in lines.items():
        (tmp_path / f"toy_{part}.ts").write_text(SERIES + rows)
    data = load_dataset(tmp_path)
    assert data.columns == ("t1", "t2", "t3")
    assert data.X[~data.test].tolist() == [[1, 2.5, 3], [-2, 0, 1]]
    assert data.X[data.test].tolist() == [[2, 2, 2]]
    assert [data.class_names[code] for code in data.y[~data.test]] == ["up", "down"]
    place = read_table(tmp_path / "toy_TRAIN.ts").place
    assert [place(row) for row in range(2)] == ["line 6", "line 8"]


def test_series_of_several_dimensions_and_without_labels(read):
    table = read(SERIES + "1,2:3,4:up\n5,6:7,8:down\n", "t_train.ts")
    assert table.columns.column_names == ["d1 t1", "d1 t2", "d2 t1", "d2 t2", "class"]
    assert list(table.columns.to_pandas().iloc[1]) == ["5", "6", "7", "8", "down"]
    table = read(SERIES.replace("true up down", "false") + "1,2:3,4\n", "t_test.ts")
    assert table.columns.column_names == ["d1 t1", "d1 t2", "d2 t1", "d2 t2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SERIES + "1,2:3:up\n1:2,3:up\n", r"line 7: .* in each dimension .* got 3 after 3\."),
        (SERIES + "1,2,3:up\n1,2:up\n", r"line 7: .* got 2 after 3\. Bring the series to one"),
        (SERIES, "must have series below @data; got none"),
        (SERIES.replace("false", "true") + "(0,1):up\n", "must have series without time stamps"),
    ],
)
def test_series_that_are_no_rows_are_refused(read, text, message):
    with pytest.raises(ValueError, match=rf"t_train\.ts.*{message}"):
        read(text, "t_train.ts")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}{{0 1.5, 2 cat}}\n", r"got sparse ones in braces\. In Weka, apply the filter"),
        (f"{HEAD}1,2,cat\n1,2\n", r"line 10: must have 3 columns, separated by commas"),
        (HEAD, r"must have @attribute and @data lines, and rows"),
        (
            "@relation r\n@attribute 'a bag' relational\n@attribute b real\n@end 'a bag'\n"
            '@attribute k {0,1}\n@data\n"1\\n2",0\n',
            r"attribute 'a bag' holds tables of its own, as of series\. Write a column",
        ),
        ("@relation r\n@data\n1,2\n", r"must have @attribute and @data lines, and rows\. Write"),
        ("@relation r\n@attribute a real\n1,2\n", r"must have @attribute and @data lines"),
    ],
)
def test_other_files_are_refused(read, text, message):
    with pytest.raises(ValueError, match=rf"t\.arff.*{message}"):
        read(text)
