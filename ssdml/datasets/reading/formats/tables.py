"""The reader of each table format, by the suffix of a file."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ssdml.datasets.pixels import image_suffixes, is_hidden
from ssdml.datasets.reading.formats.annotations import unwrapped
from ssdml.datasets.reading.formats.arrow_files import ARROW, PARQUET, read_arrow
from ssdml.datasets.reading.formats.delimited import COMPRESSED, read_delimited
from ssdml.datasets.reading.formats.excel import read_excel
from ssdml.datasets.reading.formats.json_files import LINES_OF_JSON, read_json
from ssdml.datasets.reading.summary import listed
from ssdml.datasets.reading.table import ANNOTATION, Table, of_cells
from ssdml.utils.files import (
    check_memory,
    check_names,
    check_regular,
    check_signature,
    open_regular,
    refuse_damage,
)

OF_UCI = (".data", ".train", ".test", ".tra", ".tes", ".trn", ".tst")
DELIMITED = (".csv", ".tsv", ".tab", ".txt", ".dat", ".psv", *OF_UCI)
BINARY = (*PARQUET, *ARROW)
EXCEL = (".xlsx", ".xlsm")
TABLE_SUFFIXES = (*DELIMITED, *BINARY, *LINES_OF_JSON, ".json", *EXCEL)


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
            cells = {name: list(map(unwrapped, table.columns[name].to_pylist())) for name in names}
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
