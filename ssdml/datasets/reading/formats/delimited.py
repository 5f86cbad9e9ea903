"""Tables in text, with cells between separators: CSV, TSV, exports of spreadsheets.

Cells stay text, as they are in the file: what is a number is decided per column, later.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from ssdml.datasets.image_names import is_image_name
from ssdml.datasets.reading.formats.arff import AT_LINES, names_and_rows
from ssdml.datasets.reading.formats.other_texts import FASTTEXT, read_fasttext, refuse_other_texts
from ssdml.datasets.reading.table import TEXT_NAMES, Table, folded, has_header, headed, is_number
from ssdml.utils.files import check_memory, check_regular, open_regular, refuse_damage
from ssdml.utils.typing import Ints

if TYPE_CHECKING:
    import pyarrow as pa

SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
BLANK = " "
NAMES = {**SEPARATORS, BLANK: "blanks"}
REMARK = "#"  # begins a line above the header
ESCAPED = re.compile(rb'(?:^|[,;\t|\n])"[^"\n]*\\"(?=[^",;\t|\r\n])')  # a quote within quotes
# A header whose names are in single quotes, and double and single quotes for each other.
SINGLE = re.compile(rb"(?:'[^'\"\r\n]*'[,;\t|])+'[^'\"\r\n]*'[\r\n]")
IN_SINGLE = "cells are in single quotes"  # a note
SWAPPED = bytes.maketrans(b"'\"", b"\"'")
QUOTED = re.compile(rb'(?:^|[\t\n])"([^\t\r\n]*)')  # a cell that begins with a quote: what follows
WITH_QUOTES = re.compile(rb'[^\t\r\n]*"[^\t\r\n]*')  # a cell between tabs
ECSV = b"# %ECSV "  # as Astropy begins a table
REMARKS = re.compile(rb"(?:#[^\n]*\n)+")
FIRST_END = re.compile(rb"\s*[^;\n]*;[ \t\r]*\n")  # a line whose only semicolon ends it
RULE = rb"^ *\+?-+(?:\+-+)+\+?[ \r]*$"  # between lines of cells, as psql and MySQL print them
RULED = re.compile(rb"(?:[ \t\r]*\n)*(?:(?=[^\n|]*\|)[^\n]*\n)?" + RULE, re.MULTILINE)
DRAWN = re.compile(RULE + rb"|^\(?\d+ rows?(?:\)| in set[^\n]*)\s*\Z", re.MULTILINE)
LINE_BREAK = re.compile(rb"\r?\n|\r")
ONE_COLUMN = "\x1f"  # the separator of a file without any
SAMPLE = 2**16  # bytes at the beginning that show the separator, but at least these lines:
FIRST_LINES = re.compile(rb"(?:[^\r\n]*(?:\r\n?|\n)){1,3}")
LONGEST = 2**26  # bytes of these lines
MOST_IN_BLOCK = 2**30  # bytes; a row must fit into a block
FEWEST_SWALLOWED = 4  # separators in a cell that tell its lines from those of a text
CELL_BYTES = 40  # of a cell in memory, besides its text
CHUNK = 2**24
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSED = (*OPENERS, ".zst")
UTF_32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)  # the first begins as UTF-16 does
ONE_BYTE = ("cp125", "iso8859")  # encodings in which text of UTF-8 would be read wrong
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Layout(NamedTuple):
    """Separator and number of columns of a file, and its lines of remarks at the top."""

    separator: str
    n_columns: int
    n_above: int = 0


def read_delimited(path: Path, *, encoding: str | None = None, on_disk: int | None = None) -> Table:
    """Read a table of text; its first 64 kB, or three lines, show the separator.

    Parameters
    ----------
    path : Path
        May be compressed: .gz, .bz2, .xz, .zst.
    encoding : str, optional
        By default UTF-8, or UTF-16 with a byte order mark.
    on_disk : int, optional
        Bytes on disk, by default of this file; it limits the memory.

    Returns
    -------
    table : Table
        Columns of strings. Rows without any cell are left out.

    Raises
    ------
    ValueError
        If a row has another number of cells than most, a quote is not closed, or the text is not
        in this encoding; the message names the line.
    """
    on_disk = on_disk or check_regular(path)
    content = in_utf8(path, unpacked(path, on_disk), encoding).removesuffix(b"\x1a")  # of DOS
    separator, n_declared, content = _declared(content)
    refuse_other_texts(path, content)
    if content.startswith(FASTTEXT.encode()):
        return read_fasttext(path, content)
    if AT_LINES.match(content):
        names, content, n_above = names_and_rows(path, content)
        cells, place = _parsed(path, content, Layout(",", len(names)), n_above, on_disk)
        return headed(path, cells, place, ("columns named in lines with @",), ",", names)
    if RULED.match(content):
        content = DRAWN.sub(b"", content)
    content, notes_on_signs = _with_usual_quotes(content)
    content, notes_on_ends = _with_usual_ends(content)
    notes_on_signs += notes_on_ends
    is_txt = ".txt" in map(str.lower, path.suffixes)
    layout, content = _layout(content, separator, is_txt)
    n_above = layout.n_above + n_declared
    cells, place = _parsed(path, content, layout, n_above, on_disk)
    if b'="' in content or re.search(re.escape(layout.separator.encode()) + rb' +"', content):
        cells = _without_late_quotes(cells)
    last = cells.column(cells.num_columns - 1)[-1].as_py()
    if "\n" in last and not content.rstrip().endswith(b'"'):
        raise ValueError(
            f"{path}, {place(cells.num_rows - 1)}: a quote is not closed; got {last[:40]!r}. Close "
            "it, or write two quotes for one in a text."
        )
    if IN_SINGLE in notes_on_signs:
        cells = _with_quotes_swapped(cells)
    notes = [f"lines above the header left out: {layout.n_above}"] * (layout.n_above > 0)
    if layout.separator in ";| " or (layout.separator == "\t" and ".csv" in path.suffixes):
        notes.append(f"cells are separated by {NAMES[layout.separator]}")
    table = headed(path, cells, place, notes + notes_on_signs, layout.separator)
    return replace(table, doubts=(*_doubt_open_quotes(cells, place, layout.separator),))


def _declared(content: bytes) -> tuple[str | None, int, bytes]:
    """Return the separator that the first lines name, their number, and the lines below.

    Excel reads and writes "sep=;", Astropy writes a description of its columns.
    """
    if named := re.match(rb"sep=([^\"\r\n\x80-\xff])\r?\n", content):
        return named[1].decode(), 1, content[named.end() :]
    if not content.startswith(ECSV) or (described := REMARKS.match(content)) is None:
        return None, 0, content
    named = re.search(rb"^# delimiter: *['\"](.)", described[0], re.MULTILINE)
    separator = named[1].decode() if named else BLANK
    return separator, described[0].count(b"\n"), content[described.end() :]


def _with_usual_ends(content: bytes) -> tuple[bytes, list[str]]:
    r"""Return lines of equally many cells without several tabs for one, and signs at their ends.

    Examples
    --------
    >>> _with_usual_ends(b"1\t2\n4\t\t5\n7\t8\n")
    (b'1\t2\n4\t5\n7\t8\n', ['repeated tabs are one'])
    >>> _with_usual_ends(b"1,2;\n4,5;\n")
    (b'1,2\n4,5\n', ['semicolons at the ends of lines left out'])
    """
    if b'"' in content:
        return content, []
    if b"\t\t" in content and not _are_even(content, b"\t") and not _has_nameless_index(content):
        merged = re.sub(rb"\t+", b"\t", content)
        return (merged, ["repeated tabs are one"]) if _are_even(merged, b"\t") else (content, [])
    if FIRST_END.match(content):
        plain = re.sub(rb";(?=[ \t\r]*$)", b"", content, flags=re.MULTILINE)
        is_end = _are_even(content, b";") and b";" not in plain
        if is_end and any(_are_even(plain, sign) for sign in (b",", b"\t", b"|")):
            return plain, ["semicolons at the ends of lines left out"]
    return content, []


def _has_nameless_index(content: bytes) -> bool:
    """Whether the first line has fewer tabs than the others, which have equally many."""
    first, _, rest = content.partition(b"\n")
    return first.count(b"\t") < rest.partition(b"\n")[0].count(b"\t") and _are_even(rest, b"\t")


def _are_even(content: bytes, sign: bytes) -> bool:
    """Whether all lines but blank ones have equally many of a sign, at least one."""
    counts = {line.count(sign) for line in content.splitlines() if line.strip()}
    return len(counts) == 1 and counts != {0}


def _with_usual_quotes(content: bytes) -> tuple[bytes, list[str]]:
    """Return a table with double quotes around cells and two for one inside, and notes on it.

    In a table with single quotes, double and single ones are swapped.
    """
    notes = []
    if ESCAPED.search(content):  # as Spark and MySQL write quotes
        content = re.sub(rb'\\(["\\])', lambda found: found[1] * (1 + (found[1] == b'"')), content)
        notes.append("quotes follow backslashes")
    if SINGLE.match(content):
        content = content.translate(SWAPPED)
        notes.append(IN_SINGLE)
    if _has_plain_quotes(content):
        content = WITH_QUOTES.sub(lambda c: b'"' + c[0].replace(b'"', b'""') + b'"', content)
        notes.append("quotes are part of the texts")
    return content, notes


def unpacked(path: Path, on_disk: int) -> bytes:
    """Read a file, and decompress it if its name ends in .gz, .bz2, .xz or .zst."""
    suffix = path.suffix.lower()
    with open_regular(path) as file:
        if suffix not in COMPRESSED:
            return file.read()
        parts: list[bytes] = []
        damage = (OSError, EOFError, MemoryError, zlib.error, lzma.LZMAError)
        with refuse_damage(path, "Compress it again.", *damage), _opened(file, suffix) as stream:
            while part := stream.read(CHUNK):
                parts.append(part)
                check_memory(path, sum(map(len, parts)), on_disk, so_far=True)
    return b"".join(parts)


def _opened(file: BinaryIO, suffix: str) -> Any:
    if suffix in OPENERS:
        return OPENERS[suffix](file)
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file), "zstd")


def in_utf8(path: Path, content: bytes, encoding: str | None = None) -> bytes:
    """Return text as UTF-8 without a byte order mark; errors name the line.

    Examples
    --------
    >>> in_utf8(Path("t.csv"), "größe".encode("cp1252"), "cp1252").decode()
    'größe'
    """
    marked = "utf-32" if content.startswith(UTF_32) else "utf-16"
    name = encoding or (marked if content.startswith((*UTF_16, *UTF_32)) else "utf-8")
    try:
        known = codecs.lookup(name).name
    except LookupError:
        raise ValueError(
            f"{path}: encoding must be one that Python knows, such as 'cp1252'; got {name!r}."
        ) from None
    is_utf8 = known in ("utf-8", "utf-8-sig")
    if is_utf8:
        content = content.removeprefix(codecs.BOM_UTF8)
    elif known.startswith(ONE_BYTE) and not content.isascii() and _is_utf8(content):
        raise ValueError(f"{path}: is text in UTF-8, not in {name}. Omit the encoding.")
    try:
        if is_utf8 and b"\0" in content[:100]:
            at = content.index(b"\0")
            raise UnicodeDecodeError(name, content, at, at + 1, "a zero byte")
        text = content.decode(name)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        way_out = "Pass --encoding cp1252 (encoding='cp1252') for a file of Windows in a Western "
        way_out += "language; others have cp1250, cp1251, shift_jis or gb18030."
        even, odd = (content[first:100:2].count(b"\0") for first in (0, 1))
        if min(even, odd) == 0 and max(even, odd) > len(content[:100]) / 4:
            name = "utf-16-le" if odd else "utf-16-be"
            way_out = f"Pass --encoding {name} (encoding='{name}')."
        elif content[:SAMPLE].count(b"\0") > 1:
            way_out = "It is not text, but binary: unpack it, or write its table as .csv."
        elif even + odd:
            way_out = "Remove the byte."
        elif encoding:
            way_out = "Pass another encoding."
        raise ValueError(
            f"{path}, line {line}: cannot be read ({error}). {way_out} Or save it as text in UTF-8."
        ) from error
    return content if is_utf8 else text.removeprefix("\ufeff").encode()


def _is_utf8(content: bytes) -> bool:
    with suppress(UnicodeDecodeError):
        content.decode()
        return True
    return False


def _has_plain_quotes(content: bytes) -> bool:
    r"""Whether tabs separate the cells and quotes hold none together, as in many sets of texts.

    All lines have equally many tabs then, although the quotes in a cell that begins with one do not
    come in pairs.

    Examples
    --------
    >>> _has_plain_quotes(b'"so\t1\nbe it"\t0\n'), _has_plain_quotes(b'"so\nbe it"\t0\n')
    (True, False)
    """
    if not any(cell[1].count(b'"') % 2 == 0 for cell in QUOTED.finditer(content)):
        return False
    return _are_even(content, b"\t")


def _layout(content: bytes, declared: str | None, is_txt: bool = False) -> tuple[Layout, bytes]:
    """Find the separator; return the table alone, with a name for each column in its header.

    Lines above the header go: those that begin with "#", and those of at most half as many cells.
    Commas and the like within sentences, in a file called .txt, are no separators.
    """
    start = len(content) - len(content.lstrip(b"\r\n"))
    lines = FIRST_LINES.match(content, start, start + LONGEST)
    stop = max(start + SAMPLE, lines.end() + 1 if lines else 0)
    text = content[start:stop].decode("utf-8", errors="ignore")
    is_whole = len(content) <= stop
    best, most = Layout(ONE_COLUMN, 1), (0.5, 0.0)
    before, after, n_surplus = b"", b"", 0  # separators of the header
    for separator in [declared] if declared else SEPARATORS:
        rows, ends = _rows(text, separator, is_whole)
        n_columns = Counter(map(len, rows[1:] or rows)).most_common(1)[0][0]
        if n_columns < 2 or (len(rows[0]) == 1 and folded(rows[0][0]) in TEXT_NAMES):
            continue
        if is_txt and not declared and _is_prose(rows):
            continue
        above = ["remark"] * _n_remarks(rows, n_columns)
        above += takewhile(bool, (_above(row, n_columns) for row in rows[len(above) : -1]))
        n_above = ends[len(above) - 1] if above else 0
        n_titles, rows = above.count("title"), rows[len(above) :]
        lacks_end = len(rows[0]) == n_columns - 1 > 1 and _are_last_empty(rows, n_columns)
        short = lacks_end or _lacks_first_name(rows, n_columns)
        n_more = 0 if any(rows[0][n_columns:]) else len(rows[0][n_columns:])
        n_alike = sum(len(row) == n_columns for row in rows) + (short or n_more > 0)
        agreement = n_alike / (n_titles + len(rows))
        cells = [cell for row in rows for cell in row]
        quality = agreement, sum(map(is_number, cells)) / len(cells)
        if quality > most:
            best, most = Layout(separator, n_columns, n_above), quality
            # R writes no name for the names of rows; others end each row with a separator.
            lacking = separator.encode() if short else b""
            before, after = (b"", lacking) if lacks_end else (lacking, b"")
            n_surplus = n_more
    if best.separator == ONE_COLUMN and not declared:
        if not text.startswith(REMARK) and _is_matrix(_rows(text, BLANK, is_whole)[0]):
            return _layout(content, BLANK)
        words = list(map(_words, text.splitlines()[: None if is_whole else -1]))
        if _is_matrix(words[_begins_with_count(words) :]):
            return _layout(_with_tabs(content), "\t")
    if best.n_above:
        below = content[start:].splitlines(keepends=True)[best.n_above :]
        content = content[:start] + b"".join(below)
    if not before + after and not n_surplus:
        return best, content
    end = LINE_BREAK.search(content, start)
    stop = len(content) if end is None else end.start()
    header = before + content[start : stop - n_surplus] + after
    return best, content[:start] + header + content[stop:]


def _rows(text: str, separator: str, is_whole: bool) -> tuple[list[list[str]], list[int]]:
    """Return the rows with cells in the beginning of a file, and the line on which each ends."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows: list[tuple[list[str], int]] = []
    with suppress(csv.Error):  # a cell of more than 128 kB
        rows += ((row, reader.line_num) for row in reader if row)
    if not rows:
        return [[text]], [1]
    if not is_whole:
        rows = rows[:-1] or rows  # the last may be cut
    return [row for row, _ in rows], [line for _, line in rows]


def _is_prose(rows: Sequence[Sequence[str]]) -> bool:
    """Whether cells are parts of sentences: several words on average, in each column.

    All but the first begin with a blank, and the first row does not name columns by single words.
    """
    if all(len(cell.split()) == 1 for cell in rows[0]):
        return False
    columns = [[*filter(None, column)] for column in zip_longest(*rows)]
    have_words = all(sum(len(c.split()) for c in cells) >= 2 * len(cells) > 0 for cells in columns)
    return have_words and all(c.startswith(BLANK) for cells in columns[1:] for c in cells)


def _n_remarks(rows: Sequence[Sequence[str]], n_columns: int) -> int:
    """Count the first rows that begin with "#" and are none of the table.

    All are, if a header follows several. Otherwise the last may be the header; or all are the names
    and their units, with a cell for each column.
    """
    n = len(list(takewhile(lambda row: row[0].startswith(REMARK), rows[:-1])))
    below = [row for row in rows[n:] if len(row) == n_columns]
    if n > 1 and len(below) > 1 and not any(map(is_number, below[0])) and has_header(below):
        return n
    if all(len(row) == n_columns for row in rows[:n]):
        return 0
    return n - (len(rows[n - 1]) == n_columns)


def _above(row: Sequence[str], n_columns: int) -> str:
    """Tell what a row that is none of the table is, "remark" or "title"; "" for others."""
    if len(row) == n_columns:
        return ""
    if row[0].startswith(REMARK):
        return "remark"
    return "title" if n_columns > 2 and 2 * len(row) <= n_columns else ""


def _are_last_empty(rows: Sequence[Sequence[str]], n_columns: int) -> bool:
    """Whether each row below a header ends with a separator."""
    return all(row[-1] == "" for row in rows[1:] if len(row) == n_columns)


def _lacks_first_name(rows: Sequence[Sequence[str]], n_columns: int) -> bool:
    """Whether a header has no name for the names of rows, which are distinct.

    Otherwise, or if blanks begin the cells of some columns only, each row may have a text with an
    unquoted separator, and the names would be those of other columns.
    """
    if len(rows[0]) != n_columns - 1 or n_columns < 3:
        return False
    below = [row for row in rows[1:] if len(row) == n_columns]
    spaced = [
        any(map(str.isalpha, "".join(cells)))
        for cells in list(zip(*below, strict=True))[1:]
        if all(cell.startswith(BLANK) for cell in cells)
    ]
    are_names = len({row[0] for row in below}) == len(below)
    is_text_cut = any(spaced) and len(spaced) < n_columns - 1
    return are_names and not is_text_cut


def _is_matrix(rows: Sequence[Sequence[str]]) -> bool:
    """Whether all rows but remarks and one header have equally many cells, mostly numbers.

    Or the first cell of each is the name of an image.
    """
    rows = [row for row in rows if row and not row[0].startswith(REMARK)]
    if len(rows) < 2:
        return False
    length, n_rows = Counter(map(len, rows)).most_common(1)[0]
    if len(rows[0]) == 1 and not is_number(rows[0][0]):  # the name of a column of vectors
        return False
    cells = [cell for row in rows[1:] for cell in row]
    are_numbers = 2 * sum(map(is_number, cells)) >= len(cells)
    if length < 2 or n_rows < len(rows) - 1:
        return False
    return are_numbers or all(is_image_name(row[0]) for row in rows[1:])


def _begins_with_count(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the number of rows is above a header, as in CelebA and DeepFashion."""
    if [len(row) > 1 for row in rows[:3]] != [False, True, True]:
        return False
    return "".join(rows[0]).isdigit() and not any(map(is_number, rows[1]))


def _words(line: str) -> list[str]:
    """Split at blanks outside of quotes."""
    if '"' not in line:
        return line.split()
    return next(csv.reader([line.strip()], delimiter=BLANK, skipinitialspace=True), [])


def _with_tabs(content: bytes) -> bytes:
    """Write tabs for blanks; the sign of a remark is no cell of a header, a count is a remark."""
    rows = [_words(line) for line in content.decode().splitlines()]
    if _begins_with_count(rows):
        rows[0] = [REMARK + rows[0][0]]
    length = Counter(len(row) for row in rows if row).most_common(1)[0][0]
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    for row in rows:
        is_header = bool(row) and row[0] == REMARK and len(row) == length + 1
        writer.writerow(row[1:] if is_header else row)
    return text.getvalue().encode()


def _parsed(
    path: Path, content: bytes, layout: Layout, n_above: int, on_disk: int
) -> tuple[pa.Table, _Lines]:
    """Return all rows as text, below some lines; a row with another number of cells raises."""
    n_cells = sum(content.count(end) for end in (layout.separator.encode(), b"\n", b"\r"))
    check_memory(path, len(content) + CELL_BYTES * n_cells, on_disk)
    try:
        cells, invalid = _cells(content, layout)
    except (ValueError, MemoryError) as error:  # of Arrow, for rows larger than its blocks
        raise ValueError(f"{path}: cannot be read as a table ({error}). Write it again.") from error
    place = _Lines(cells, n_above)
    if invalid is not None:
        n_cells, row, text = invalid
        way_out = "Correct the line, or delete it."
        if text.count('"') % 2:
            way_out = "A quote may not be closed."
        elif row == 0 and n_cells == layout.n_columns - 1:
            way_out = "Name each column; if texts hold such a sign, put them into double quotes."
        elif n_cells > layout.n_columns:
            way_out = (
                "If a text holds such a sign, put it into double quotes; else correct the line."
            )
        raise ValueError(
            f"{path}, {place(row)}: must have {layout.n_columns} columns, separated by "
            f"{NAMES.get(layout.separator, layout.separator)}, as most lines; got "
            f"{n_cells} in {text[:40]!r}. {way_out}"
        )
    return cells, place


def _cells(content: bytes, layout: Layout) -> tuple[pa.Table, tuple[int, int, str] | None]:
    """Return all rows as text; for the first row with another number of cells: it, where, what."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    invalid: list[tuple[int, int, str]] = []

    def skip(row: Any) -> str:
        if not invalid:
            invalid.append((row.actual_columns, row.number - 1, row.text))
        return "skip"

    names = [str(j) for j in range(layout.n_columns)]
    cells = arrow_csv.read_csv(
        pa.BufferReader(content),
        read_options=arrow_csv.ReadOptions(
            column_names=names,
            use_threads=False,  # threads do not number the rows
            block_size=min(len(content) + 1, MOST_IN_BLOCK),
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=layout.separator,
            newlines_in_values=True,
            ignore_empty_lines=False,
            invalid_row_handler=skip,
        ),
        convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    return cells, invalid[0] if invalid else None


def _without_late_quotes(cells: pa.Table) -> pa.Table:
    """Remove the quotes of cells that begin with blanks or, for Excel, "="; Arrow keeps them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for column in cells.columns:
        begin = pc.match_substring_regex(column, r'^(?: +|=)"')
        plain = pc.replace_substring_regex(column, r'^(?: +|=)"([^"]*)" *$', r"\1")
        are_all = pc.all(pc.equal(begin, pc.not_equal(plain, column))).as_py()
        columns.append(plain if are_all else column)
    return pa.table(columns, cells.column_names)


def _with_quotes_swapped(cells: pa.Table) -> pa.Table:
    """Write double quotes for single ones, and the reverse."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = cells.columns
    for old, new in (("'", "\0"), ('"', "'"), ("\0", '"')):
        columns = [pc.replace_substring(column, old, new) for column in columns]
    return pa.table(columns, cells.column_names)


def _doubt_open_quotes(cells: pa.Table, place: _Lines, separator: str) -> Iterator[str]:
    """Doubt cells of which each line has the separators of the rest of a row, or of a whole one.

    Two quotes that are not closed make one cell of all rows between them.
    """
    import pyarrow.compute as pc

    last = cells.num_columns - 1
    for j, column in enumerate(cells.columns if last else ()):
        n_breaks, n_separators = (pc.count_substring(column, s) for s in ("\n", separator))
        n_breaks, n_separators = n_breaks.to_numpy(), n_separators.to_numpy()
        may_be = (n_separators == last * n_breaks) & (n_separators >= FEWEST_SWALLOWED)
        for row in np.flatnonzero(may_be).tolist():
            found = [line.count(separator) for line in column[row].as_py().split("\n")]
            if found == [last - j, *[last] * (len(found) - 2), j]:
                yield (
                    f"{place(row)} has a cell of {len(found):,} lines, each with the separators of "
                    "a row; if a quote is not closed, these rows are lost: close it, or remove it"
                )
                return


class _Lines:
    """Names rows by the line on which they begin."""

    def __init__(self, cells: pa.Table, n_skipped: int) -> None:
        self._cells, self._n_skipped = cells, n_skipped

    @cached_property
    def _breaks(self) -> Ints:
        """Line breaks in the cells up to each row, (n + 1,)."""
        import pyarrow.compute as pc

        counts = (pc.count_substring(column, "\n").to_numpy() for column in self._cells.columns)
        return np.append(0, np.cumsum(sum(counts)))

    def __call__(self, row: int) -> str:
        return f"line {1 + self._n_skipped + row + self._breaks[row]}"
