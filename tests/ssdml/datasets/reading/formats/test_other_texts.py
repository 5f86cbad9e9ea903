"""Texts of other programs: lines of fastText, and those that are no tables."""

from __future__ import annotations

import pytest

from ssdml.datasets.reading.formats.delimited import read_delimited


@pytest.mark.parametrize("blank", [" ", "\t", "  "])
def test_lines_of_fasttext(tmp_path, blank):
    path = tmp_path / "t.txt"
    path.write_text(f'__label__a{blank}a "quoted, text\nno label\n__label__b{blank}another\n')
    assert read_delimited(path).columns.to_pylist() == [
        {"label": "a", "text": 'a "quoted, text'},
        {"label": None, "text": "no label"},
        {"label": "b", "text": "another"},
    ]
    path.write_text("__label__a one\u2028two\x85three\r\n__label__b four\x0cfive", newline="")
    assert read_delimited(path).columns.to_pylist() == [
        {"label": "a", "text": "one\u2028two\x85three"},
        {"label": "b", "text": "four\x0cfive"},
    ]
    path.write_text("__label__a x\n__label__a __label__b y\n")
    with pytest.raises(ValueError, match=r"t\.txt, line 2: must have one label; got '__la"):
        read_delimited(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1 |f price:.23 age:.05 old\n-1 |f price:.5\n",
            "pairs name:value, as Vowpal Wabbit reads",
        ),
        ("1 2.0 'row1|a x:1 |b y:2\n0 |a x:3\n", "pairs name:value, as Vowpal Wabbit reads"),
        ("# Created by Octave 6.4\n# name: X\n# type: matrix\n 1 2\n", "variables of Octave. Save"),
        (
            '!Series_title\t"a"\n!Sample_title\t"b"\t"c"\n',
            "a series of GEO. Its samples are columns",
        ),
        ("^DATABASE = GeoMiame\n!Database_name = Gene\n", "a series of GEO"),
    ],
)
def test_texts_of_other_programs_are_named(tmp_path, text, message):
    (tmp_path / "t.txt").write_text(text)
    with pytest.raises(ValueError, match=rf"t\.txt: must have cells; got {message}"):
        read_delimited(tmp_path / "t.txt")


@pytest.mark.parametrize("text", ["1 |a text\n0 |other\n", "a|12:30\nb|13:30\n", "!a,b\n1,2\n"])
def test_tables_alike_are_read(tmp_path, text):
    (tmp_path / "t.txt").write_text(text)
    assert read_delimited(tmp_path / "t.txt").columns.num_columns == 2
