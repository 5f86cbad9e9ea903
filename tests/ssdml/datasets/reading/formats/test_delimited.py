"""Tables in text: separators, headers, quotes, encodings, lines."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ssdml.datasets.reading.formats.delimited import read_delimited


@pytest.fixture
def read(tmp_path):
    """Reads a text, and returns its columns as lists."""

    def read(text, name="t.csv", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_delimited(path, **options)

    return read


def columns(table):
    return table.columns.to_pydict()


@pytest.mark.parametrize(
    "above",
    [
        "# made in 2020, by me\n#\n",
        "Trial 7\nBonn, May\n",
        "Trial 7,,,,\n",
        "Station,42\nOperator,Ann\n\n",
    ],
)
@pytest.mark.parametrize("separator", [",", ";"])
def test_lines_above_the_header_are_left_out(read, above, separator):
    rows = "a,b,c,d,label\n1.5,2,3,4,x\n3,-4,5,6,y z\n3,-4,5,6,\n"
    table = read((above + rows).replace(",", separator))
    assert table.columns.column_names == ["a", "b", "c", "d", "label"]
    assert columns(table)["a"] == ["1.5", "3", "3"]
    assert "above the header left out" in " ".join(table.notes)
    assert table.place(0) == f"line {above.count(chr(10)) + 2}"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_remarks_with_a_cell_for_each_column_are_no_header(read, end):
    above = "#Patient\tDose\tKind\n#Who it is\tWhat was given\tOf tumor\n"
    above += "#TEXT\tNUMBER\tTEXT\n#1\t1\t1\n"
    rows = "".join(f"p{i}\t{i}.5\t{'ab'[i % 2]}\n" for i in range(9))
    table = read((above + "PATIENT\tDOSE\tKIND\n" + rows).replace("\n", end))
    assert table.columns.column_names == ["PATIENT", "DOSE", "KIND"]
    assert len(table) == 9
    assert table.place(0) == "line 6"


def test_remarks_of_other_lengths_are_no_header(read):
    above = "#File CLASS ID\n#CLASS 1:3 ids\n#ID: 1:cat 2:dog of kind\n"
    table = read(above + "".join(f"a_{i} {i % 3} {i % 2}\n" for i in range(9)))
    assert len(table) == 9
    assert table.columns.column_names == ["1", "2", "3"]
    table = read("# by me\n# two lines\n# x y kind\n" + "1.5 2 a\n2.5 3 b\n1 2 a\n")
    assert table.columns.column_names == ["x", "y", "kind"]


def test_units_may_be_a_remark_below_names_that_are_one(read):
    table = read("#YY MM WIND\n#yr mo m/s\n" + "".join(f"2019 {i} {i}.5\n" for i in range(9)))
    assert table.columns.column_names == ["YY #yr", "MM mo", "WIND m/s"]


def test_titles_do_not_make_commas_separators(read):
    rows = "a;b;c;label\n7.530,90;4.320,75;1.234,00;x\n7.530,91;4.320,76;1.234,01;y\n"
    assert columns(read(rows))["a"] == ["7.530,90", "7.530,91"]


MATRIX = np.array([[1.5, -2, 7], [3, 4, 8], [5, 6, -1]])


@pytest.mark.parametrize("header", ["a b label", ""])
def test_arrays_that_numpy_wrote_as_text_are_read(read, tmp_path, header):
    np.savetxt(tmp_path / "t.txt", MATRIX, header=header)
    table = read((tmp_path / "t.txt").read_text(), "t.txt")
    assert table.columns.column_names == (header.split() or ["1", "2", "3"])
    np.testing.assert_array_equal(np.array(list(columns(table).values()), float).T, MATRIX)


@pytest.mark.parametrize(
    "text",
    [
        "  a      b  label\n1.5  -2.0  7\n 3.0   4.0  8\n 5.0   6.0\t-1\n",
        '"a" "b" "label"\n"1" 1.5 -2 "7"\n"2" 3 4 "8"\n"3" 5 6 "-1"\n',
        pd.DataFrame(MATRIX, columns=["a", "b", "label"]).to_string(),
        pd.DataFrame(MATRIX, columns=["a", "b", "label"]).to_csv(sep=" ", index=False),
    ],
    ids=["aligned", "of R", "printed by pandas", "of pandas"],
)
def test_blanks_separate_numbers(read, text):
    found = columns(read(text, "t.dat"))
    for j, name in enumerate(["a", "b", "label"]):
        assert list(map(float, found[name])) == MATRIX[:, j].tolist()


@pytest.mark.parametrize("n_names", [3, 2])
def test_the_number_of_rows_may_be_above_the_header(read, n_names):
    """As in CelebA, whose column of images has no name, and DeepFashion."""
    header = "  ".join(["image_name", "Male", "Young"][-n_names:])
    rows = [f"{i:06d}.jpg{-1 if i % 2 else 1:3d}{1 if i % 3 else -1:3d}" for i in range(5)]
    table = read("\n".join(["5", header, *rows]) + "\n", "t.txt")
    assert columns(table)["Male"] == ["1", "-1"] * 2 + ["1"]
    assert next(iter(columns(table).values())) == [row[:10] for row in rows]
    assert table.place(0) == "line 3"
    with pytest.raises(ValueError, match=r"line 1: must have 2 columns.* got 1 in '7'"):
        read("7\n1 2\n3 4\n5 6\n", "t.txt")


@pytest.mark.parametrize("above", ["", "\n\n"])
def test_headers_may_lack_the_name_of_the_names_of_rows(read, above):
    """As R writes them."""
    table = read(f'{above}"a","label"\n"r1",0.5,"x"\n"r2",1.5,"y"\n')
    assert columns(table) == {"Unnamed: 0": ["r1", "r2"], "a": ["0.5", "1.5"], "label": ["x", "y"]}


@pytest.mark.parametrize(
    "rows",
    [
        "label,text\nx,well, this is one\ny,well, this is two\nx,no, this is three\n",
        "text,label\nwell,this is one,x\nwell,this is two,y\nno,this is three,x\n",
        "text,label\nwell 1, this is one,x\nwell 2, this is two,y\nno 3, this is three,x\n",
    ],
)
def test_texts_with_unquoted_commas_are_no_names_of_rows(read, rows):
    message = "line 1: must have 3 columns.*got 2.*if texts hold such a sign"
    with pytest.raises(ValueError, match=message):
        read(rows)
    table = read("a, label\nr1, 0.5, x\nr2, 1.5, y\n")
    assert columns(table)["Unnamed: 0"] == ["r1", "r2"]


@pytest.mark.parametrize("above", ["", "\n\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_headers_may_end_with_separators(read, end, above):
    """As in Breast Cancer Wisconsin on Kaggle, whose rows do not."""
    table = read(f'{above}"id","a","label",,{end}1,0.5,x{end}2,1.5,y{end}')
    assert columns(table) == {"id": ["1", "2"], "a": ["0.5", "1.5"], "label": ["x", "y"]}
    with pytest.raises(ValueError, match=r"line 1: must have 3 columns"):
        read("id,a,label,b\n1,0.5,x\n2,1.5,y\n")


@pytest.mark.parametrize("years", [["1960", "1961", "1962"], ["2020", "2019", "2018"]])
def test_years_beside_texts_are_a_header(read, years):
    table = read("\n".join([",".join(["Country", "Unit", *years]), "A,t,1.5,2,3", "B,t,,5,6"]))
    assert table.columns.column_names == ["Country", "Unit", *years]
    assert len(read("\n".join([",".join(years), "1.5,2,3", "4,5,6"]))) == 3


def test_a_header_may_be_a_remark(read):
    assert list(columns(read("# a,b,label\n1,2,x\n3,4,y\n"))) == ["a", "b", "label"]


def test_blanks_do_not_separate_words(read):
    assert columns(read("text\nwell done\nsee you\n")) == {"text": ["well done", "see you"]}


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("header", ["a{0}b{0}label\n", ""])
def test_separator_is_found(read, separator, end, header):
    text = header.format(separator) + f"1.5{separator}2{separator}x\n3{separator}-4{separator}y z\n"
    table = read(text.replace("\n", end))
    names = ["a", "b", "label"] if header else ["1", "2", "3"]
    assert columns(table) == dict(
        zip(names, (["1.5", "3"], ["2", "-4"], ["x", "y z"]), strict=True)
    )
    assert table.separator == separator


def test_decimal_commas_do_not_separate(read):
    assert columns(read("1,5;2,5;x\n0,5;3,25;y\n"))["1"] == ["1,5", "0,5"]
    assert columns(read("a;b\n1,5;x\n"))["a"] == ["1,5"]


def test_separators_within_quotes_and_texts_do_not_count(read):
    text = 'text,label\n"one; two; three",a\n"one; ""two"", three",b\n'
    assert columns(read(text))["text"] == ["one; two; three", 'one; "two", three']
    assert columns(read("text;label\nhello, you;a\nbye;b\n"))["text"] == ["hello, you", "bye"]


def test_line_of_excel_names_the_separator(read):
    table = read("sep=|\na|b\n1|x,y;z\n")
    assert columns(table) == {"a": ["1"], "b": ["x,y;z"]}
    assert table.place(0) == "line 3"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0,1,target\n1.5,2.5,a\n3,4,b\n", ["0", "1", "target"]),
        ("0,1,2\n1.5,2.5,7\n3,4,8\n", ["0", "1", "2"]),
        ("1,2,3,4\n1.5,2.5,7,8\n", ["1", "2", "3", "4"]),
        (",0,1\na,1.5,2.5\nb,3,4\n", ["Unnamed: 0", "0", "1"]),
        ("2019,2020,label\n1.5,2.5,a\n", ["2019", "2020", "label"]),
        ("a,a,a.1\n1,2,3\n", ["a", "a.1", "a.1.1"]),
        (" a , b\n1,2\n", ["a", "b"]),
        ("sentence,mood\nI like it,good\nI do not,bad\n", ["sentence", "mood"]),
        ("a,b,\n1,2,\n3,4,\n", ["a", "b"]),
        ("a,b\n1,2,\n3,4,\n", ["a", "b"]),
        ('"a","b"\n"r1",1,2\n"r2",3,4\n', ["Unnamed: 0", "a", "b"]),
    ],
)
def test_header_is_found(read, text, names):
    table = read(text)
    assert table.columns.column_names == names
    assert len(table) == text.count("\n") - 1


@pytest.mark.parametrize(
    "text",
    [
        "1.5,2.5,a\n3,4,b\n",
        "1,2,a\n3,4,b\n",
        "0,1,a\n3,4,a\n5,6,b\n",
        "5.1,3.5,setosa\n",
        "I like it,good\nI do not,bad\nIt is,good\n",
        "a text, of one column\nanother\n",
    ],
)
def test_rows_without_header_are_all_data(read, text):
    table = read(text)
    assert len(table) == text.count("\n")
    assert "no header" in table.notes[-1]


def test_byte_order_mark_is_no_part_of_a_name(read):
    assert read("\ufeffa,b\n1,x\n").columns.column_names == ["a", "b"]
    assert read("größe,b\n1,x\n".encode("utf-16")).columns.column_names == ["größe", "b"]


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda text: pa.compress(text, "zstd", asbytes=True)),
    ],
)
def test_compressed_text_is_read(read, suffix, compress):
    text = b"a,b\n" + b"1,x\n" * 1000
    packed = compress(text)
    assert len(read(packed, f"t.csv{suffix}")) == 1000
    with pytest.raises(ValueError, match=rf"t\.csv{suffix}: truncated or damaged"):
        read(packed[:-4], f"t.csv{suffix}")


def test_compressed_text_that_takes_too_much_is_refused(read, monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.001")
    with pytest.raises(ValueError, match=r"t\.csv\.gz: takes .* SSDML_MAX_GB"):
        read(gzip.compress(b"a,b\n" * 10**6), "t.csv.gz")


def test_many_cells_of_little_text_are_refused(read, monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.001")
    with pytest.raises(ValueError, match=r"t\.csv\.gz: takes .* SSDML_MAX_GB"):
        read(gzip.compress(b"1,x\n" * 10**5), "t.csv.gz")  # 0.4 MB of text


def test_long_cells_are_read(read):
    long = "word " * 100_000
    assert columns(read(f'text,label\n{long},a\n"{long}\n",b\n'))["text"] == [long, f"{long}\n"]


def test_rows_are_named_by_their_lines(read):
    table = read('a,b\n1,"x\ny"\n\n,\n2,z\n')
    assert columns(table) == {"a": ["1", "2"], "b": ["x\ny", "z"]}
    assert [table.place(row) for row in range(2)] == ["line 2", "line 6"]
    assert table.notes == ("empty rows left out: 2",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a,b,label\n1,2,x\n\n1,x\n1,2,x\n",
            "line 4: must have 3 columns, separated by commas, as",
        ),
        (
            "a;b;c\n1;2;3\n1;2;3;4\n1;2;3\n",
            "line 3: must have 3 .*semicolons, as most lines; got 4",
        ),
        ('a,b\n"1\n1",2\n3\n4,5\n', "line 4: must have 2 columns.*; got 1"),
        ('a,b\n1,x\n2,"y\n3,z\n', "line 3: a quote is not closed; got 'y"),
        ('a,b\n1,x\n"2,y\n3,z\n', "line 3: must have 2 columns.*A quote may not be closed"),
        ("report of 2020\n\na,b\n1,x\n2,y\n", "line 1: must have 2 columns"),
    ],
)
def test_wrong_rows_are_named(read, text, message):
    with pytest.raises(ValueError, match=rf"t\.csv, {message}"):
        read(text)


def test_lines_of_another_length_are_shown_with_a_way_out(read):
    message = r"line 3: must have 3 .*; got 1 in '# new'\. Correct the line, or delete it\."
    with pytest.raises(ValueError, match=message):
        read("a,b,label\n1,2,x\n# new\n3,4,y\n")
    with pytest.raises(ValueError, match=r"line 3: must have 2 .*; got 3 .* into double quotes"):
        read("text,label\none,x\ntwo, or more,y\nthree,x\n")


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_headers_repeated_by_files_below_each_other_are_left_out(read, mark):
    table = read(f"a,text,label\n1,one,x\n2,text,\n{mark}a,text, label\n3,four,a\n")
    assert columns(table) == {
        "a": ["1", "2", "3"],
        "text": ["one", "text", "four"],
        "label": ["x", "", "a"],
    }
    assert table.notes == ("repeated headers left out: 1",)
    assert table.place(2) == "line 5"


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES (1.5,'x');\nINSERT INTO t VALUES (2.5,'y');\n",
        "-- dump\n/*!40101 SET NAMES utf8 */;\nDROP TABLE IF EXISTS `t`;\nCREATE TABLE `t` (\n",
        "PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\nCREATE TABLE t(a, label);\n",
    ],
)
def test_statements_of_sql_are_named(read, text):
    with pytest.raises(ValueError, match=r"got statements of SQL\. Run it in a database"):
        read(text)
    assert len(read("create,label\ninsert into it,x\ncreate table for (two),y\n")) == 2


RULE = "+-----+-------+\n"


@pytest.mark.parametrize(
    "text",
    [
        "  a  | label \n-----+-------\n 1.5 | x\n   2 | y z\n(2 rows)\n\n",  # psql
        f"{RULE}| a   | label |\n{RULE}| 1.5 | x     |\n|   2 | y z   |\n{RULE}"
        "2 rows in set (0.00 sec)\n",
    ],
    ids=["psql", "mysql"],
)
def test_tables_as_databases_print_them_are_read(read, text):
    table = read(text)
    cells = {name: [cell.strip() for cell in found] for name, found in columns(table).items()}
    assert cells == {"a": ["1.5", "2"], "label": ["x", "y z"]}
    assert (
        table.place(0)
        == f"line {text.splitlines().index(next(r for r in text.splitlines() if '1.5' in r)) + 1}"
    )


@pytest.mark.parametrize("n_columns", [2, 5000])
def test_blanks_and_bars_are_searched_once(read, n_columns):
    """In all pairs, it would take minutes."""
    names = " " * 20_000 + "|".join(f"c{j}" for j in range(n_columns))
    table = read(f"{names}\n{'|'.join(['1.5'] * n_columns)}\n")
    assert table.columns.num_columns == n_columns


def test_the_rule_below_a_header_of_markdown_is_no_row(read):
    table = read("| a | label |\n|--:|:-:|\n| 1 | x |\n| 2 | |\n")
    assert {name.strip(): cells for name, cells in columns(table).items() if name.strip()} == {
        "a": [" 1 ", " 2 "],
        "label": [" x ", " "],
    }
    assert table.place(1) == "line 4"


ORANGE = "len\twid\tkind\tname\n"
ROWS = "1.5\t2\ta\tn1\n3\t4\t?\tn2\n5\t6\tb\tn3\n"


@pytest.mark.parametrize(
    ("header", "names"),
    [
        (
            f"{ORANGE}continuous\tcontinuous\tdiscrete\tstring\n\t\tclass\tmeta\n",
            ["len", "wid", "kind class", "name meta"],
        ),
        (
            f"{ORANGE}continuous\tcontinuous\ta b\tstring\n\t\t\t\n",
            ["len", "wid", "kind", "name"],
        ),
        (f"{ORANGE}c\tc\td\ts\n\t\tclass\tmeta\n", ["len", "wid", "kind class", "name meta"]),
        (
            f"{ORANGE}c\tc\td\ts\n\tinclude=True\tclass\tmeta a=b\\ c title=True\n",
            ["len", "wid", "kind class", "name meta"],
        ),
        (f"{ORANGE}c\tc\td\ts\n\t\t\tinclude=True\n", ["len", "wid", "kind", "name"]),
        ("C#len\tC#wid\tcD#kind\tmS#name\n", ["len", "wid", "kind class", "name meta"]),
    ],
)
def test_headers_of_orange_are_understood(read, header, names):
    table = read(header + ROWS, "t.tab")
    assert table.columns.column_names == names
    assert columns(table)["len"] == ["1.5", "3", "5"]


def test_letters_and_languages_are_no_header_of_orange(read):
    assert columns(read("cap,odor,label\nc,d,s\nn,t,s\nc,n,d\n"))["cap"] == ["c", "n", "c"]
    assert read("id,C#,R,label\n1,2,3,x\n2,3,4,y\n").columns.column_names[1] == "C#"


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_empty_files_raise(read, text):
    with pytest.raises(ValueError, match=r"t\.csv: must contain rows; got an empty file"):
        read(text)


@pytest.mark.parametrize(("text", "got"), [("a,label\n", "a header alone"), (",\n,\n", "none")])
def test_files_without_rows_raise(read, text, got):
    with pytest.raises(ValueError, match=rf"t\.csv: must contain rows; got {got}"):
        read(text)


def test_text_of_another_encoding_is_named(read):
    text = "a,label\n1,größe\n".encode("cp1252")
    message = r"t\.csv, line 2: cannot be read \(.*can't decode.*\)\. Pass --encoding cp1252 "
    with pytest.raises(ValueError, match=message):
        read(text)
    assert columns(read(text, encoding="cp1252"))["label"] == ["größe"]
    for given in (text.decode("cp1252").encode(), b"\xef\xbb\xbfa,label\n1,x\n"):
        with pytest.raises(ValueError, match=r"is text in UTF-8, not in cp1252\. Omit the encod"):
            read(given, encoding="cp1252")
    assert columns(read("a,label\n1,x\n", encoding="cp1252"))["label"] == ["x"]
    assert columns(read("a,label\n1,ß\n", encoding="utf-8-sig"))["label"] == ["ß"]
    assert columns(read("a,label\n1,ß\n".encode(), encoding="utf8"))["label"] == ["ß"]
    with pytest.raises(ValueError, match=r"encoding must be one .*got 'latin-99'"):
        read(text, encoding="latin-99")
    with pytest.raises(ValueError, match=r"can't decode.*Pass another encoding\."):
        read(text, encoding="ascii")
    for name in ("utf-16-le", "utf-16-be"):
        with pytest.raises(ValueError, match=rf"zero byte.*Pass --encoding {name} \("):
            read("a,b\n1,x\n".encode(name))
    for content in (bytes(range(9)) * 9, b"ustar" + bytes(99), b"a" * 99 + bytes(9) + b"\xff"):
        with pytest.raises(ValueError, match=r"\)\. It is not text, but binary: unpack it, or"):
            read(content)
    with pytest.raises(ValueError, match=r"zero byte.*Remove the byte"):
        read("a,b\n1,x\n2,\0y\n")


def test_wide_files_equal_pandas(read, rng):
    frame = pd.DataFrame(rng.normal(size=(300, 50))).assign(label="x y")
    path = read("a\n1\n").path
    frame.to_csv(path, index=False)
    table = read_delimited(path)
    found = np.stack([table.columns[name].cast(pa.float64()) for name in map(str, range(50))], 1)
    np.testing.assert_array_equal(found, frame.iloc[:, :50])


@pytest.mark.parametrize("separator", [*",;|\t", " "])
@pytest.mark.parametrize("n_rows", [2, 4])
def test_headers_may_be_long(read, separator, n_rows):
    """Of 160 kB, such as of 10,000 genes; other separators leave one cell of that size."""
    names = [f"ENSG{j:011d}" for j in range(10_000)]
    rows = [separator.join(["1.5"] * len(names))] * n_rows
    table = read("\n".join([separator.join(names), *rows]))
    assert table.columns.shape == (n_rows, len(names))
    assert table.columns.column_names == names


@pytest.mark.parametrize("content", ["sep=,\n", 'sep="\n1"2\n', "\n" * 10**5])
def test_odd_beginnings_are_read_or_refused(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_text(content)
    if "1" in content:
        assert len(read_delimited(path)) == 2
    else:
        with pytest.raises(ValueError, match=r"t\.csv: must contain rows"):
            read_delimited(path)
    path.write_text("\n" * 10**5 + "a,label\n1,x\n2,y\n")
    assert read_delimited(path).columns.column_names == ["a", "label"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quotes_may_follow_backslashes(read, end):
    lines = ["text,label", r'"she said \"no, thanks\" twice",x', r'"a\\b, \"c\"",y', '"d",']
    table = read(end.join(lines) + end)
    assert columns(table)["text"] == ['she said "no, thanks" twice', 'a\\b, "c"', "d"]
    assert columns(table)["label"] == ["x", "y", ""]
    assert "quotes follow backslashes" in table.notes


@pytest.mark.parametrize("cell", ['"C:\\data\\"', '"C:\\""data"" x"', '5\\" pipe', '"a ""b"" c"'])
def test_other_backslashes_stay(read, cell):
    table = read(f"text,label\n{cell},x\n{cell},y\n")
    expected = next(csv.reader([cell], quoting=csv.QUOTE_MINIMAL))[0]
    assert columns(table)["text"] == [expected] * 2
    assert not table.notes


def test_quotes_may_follow_blanks(read):
    table = read('a, b, label\n1.5, 2, "x"\n2.5, 3, "y"\n3.5, 4, ""\n4.5, 5,\n')
    assert columns(table)["label"] == ["x", "y", "", ""]
    table = read('text,label\n"one, ""two"" three",x\n"four, ""five""",y\n')
    assert columns(table)["text"] == ['one, "two" three', 'four, "five"']


def test_cells_that_excel_keeps_as_text_lose_its_sign(read):
    table = read('="a",b,="label"\n="1.5",x,="u"\n"=""2.5""","=""7""",="v"\n')
    assert columns(table) == {"a": ["1.5", "2.5"], "b": ["x", "7"], "label": ["u", "v"]}


def test_utf_32_is_known_by_its_mark(read):
    assert columns(read("a,label\n1,x\n2,y\n".encode("utf-32")))["label"] == ["x", "y"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_cells_may_be_in_single_quotes(read, separator):
    rows = [["'a'", "'the text'", "'label'"]]
    rows += [["1.5", "'a, \"b\"; it''s\tall'", "'x'"], ["2.5", "'one\ntwo'", "NULL"]]
    table = read("".join(separator.join(row) + "\n" for row in rows))
    assert columns(table) == {
        "a": ["1.5", "2.5"],
        "the text": ['a, "b"; it\'s\tall', "one\ntwo"],
        "label": ["x", "NULL"],
    }
    assert "cells are in single quotes" in table.notes
    assert columns(read("'tis,label\n'twas,x\n")) == {"'tis": ["'twas"], "label": ["x"]}


@pytest.mark.parametrize("first", ["", "# a remark\n", "-1 \n", "0,3 1:0.5\n", "2 qid:1 1:0.5\n"])
def test_svmlight_is_named(tmp_path, first):
    (tmp_path / "t.txt").write_text(f"{first}+1 1:0.5 7:1e-3\n-1 2:0.25\n")
    with pytest.raises(ValueError, match=r"pairs index:value, as svmlight writes\. Load it"):
        read_delimited(tmp_path / "t.txt")


@pytest.mark.parametrize("form", ["lines", "list", "indented", "python"])
@pytest.mark.parametrize("name", ["t.csv", "t.txt"])
def test_objects_of_json_are_named(read, form, name):
    rows = [{"text": f"where is {i}, please", "w": i, "label": "ab"[i % 2]} for i in range(9)]
    text = json.dumps(rows, indent=1 if form == "indented" else None)
    text = "\n".join(map(json.dumps, rows)) if form == "lines" else text
    with pytest.raises(ValueError, match=r"got objects of JSON\. Let its name end in \.jsonl for"):
        read(str(rows) if form == "python" else text, name)
    cells = read('text,label\n{name} is here,x\n"{""a"": 1}",y\n', name).columns["text"].to_pylist()
    assert cells == ["{name} is here", '{"a": 1}']


def test_one_column_of_vectors_keeps_its_name(tmp_path):
    (tmp_path / "t.csv").write_text("v\n0.5 -1.5\n2.5 1e3\n")
    assert read_delimited(tmp_path / "t.csv").columns.to_pydict() == {"v": ["0.5 -1.5", "2.5 1e3"]}


@pytest.mark.parametrize("texts", [('" so be', 'it " now'), ('"so', "be it"), ("a", '"')])
def test_quotes_between_tabs_may_be_part_of_texts(read, texts):
    texts = ["how do I pay", *texts, 'where is "it"'] * 5
    lines = [f"{text}\t{'ab'[i % 2]}" for i, text in enumerate(texts)]
    table = read("\n".join(["text\tlabel", *lines]) + "\n", "t.tsv")
    assert columns(table) == {"text": texts, "label": [*"ab"] * 10}
    assert table.notes == ("quotes are part of the texts",)


def test_quotes_between_tabs_hold_lines_and_tabs_together(read):
    texts = ["how do I\npay now", 'say "when"\nto him', "a\tb c"] * 4
    frame = pd.DataFrame({"text": texts, "label": ["a", "b"] * 6})
    table = read(frame.to_csv(sep="\t", index=False), "t.tsv")
    assert columns(table) == frame.to_dict("list")
    assert not table.notes


@pytest.mark.parametrize("name", ["y", "no", "key"])
def test_usual_names_that_are_cells_below_are_no_header(read, name):
    table = read("".join(f"{i}.5,{name},b\n1.5,n,a\n" for i in range(10)))
    assert columns(table)["2"] == [name, "n"] * 10


@pytest.mark.parametrize(
    "lines",
    [
        ["I like it, really a lot"],
        ["I like it, really a lot", "It was fine, we came again", "No, thanks a lot"],
        ["It was fine; we came again"] * 3,
    ],
)
def test_commas_of_sentences_separate_no_cells(read, lines):
    assert columns(read("\n".join(lines), "t.txt")) == {"1": lines}


@pytest.mark.parametrize("row", ["a dog, {} a cat, x", "Ann Lee, {} High Street"])
def test_blanks_after_commas_may_begin_cells(read, row):
    rows = [row.format(i) for i in range(9)]
    names = ["name", "place", "label"][: row.count(",") + 1]
    assert columns(read("\n".join([", ".join(names), *rows]))).keys() == {*names}
