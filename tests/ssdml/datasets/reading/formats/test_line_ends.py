"""Tables in text whose lines end, begin or are parted in an odd way."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.datasets.loading import read_dataset
from ssdml.datasets.reading.formats.delimited import read_delimited
from ssdml.datasets.reading.names import Choice

ROWS = [f"{i}.5,{i * 7 % 5}.25,{'ab'[i % 2]}" for i in range(9)]
# As Astropy writes it.
ECSV = """# %ECSV 1.0
# ---
# datatype:
# - {name: a, unit: mag, datatype: float64, description: "in V, not in B"}
# - {name: b, datatype: float64}
# schema: astropy-2.0
"""


@pytest.mark.parametrize("end", [";\n", ";\r\n", "; \n"])
@pytest.mark.parametrize("separator", [",", "\t", "|"])
def test_semicolons_at_the_ends_of_lines_are_no_part_of_cells(tmp_path, end, separator):
    path = tmp_path / "t.txt"
    path.write_bytes("".join(row.replace(",", separator) + end for row in ROWS).encode())
    data = read_dataset(path, Choice())
    np.testing.assert_allclose(data.X[:, 1], [i * 7 % 5 + 0.25 for i in range(9)])
    assert data.class_names == ("a", "b")
    assert "semicolons at the ends" in data.summary.facts["file"]


def test_other_semicolons_stay(tmp_path):
    for name, rows in (("one.csv", ["text;", "so, it;", "and;"]), ("two.csv", ["a,b;", "1;2,3;"])):
        (tmp_path / name).write_text("\n".join([*rows, ""]))
        assert not any("ends of lines" in note for note in read_delimited(tmp_path / name).notes)


@pytest.mark.parametrize("odd", [slice(0, 1), slice(3, 5), slice(8, 9)])
def test_several_tabs_may_be_one_if_all_rows_are_equally_long(tmp_path, odd):
    lines = [row.replace(",", "\t") for row in ROWS]
    lines[odd] = [line.replace("\t", "\t\t", 1) for line in lines[odd]]
    path = tmp_path / "t.txt"
    path.write_text("\n".join(lines))
    data = read_dataset(path, Choice())
    np.testing.assert_allclose(data.X[:, 0], np.arange(9) + 0.5)
    path.write_text("a\tb\tlabel\n1\t\tx\n2\t3\ty\n")  # an empty cell
    assert read_delimited(path).columns["b"].to_pylist() == ["", "3"]
    path.write_text("a\tb\tlabel\nr0\t0.5\t\tx\nr1\t0.25\t\ty\n")  # as R names the rows
    assert read_delimited(path).columns["a"].to_pylist() == ["0.5", "0.25"]


@pytest.mark.parametrize("name", ["t.ecsv", "t.csv"])
@pytest.mark.parametrize("separator", [" ", ","])
def test_the_description_that_astropy_writes_is_no_row(tmp_path, name, separator):
    above = ECSV if separator == " " else ECSV.replace("# data", "# delimiter: ','\n# data", 1)
    rows = [*ROWS[:5], '9.5,"","of b"', *ROWS[5:]]
    path = tmp_path / name
    path.write_text(above + "\n".join(["a,b,label", *rows]).replace(",", separator))
    table = read_delimited(path)
    assert table.columns.column_names == ["a", "b", "label"]
    assert table.columns["b"].to_pylist()[4:6] == ["3.25", ""]
    assert table.columns["label"].to_pylist()[5] == "of b"
    assert table.place(0) == f"line {above.count(chr(10)) + 2}"


def test_the_sign_of_dos_for_the_end_is_no_row(tmp_path):
    (tmp_path / "t.csv").write_bytes("\r\n".join([*ROWS, "\x1a"]).encode())
    assert len(read_delimited(tmp_path / "t.csv")) == len(ROWS)
