"""Read a user's own files: a table, arrays, images, or a folder of one of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np

from ssdml.datasets.base import RawItems
from ssdml.datasets.image_names import as_relative, find_images, is_image_name
from ssdml.datasets.known.formats import read_idx_pair, read_published_format
from ssdml.datasets.pixels import is_hidden
from ssdml.datasets.reading.arrays import (
    NPY_FILES,
    read_array_folder,
    read_matlab,
    read_npy_folder,
    read_npy_pair,
    read_npz,
)
from ssdml.datasets.reading.formats.arrow_files import class_names
from ssdml.datasets.reading.formats.intents import USER_SAYS
from ssdml.datasets.reading.formats.tables import (
    TABLE_SUFFIXES,
    read_table,
    read_zipped_table,
    table_suffix,
    why_no_data,
)
from ssdml.datasets.reading.image_folders import (
    LISTINGS,
    read_image_folder,
    read_image_zip,
    read_text_folder,
    texts_of_classes,
)
from ssdml.datasets.reading.joining import Part, joined
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.rows import read_rows
from ssdml.datasets.reading.samples import holds_images
from ssdml.datasets.reading.summary import counted, listed
from ssdml.datasets.reading.table import (
    LABEL_NAMES,
    SPLITS,
    Table,
    folded,
    mentioned_split,
    names_labels,
)
from ssdml.utils.files import (
    WAYS_OUT,
    check_inside,
    check_regular,
    check_signature,
    parse_json,
    read_regular,
)

ANNOTATIONS = "annotations"  # the folder of them, as of COCO
REMARKS = (".md", ".html", ".xml")  # rather about samples than samples
DIGITS = re.compile(r"\d+")
NO_KEY = "__HIVE_DEFAULT_PARTITION__"


def read_path(path: Path, choice: Choice | None = None, *, encoding: str | None = None) -> RawItems:
    """Read a user's own data.

    Parameters
    ----------
    path : Path
        A table in one of `TABLE_SUFFIXES`, compressed, zipped or plain; ``.npz``, ``.mat``, or
        ``.npy`` with its labels; a folder or ``.zip`` of images; a folder that Hugging Face's
        datasets saved, or of tables or arrays whose names tell training from test rows.
    choice : Choice, optional
        Roles of columns or arrays; by default, they are found by names and contents.
    encoding : str, optional
        Encoding of tables that are text; by default UTF-8.

    Raises
    ------
    FileNotFoundError
        If there is no such path.
    ValueError
        If it cannot be read, or leaves a question.
    """
    choice = choice or Choice()
    if path.is_dir():
        return _read_folder(path, choice, encoding)
    check_regular(path)
    suffix = path.suffix.lower()
    if suffix in (".npz", ".npy", ".mat", ".zip"):
        check_signature(path)
    if suffix == ".npz":
        return read_npz(path, choice)
    if suffix == ".npy":
        return read_npy_pair(path, choice)
    if suffix == ".mat":
        return read_matlab(path, choice)
    if suffix == ".zip":
        zipped = read_zipped_table(path, encoding=encoding)
        if zipped is not None:
            return read_rows(zipped, choice)
        return read_image_zip(path, needs_label=choice.needs_label)
    if (images := read_idx_pair(path)) is not None:
        return images
    if table_suffix(path) is None:
        way_out = WAYS_OUT.get(suffix, "Save it as one of these, or rename it if it is one")
        raise ValueError(
            f"{path}: must be a folder of class folders of images or a file that ends in .npz, "
            f".npy, .mat, {', '.join(TABLE_SUFFIXES)} or .zip; got {path.suffix!r}. {way_out}."
        )
    return read_rows(read_table(path, encoding=encoding), choice)


def _read_folder(folder: Path, choice: Choice, encoding: str | None) -> RawItems:
    if (folder / "train_X.npy").exists():
        names = {p.name for p in folder.iterdir() if not is_hidden(p.name)} - {*NPY_FILES}
        return _leave_out(read_npy_folder(folder), folder, [folder / n for n in sorted(names)])
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        return read_rows(_saved_by_hugging_face(folder), choice)
    found = sorted(folder.rglob("*"))
    linked = (p.relative_to(folder) for p in found if p.is_symlink() and p.is_dir())
    if (link := next((p for p in linked if not is_hidden(p.as_posix())), None)) is not None:
        raise ValueError(
            f"{folder}: links to folders are not followed; {str(link)!r} is one. Copy its files "
            "there, or remove the link."
        )
    visible = (p for p in found if not is_hidden(p.relative_to(folder).as_posix()))
    files = [p for p in visible if p.is_file()]
    if (raw := read_published_format(folder, files)) is not None:
        return raw
    sentences = [p for p in files if USER_SAYS.fullmatch(p.name)]
    tables = [p for p in files if table_suffix(p) and p not in sentences]
    reason = "no sentences, in a folder of Dialogflow" if sentences else None
    others = {p: why for p in tables if (why := reason or why_no_data(p.name))}
    n_usable = sum(bool(table_suffix(p)) or is_image_name(p.name) for p in files)
    if 0 < len(others) < n_usable:
        raw = _read_files(folder, [p for p in files if p not in others], choice, encoding)
        assert raw.summary is not None
        raw.summary.left_out |= {p.relative_to(folder).as_posix(): w for p, w in others.items()}
        return raw
    return _read_files(folder, files, choice, encoding)


def _read_files(folder: Path, files: list[Path], choice: Choice, encoding: str | None) -> RawItems:
    """Read tables, images, texts or an array in a folder."""
    tables = [p for p in files if table_suffix(p)]
    check_inside(folder, [str(p.relative_to(folder)) for p in tables])
    n_images = sum(is_image_name(p.name) for p in files)
    has_images = n_images > 0
    arrays = [p for p in files if p.suffix.lower() in (".npy", ".npz", ".mat")]
    if tables and arrays and not has_images:
        raise ValueError(
            f"{folder}: which file holds the samples, {tables[0].name} or {arrays[0].name}? Name "
            "one, or an array and its labels: ssdml label X.npy labels.csv."
        )
    if tables and has_images:
        table = _listing(folder, tables, choice, encoding)
        if table is not None:
            raw = read_rows(table, choice)
            _doubt_unlisted(raw, n_images)
            return raw
    named = tables or [p for p in files if not p.suffix]
    if not has_images and (texts := texts_of_classes(folder, named)):
        table = read_text_folder(folder, texts, encoding, choice.needs_label)
        unread = [p for p in files if p not in texts]
        table = replace(table, doubts=(*_doubt_texts(folder, unread, texts),))
        return _leave_out(read_rows(table, choice), folder, unread)
    if tables and not has_images:
        _refuse_named_texts(folder, tables, encoding)
        parts = [(p, _with_keys(folder, read_table(p, encoding=encoding))) for p in tables]
        doubts = []
        if choice.needs_label and choice.label is None:
            doubts = _doubt_classes(folder, [table for _, table in parts])
        table = joined(folder, [(_part(folder, p), t) for p, t in parts])
        unread = [p for p in files if p not in tables]
        doubts += _doubt_samples(folder, unread)
        table = replace(table, doubts=(*table.doubts, *doubts))
        return _leave_out(read_rows(table, choice), folder, unread)
    arrays = [p for p in arrays if p.suffix.lower() != ".mat"]
    if arrays and not has_images:
        raw = read_array_folder(folder, arrays, choice)
        return _leave_out(raw, folder, sorted({*files} - {*arrays}))
    raw = read_image_folder(folder, needs_label=choice.needs_label)
    return _with_labels_of_split(raw, folder, tables, encoding)


def _with_labels_of_split(
    raw: RawItems, folder: Path, tables: Sequence[Path], encoding: str | None
) -> RawItems:
    """Label the images of a split without folders of classes from a table there.

    Tiny ImageNet has one for validation; its column of labels holds names of other folders.
    """
    labels, names = raw.labels.tolist(), np.asarray(raw.ids).tolist()
    for path in tables:
        place = f"{path.parent.name}/"
        rows = [row for row, name in enumerate(names) if name.startswith(place)]
        in_split = path.parent.parent == folder and path.parent.name.casefold() in SPLITS
        if not in_split or any(labels[row] for row in rows):
            continue
        table = _table_or_none(path, encoding)
        column = None if table is None else _column_of_images(table)
        if table is None or column is None:
            continue
        cells = {
            n: list(map(str, table.columns[n].to_pylist())) for n in table.columns.column_names
        }
        found = [n for n, known in cells.items() if {*known} <= {*labels} - {""}]
        files = find_images(path.parent, [as_relative(path.parent, n) for n in cells[column]])
        if len(found) == 1 and files is not None:
            label_of = dict(zip(files, cells[found[0]], strict=True))
            for row in rows:
                labels[row] = label_of.get(names[row].removeprefix(place), "")
            assert raw.summary is not None
            name = path.relative_to(folder).as_posix()
            raw.summary.facts["more labels"] = f"column {found[0]!r} of {name}"
            raw.summary.left_out.pop(name, None)
    return raw._replace(labels=np.array(labels))


def _listing(
    folder: Path, tables: list[Path], choice: Choice, encoding: str | None
) -> Table | None:
    """Read the table that names the images; or those in the folders of splits, joined.

    None if the folders of images are rather their classes.
    """
    found: dict[Path, list[tuple[Table, str]]] = {}
    for path in tables:
        in_split = path.parent.name.casefold() in SPLITS
        in_split &= table_suffix(path) in (*LISTINGS, ".json")
        if path.parent == folder or in_split:
            _add_listing(found, path, path.parent, encoding)
    for path in tables if not found else ():
        if path.parent == folder / ANNOTATIONS and table_suffix(path) == ".json":
            _add_listing(found, path, folder, encoding)
    places = [folder] if folder in found else sorted(found)
    parts: list[Part] = []
    for place in places:
        metadata = [one for one in found[place] if one[0].path.stem.lower() == "metadata"]
        chosen = metadata or found[place]
        splits = {_part(folder, table.path) for table, _ in chosen}
        if len(chosen) > 1 and (None in splits or len(splits) < len(chosen)):
            names = " or ".join(table.path.name for table, _ in chosen)
            raise ValueError(
                f"{place}: which table names the images, {names}? Pass its path instead of the "
                "folder's."
            )
        if choice.needs_label and choice.label is None and any(_is_of_classes(*c) for c in chosen):
            return None
        for table, column in chosen:
            inner = "" if place == folder else place.relative_to(folder).as_posix()
            parts.append((_part(folder, table.path), _with_folder(table, column, inner)))
    if len(parts) == 1 and folder in found:
        return parts[0][1]
    return joined(folder, parts) if parts else None


def _add_listing(
    found: dict[Path, list[tuple[Table, str]]], path: Path, root: Path, encoding: str | None
) -> None:
    """Add a table, and its column, if it names images in ``root``."""
    if (table := _table_or_none(path, encoding)) is not None:
        table = replace(table, root=root)
        if column := _column_of_images(table):
            found.setdefault(root, []).append((table, column))


def _table_or_none(path: Path, encoding: str | None) -> Table | None:
    """Read a table; notes and settings of programs, in .txt or .json, need not be tables."""
    try:
        return read_table(path, encoding=encoding)
    except ValueError:
        if table_suffix(path) in LISTINGS:
            raise
        return None


def _column_of_images(table: Table) -> str | None:
    """Return the column that names images beside the table or in folders there."""
    for name in table.columns.column_names:
        cells = (cell.as_py() for cell in table.columns[name])
        first = next((cell for cell in cells if cell not in (None, "")), None)
        if isinstance(first, str | int) and holds_images(name, str(first).strip(), table.folder):
            return name
    return None


def _is_of_classes(table: Table, column: str) -> bool:
    """Whether a table without labels names images in several folders, their classes."""
    if any(folded(name) in LABEL_NAMES for name in table.columns.column_names):
        return False
    names = map(str, table.columns[column].to_pylist())
    return len({as_relative(table.folder, name).rpartition("/")[0] for name in names}) > 1


def _with_folder(table: Table, column: str, place: str) -> Table:
    """Write the names of images relative to a folder above the table's, unless it is the same."""
    import pyarrow as pa

    if not place:
        return table
    names = table.columns[column].to_pylist()
    names = [name and f"{place}/{as_relative(table.folder, str(name))}" for name in names]
    index = table.columns.column_names.index(column)
    columns = table.columns.set_column(index, column, pa.array(names))
    return replace(table, columns=columns, root=None)


def _doubt_unlisted(raw: RawItems, n_images: int) -> None:
    assert raw.summary is not None
    if n_images > len(raw.labels):
        raw.summary.doubts.append(
            f"{n_images - len(raw.labels):,} of {n_images:,} images in the folder are not read, as "
            "no row names them; add a row without a label for each"
        )


def _doubt_texts(folder: Path, others: Sequence[Path], texts: Sequence[Path]) -> list[str]:
    """Doubt files that are not read, but may be texts."""
    places = {p.parent for p in texts}
    odd = [p for p in others if p.suffix.lower() == ".txt" or p.parent in places]
    way_out = (
        "if they are samples, let their names end in .txt, and put those without a label into a "
        "folder called unlabeled"
    )
    return [f"{_unread(folder, odd)}; {way_out}"] if odd else []


def _doubt_samples(folder: Path, others: Sequence[Path]) -> list[str]:
    """Doubt files that are not read, but may hold samples by their formats."""
    odd = [p for p in others if p.suffix.lower() in WAYS_OUT and p.suffix.lower() not in REMARKS]
    if not odd:
        return []
    return [f"{_unread(folder, odd)}; if it holds samples: {WAYS_OUT[odd[0].suffix.lower()]}"]


def _unread(folder: Path, files: Sequence[Path]) -> str:
    first = files[0].relative_to(folder).as_posix()
    return f"{counted(len(files), 'file')} not read, such as {first!r}"


def _leave_out(raw: RawItems, folder: Path, others: Sequence[Path]) -> RawItems:
    """Tell of files that are not read."""
    assert raw.summary is not None
    raw.summary.left_out |= {p.relative_to(folder).as_posix(): "not read" for p in others}
    return raw


def _with_keys(folder: Path, table: Table) -> Table:
    """Append the columns that pandas and Spark write as folders: label=cat/part-0.parquet."""
    import pyarrow as pa

    columns = table.columns
    for part in table.path.relative_to(folder).parts[:-1]:
        name, _, value = part.partition("=")
        if value and name not in columns.column_names:
            cells = [None if value == NO_KEY else unquote(value)] * len(columns)
            columns = columns.append_column(name, pa.array(cells, pa.string()))
    return replace(table, columns=columns)


def _part(folder: Path, path: Path) -> str | None:
    """Return the split that a file's name, or else that of its folder below, mentions."""
    inside = path.parent.name if path.parent != folder else ""
    return mentioned_split(path.name) or mentioned_split(inside)


def _saved_by_hugging_face(folder: Path) -> Table:
    """Read what ``save_to_disk`` of the package datasets wrote, whole or in splits."""
    places: list[tuple[str | None, Path]] = [(None, folder)]
    if (folder / "dataset_dict.json").is_file():
        splits = _names(folder / "dataset_dict.json", "splits")
        check_inside(folder, splits)
        places = [(name, folder / name) for name in splits]
    parts: list[Part] = []
    for name, place in places:
        files = _names(place / "state.json", "_data_files", "filename")
        if _described(place / "state.json").get("_indices_data_files"):
            raise ValueError(
                f"{place}: must hold all rows in order; its state.json names indices of some. Save "
                "dataset.flatten_indices()."
            )
        check_inside(place, files)
        info = place / "dataset_info.json"
        names = class_names(_described(info)) if info.is_file() else {}
        for file in files:
            table = read_table(place / file)
            table = replace(table, class_names=names or table.class_names)
            parts.append((SPLITS.get(name or "", "train" if name else None), table))
    return joined(folder, parts)


def _described(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(read_regular(path))
    except ValueError as error:
        raise ValueError(f"{path}: must be JSON ({error}). Save the data set again.") from error
    if isinstance(content, dict):
        return content
    raise ValueError(f"{path}: must be a JSON object. Save the data set again.")


def _names(path: Path, key: str, inner: str | None = None) -> list[str]:
    """Return a list of names in a JSON object, or of objects that hold them."""
    found = _described(path).get(key)
    if isinstance(found, list) and inner is not None:
        found = [entry.get(inner) if isinstance(entry, dict) else None for entry in found]
    if not isinstance(found, list) or not found or not all(isinstance(n, str) for n in found):
        raise ValueError(f"{path}: {key!r} must be a list of names. Save the data set again.")
    return found


def _refuse_named_texts(folder: Path, tables: Sequence[Path], encoding: str | None) -> None:
    """Raise ValueError if a table names texts in files of their own."""
    texts = {p.stem: p.name for p in tables if p.suffix.lower() == ".txt"}
    for path in tables if texts else ():
        table = read_table(path, encoding=encoding) if table_suffix(path) in LISTINGS else None
        for column in table.columns.columns if table is not None else ():
            cells = (str(column[row].as_py()).strip().replace("\\", "/") for row in (0, -1))
            found = [texts.get(PurePosixPath(cell.removesuffix(".txt")).name) for cell in cells]
            if all(found):
                raise ValueError(
                    f"{folder}: its tables must hold the texts; got their files in {path.name}, "
                    f"such as {found[0]!r}. Write them into a column: frame['text'] = "
                    "[open(name).read() for name in names]."
                )


def _doubt_classes(folder: Path, tables: list[Table]) -> list[str]:
    """Doubt the names of tables without labels, which may be classes; refuse several folders."""
    columns = {name for table in tables for name in table.columns.column_names}
    coordinates = {"y"} if "x" in columns else set()
    if any(names_labels(name) for name in columns - coordinates):
        return []
    places = sorted({t.path.parent for t in tables} - {folder})
    if len(places) > 1 and None in (mentioned_split(place.name) for place in places):
        raise ValueError(
            f"{folder}: which column holds the labels? None is called label, and the tables "
            f"are in {listed([place.name for place in places])}. If these are classes, write them "
            "into a column: frame['label'] = folder; else pass --label NAME (label='NAME')."
        )
    names = {DIGITS.sub("", table.path.stem) for table in tables}  # without numbers of parts
    if places or len(names) < 2 or any(mentioned_split(name) for name in names):
        return []
    return [
        f"if the names of the tables ({listed([t.path.name for t in tables])}) are classes, write "
        "them into a column: frame['label'] = name"
    ]
