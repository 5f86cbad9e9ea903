"""Tables of Excel."""

from __future__ import annotations

import re
import zipfile
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ssdml.datasets.reading.table import Table, distinct, find_header, of_cells
from ssdml.utils.files import check_memory, open_regular, refuse_damage

EXCEL_ROWS, EXCEL_COLUMNS = 1_048_576, 16_384
FORMULA = re.compile(  # in the XML of a cell: its column, and what follows
    rb'<(?:\w+:)?c r="([A-Z]{1,3})\d+"[^>]*>\s*<(?:\w+:)?f[\s/>](.*?)</(?:\w+:)?c>', re.DOTALL
)
VALUE = re.compile(rb"<(?:\w+:)?v[^>]*>([^<]+)")
XML_RATIO = 4  # bytes of cells in memory per byte of their XML


def read_excel(path: Path, on_disk: int) -> Table:
    """Read the sheet with the most cells, a visible one, with the values that Excel computed last.

    Cells that are merged with the one above have its value.
    """
    book, sheets = _visible_sheets(path, on_disk)
    title = max(sheets, key=lambda title: sum(map(len, sheets[title].values())), default="")
    if not sheets.get(title):
        raise ValueError(f"{path}: must contain rows; got none.")
    numbers, rows = list(sheets[title]), list(sheets[title].values())
    width = max(map(len, rows))
    check_memory(path, 8 * width * len(rows), on_disk)
    rows = [(*row, *[None] * (width - len(row))) for row in rows]
    header = find_header(rows)
    names = header.names or list(map(str, range(1, width + 1)))
    again = rows[header.n_above] if header.can_repeat else None
    given = [row for row in range(header.start, len(rows)) if rows[row] != again]
    n_repeated = len(rows) - header.start - len(given)
    numbers, rows = [numbers[row] for row in given], [rows[row] for row in given]
    xml = _xml(path, book[title])
    n_merged = _fill_merged(rows, numbers, _merged_cells(xml))
    others = [repr(other) for other, rows in sheets.items() if rows and other != title]
    doubts = [
        f"sheet {title!r} was read, the largest, and not {', '.join(others)}; to read another, "
        "save it as a file of its own"
    ] * bool(others)
    columns = list(zip(*rows, strict=True))
    if not columns:
        raise ValueError(f"{path}: must contain rows; got a header alone.")
    kept = [j for j, column in enumerate(columns) if names[j] or set(column) != {None}]
    content = dict(zip(distinct([names[j] for j in kept]), (columns[j] for j in kept), strict=True))
    with_gaps = {j for j in kept if None in columns[j]}
    with_zeros = {j for j in kept if 0 in columns[j]} if book.calculation.fullCalcOnLoad else set()
    for cells, found in zip(
        ("empty cells", "0, as by XlsxWriter"), _formulas(xml, with_gaps, with_zeros), strict=True
    ):
        if found:
            named = ", ".join(repr(list(content)[kept.index(j)]) for j in sorted(found))
            doubts.append(
                f"formulas without a value are read as {cells}, in {named}; open the file in a "
                "spreadsheet program, which computes them, and save it"
            )
    return Table(
        path,
        of_cells(str(path), content),
        lambda row: f"row {numbers[row]}",
        (
            f"sheet {title!r}",
            *header.notes(n_repeated),
            *[f"merged cells filled: {n_merged}"][:n_merged],
        ),
        tuple(doubts),
        marks=header.marks_of(list(content), kept),
    )


def _visible_sheets(path: Path, on_disk: int) -> tuple[Any, dict[str, dict[int, tuple[Any, ...]]]]:
    """Return an Excel file of openpyxl, and the rows with cells of each visible sheet."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise ImportError(
            f"Reading {path.suffix} needs openpyxl: pip install 'ssdml[excel]'"
        ) from error
    with refuse_damage(path, "Save it again."), open_regular(path) as file:
        with zipfile.ZipFile(file) as archive:
            xml = sum(info.file_size for info in archive.infolist())
        check_memory(path, XML_RATIO * xml, on_disk)
        book = load_workbook(file, read_only=True, data_only=True, keep_links=False)
        cells = _CellCount(path, on_disk)
        shown = [s for s in book.worksheets if s.sheet_state == "visible"]
        return book, {sheet.title: _filled_rows(sheet, cells) for sheet in shown}


def _xml(path: Path, sheet: Any) -> bytes:
    """Return the XML of a sheet; empty if it is elsewhere."""
    with open_regular(path) as file, suppress(Exception):  # many kinds; the values were read
        with zipfile.ZipFile(file) as archive:
            return archive.read(sheet._worksheet_path)
    return b""


def _merged_cells(xml: bytes) -> list[tuple[int, int, int]]:
    """Return column, first row and last row, from 1, of the cells merged downwards in a sheet."""
    from openpyxl.utils import range_boundaries

    found = []
    for match in re.finditer(rb"<(?:\w+:)?mergeCell [^>]*ref=\"([A-Z0-9:]+)\"", xml):
        with suppress(ValueError, TypeError):  # of whole columns
            column, top, _, bottom = range_boundaries(match[1].decode())
            if bottom > top:
                found.append((column, top, bottom))
    return found


def _fill_merged(
    rows: list[tuple[Any, ...]], numbers: Sequence[int], merged: Sequence[tuple[int, int, int]]
) -> int:
    """Copy the values of merged cells to the rows below, in place; return how many."""
    n_filled = 0
    for column, top, bottom in merged:
        first, last = bisect_left(numbers, top), bisect_left(numbers, bottom + 1)
        if first == len(rows) or numbers[first] != top or column > len(rows[first]):
            continue  # of the header, or empty
        if n_filled > len(rows) * len(rows[0]):  # no merged cells overlap
            break
        value = rows[first][column - 1]
        for row in range(first + 1, last):
            rows[row] = (*rows[row][: column - 1], value, *rows[row][column:])
            n_filled += 1
    return n_filled


def _formulas(xml: bytes, with_gaps: set[int], with_zeros: set[int]) -> tuple[set[int], set[int]]:
    """Return the columns, from 0, of formulas without a value in a sheet, and of zeros alone."""
    from openpyxl.utils import column_index_from_string

    if not with_gaps and not with_zeros:
        return set(), set()
    values: dict[bytes, set[bytes]] = {}
    for name, content in FORMULA.findall(xml):
        found = VALUE.search(content)
        values.setdefault(name, set()).add(found[1] if found else b"")
    known = {column_index_from_string(name.decode()) - 1: v for name, v in values.items()}
    empty = {j for j in with_gaps & known.keys() if b"" in known[j]}
    return empty, {j for j in with_zeros & known.keys() if known[j] == {b"0"}}


class _CellCount:
    """Counts what cells take, as many may share one text, or be empty before one far right."""

    def __init__(self, path: Path, on_disk: int) -> None:
        self._path, self._on_disk, self._n_bytes = path, on_disk, 0

    def add(self, row: Sequence[Any]) -> None:
        self._n_bytes += 8 * len(row) + sum(len(cell) for cell in row if isinstance(cell, str))
        check_memory(self._path, self._n_bytes, self._on_disk)


def _filled_rows(sheet: Any, count: _CellCount) -> dict[int, tuple[Any, ...]]:
    """Return the rows with cells by their number in Excel; cells of blanks are empty."""
    sheet.reset_dimensions()  # files of other programs may state wrong ones
    rows = {}
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        if number > EXCEL_ROWS or len(row) > EXCEL_COLUMNS:
            raise ValueError(
                f"a sheet has at most {EXCEL_ROWS:,} rows and {EXCEL_COLUMNS:,} columns"
            )
        cells = [None if isinstance(cell, str) and not cell.strip() else cell for cell in row]
        if any(cell is not None for cell in cells):
            count.add(cells)
            rows[number] = tuple(cells)
    return rows
