"""Tables of JSON: lines, lists or columns, and what other programs write around them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from ssdml.datasets.image_names import is_image_name
from ssdml.datasets.reading.formats.annotations import annotated
from ssdml.datasets.reading.formats.delimited import in_utf8, unpacked
from ssdml.datasets.reading.formats.intents import USER_SAYS, sentences_of_intents
from ssdml.datasets.reading.table import (
    LABEL_NAMES,
    TEXT_NAMES,
    Table,
    distinct,
    find_header,
    folded,
    mentioned_split,
    of_cells,
)
from ssdml.utils.files import check_memory, parse_json

LINES_OF_JSON = (".jsonl", ".ndjson", ".manifest")  # the last of SageMaker
HALF_PAIR = r"\ud"  # begins an escape of JSON for half of a surrogate pair
OBJECT_BYTES, ENTRY_BYTES = 300, 80  # of JSON in memory, besides its text


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

    def place(row: int) -> str:
        return f"{'line' if by_line else 'row'} {numbers[row]}"

    for number, row in enumerate(rows):
        try:
            rows[number] = annotated(row)
        except (AttributeError, TypeError) as error:
            raise ValueError(
                f"{path}, {place(number)}: must be what an annotation tool writes ({error}). "
                "Export it again."
            ) from error
    if rows and all(isinstance(row, list) for row in rows):
        check_memory(path, 8 * max(map(len, rows)) * len(rows), on_disk)
        rows, n_above = _from_lists(rows)
        numbers = numbers[n_above:]

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
    if isinstance(content, list) and (match := USER_SAYS.fullmatch(path.name)):
        content = {match["intent"]: content}
    if (sentences := sentences_of_intents(content)) is not None:
        return sentences
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        content = {}
    if isinstance(content.get("_via_img_metadata"), dict):
        content = content["_via_img_metadata"]
    if (labels := _labels_of_images(content)) is not None:
        return labels
    content = _without_metadata(content)
    for form in (
        _of_split_frame,
        _of_coco,
        _of_fiftyone,
        partial(_rows_of_splits, path),
        _only_list,
        _objects_in,
        _of_columns,
    ):
        if (rows := form(content)) is not None:
            return rows
    raise ValueError(
        f"{path}: must be a list of objects, or an object of columns of one length. Write it "
        "with pandas: frame.to_json(path, orient='records', lines=True)."
    )


def _labels_of_images(content: dict[str, Any]) -> list[Any] | None:
    """Return names of images and their labels as rows."""
    given = content.items()
    if not given or any(not is_image_name(n) or isinstance(v, list | dict) for n, v in given):
        return None
    return [{"filename": name, "label": label} for name, label in given]


def _without_metadata(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is no column: null, Chroma's "included", and the schema of pandas."""
    content = {name: value for name, value in content.items() if value is not None}
    if {"ids", "included"} <= content.keys():
        del content["included"]
    if content.keys() == {"schema", "data"}:  # orient="table"
        del content["schema"]
    return content


def _of_split_frame(content: dict[str, Any]) -> list[Any] | None:
    """Return rows written by pandas beside the names of their columns (orient="split")."""
    names, data = content.get("columns"), content.get("data")
    if not isinstance(names, list) or not isinstance(data, list):
        return None
    names = list(map(str, names))
    return [dict(zip(names, row, strict=False)) if isinstance(row, list) else row for row in data]


def _of_coco(content: dict[str, Any]) -> list[Any] | None:
    """Return the images of COCO with the categories of their objects, each once."""
    with suppress(KeyError, TypeError):
        names = {category["id"]: category["name"] for category in content["categories"]}
        labels: dict[Any, dict[str, None]] = {image["id"]: {} for image in content["images"]}
        for annotation in content["annotations"]:
            labels[annotation["image_id"]][names[annotation["category_id"]]] = None
        images = content["images"]
        return [{"filename": i["file_name"], "label": list(labels[i["id"]])} for i in images]
    return None


def _of_fiftyone(content: dict[str, Any]) -> list[Any] | None:
    """Return images of FiftyOne with the names of their classes."""
    if content.keys() != {"classes", "labels"}:
        return None
    names, labels = content["classes"] or [], content["labels"]
    if not isinstance(names, list) or not isinstance(labels, dict):
        return None
    return [
        {"filename": n, "label": names[c] if c in range(len(names)) else c}
        for n, c in labels.items()
    ]


def _rows_of_splits(path: Path, content: dict[str, Any]) -> list[Any] | None:
    """Return the rows below the names of splits, each with its split; None for other content."""
    splits = [mentioned_split(name) for name in content]
    if len(content) < 2 or None in splits:
        return None
    found: list[Any] = []
    for split, value in zip(splits, content.values(), strict=True):
        if not isinstance(value, list | dict):
            return None
        for row in _rows_of(path, value):
            if isinstance(row, dict):
                found.append({"split": split} | row)
            elif isinstance(row, list):
                found.append([*row, split])
            else:
                return None
    return found


def _only_list(content: dict[str, Any]) -> list[Any] | None:
    """Return the only list of rows, or that of labeled texts, in objects in each other."""
    filled = _lists_in(content)
    with_texts = [rows for rows in filled if _have(rows, TEXT_NAMES)]
    if len(with_texts) == 1 and _have(with_texts[0], LABEL_NAMES):
        return with_texts[0]  # beside lists of intents, entities and the like
    if len(filled) != 1:
        return None
    [rows] = filled
    if all(isinstance(row, dict) for row in rows):
        return rows  # beside a version and the like
    with_names = all(isinstance(row, list) and row for row in rows)
    with_names = with_names and all(isinstance(cell, str) for cell in rows[0])
    return rows if with_names else None


def _have(rows: list[Any], names: Sequence[str]) -> bool:
    """Whether all rows are objects, and the first has a key of such a name."""
    are_objects = all(isinstance(row, dict) for row in rows)
    return are_objects and not {*map(folded, rows[0])}.isdisjoint(names)


def _lists_in(content: dict[str, Any]) -> list[list[Any]]:
    """Return the lists that objects in each other hold, but for empty ones."""
    found, objects = [], [content]
    while objects:
        values = list(objects.pop().values())
        found += [value for value in values if isinstance(value, list) and value]
        objects += [value for value in values if isinstance(value, dict)]
    return found


def _objects_in(content: dict[str, Any]) -> list[Any] | None:
    """Return rows by their numbers, as of pandas, by their files, as of VIA, or by their ids."""
    values = list(content.values())
    if not values or not all(isinstance(v, dict) for v in values):
        return None
    if all(v.keys() == values[0].keys() for v in values):
        numbered = [all(map(str.isdigit, keys)) for keys in (content, values[0])]
        if numbered == [True, False] or {"filename", "regions"} <= values[0].keys():
            return values
    inside = {folded(name) for value in values for name in value}
    if inside.isdisjoint(LABEL_NAMES) or not inside.isdisjoint(map(folded, content)):
        return None
    return [{"id": name} | value for name, value in content.items()]


def _of_columns(content: dict[str, Any]) -> list[Any] | None:
    """Return the rows of columns of one length: lists, or objects of the same keys."""
    keys = next((v.keys() for v in content.values() if isinstance(v, dict)), ())  # of rows
    columns = [
        [v[key] for key in keys] if isinstance(v, dict) and v.keys() == keys else v
        for v in content.values()
    ]
    if not columns or not all(isinstance(c, list) and len(c) == len(columns[0]) for c in columns):
        return None
    return [dict(zip(content, cells, strict=True)) for cells in zip(*columns, strict=True)]
