"""Tables of JSON and Excel, and the reader of each table format."""

from __future__ import annotations

import json
import re
import zipfile
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from itertools import chain
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from ssdml.datasets.pixels import image_suffixes, is_hidden
from ssdml.datasets.reading.arrow_files import ARROW, PARQUET, read_arrow
from ssdml.datasets.reading.delimited import COMPRESSED, in_utf8, read_delimited, unpacked
from ssdml.datasets.reading.summary import listed
from ssdml.datasets.reading.table import (
    ANNOTATION,
    LABEL_NAMES,
    Table,
    distinct,
    find_header,
    folded,
    of_cells,
)
from ssdml.utils.files import (
    check_memory,
    check_names,
    check_regular,
    check_signature,
    open_regular,
    parse_json,
    refuse_damage,
)

DELIMITED = (".csv", ".tsv", ".tab", ".txt", ".data", ".dat", ".psv")
BINARY = (*PARQUET, *ARROW)
LINES_OF_JSON = (".jsonl", ".ndjson")
EXCEL = (".xlsx", ".xlsm")
TABLE_SUFFIXES = (*DELIMITED, *BINARY, *LINES_OF_JSON, ".json", *EXCEL)
EXCEL_ROWS, EXCEL_COLUMNS = 1_048_576, 16_384
ANSWERS = {"choices", "number", "rating", "taxonomy"}  # of Label Studio about a sample
HALF_PAIR = r"\ud"  # begins an escape of JSON for half of a surrogate pair
OBJECT_BYTES, ENTRY_BYTES = 300, 80  # of JSON in memory, besides its text
XML_RATIO = 4  # bytes of cells in memory per byte of their XML


def table_suffix(path: Path) -> str | None:
    """Return the suffix of a table, without that of a compression; None for other files.

    Examples
    --------
    >>> table_suffix(Path("a.CSV.gz")), table_suffix(Path("a.png"))
    ('.csv', None)
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in TABLE_SUFFIXES else None


def read_table(path: Path, *, encoding: str | None = None, on_disk: int | None = None) -> Table:
    """Read a table in any of the formats of `TABLE_SUFFIXES`.

    Parameters
    ----------
    path : Path
    encoding : str, optional
        Of text; by default UTF-8.
    on_disk : int, optional
        Bytes on disk, by default of this file; it limits the memory.

    Raises
    ------
    ValueError
        If the file is damaged or of another kind than its name says, or holds no rows or no
        columns.
    ImportError
        If a package that reads the format is missing.
    """
    check_signature(path)
    suffix, on_disk = table_suffix(path), on_disk or check_regular(path)
    if suffix in EXCEL:
        table = read_excel(path, on_disk)
    elif suffix in BINARY:
        table = read_arrow(path, on_disk)
    elif suffix == ".json" or suffix in LINES_OF_JSON:
        by_line = suffix in LINES_OF_JSON
        table = read_json(path, on_disk, by_line=by_line, encoding=encoding)
    else:
        table = read_delimited(path, encoding=encoding, on_disk=on_disk)
        if set(ANNOTATION).issubset(names := table.columns.column_names):
            cells = {name: list(map(_unwrapped, table.columns[name].to_pylist())) for name in names}
            table = replace(table, columns=of_cells(str(path), cells))
    if not table.columns.num_columns:
        raise ValueError(f"{path}: must have columns; got none.")
    return table


def read_zipped_table(path: Path, *, encoding: str | None = None) -> Table | None:
    """Read the only table in a zip file; None if it has images, or no table.

    Raises ValueError as `read_table` does, and if there are several tables.
    """
    with (
        refuse_damage(path, "Unzip it, and name a table or the folder."),
        open_regular(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        infos = {i.filename: i for i in archive.infolist() if not is_hidden(i.filename)}
        has_images = any(Path(name).suffix.lower() in image_suffixes() for name in infos)
        tables = [] if has_images else [name for name in infos if table_suffix(Path(name))]
        if len(tables) > 1:
            raise ValueError(f"it holds several tables, {listed(tables)}")
        if not tables:
            return None
        [name] = tables
        on_disk = check_regular(path)
        check_memory(path, infos[name].file_size, on_disk)
        content = archive.read(name)
    check_names(path, [name])
    with TemporaryDirectory() as folder:
        inside = Path(folder) / PurePosixPath(name).name
        inside.write_bytes(content)
        try:
            table = read_table(inside, encoding=encoding, on_disk=on_disk)
        except (ValueError, ImportError) as error:
            raise type(error)(str(error).replace(str(inside), f"{path}: {name}")) from error
    return replace(table, path=path, notes=(f"{name} in the zip file", *table.notes))


def read_json(path: Path, on_disk: int, *, by_line: bool, encoding: str | None = None) -> Table:
    """Read one JSON object per line, or an array of them, or an object of columns.

    The content decides if it is not what the suffix says: many programs write lines to .json.
    """
    content = in_utf8(path, unpacked(path, on_disk), encoding)
    by_line = _has_lines(content, by_line)
    doubts: tuple[str, ...] = ()
    n_entries = content.count(b",") + content.count(b"[")
    objects_and_entries = OBJECT_BYTES * content.count(b"{") + ENTRY_BYTES * n_entries
    check_memory(path, len(content) + objects_and_entries, on_disk)
    if by_line:
        rows, numbers = [], []
        for number, line in enumerate(BytesIO(content), 1):
            if line.strip():
                rows.append(_parsed(path, line.decode(), number))
                numbers.append(number)
    else:
        parsed = _parsed(path, content.decode())
        rows = _rows_of(path, parsed)
        doubts = _doubts_of_columns(parsed, len(rows))
        numbers = list(range(len(rows)))
    rows = list(map(_annotated, rows))
    if rows and all(isinstance(row, list) for row in rows):
        check_memory(path, 8 * max(map(len, rows)) * len(rows), on_disk)
        rows, n_above = _from_lists(rows)
        numbers = numbers[n_above:]

    def place(row: int) -> str:
        return f"{'line' if by_line else 'row'} {numbers[row]}"

    wrong = next((row for row, entry in enumerate(rows) if not isinstance(entry, dict)), None)
    if wrong is not None:
        raise ValueError(
            f"{path}, {place(wrong)}: must be an object of columns and values; got "
            f'{str(rows[wrong])[:40]!r}. Write one for each row, such as {{"text": ...}}.'
        )
    if not rows:
        raise ValueError(f"{path}: must contain rows; got none.")
    names = dict.fromkeys(name for row in rows for name in row)
    check_memory(path, 8 * len(names) * len(rows), on_disk)  # most may be missing
    cells = {name: [row.get(name) for row in rows] for name in names}
    return Table(path, of_cells(str(path), cells), place, doubts=doubts)


def _doubts_of_columns(content: Any, n_rows: int) -> tuple[str, ...]:
    """Doubt columns of a few numbers each, which may be vectors of samples by their names."""
    if not isinstance(content, dict) or not 1 < n_rows < len(content):
        return ()
    columns = content.values()
    if not all(isinstance(c, list) and all(isinstance(v, float) for v in c) for c in columns):
        return ()
    return (
        f"the {len(content):,} lists of {n_rows:,} numbers are read as columns; if each is the "
        'vector of a sample, write [{"id": NAME, "vector": LIST}, ...]',
    )


def _from_lists(rows: list[list[Any]]) -> tuple[list[dict[str, Any]], int]:
    """Return rows as objects, and how many above them are titles and names of columns."""
    width = max(map(len, rows))
    rows = [[*row, *[None] * (width - len(row))] for row in rows]
    plain = [[str(cell) if isinstance(cell, list | dict) else cell for cell in r] for r in rows]
    header = find_header(plain)
    names = distinct(header.names or list(map(str, range(1, width + 1))))
    return [dict(zip(names, row, strict=True)) for row in rows[header.start :]], header.start


def _has_lines(content: bytes, otherwise: bool) -> bool:
    """Whether the first line is a whole object or list, and others follow."""
    start = content.lstrip()
    first, _, rest = start.partition(b"\n")
    if start[:1] not in (b"{", b"[") or (otherwise and start[:1] == b"{"):
        return otherwise
    if rest.lstrip()[:1] != start[:1]:
        return False
    try:
        return isinstance(parse_json(first.decode()), dict | list)
    except (ValueError, RecursionError):
        return False


def _parsed(path: Path, text: str, line: int | None = None) -> Any:
    try:
        content = parse_json(text)
        if HALF_PAIR in text.lower():  # an escape may be one, with nothing in UTF-8 for it
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except UnicodeEncodeError as error:
        place = f", line {line}" if line else ""
        raise ValueError(
            f"{path}{place}: texts must be Unicode; got {error.object[error.start]!r}, half of a "
            "surrogate pair. Write it again."
        ) from error
    except (ValueError, RecursionError) as error:
        where = f"{path}, line {line or getattr(error, 'lineno', 1)}"
        raise ValueError(f"{where}: must be JSON; {error}. Write it again.") from error


def _rows_of(path: Path, content: Any) -> list[Any]:
    """Return the rows of a list of objects, of columns (as of pandas), or of either by a name."""
    if isinstance(content, list):
        return content
    given = content.items() if isinstance(content, dict) else ()
    content = {name: value for name, value in given if value is not None}
    if {"ids", "included"} <= content.keys():  # Chroma
        del content["included"]
    if content.keys() == {"schema", "data"}:  # pandas: orient="table"
        del content["schema"]
    if {"columns", "data"} <= content.keys():
        names, data = content["columns"], content["data"]
        if isinstance(names, list) and isinstance(data, list):
            names = list(map(str, names))
            return [
                dict(zip(names, row, strict=False)) if isinstance(row, list) else row
                for row in data
            ]
    if {"images", "annotations", "categories"} <= content.keys():
        with suppress(KeyError, TypeError):
            return _of_coco(**{k: content[k] for k in ("images", "annotations", "categories")})
    if content.keys() == {"classes", "labels"}:  # FiftyOne
        names, labels = content["classes"] or [], content["labels"]
        if isinstance(names, list) and isinstance(labels, dict):
            return [
                {"filename": n, "label": names[c] if c in range(len(names)) else c}
                for n, c in labels.items()
            ]
    values = list(content.values())
    filled = _lists_in(content)
    if len(filled) == 1 and all(isinstance(row, dict) for row in filled[0]):
        return filled[0]  # beside a version and the like
    if len(filled) == 1 and all(isinstance(row, list) and row for row in filled[0]):
        if all(isinstance(cell, str) for cell in filled[0][0]):  # names of columns
            return filled[0]
    if values and all(isinstance(v, dict) and v.keys() == values[0].keys() for v in values):
        numbered = [all(map(str.isdigit, keys)) for keys in (content, values[0])]
        if numbered == [True, False]:  # rows by their numbers, as of pandas
            return values
    if values and all(isinstance(v, dict) for v in values):
        inside = {folded(name) for value in values for name in value}
        if not inside.isdisjoint(LABEL_NAMES) and inside.isdisjoint(map(folded, content)):
            return [{"id": name} | value for name, value in content.items()]
    keys = next((v.keys() for v in values if isinstance(v, dict)), ())  # of rows
    is_aligned = [isinstance(v, dict) and v.keys() == keys for v in values]
    pairs = zip(values, is_aligned, strict=True)
    columns = [[v[key] for key in keys] if aligned else v for v, aligned in pairs]
    if not columns or not all(isinstance(c, list) and len(c) == len(columns[0]) for c in columns):
        raise ValueError(
            f"{path}: must be a list of objects, or an object of columns of one length. Write it "
            "with pandas: frame.to_json(path, orient='records', lines=True)."
        )
    return [dict(zip(content, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _of_coco(images: Any, annotations: Any, categories: Any) -> list[dict[str, Any]]:
    """Return the images of COCO with the categories of their objects, each once."""
    names = {category["id"]: category["name"] for category in categories}
    labels: dict[Any, dict[str, None]] = {image["id"]: {} for image in images}
    for annotation in annotations:
        labels[annotation["image_id"]][names[annotation["category_id"]]] = None
    return [{"filename": i["file_name"], "label": list(labels[i["id"]])} for i in images]


def _lists_in(content: dict[str, Any]) -> list[list[Any]]:
    """Return the lists that objects in each other hold, but for empty ones."""
    found, objects = [], [content]
    while objects:
        values = list(objects.pop().values())
        found += [value for value in values if isinstance(value, list) and value]
        objects += [value for value in values if isinstance(value, dict)]
    return found


def _annotated(row: Any) -> Any:
    """Return what an annotation tool writes about a sample as columns; other rows unchanged.

    The answers to a task of Label Studio, the responses of Argilla and the classifications of
    Labelbox are columns. Prodigy's are the label, where accepted.
    """
    if not isinstance(row, dict):
        return row
    if "_task_hash" in row and row.keys() & {"label", "accept"}:
        is_label = row.get("answer", "accept") == "accept"
        return row | {"label": row.get("accept", row.get("label")) if is_label else None}
    fields, responses = row.get("fields"), row.get("responses")
    if isinstance(fields, dict) and isinstance(responses, dict):  # of Argilla
        answers = {n: _answers(given) for n, given in responses.items()}
        return {"id": row.get("id")} | fields | (row.get("vectors") or {}) | answers
    if isinstance(row.get("data_row"), dict) and isinstance(row.get("projects"), dict):
        return _of_labelbox(row["data_row"], row["projects"])
    if "custom_id" in row and isinstance(row.get("response"), dict):  # a batch of OpenAI
        with suppress(KeyError, TypeError, ValueError):  # of another form, or of several texts
            [found] = row["response"]["body"]["data"]
            return {"id": row["custom_id"], "embedding": found["embedding"]}
    if set(ANNOTATION).issubset(row):  # a short export of Label Studio
        return {name: _unwrapped(value) for name, value in row.items()}
    data, annotations = row.get("data"), row.get("annotations")
    if not isinstance(data, dict) or not isinstance(annotations, list):
        return row
    choices: dict[str, list[Any]] = {}
    for annotation in annotations:
        if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
            continue
        for result in annotation.get("result") or []:
            with suppress(KeyError, TypeError, ValueError):  # of regions, texts
                given = _given(result["value"])
                found = choices.setdefault(str(result["from_name"]), [])
                found += [choice for choice in given if choice not in found]
    return data | {name: _only(found) for name, found in choices.items()}


def _given(value: dict[str, Any]) -> list[Any]:
    """Return what an answer of Label Studio gives; a path in a taxonomy is one text.

    Raises KeyError, TypeError or ValueError for other values.

    Examples
    --------
    >>> _given({"rating": 3}), _given({"taxonomy": [["Animal", "Cat"]]})
    ([3], ['Animal>Cat'])
    """
    [kind] = ANSWERS & value.keys()
    given = value[kind] if isinstance(value[kind], list) else [value[kind]]
    return [">".join(entry) if isinstance(entry, list) else entry for entry in given]


def _unwrapped(cell: Any) -> Any:
    """Return the answer in a cell of a short export of Label Studio, or the cell.

    Examples
    --------
    >>> _unwrapped('[{"rating": 3}]'), _unwrapped("a")
    (3, 'a')
    """
    with suppress(KeyError, TypeError, ValueError, RecursionError, AttributeError):
        value = parse_json(cell) if isinstance(cell, str) and cell[:1] in ("[", "{") else cell
        [value] = value if isinstance(value, list) else [value]
        return _only(_given(value))
    return cell


def _of_labelbox(sample: dict[str, Any], projects: dict[str, Any]) -> dict[str, Any]:
    """Return a sample of Labelbox with its classifications; lists if annotators differ."""
    answers: dict[str, list[Any]] = {}
    with suppress(KeyError, TypeError, AttributeError):  # of objects, texts
        for label in chain.from_iterable(project["labels"] for project in projects.values()):
            for found in label["annotations"]["classifications"]:
                given = found.get("checklist_answers", [found.get("radio_answer")])
                known = answers.setdefault(found["name"], [])
                known += [a["name"] for a in given if a and a["name"] not in known]
    named = {"id": sample.get("external_id") or sample.get("id"), "content": sample.get("row_data")}
    return named | {name: _only(found) for name, found in answers.items()}


def _answers(given: Any) -> Any:
    """Return what all of Argilla's annotators answered; a list if they differ."""
    answers = [a["value"] for a in given or [] if isinstance(a, dict) and "value" in a]
    found = [answer for i, answer in enumerate(answers) if answer not in answers[:i]]
    return _only(found) if found else None


def _only(answers: list[Any]) -> Any:
    """Return the only answer, or all of several."""
    return answers[0] if len(answers) == 1 else answers


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
    n_merged = _fill_merged(rows, numbers, _merged_cells(path, book[title]))
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
    empty = [j for j in kept if set(columns[j]) == {None}]
    if empty and (formulas := _formulas(path, title, numbers[0], empty)):
        named = ", ".join(repr(list(content)[kept.index(j)]) for j in formulas)
        doubts.append(
            f"formulas without a value are read as empty cells, in {named}; open the file in a "
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


def _merged_cells(path: Path, sheet: Any) -> list[tuple[int, int, int]]:
    """Return column, first row and last row, from 1, of the cells merged downwards in a sheet."""
    from openpyxl.utils import range_boundaries

    found = []
    with open_regular(path) as file, suppress(Exception):  # many kinds; the values were read
        with zipfile.ZipFile(file) as archive:
            xml = archive.read(sheet._worksheet_path)
        for match in re.finditer(rb"<(?:\w+:)?mergeCell [^>]*ref=\"([A-Z0-9:]+)\"", xml):
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


def _formulas(path: Path, title: str, number: int, columns: Sequence[int]) -> list[int]:
    """Return those of some columns that hold a formula in a row, by its number in Excel."""
    from openpyxl import load_workbook

    row: tuple[Any, ...] = ()
    with open_regular(path) as file, suppress(Exception):  # many kinds; the values were read
        sheet = load_workbook(file, read_only=True, keep_links=False)[title]
        sheet.reset_dimensions()
        row = next(sheet.iter_rows(min_row=number, max_row=number, values_only=True), ())
    return [j for j in columns if j < len(row) and str(row[j]).startswith("=")]


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
