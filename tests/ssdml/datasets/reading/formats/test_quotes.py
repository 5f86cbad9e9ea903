"""Quotes in tables of text that are not closed."""

from __future__ import annotations

import csv

import pytest

from ssdml.datasets.reading.formats.delimited import read_delimited

ROWS = [f"{i},a text of {i},{'xy'[i % 2]}" for i in range(9)]


@pytest.mark.parametrize("last", ['6,"a text of 6,y', '6,a text of 6",y'])
def test_rows_between_two_open_quotes_are_doubted(tmp_path, last):
    path = tmp_path / "t.csv"
    lines = ["id,text,label", *ROWS[:3], '3,"a text of 3,y', *ROWS[4:6], last, *ROWS[7:]]
    path.write_text("\n".join(lines))
    table = read_delimited(path)
    assert len(table) == 6
    [doubt] = table.doubts
    assert doubt.startswith("line 5 has a cell of 4 lines, each with the separators of a row")


@pytest.mark.parametrize("text", ["a, b\nc, d", "\n".join(ROWS[:4]), "a\nb\nc\nd"])
def test_texts_of_several_lines_are_not_doubted(tmp_path, text):
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text", "label"], [1, text, "x"], [2, text, "y"]])
    table = read_delimited(path)
    assert table.columns["text"].to_pylist() == [text, text]
    assert table.doubts == ()
