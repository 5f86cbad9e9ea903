"""Read samples, labels and ids of a table by the roles of its columns."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import RawItems
from ssdml.datasets.image_files import SIZE, center_crop
from ssdml.datasets.image_names import as_relative, find_images
from ssdml.datasets.pixels import Pixels, opened_image, pixels, stack_images, upright_size
from ssdml.datasets.reading.cells import Cells, is_text
from ssdml.datasets.reading.columns import Roles, choose_columns
from ssdml.datasets.reading.formats.delimited import REMARK
from ssdml.datasets.reading.image_folders import images_of
from ssdml.datasets.reading.names import IS_NEW, Choice, added_columns
from ssdml.datasets.reading.summary import Summary, counted, listed
from ssdml.datasets.reading.table import (
    MISSING,
    SPLITS,
    TRUTH,
    Table,
    folded,
    names_labels,
    unnested,
)
from ssdml.utils.files import check_inside, check_memory, check_names, parse_json
from ssdml.utils.labels import as_column
from ssdml.utils.typing import Array

LAST = 5  # rows, in which totals may be
LEAST_ROWS = 4  # above a sum of them
TOTALS = ("total", "totals", "grand total", "subtotal", "sum", "mean", "average", "avg", "median")
TRUE, FALSE = {*TRUTH, "1", "1.0", "yes"}, {*TRUTH.values(), "0", "0.0", "no", *MISSING}


def read_rows(table: Table, choice: Choice) -> RawItems:
    """Read the rows of a table.

    Parameters
    ----------
    table : Table
    choice : Choice
        Roles of columns that the user chose; `choose_columns` chooses the others.

    Returns
    -------
    raw : RawItems
        ``items`` is None if the samples are texts. Without labels, all are "".

    Raises
    ------
    ValueError
        If a cell of a feature is no number, with its line and column; or if there is a question
        about the columns.
    """
    table = replace(table, columns=unnested(table.columns))
    names = table.columns.column_names
    _refuse_headers(table)
    apart = (choice.label, choice.text, choice.id, *choice.ignore)
    apart += tuple(added_columns(names).values())
    cells = Cells(table, [name for name in apart if name is not None], choice.model)
    roles = choose_columns(cells, choice)
    summary = Summary(f"{table.path}", left_out=roles.left_out, doubts=roles.doubts)
    summary.doubts += table.doubts
    summary.facts["file"] = "; ".join([*table.notes, *["decimal commas"] * cells.decimal_commas])
    items, columns = None, roles.features
    texts = _texts(cells, roles)
    if roles.images is not None:
        items, columns = _images(cells, roles, summary), [roles.images]
    elif roles.features:
        items = _features(cells, roles, summary)
    else:
        assert roles.text is not None
        columns = [roles.text]
        summary.facts["samples"] = f"texts in column {roles.text!r}"
    if roles.label is not None:
        summary.facts["labels"] = f"column {roles.label!r}"
    ids = None
    if roles.id is not None:
        named = cells.texts if is_text(cells[roles.id]) else lambda n: cells[n].to_pylist()
        ids = np.array(named(roles.id), dtype=object)
        summary.facts["ids"] = f"column {roles.id!r}"
    _doubt_totals(cells, roles, summary)
    _doubt_remarks(cells, roles, summary)
    _doubt_footer(cells, summary)
    _doubt_other_labels(cells, roles, summary)
    test, gallery = _split(cells, roles, summary)
    return RawItems(
        items,
        _labels(cells, roles, summary),
        test,
        gallery,
        texts=texts,
        ids=ids,
        columns=tuple(columns),
        summary=summary,
        table=replace(table, decimal="," if cells.decimal_commas else "."),
        label_column=roles.label,
    )


def read_labels(table: Table, name: str) -> tuple[Array, dict[str, str]]:
    """Return a column as labels, without predictions of `ssdml label`, and what to tell of it."""
    added = added_columns(table.columns.column_names)
    used = [name, *added.values()]
    cells = Cells(replace(table, columns=table.columns.select(used)), used)
    summary = Summary(f"{table.path}", {"labels": f"column {name!r}"})
    roles = Roles(label=name, is_new=added.get(IS_NEW))
    return _labels(cells, roles, summary), summary.facts


def _refuse_headers(table: Table) -> None:
    """Raise if a row holds the names of the columns, as where another table was pasted below."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array({*map(folded, table.columns.column_names)})
    of_names = np.full(len(table), len(names) == table.columns.num_columns > 1)
    for column in table.columns.columns:
        if not is_text(column):
            return
        cells = pc.utf8_lower(pc.utf8_trim_whitespace(column))
        of_names &= pc.is_in(cells, names).to_numpy()
        if not of_names.any():
            return
    for row in np.flatnonzero(of_names).tolist():
        cells = [column[row].as_py() for column in table.columns.columns]
        if {*map(folded, cells)} == {*names.to_pylist()}:
            raise ValueError(
                f"{table.path}, {table.place(row)}: must be a row; got the names of the columns "
                f"again, as {listed(cells)}. Put the rows below under the columns of the same "
                "name, or into a file of their own."
            )


def _doubt_totals(cells: Cells, roles: Roles, summary: Summary) -> None:
    """Doubt a row without a label that a text names a sum or a mean, such as "Total" or "a Total".

    Without a column of labels, only the last rows are searched.
    """
    n = len(cells.table)
    labels = [None] * n if roles.label is None else cells.texts(roles.label)
    rows = [r for r in range(n) if not labels[r] and (roles.label or r >= n - LAST)]
    for name in cells.table.columns.column_names if rows else ():
        if name in (roles.label, roles.text) or (name != roles.id and cells.kind(name) != "text"):
            continue
        texts = cells.texts(name)
        known = {*map(folded, filter(None, texts)), ""}
        for row in rows:
            cell = folded(texts[row] or "")
            rest = cell.removeprefix("total").removesuffix("total").strip()
            if cell in TOTALS or (rest != cell and rest in known):
                summary.doubts.append(
                    f"{cells.table.place(row)}, {texts[row]!r}, is read as a sample; if it sums up "
                    "others, delete it"
                )
                return


def _doubt_remarks(cells: Cells, roles: Roles, summary: Summary) -> None:
    """Doubt rows of a text that begin with "#" unlike most, as if they were commented out."""
    first = cells.table.columns.column_names[0]
    if cells.table.separator is None or first == roles.text or not is_text(cells[first]):
        return
    rows = [r for r, cell in enumerate(cells.texts(first)) if cell and cell.startswith(REMARK)]
    if 0 < 2 * len(rows) < len(cells.table):
        summary.doubts.append(
            f"{counted(len(rows), 'sample')} with {REMARK!r} in front, as in "
            f"{cells.table.place(rows[0])}; if these rows are commented out, delete them"
        )


def _doubt_footer(cells: Cells, summary: Summary) -> None:
    """Doubt last rows that have a cell in the first column alone, unlike those above."""
    first, *others = cells.table.columns.column_names
    n = len(cells.table)
    if n <= 2 * LAST or not others or not is_text(cells[first]):
        return
    end = [cells[name].slice(n - 2 * LAST).to_pylist() for name in others]
    rows = zip(*end, strict=True)
    filled = [any(str("" if c is None else c).strip() for c in row) for row in rows]
    n_above = sum(filled)
    if LAST <= n_above < len(filled) and all(filled[:n_above]):
        row = n - len(filled) + n_above
        summary.doubts.append(
            f"{cells.table.place(row)} has no cell but {cells.texts(first)[row]!r}; if it is a "
            "remark below the table, delete it"
        )


def _doubt_other_labels(cells: Cells, roles: Roles, summary: Summary) -> None:
    """Doubt a column of labels that is filled only where the labels are missing, as in others."""
    if roles.label is None:
        return
    labeled = _are_filled(cells, roles.label)
    for name in cells.table.columns.column_names:
        if name not in (roles.label, roles.text, roles.id, *roles.features) and names_labels(name):
            filled = _are_filled(cells, name)
            if filled.any() and not (filled & labeled).any():
                summary.doubts.append(
                    f"column {name!r} is filled only in rows that have no label in "
                    f"{roles.label!r}; if it holds their labels, write all into one column"
                )


def _are_filled(cells: Cells, name: str) -> npt.NDArray[np.bool_]:
    return np.array([folded(cell or "") not in MISSING for cell in cells.texts(name)])


def _doubt_sums(cells: Cells, roles: Roles, features: Array, summary: Summary) -> None:
    """Doubt a last row that is the sum or the mean of the others, and has no other label."""
    label = cells.texts(roles.label)[-1] if roles.label else None
    if len(features) <= LEAST_ROWS or (label and folded(label) not in TOTALS):
        return
    last, others = features[-1], features[:-1]
    varies = np.ptp(others, axis=0) > 0
    for what, values in (("sum", others.sum(axis=0)), ("mean", others.mean(axis=0))):
        if varies.any() and np.allclose(last[varies], values[varies], rtol=1e-6, atol=0):
            summary.doubts.append(
                f"{cells.table.place(len(others))} is the {what} of the rows above it, but is read "
                "as a sample; delete it"
            )


def _features(cells: Cells, roles: Roles, summary: Summary) -> Array:
    """Return the columns of numbers side by side, or the column of vectors."""
    first = roles.features[0]
    if roles.vectors or cells.kind(first) == "vector":
        vectors = cells.vectors(first)
        shape = " x ".join(map(str, vectors.shape[1:]))
        summary.facts["features"] = f"vectors of {shape} numbers in column {first!r}"
        return vectors
    summary.facts["features"] = (
        f"{counted(len(roles.features), 'column')}: {listed(roles.features)}"
    )
    if roles.constant:
        summary.facts["constant columns"] = f"{listed(roles.constant)} (no effect)"
    features = np.stack([cells.feature(name) for name in roles.features], axis=1)
    _doubt_sums(cells, roles, features, summary)
    doubts: dict[str, list[str]] = {}
    for name in roles.features:
        if doubt := cells.doubt(name):
            doubts.setdefault(doubt, []).append(name)
    summary.doubts += [f"in column {listed(names)}, {doubt}" for doubt, names in doubts.items()]
    return features


def _texts(cells: Cells, roles: Roles) -> npt.NDArray[np.object_] | None:
    """Return the texts, for display if they are not the samples."""
    if roles.text is None:
        return None
    texts = cells[roles.text].to_pylist()
    if not roles.features and roles.images is None:
        row = next((i for i, text in enumerate(texts) if not str(text or "").strip()), None)
        if row is not None:
            cells.refuse(roles.text, row, "must be a text, as the samples are texts")
    return np.array(["" if text is None else str(text) for text in texts], dtype=object)


def _labels(cells: Cells, roles: Roles, summary: Summary) -> Array:
    """Return the labels as they are in the file, without spaces around texts."""
    if roles.label is None:
        return np.full(len(cells.table), "")
    column = cells[roles.label]
    given = column.to_pylist()
    if roles.is_new is not None:
        marks = [folded(cell or "") for cell in cells.texts(roles.is_new)]
        odd = next((row for row, mark in enumerate(marks) if mark not in TRUE | FALSE), None)
        if odd is not None:
            cells.refuse(roles.is_new, odd, "must be true or false", "Correct the file.")
        is_new = [mark in TRUE for mark in marks]
        given = [None if new else label for new, label in zip(is_new, given, strict=True)]
        summary.facts["labels"] += (
            f", without {counted(sum(is_new), 'prediction')} of an earlier `ssdml label` (to keep "
            f"those you checked, set {roles.is_new} to false)"
        )
    given, were_lists = _single(cells, roles.label, given)
    names = cells.table.class_names.get(roles.label)
    if names and not is_text(column):
        known = {None, -1, *range(len(names))}
        odd = next((row for row, label in enumerate(given) if label not in known), None)
        if odd is not None:
            problem = f"must be from 0 to {len(names) - 1}, of {listed(names)}, or -1 for no label"
            cells.refuse(roles.label, odd, problem, "Correct the file.")
        return _strings(cells, ["" if c in (None, -1) else names[int(c)] for c in given])
    if is_text(column) or were_lists:
        labels = ["" if label is None else str(label).strip() for label in given]
        pairs = zip(labels, given, strict=True)
        n_spaced = sum(label not in ("", str(was)) for label, was in pairs)
        if n_spaced:
            summary.facts["labels"] += f", spaces around {n_spaced} removed"
        return _strings(cells, labels)
    if cells.kind(roles.label) == "date":
        return np.array(["" if label is None else str(label) for label in given])
    return as_column(given, f"{cells.table.path}, column {roles.label!r}")


def _single(cells: Cells, name: str, given: list[Any]) -> tuple[list[Any], bool]:
    """Return labels out of lists of at most one, and whether some were; refuse several in a row."""
    lists = [_as_list(label) for label in given]
    for row, found in enumerate(lists):
        if found and (len(found) > 1 or isinstance(found[0], list | dict)):
            cells.refuse(name, row, "must be one label; keep one of each row")
    if not any(found is not None for found in lists):
        return given, False
    pairs = zip(lists, given, strict=True)
    return [label if found is None else next(iter(found), None) for found, label in pairs], True


def _as_list(label: Any) -> list[Any] | None:
    """Return a list, or the one that a text such as ['a'] is; None for others."""
    if isinstance(label, str) and label[:1] + label[-1:] == "[]":
        try:
            label = parse_json(label if '"' in label else label.replace("'", '"'))
        except (ValueError, RecursionError):
            return None
    return label if isinstance(label, list) else None


def _strings(cells: Cells, texts: Sequence[str]) -> Array:
    """Return texts in an array, which has room for the longest one in each row."""
    widest = max(map(len, texts), default=0)
    check_memory(cells.table.path, 4 * widest * len(texts), cells.table.path.stat().st_size)
    return np.array(texts)


def _split(
    cells: Cells, roles: Roles, summary: Summary
) -> tuple[npt.NDArray[np.bool_] | None, npt.NDArray[np.bool_] | None]:
    """Return the test rows, and the gallery among them, if columns name them."""
    if roles.split is None:
        return None, None
    parts = np.array([SPLITS[folded(cell)] for cell in cells.texts(roles.split)])
    held_out = "test" if "test" in parts else "validation"
    test = parts == held_out
    if not test.any() or test.all():
        return None, None
    summary.facts["test rows"] = f"{test.sum():,}, {held_out!r} in column {roles.split!r}"
    marks = {folded(n): n for n in cells.table.columns.column_names}
    if roles.images is None or not {"is_query", "is_gallery"} <= marks.keys():
        return test, None
    query, gallery = (cells.numbers(marks[name]).values == 1 for name in ("is_query", "is_gallery"))
    return test, gallery if (gallery & ~query & test).any() else None


def _images(cells: Cells, roles: Roles, summary: Summary) -> Any:
    """Return images whose files, or whose bytes, are in a column."""
    assert roles.images is not None
    column, folder = roles.images, cells.table.folder
    if cells.kind(column) != "image":
        given = [as_relative(folder, cell or "") for cell in cells.texts(column)]
        check_names(folder, given)
        names = find_images(folder, given) or given
        check_inside(folder, names)
        missing = next(
            (row for row, name in enumerate(names) if not (folder / name).is_file()), None
        )
        if missing is not None:
            cells.refuse(column, missing, f"must be a file in {folder}")
        if n_again := len(names) - len(set(names)):
            summary.doubts.append(
                f"{counted(n_again, 'row')} of column {column!r} name images of rows above, and "
                "count as more samples; keep one row per image"
            )
        on_disk = sum((folder / name).stat().st_size for name in names)
        images, fact, doubts = images_of(folder, names, on_disk)
        summary.doubts += doubts
        summary.facts["samples"] = f"{fact}, named in column {column!r}"
        return images
    return _images_inside(cells, column, summary)


def _images_inside(cells: Cells, column: str, summary: Summary) -> Pixels:
    """Return images whose bytes are in a column; those of several sizes are cropped to one."""
    path = cells.table.path
    places = [f"{path}, {cells.table.place(row)}" for row in range(len(cells.table))]
    contents = []
    for row, cell in enumerate(cells[column].to_pylist()):
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if not isinstance(content, bytes) or not content:
            cells.refuse(column, row, "must hold the bytes of an image")
        contents.append(io.BytesIO(content))
    sizes = set()
    for content, place in zip(contents, places, strict=True):
        with opened_image(content, place) as image:
            sizes.add(upright_size(image))
    n_pixels = SIZE**2 if len(sizes) > 1 else math.prod(next(iter(sizes)))
    check_memory(path, 4 * 3 * n_pixels * len(contents), path.stat().st_size)
    stacked: list[Pixels] = []
    own_units: list[int] = []
    for row, (content, place) in enumerate(zip(contents, places, strict=True)):
        content.seek(0)
        with opened_image(content, place) as image:
            is_own = False
            if len(sizes) > 1:
                found: Pixels = center_crop(image)
            else:
                found, is_own = pixels(image)
        own_units += [row] * is_own
        stacked.append(found)
    images, unit = stack_images(path, places, stacked, own_units)
    height, width = images.shape[1:3]
    cropped = f", cropped from {len(sizes)} sizes" if len(sizes) > 1 else ""
    summary.facts["samples"] = (
        f"images of {width} x {height} pixels in column {column!r}{cropped}{unit}"
    )
    return images
