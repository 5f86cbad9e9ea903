"""The reader of each table format, by the suffix of a file."""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ssdml.datasets.image_names import is_image_name
from ssdml.datasets.pixels import is_hidden
from ssdml.datasets.reading.formats.annotations import unwrapped
from ssdml.datasets.reading.formats.arrow_files import ARROW, PARQUET, read_arrow
from ssdml.datasets.reading.formats.delimited import COMPRESSED, read_delimited
from ssdml.datasets.reading.formats.excel import read_excel
from ssdml.datasets.reading.formats.json_files import LINES_OF_JSON, read_json
from ssdml.datasets.reading.summary import listed
from ssdml.datasets.reading.table import LABEL_STUDIO, Table, of_cells
from ssdml.utils.files import (
    check_memory,
    check_names,
    check_regular,
    check_signature,
    open_regular,
    refuse_damage,
)

OF_SPLITS = (".train", ".test", ".valid", ".val", ".dev", ".tra", ".tes", ".trn", ".tst")
DELIMITED = (".csv", ".tsv", ".tab", ".txt", ".data", ".dat", ".psv", ".arff", ".ecsv", *OF_SPLITS)
BINARY = (*PARQUET, *ARROW)
EXCEL = (".xlsx", ".xlsm")
SERIES = re.compile(r".+_(train|test)\.ts", re.IGNORECASE)  # others that end in .ts are programs
TEXT_SUFFIXES = (*DELIMITED, *LINES_OF_JSON, ".json")
TABLE_SUFFIXES = (*TEXT_SUFFIXES, *BINARY, *EXCEL)
NO_DATA = dict.fromkeys(  # names of files beside those of data
    ("sample_submission", "samplesubmission", "gender_submission", "submission_format"),
    "a form for predictions",
) | dict.fromkeys(
    (
        *("readme", "license", "licence", "requirements"),
        *("data_description", "data_dictionary", "codebook", "notes"),
        *("categories.json", "classes.json", "class_names.json", "classes.txt", "class_names.txt"),
        *("dataset_infos.json", "dataset_info.json", "config.json", "package.json"),
    ),
    "no data by its name",
)


def table_suffix(path: Path) -> str | None:
    """Return the suffix of a table, without that of a compression; None for other files.

    Only text may be compressed.

    Examples
    --------
    >>> table_suffix(Path("a.CSV.gz")), table_suffix(Path("a.png"))
    ('.csv', None)
    >>> table_suffix(Path("a_TRAIN.ts")), table_suffix(Path("a.ts"))
    ('.ts', None)
    """
    suffix = path.suffix.lower()
    if SERIES.fullmatch(path.name):
        return suffix
    if suffix in COMPRESSED:
        suffix = Path(path.stem).suffix.lower()
        return suffix if suffix in TEXT_SUFFIXES else None
    return suffix if suffix in TABLE_SUFFIXES else None


def why_no_data(name: str) -> str | None:
    """Tell why a table is none of samples, by its file's name; None for others.

    Examples
    --------
    >>> why_no_data("sample_submission.csv"), why_no_data("train.csv")
    ('a form for predictions', None)
    """
    return NO_DATA.get(PurePosixPath(name).stem.lower()) or NO_DATA.get(name.lower())


def read_table(path: Path, *, encoding: str | None = None, on_disk: int | None = None) -> Table:
    """Read a table in any of the formats of `TABLE_SUFFIXES`.

    Parameters
    ----------
    path : Path
    encoding : str, optional
        Encoding of text; by default UTF-8.
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
        if set(LABEL_STUDIO).issubset(names := table.columns.column_names):
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
        has_images = any(map(is_image_name, infos))
        tables = [] if has_images else [name for name in infos if table_suffix(Path(name))]
        others = [name for name in tables if why_no_data(PurePosixPath(name).name)]
        if len(others) < len(tables):
            tables = [name for name in tables if name not in others]
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
    unread = [f"not read: {listed(others)}"] if name not in others and others else []
    return replace(table, path=path, notes=(f"{name} in the zip file", *unread, *table.notes))
