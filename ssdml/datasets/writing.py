"""Write rows as a table or an array, by the suffix of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ssdml.datasets.reading.cells import is_text
from ssdml.datasets.reading.formats.excel import EXCEL_COLUMNS, EXCEL_ROWS
from ssdml.utils.persistence import atomic_write
from ssdml.utils.typing import Array

if TYPE_CHECKING:
    import pyarrow as pa

    from ssdml.datasets.reading.table import Table


EXCEL_CHARACTERS = 32_767  # of a cell
EXCEL_INTEGER = 10**15  # longer ones lose digits
NO_XML = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}]"


def write_rows(path: Path, columns: Mapping[str, Any], *, like: Table | None = None) -> None:
    """Write columns of one length to a table.

    Parameters
    ----------
    path : Path
        Ends in .csv, .tsv, .parquet, .feather, .jsonl or .xlsx; an existing file is replaced.
    columns : mapping of str to array-like of shape (n,)
        Lists become text such as "[0.1, 0.2]" in .csv, .tsv and .xlsx; columns of bytes are left
        out there.
    like : Table, optional
        A table that was read: if its cells are separated by semicolons, as a European Excel wants
        them, those of a .csv are as well, with its decimal sign and a byte order mark.

    Raises
    ------
    ValueError
        For another suffix.
    OSError
        If it cannot be written; then an existing file stays as it was.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_rows(Path(folder) / "t.csv", {"id": [7, 8], "label": ["a", "b"]})
    ...     (Path(folder) / "t.csv").read_text().splitlines()
    ['"id","label"', '7,"a"', '8,"b"']
    """
    import pyarrow as pa

    check_suffix(path, WRITERS)
    suffix = path.suffix.lower()
    table = pa.table({name: _arrow(values) for name, values in columns.items()})
    if suffix in FLAT:
        table = _flat(table)
    # An open file, since pyarrow takes no paths that are not UTF-8.
    with atomic_write(path) as unfinished, unfinished.open("wb") as file:
        if suffix == ".csv" and like is not None and like.separator == ";":
            _write_for_excel(table, file, like.decimal)
        else:
            WRITERS[suffix](table, file)


def write_embedding(path: Path, embedding: Array, ids: Array | None = None) -> None:
    """Write an embedding (n, d) as .npy, or with its ids as a table with columns z0, z1, ...

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_embedding(Path(folder) / "Z.csv", np.eye(2), np.array(["a", "b"]))
    ...     (Path(folder) / "Z.csv").read_text().splitlines()
    ['"id","z0","z1"', '"a",1,0', '"b",0,1']
    """
    check_suffix(path, EMBEDDINGS)
    if path.suffix.lower() == ".npy":
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, embedding)
        return
    columns = {} if ids is None else {"id": ids}
    write_rows(path, columns | {f"z{j}": column for j, column in enumerate(embedding.T)})


def check_suffix(path: Path, known: Any = ()) -> None:
    """Raise ValueError unless a file can be written as its suffix says; check its folder, too.

    Examples
    --------
    >>> check_suffix(Path("a.csv"), (".csv",))
    """
    known = tuple(known or WRITERS)
    if path.suffix.lower() not in known:
        raise ValueError(f"{path}: must end in {', '.join(known)}; got {path.suffix!r}.")
    check_folder(path)


def check_folder(path: Path) -> None:
    """Raise FileNotFoundError unless the folder of a file exists.

    Examples
    --------
    >>> check_folder(Path("a.csv"))
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path}: must be in a folder; {path.parent} is none. Make it first, or name another."
        )


def as_csv(columns: Mapping[str, Any]) -> str:
    """Return columns as the text of a CSV.

    Examples
    --------
    >>> as_csv({"id": [7]}).splitlines()
    ['"id"', '7']
    """
    import pyarrow as pa
    from pyarrow import csv

    sink = pa.BufferOutputStream()
    csv.write_csv(pa.table({name: _arrow(values) for name, values in columns.items()}), sink)
    return sink.getvalue().to_pybytes().decode()


def _arrow(values: Any) -> pa.Array:
    import pyarrow as pa

    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    array = np.asarray(values)
    if array.dtype == object:
        try:
            return pa.array(array.tolist())
        except (pa.ArrowException, OverflowError):  # of several types
            return pa.array([None if value is None else str(value) for value in array.tolist()])
    return pa.array(array.tolist() if array.dtype.kind == "U" else np.ascontiguousarray(array))


def _flat(table: pa.Table) -> pa.Table:
    """Return the columns as numbers, texts and dates."""
    import json

    import pyarrow as pa

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if isinstance(column.type, pa.BaseExtensionType):
            column = pa.chunked_array([chunk.storage for chunk in column.chunks])
        kind, types = column.type, pa.types
        if types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            cells = column.to_pylist()
            column = pa.array([None if cell is None else json.dumps(cell) for cell in cells])
        elif types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
            continue
        columns[name] = column
    return pa.table(columns)


def _write_for_excel(table: pa.Table, file: BinaryIO, decimal: str) -> None:
    import codecs

    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_floating(column.type):
            column = pc.replace_substring(column.cast(pa.string()), ".", decimal)
        columns[name] = column
    file.write(codecs.BOM_UTF8)
    csv.write_csv(pa.table(columns), file, csv.WriteOptions(delimiter=";"))


def _write_csv(separator: str) -> Callable[[pa.Table, BinaryIO], None]:
    def write(table: pa.Table, file: BinaryIO) -> None:
        from pyarrow import csv

        csv.write_csv(table, file, csv.WriteOptions(delimiter=separator))

    return write


def _write_parquet(table: pa.Table, file: BinaryIO) -> None:
    from pyarrow import parquet

    parquet.write_table(table, file)


def _write_feather(table: pa.Table, file: BinaryIO) -> None:
    from pyarrow import feather

    feather.write_feather(table, file)


def _write_lines(table: pa.Table, file: BinaryIO) -> None:
    import json

    for row in table.to_pylist():
        line = json.dumps(row, ensure_ascii=False, default=_in_json)
        file.write(f"{line}\n".encode())


def _in_json(value: Any) -> float | str | None:
    """Return a decimal, a date or a time as JSON has it; None for bytes."""
    if isinstance(value, Decimal):
        return float(value)
    return None if isinstance(value, bytes) else str(value)


def _write_excel(table: pa.Table, file: BinaryIO) -> None:
    import pyarrow as pa

    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
    except ImportError as error:
        raise ImportError("Writing .xlsx needs openpyxl: pip install 'ssdml[excel]'") from error
    if table.num_rows >= EXCEL_ROWS or table.num_columns > EXCEL_COLUMNS:
        raise ValueError(
            f"a sheet of Excel must have at most {EXCEL_ROWS:,} rows and {EXCEL_COLUMNS:,} "
            f"columns; got {table.num_rows:,} and {table.num_columns:,}. Write .csv or .parquet."
        )
    columns = map(_for_excel, table.column_names, table.columns)
    table = pa.table(list(columns), names=table.column_names)
    book = Workbook(write_only=True)
    sheet = book.create_sheet()

    def cell(value: Any) -> Any:
        if not isinstance(value, str) or value[:1] not in ("=", "#"):
            return value
        text = WriteOnlyCell(sheet, value)
        text.data_type = "s"  # neither a formula nor an error
        return text

    sheet.append(list(map(cell, table.column_names)))
    for batch in table.to_batches():
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sheet.append(list(map(cell, row)))
    book.save(file)


def _for_excel(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times in a zone and long integers as texts; refuse texts that Excel cannot hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = pc.min_max(column).as_py() if pa.types.is_integer(column.type) else {}
    is_long = any(abs(end or 0) >= EXCEL_INTEGER for end in ends.values())
    if is_long or getattr(column.type, "tz", None) is not None:
        return column.cast(pa.string())
    if is_text(column):
        for wrong, what in (
            (pc.greater(pc.utf8_length(column), EXCEL_CHARACTERS), "more than 32,767 characters"),
            (pc.match_substring_regex(column, NO_XML), "control characters"),
        ):
            if pc.any(wrong).as_py():
                raise ValueError(
                    f"a cell of Excel cannot hold {what}; got some in column {name!r}. Write .csv "
                    "or .parquet."
                )
    return column


WRITERS: dict[str, Callable[[Any, BinaryIO], None]] = {
    ".csv": _write_csv(","),
    ".tsv": _write_csv("\t"),
    ".parquet": _write_parquet,
    ".feather": _write_feather,
    ".jsonl": _write_lines,
    ".xlsx": _write_excel,
}
FLAT = (".csv", ".tsv", ".xlsx")
EMBEDDINGS = (".npy", *WRITERS)
