"""Readers of arrays and tables: .npz, .npy pairs, .csv, .parquet."""

from __future__ import annotations

import csv
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import RawItems, stack_splits
from ssdml.utils.validation import has_channels_first

LABEL_COLUMNS = ("label", "y")
TEXT_COLUMN = "text"
_OR_TEXTS = (
    f"For texts in column {TEXT_COLUMN!r}, pass --text-model words (text_model='words'), or the "
    "name or folder of a sentence-transformers model."
)
_PLAIN_ARRAYS = "Save plain arrays of numbers or strings: objects are not unpickled."


def read_npz(path: Path) -> RawItems:
    """Read arrays ``X``, ``y`` and optionally a boolean ``test``."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files if key in ("X", "y", "test")}
            names = archive.files
    except (ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: cannot be read ({error}). {_PLAIN_ARRAYS}") from error
    if not {"X", "y"} <= set(arrays):
        raise ValueError(f"{path}: must contain arrays X and y; got {names}.")
    return _checked(path, arrays["X"], arrays["y"], arrays.get("test"))


def read_npy_pair(path: Path) -> RawItems:
    """Read ``X.npy`` with ``y.npy``, or ``name_X.npy`` with ``name_y.npy``."""
    labels = label_file(path)
    if not labels.is_file():
        raise FileNotFoundError(f"{path}: its labels must be in {labels}, which is missing.")
    return _checked(path, read_npy(path), read_npy(labels), None)


def label_file(path: Path) -> Path:
    """Return the file of the labels: a final ``X`` becomes ``y``, otherwise ``_y`` is appended."""
    ends_in_x = path.stem == "X" or path.stem.endswith("_X")
    return path.with_stem(f"{path.stem[:-1]}y" if ends_in_x else f"{path.stem}_y")


def read_npy(path: Path, *, in_place: bool = False) -> npt.NDArray[Any]:
    """Read a .npy file without objects; memory-mapped if ``in_place``."""
    if path.is_dir() or path.suffix == ".npz":
        kind = "a folder" if path.is_dir() else "several arrays"
        raise ValueError(
            f"{path} must be a .npy file with one array; got {kind}. `ssdml compare` and `study` "
            "accept these."
        )
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing.")
    try:
        with path.open("rb") as file:
            start = file.read(len(np.lib.format.MAGIC_PREFIX))
        if start != np.lib.format.MAGIC_PREFIX:
            raise ValueError(f"not written by np.save: it begins with {start!r}")
        array: npt.NDArray[Any] = np.load(
            path, allow_pickle=False, mmap_mode="r" if in_place else None
        )
        return array
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read ({error}). {_PLAIN_ARRAYS}") from error


def read_npy_folder(folder: Path) -> RawItems:
    """Read ``{train,test}_{X,y}.npy`` and optionally ``{train,test}_text.txt``, one per line."""
    return stack_splits(_read_npy_part(folder, "train"), _read_npy_part(folder, "test"))


def _read_npy_part(folder: Path, part: str) -> RawItems:
    items = read_npy_pair(folder / f"{part}_X.npy")
    path = folder / f"{part}_text.txt"
    if not path.is_file():
        other = next(folder.glob("*_text.txt"), None)
        if other is None:
            return items
        raise FileNotFoundError(f"{path} is missing, while {other.name} exists.")
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    if len(lines) != len(items.items):
        raise ValueError(
            f"{path}: must contain {len(items.items)} lines, one per row; got {len(lines)}."
        )
    return items._replace(texts=np.array(lines, dtype=object))


def read_csv(path: Path, *, texts: bool = False) -> RawItems:
    """Read numbers and a label per line, the label in column label or y, or the last.

    With ``texts``, read column text instead of the numbers.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, cells) for cells in reader if cells]
    except UnicodeDecodeError as error:
        message = f"{path}: cannot be read ({error}). Save it as text in UTF-8."
        raise ValueError(message) from error
    if not lines or len(lines[0][1]) < 2:
        raise ValueError(f"{path}: must contain at least two columns, numbers and a label.")
    first = lines[0][1]
    named = _label_column(first)
    column = len(first) - 1 if named is None else named
    if named is not None or texts or not any(map(_is_number, first[:-1])):
        lines = lines[1:]  # skip the header
    for number, cells in lines:
        if len(cells) != len(first):
            raise ValueError(
                f"{path}, line {number}: must have {len(first)} columns; got {len(cells)}."
            )
    labels = [cells[column] for _, cells in lines]
    if texts:
        text = _text_column(path, first)
        return _checked_texts(path, [cells[text] for _, cells in lines], _numbers_if_all(labels))
    rows = np.empty((len(lines), len(first) - 1))
    for row, (number, cells) in zip(rows, lines, strict=True):
        row[:] = _numbers(cells[:column] + cells[column + 1 :], f"{path}, line {number}")
    return _checked(path, rows, _numbers_if_all(labels), None)


def _numbers(cells: list[str], where: str) -> list[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        wrong = next(cell for cell in cells if not _is_number(cell))
        raise ValueError(
            f"{where}: must contain numbers besides the label; got {wrong!r}. {_OR_TEXTS}"
        ) from None


def _label_column(names: list[str]) -> int | None:
    lowered = [name.strip().lower() for name in names]
    return next((lowered.index(name) for name in LABEL_COLUMNS if name in lowered), None)


def _text_column(path: Path, names: list[str]) -> int:
    lowered = [name.strip().lower() for name in names]
    if TEXT_COLUMN not in lowered:
        raise ValueError(f"{path}: must have a column {TEXT_COLUMN!r}; got {names}.")
    return lowered.index(TEXT_COLUMN)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers_if_all(labels: list[str]) -> npt.NDArray[Any]:
    """Convert to integers if all are, which keeps -1 and the numeric order."""
    try:
        return np.array([int(label) if label else -1 for label in labels])
    except ValueError:
        return np.array(labels)


def read_parquet(path: Path, *, texts: bool = False) -> RawItems:
    """Read a column of lists of numbers, or all numeric columns, and a label as in a CSV.

    With ``texts``, read column text instead of the numbers.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Reading .parquet needs pyarrow: pip install pyarrow") from error
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{path}: cannot be read ({error}).") from error
    if len(table) == 0:
        raise ValueError(f"{path}: must contain rows; got none.")
    names = table.column_names
    named = _label_column(names)
    label = names[-1 if named is None else named]
    # to_numpy maps a missing category to the first category, to_pylist to None.
    labels = np.array(table.column(label).to_pylist(), dtype=object)
    if texts:
        column = table.column(_text_column(path, names))
        return _checked_texts(path, column.to_pylist(), labels)
    columns = {name: table.column(name).to_numpy() for name in names if name != label}
    return _checked(path, _joined(path, columns), labels, None)


def _joined(path: Path, columns: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Stack the first column of lists, or all numeric columns."""
    lists = [name for name in columns if isinstance(columns[name][0], np.ndarray)]
    if not lists:
        numeric = [values for values in columns.values() if values.dtype.kind in "biuf"]
        if not numeric:
            raise ValueError(
                f"{path}: must have numeric columns besides the label; got {list(columns)}. "
                f"{_OR_TEXTS}"
            )
        return np.stack(numeric, axis=1)
    try:
        return np.stack(list(columns[lists[0]]))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: the lists of {lists[0]!r} must have the same length.") from error


def _checked_texts(path: Path, texts: list[Any], labels: npt.NDArray[Any]) -> RawItems:
    wrong = [i for i, text in enumerate(texts) if not isinstance(text, str)]
    if wrong or not len(texts):
        got = f"{texts[wrong[0]]!r} in row {wrong[0]}" if wrong else "none"
        raise ValueError(f"{path}: column {TEXT_COLUMN!r} must contain texts; got {got}.")
    return RawItems(np.array(texts, dtype=object), labels, None)


def _checked(path: Path, items: npt.NDArray[Any], labels: npt.NDArray[Any], test: Any) -> RawItems:
    if items.ndim < 2 or 0 in items.shape or items.dtype.kind not in "biuf":
        raise ValueError(
            f"{path}: X must be an array of numbers (n, d) or of images (n, height, width[, "
            f"channels]); got shape {items.shape}, dtype {items.dtype}."
        )
    if labels.ndim != 1 or len(labels) != len(items):
        raise ValueError(
            f"{path}: y must have {len(items)} labels, one per row; got shape {labels.shape}."
        )
    if test is not None and (test.dtype != bool or test.shape != labels.shape):
        raise ValueError(
            f"{path}: test must have {len(items)} booleans, one per row; "
            f"got shape {test.shape}, dtype {test.dtype}."
        )
    if has_channels_first(items.shape[1:]):
        items = np.moveaxis(items, 1, -1)
    return RawItems(items, labels, test)
