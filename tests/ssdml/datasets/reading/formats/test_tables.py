"""Tables with types: Parquet, Arrow, JSON, Excel."""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from openpyxl import Workbook
from pyarrow import parquet

from ssdml.datasets import load_dataset
from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.formats.tables import read_table, table_suffix
from ssdml.datasets.reading.names import Choice

FRAME = pd.DataFrame({"a": [1.5, 2.0, -3.0], "label": ["x", None, "z"]})
ROWS = [{"a": 1.5, "label": "x"}, {"a": 2.0, "label": None}, {"a": -3.0, "label": "z"}]


def rows(path):
    return read_table(path).columns.to_pylist()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("t.parquet", FRAME.to_parquet),
        ("t.pq", pl.DataFrame(FRAME).write_parquet),
        ("t.feather", FRAME.to_feather),
        ("t.arrow", pl.DataFrame(FRAME).write_ipc),
        ("t.ipc", pl.DataFrame(FRAME).write_ipc_stream),
        ("t.jsonl", lambda path: FRAME.to_json(path, orient="records", lines=True)),
        ("t.ndjson", pl.DataFrame(FRAME).write_ndjson),
        ("t.jsonl.gz", lambda path: FRAME.to_json(path, orient="records", lines=True)),
        ("t.json", lambda path: FRAME.to_json(path, orient="records")),
        ("t.json", lambda path: FRAME.to_json(path, orient="columns")),
        ("t.json", lambda path: FRAME.to_json(path, orient="index")),
        ("t.json", lambda path: FRAME.to_json(path, orient="split")),
        ("t.json", lambda path: FRAME.to_json(path, orient="table", index=False)),
        ("t.json", lambda path: FRAME.to_json(path, orient="records", lines=True)),
        ("t.jsonl", lambda path: FRAME.to_json(path, orient="records", indent=1)),
        ("t.json", lambda path: path.write_text(json.dumps({"data": ROWS}))),
        ("t.json", lambda path: path.write_text(json.dumps(FRAME.astype(object).to_dict("list")))),
        ("T.XLSX", lambda path: FRAME.to_excel(path, index=False)),
        ("t.xlsx", lambda path: FRAME.to_excel(path, index=False, startrow=3, startcol=2)),
    ],
)
def test_every_format_gives_the_same_rows(tmp_path, name, write):
    path = tmp_path / name
    write(path)
    assert rows(path) == ROWS


def test_headers_repeated_in_a_sheet_are_left_out(tmp_path):
    again = pd.concat(
        [
            FRAME.head(2).astype(object),
            pd.DataFrame([FRAME.columns], columns=FRAME.columns),
            FRAME.tail(1),
        ]
    )
    again.to_excel(tmp_path / "t.xlsx", index=False)
    assert rows(tmp_path / "t.xlsx") == ROWS
    assert "repeated headers left out: 1" in read_table(tmp_path / "t.xlsx").notes


def test_suffixes_are_known_in_any_case(tmp_path):
    assert table_suffix(tmp_path / "a.CSV") == ".csv"
    assert table_suffix(tmp_path / "a.b.jsonl.XZ") == ".jsonl"
    assert table_suffix(tmp_path / "a.gz") is table_suffix(tmp_path / "csv") is None


def test_types_are_kept(tmp_path):
    path = tmp_path / "t.parquet"
    frame = pd.DataFrame(
        {
            "whole": pd.array([7, None, 2**60 + 1], "Int64"),
            "logical": [True, False, True],
            "vector": [[1.0, 2.0], [3.0, 4.0], None],
        }
    )
    frame.to_parquet(path)
    assert rows(path)[2] == {"whole": 2**60 + 1, "logical": True, "vector": None}
    assert rows(path)[1]["whole"] is None


@pytest.mark.parametrize("write", ["to_parquet", "to_feather"])
def test_index_of_pandas_is_known(tmp_path, write):
    path = tmp_path / f"t.{write[3:]}"
    getattr(FRAME.iloc[[0, 2, 1]], write)(path)
    assert read_table(path).index == ("__index_level_0__",)
    getattr(FRAME.set_index(pd.Index([7, 9, 8], name="key")), write)(path)
    assert read_table(path).index == ("key",)
    getattr(FRAME, write)(path)
    assert read_table(path).index == ()


def test_class_names_of_hugging_face_are_known(tmp_path):
    path = tmp_path / "t.parquet"
    info = {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}
    columns = pa.table({"a": [1.0], "label": [1]})
    parquet.write_table(columns.replace_schema_metadata({"huggingface": json.dumps(info)}), path)
    assert read_table(path).class_names == {"label": ["no", "yes"]}
    label = info["info"]["features"]["label"]
    for feature in ([label], {"feature": label, "_type": "Sequence"}, {"feature": [label]}):
        info["info"]["features"]["label"] = feature
        lists = pa.table({"text": ["some of the words"] * 3, "label": [[1], [], [0]]})
        parquet.write_table(lists.replace_schema_metadata({"huggingface": json.dumps(info)}), path)
        data = read_dataset(path, Choice())
        assert (data.class_names, data.y.tolist()) == (("no", "yes"), [1, -1, 0])
    parquet.write_table(columns.replace_schema_metadata({"huggingface": "{"}), path)
    assert read_table(path).class_names == {}


def test_codes_beyond_the_names_of_classes_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    info = {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}
    columns = pa.table({"a": [1.5, 2, 3, 4], "label": [1, None, -1, 2]})
    columns = columns.replace_schema_metadata({"huggingface": json.dumps(info)})
    parquet.write_table(columns.slice(0, 3), path)
    assert read_dataset(path, Choice()).y.tolist() == [0, -1, -1]
    parquet.write_table(columns, path)
    with pytest.raises(ValueError, match=r"row 3, column 'label': '2' must be from 0 to 1, of no"):
        read_dataset(path, Choice())


def test_json_lines_need_not_have_all_columns(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n\n{"b": "x", "a": 2.5}\n', encoding="utf-8")
    assert rows(path) == [{"a": 1.0, "b": None}, {"a": 2.5, "b": "x"}]
    assert read_table(path).place(1) == "line 3"


def test_values_of_two_types_become_text_unless_they_merge(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 7}\n{"a": "x"}\n{"a": null}\n{"a": true}\n', encoding="utf-8")
    assert [row["a"] for row in rows(path)] == ["7", "x", None, "True"]
    path.write_text('{"a": 7}\n{"a": "7"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"column 'a': must hold values of one type; got 7 as int"):
        read_table(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.jsonl", '{"a": 1}\n\n{"a":\n', r"t\.jsonl, line 3: must be JSON"),
        ("t.jsonl", '{"a": 1}\n[1]\n', r"line 2: must be an object of columns and values; got"),
        ("t.jsonl", "\n", "must contain rows; got none"),
        ("t.jsonl", "{}\n{}\n", r"t\.jsonl: must have columns; got none"),
        ("t.json", "[{}, {}]", r"t\.json: must have columns; got none"),
        ("t.json", '{"a":\n 1', r"t\.json, line 2: must be JSON"),
        ("t.json", "[" * 10_000, r"must be JSON"),
        ("t.json", "7", "must be a list of objects, or an object of columns of one length"),
        (
            "t.json",
            '{"columns": 5, "data": 7}',
            "must be a list of objects, or an object of columns",
        ),
        (
            "t.json",
            '{"columns": ["a"], "data": [7]}',
            "row 0: must be an object of columns and values",
        ),
        ("t.json", '{"a": [1], "b": [1, 2]}', "must be a list of objects, or an object of columns"),
        ("t.jsonl", '{"a": 1}\n{"a": 1, "a": 2}', "line 2: .* an object has the key 'a' twice"),
        ("t.parquet", "PAR1", r"t\.parquet: cannot be read"),
        ("t.feather", "PAR1", r"t\.feather: cannot be read"),
        ("t.arrow", "ARROW1", r"t\.arrow: cannot be read"),
        ("t.xlsx", "PK", r"t\.xlsx: cannot be read"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_table(path)


def test_truncated_parquet_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    FRAME.to_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"t\.parquet: cannot be read"):
        read_table(path)


@pytest.mark.parametrize("name", ["t.parquet", "t.xlsx"])
def test_tables_without_rows_raise(tmp_path, name):
    path, empty = tmp_path / name, FRAME.iloc[:0]
    empty.to_excel(path, index=False) if name == "t.xlsx" else empty.to_parquet(path)
    with pytest.raises(ValueError, match=r"must contain rows; got (none|a header alone)"):
        read_table(path)


def test_arrow_without_columns_raises(tmp_path):
    path = tmp_path / "t.arrow"
    batch = pa.record_batch({"a": [1, 2]}).select([])  # of two rows
    with pa.ipc.new_stream(path, batch.schema) as stream:
        stream.write_batch(batch)
    with pytest.raises(ValueError, match=r"t\.arrow: must have columns; got none"):
        read_table(path)


def test_parquet_that_takes_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.001")
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": np.arange(10**6) % 2, "b": np.arange(10**6) // 10**5}).to_parquet(
        path, compression="zstd"
    )
    found = parquet.ParquetFile(path).metadata.row_group(0).total_byte_size
    if found > 50 * path.stat().st_size:
        with pytest.raises(ValueError, match=r"t\.parquet: takes"):
            read_table(path)


def test_excel_keeps_numbers_texts_and_its_rows(tmp_path):
    path = tmp_path / "t.xlsx"
    pd.DataFrame({"code": ["007", "7"], "n": [7, 8], "": [None, None]}).to_excel(path, startrow=1)
    table = read_table(path)
    assert table.columns.to_pylist()[0] == {"Unnamed: 0": 0, "code": "007", "n": 7}
    assert [table.place(row) for row in range(2)] == ["row 3", "row 4"]


def test_other_sheets_of_excel_are_told(tmp_path):
    path = tmp_path / "t.xlsx"
    with pd.ExcelWriter(path) as book:
        pd.DataFrame().to_excel(book, sheet_name="empty")
        pd.DataFrame({"Source": ["a report"]}).to_excel(book, sheet_name="cover", index=False)
        FRAME.to_excel(book, sheet_name="first", index=False)
        FRAME.to_excel(book, sheet_name="other", index=False)
    table = read_table(path)
    assert table.columns.to_pylist() == ROWS
    [doubt] = table.doubts
    assert doubt.startswith("sheet 'first' was read, the largest, and not 'cover', 'other'; ")
    with pytest.raises(ValueError, match=r"label must be a column.* Note: sheet 'first' was read"):
        read_dataset(path, Choice(label="none"))


def test_hidden_sheets_are_not_read(tmp_path):
    book = Workbook()
    for row in (["a", "label"], [1, "x"], [2, "y"]):
        book.active.append(row)
    hidden = book.create_sheet("lists")
    hidden.sheet_state = "hidden"
    for row in range(9):
        hidden.append([row] * 9)
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx")
    assert table.columns.column_names == ["a", "label"]
    assert not table.doubts


def test_merged_cells_have_one_value(tmp_path):
    book = Workbook()
    for row in (["a", "label"], [1, "x"], [2, None], [3, None], [4, "y"], [None, None], [6, None]):
        book.active.append(row)
    for cells in ("B2:B4", "B5:B6", "A4:A4", "D1:D9"):
        book.active.merge_cells(cells)
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx")
    assert table.columns["label"].to_pylist() == ["x", "x", "x", "y", None]
    assert "merged cells filled: 2" in table.notes


@pytest.mark.parametrize("first", [1, "=2*A2"])
def test_formulas_without_values_are_told(tmp_path, first):
    book = Workbook()
    for row in (["a", "twice", "label"], [1, first, "x"], [2, "=2*A3", "y"], [3, 4, None]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx")
    assert table.columns["twice"].null_count == 1 + isinstance(first, str)
    [doubt] = table.doubts
    assert "formulas without a value are read as empty cells, in 'twice'; open the file" in doubt


def test_zeros_of_formulas_are_told(tmp_path):
    """XlsxWriter writes zeros, as it computes nothing."""
    book, path = Workbook(), tmp_path / "t.xlsx"
    for row in (["a", "twice", "zero", "label"], [1, "=2*A2", 0, "x"], [2, "=2*A3", 0, "y"]):
        book.active.append(row)
    book.save(tmp_path / "empty.xlsx")
    for first, second in ((0, 0), (0, 4)):
        with zipfile.ZipFile(tmp_path / "empty.xlsx") as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                content = re.sub(r"<v ?/>", "<v></v>", old.read(name).decode())
                content = content.replace("<v></v>", f"<v>{first}</v>", 1)
                new.writestr(name, content.replace("<v></v>", f"<v>{second}</v>"))
        doubts = read_table(path).doubts
        told = "formulas without a value are read as 0, as by XlsxWriter, in 'twice'; open the file"
        assert [doubt.startswith(told) for doubt in doubts] == [True] * (second == 0)


LEVELS = pd.MultiIndex.from_tuples([("leaf", "l"), ("leaf", "w"), ("label", "")])
VALUES = [[1.5, 2.0, "x"], [2.5, 3.0, None], [3.5, 4.0, "y"]]


def merged(path):
    book = Workbook()
    for row in (["leaf", None, "label"], ["l", "w", None], *VALUES):
        book.active.append(row)
    book.active.merge_cells("A1:B1")
    book.save(path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("t.csv", lambda path: pd.DataFrame(VALUES, columns=LEVELS).to_csv(path, index=False)),
        ("t.csv", lambda path: path.write_text("leaf,,label\nl,w,\n1.5,2,x\n2.5,3,\n3.5,4,y\n")),
        ("t.xlsx", merged),
    ],
)
def test_two_rows_of_names_are_joined(tmp_path, name, write):
    write(tmp_path / name)
    table = read_table(tmp_path / name)
    assert table.columns.column_names == ["leaf l", "leaf w", "label"]
    assert [float(cell) for cell in table.columns["leaf l"].to_pylist()] == [1.5, 2.5, 3.5]
    assert "names of columns joined from 2 rows" in table.notes


@pytest.mark.parametrize("keys", [["name"], ["name", "week"]])
@pytest.mark.parametrize("statistics", [["mean"], ["mean", "std"]])
@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_names_of_the_index_below_levels_are_understood(tmp_path, suffix, statistics, keys):
    frame = pd.DataFrame({"name": [*"aabbcc"], "week": [0, 0, 1, 1, 2, 2], "x": [1.5, 2] * 3})
    grouped = frame.groupby(keys)[["x"]].agg(statistics)
    path = tmp_path / f"t{suffix}"
    grouped.to_csv(path) if suffix == ".csv" else grouped.to_excel(path)
    table = read_table(path)
    assert table.columns.column_names == [*keys, *(f"x {name}" for name in statistics)]
    assert table.columns["name"].to_pylist() == [*"abc"]
    assert [float(cell) for cell in table.columns["x mean"].to_pylist()] == [1.75] * 3
    path = tmp_path / "t.csv"
    path.write_text("name,x,label\nb,2,u\na,,\nc,1.5,v\n")
    assert len(read_table(path)) == 3


@pytest.mark.parametrize("names", [None, ["p", "q", "r"]])
@pytest.mark.parametrize("index", [None, "who"])
@pytest.mark.parametrize("n_levels", [2, 3])
def test_levels_of_names_of_pandas_are_joined(tmp_path, names, index, n_levels):
    columns = pd.MultiIndex.from_product([["m", "n"], ["x"], ["lo", "hi"]], names=names)
    columns = columns if n_levels == 3 else columns.droplevel(1)
    frame = pd.DataFrame(np.arange(16).reshape(4, 4) / 8, pd.Index([*"abcd"], name=index), columns)
    frame.to_csv(tmp_path / "t.csv")
    columns = read_table(tmp_path / "t.csv").columns
    wanted = [" ".join(name) for name in frame.columns]
    assert columns.column_names[1:] == wanted
    assert (
        columns.select(wanted).to_pandas().astype(float).to_numpy().tolist()
        == frame.values.tolist()
    )


def test_rows_of_marks_are_no_names(tmp_path):
    text = "v,z,label\nn.d.,n.d.,a\n1,2,b\n2,3,a\n3,2,b\n"
    (tmp_path / "t.csv").write_text(text)
    assert read_table(tmp_path / "t.csv").columns.column_names == ["v", "z", "label"]


def test_questions_and_ids_of_qualtrics_are_left_out(tmp_path):
    ids = [f'{{"ImportId":"QID{n}"}}' for n in range(3)]
    rows = [["Q1", "Q2", "label"], ["How old, in years?", "How tall?", "Which?"], ids]
    frame = pd.DataFrame([*rows[1:], [31, 1.7, "a"], [28, 1.8, ""]], columns=rows[0])
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv")
    assert table.columns.column_names == rows[0]
    assert table.columns["Q1"].to_pylist() == ["31", "28"]
    assert "rows below the header left out: 2" in table.notes
    assert table.place(0) == "line 4"


def test_a_row_of_texts_is_data_unless_numbers_are_below(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("name,age,label\nBob,old,x\nAnn,31,y\nEve,45,x\n")
    assert len(read_table(path)) == 3
    path.write_text("a,b,label\nn/a,NA,x\n1,2,y\n3,4,x\n")
    assert len(read_table(path)) == 3


@pytest.mark.parametrize("above", [["Trial 7"], ["Trial 7", None, "Bonn"], ["Trial 7", "x"]])
def test_titles_above_the_header_are_left_out(tmp_path, above):
    book = Workbook()
    names = ["a", "b", "c", "d", "e", "label"]
    for row in (above, [], names, [1, 2, 3, 4, 5, "x"], [2, 3, 4, 5, 6, None]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx")
    assert table.columns.column_names == names
    assert table.columns["label"].to_pylist() == ["x", None]
    assert "rows above the header left out: 1" in table.notes
    assert table.place(0) == "row 4"


def test_missing_openpyxl_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"needs openpyxl: pip install 'ssdml\[excel\]'"):
        read_table(tmp_path / "t.xlsx")


def xlsx(path, sheet):
    """A workbook of one sheet, from its XML."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    FRAME.to_excel(path, index=False)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content["xl/worksheets/sheet1.xml"] = (
        f'<worksheet xmlns="{main}"><sheetData>{sheet}</sheetData></worksheet>'.encode()
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in content.items():
            archive.writestr(name, part)


@pytest.mark.parametrize(
    ("sheet", "message"),
    [
        (
            "".join(f'<row r="{i}"><c r="XFD{i}"><v>1</v></c></row>' for i in range(1, 99)),
            "takes .* GB in memory",
        ),
        (" " * 10**7, "takes .* GB in memory"),
        ('<row r="9999999999"><c><v>1</v></c></row>', "at most 1,048,576 rows"),
    ],
    ids=["far right", "zeros", "far down"],
)
def test_sheet_of_much_from_few_bytes_is_refused(tmp_path, monkeypatch, sheet, message):
    monkeypatch.setenv("SSDML_MAX_GB", "0.01")
    xlsx(tmp_path / "t.xlsx", sheet)
    with pytest.raises(ValueError, match=rf"t\.xlsx: .*{message}"):
        read_table(tmp_path / "t.xlsx")


def test_objects_without_a_common_column_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.01")
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"k{i}": 1}}\n' for i in range(2000)))
    with pytest.raises(ValueError, match=r"t\.jsonl: takes 0\.0 GB in memory"):
        read_table(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", b'{"a":1,"label":"x"}\n' * 10**4),  # 0.2 MB
        ("t.json", b'{"a":[' + b"1," * 10**5 + b"1]}"),
        ("t.json", b"[" + b"{}," * 10**4 + b"{}]"),
    ],
)
def test_many_values_of_little_text_are_refused(tmp_path, monkeypatch, name, text):
    """In a compressed file, and in a zip file, whose own size counts."""
    monkeypatch.setenv("SSDML_MAX_GB", "0.001")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text))
    with zipfile.ZipFile(tmp_path / "t.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    for path in (tmp_path / f"{name}.gz", tmp_path / "t.zip"):
        with pytest.raises(ValueError, match=rf"{path.name}.*: takes 0\.0 GB in memory"):
            load_dataset(path)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet", "t.xlsx"])
def test_a_table_in_a_zip_file_is_read(tmp_path, name):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    FRAME.to_json(tmp_path / "t.jsonl", orient="records", lines=True)
    FRAME.to_parquet(tmp_path / "t.parquet")
    FRAME.to_excel(tmp_path / "t.xlsx", index=False)
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(tmp_path / name, f"data/{name}")
        archive.writestr(f"__MACOSX/data/._{name}", "x")
        archive.writestr("data/README.md", "x")
        archive.writestr("data/readme.txt", "x")
    data = load_dataset(path)
    np.testing.assert_array_equal(data.X, [[1.5], [2], [-3]])
    assert data.class_names == ("x", "z")
    assert f"data/{name} in the zip file; not read: data/readme.txt" in str(data.summary)


def test_wrong_tables_in_a_zip_file_are_named(tmp_path):
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.csv", "a,b,label\n1,2,x\n1,y\n1,2,z\n")
    with pytest.raises(ValueError, match=r"data\.zip: a\.csv, line 3: must have 3 columns"):
        load_dataset(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("b.csv", "a,label\n1,x\n")
    with pytest.raises(ValueError, match=r"several tables, a\.csv, b\.csv\)\. Unzip it"):
        load_dataset(path)


def test_zipped_tables_stay_inside(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr("../a.csv", "a,label\n1,x\n")
    with pytest.raises(ValueError, match=r"t\.zip: names must stay inside; got '\.\./a\.csv'"):
        load_dataset(tmp_path / "t.zip")


@pytest.mark.parametrize("role", ["a", "label", "text", "id", "new", "nested"])
@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_half_of_a_surrogate_pair_is_named(tmp_path, suffix, role):
    rows = [{"a": i, "id": f"r{i}", "text": f"one two {i}", "label": "xy"[i % 2]} for i in range(4)]
    rows[2][role if role != "new" else "\udc00"] = (
        {"b": ["\ud800"]} if role == "nested" else "\ud800"
    )
    lines = [json.dumps(row) for row in rows]
    text = "\n".join(lines) if suffix == ".jsonl" else f"[{', '.join(lines)}]"
    (tmp_path / f"t{suffix}").write_text(text)
    line = ", line 3" if suffix == ".jsonl" else ""
    with pytest.raises(ValueError, match=rf"t{suffix}{line}: texts must be Unicode; got '.ud"):
        load_dataset(tmp_path / f"t{suffix}")
    (tmp_path / f"t{suffix}").write_text(
        text.replace("\\ud800", "\\ud83d\\ude00").replace("\\udc00", "")
    )
    assert read_table(tmp_path / f"t{suffix}").columns.num_rows == 4  # a whole pair


def test_zipped_table_that_takes_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.001")
    with zipfile.ZipFile(tmp_path / "t.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", "a,label\n" + "1,x\n" * 10**6)
    with pytest.raises(ValueError, match=r"takes 0\.0 GB in memory"):
        load_dataset(tmp_path / "t.zip")


def test_time_grows_with_the_number_of_columns(tmp_path):
    names = [f"f{j}" for j in range(4000)]
    path = tmp_path / "t.csv"
    path.write_text(",".join([*names, *names[:100], "label"]) + "\n" + "1.5," * 4100 + "a\n")
    start = time.process_time()
    data = load_dataset(path)
    assert time.process_time() - start < 20  # it once took hours
    assert data.X.shape == (1, 4100)
    assert data.columns[-1] == "f99.1"


def task(i, *choices, **annotation):
    """A task as Label Studio exports it."""
    result = [{"from_name": "mood", "value": {"choices": [c]}} for c in choices]
    return {"id": i, "data": {"text": f"t{i}"}, "annotations": [{"result": result} | annotation]}


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (
            [task(0, "good"), task(1), task(2, "bad", was_cancelled=True), task(3, "good", "good")],
            [{"text": f"t{i}", "mood": m} for i, m in enumerate(["good", None, None, "good"])],
        ),
        (
            [{"_task_hash": 1, "answer": a, "accept": ["x"]} for a in ("accept", "ignore")],
            [
                {"_task_hash": 1, "answer": a, "accept": ["x"], "label": label}
                for a, label in (("accept", ["x"]), ("ignore", None))
            ],
        ),
        (
            {"version": 1, "none": [], "data": [{"x": 1}, {"x": 2}]},
            [{"x": 1}, {"x": 2}],
        ),
        (
            {"classes": ["cat", "dog"], "labels": {"i": 1, "j": None, "k": 0}},
            [{"filename": n, "label": c} for n, c in (("i", "dog"), ("j", None), ("k", "cat"))],
        ),
    ],
)
def test_exports_of_annotation_tools(tmp_path, content, rows):
    (tmp_path / "t.json").write_text(json.dumps(content))
    assert read_table(tmp_path / "t.json").columns.to_pylist() == rows


def test_tasks_with_two_choices_are_refused_as_labels(tmp_path):
    tasks = [task(0, "good"), task(1, "bad", "good"), task(2, "bad")]
    (tmp_path / "t.json").write_text(json.dumps(tasks))
    with pytest.raises(ValueError, match=r"row 1, column 'mood': .* must be one label"):
        load_dataset(tmp_path / "t.json", label="mood", text="text")
