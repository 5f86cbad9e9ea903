"""Readers of arrays: .npz, .npy with labels beside it, folders of these, and .mat."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import RawItems, stack_splits
from ssdml.datasets.pixels import has_channels_first
from ssdml.datasets.reading.formats.matlab import is_structure, read_mat, refuse
from ssdml.datasets.reading.formats.npy import PLAIN_ARRAYS, ArrayFiles, label_file, read_npy
from ssdml.datasets.reading.formats.tables import read_table, table_suffix
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.rows import read_labels, read_rows
from ssdml.datasets.reading.summary import Summary, listed
from ssdml.datasets.reading.table import (
    LABEL_NAMES,
    SPLITS,
    Table,
    folded,
    of_cells,
)
from ssdml.utils.files import Archive, check_inside, read_text
from ssdml.utils.labels import as_column
from ssdml.utils.typing import Array
from ssdml.utils.validation import check_finite

SAMPLES = (
    *("x", "data", "features", "embeddings", "embedding"),
    *("images", "imgs", "vectors", "fea", "arr_0"),
)
LABELS = ("y", "labels", "label", "targets", "target", "gnd", "arr_1")
TEXTS, IDS = ("text", "texts"), ("ids", "id", "names", "filenames")
CLASS_NAMES = ("class_names", "target_names", "label_names", "classes")
PARTS = {**SPLITS, "tr": "train", "te": "test", "eval": "validation"}
OF_PART = (  # names such as train_data and trainX, and X_train and Xtrain
    re.compile(rf"(?P<part>{'|'.join(PARTS)})([-_./](?=.)|(?=[xy]$))(?P<name>.+)"),
    re.compile(rf"(?P<name>.+?)([-_./]|(?<=^[xy]))(?P<part>{'|'.join(PARTS)})"),
)
SOME_ROWS = re.compile(r"label|train|test|val|idx|(?<!edge_)ind(ex|ic)")
MORE_ROWS = re.compile(r"unlab|unsup|extra|arr_\d")
NPY_FILES = tuple(
    f"{p}_{file}" for p in ("train", "test") for file in ("X.npy", "y.npy", "text.txt")
)


class Arrays(Protocol):
    """Arrays of a file by name; `Archive` is one."""

    @property
    def names(self) -> list[str]:
        """Names of the arrays, in the order of the file."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of an array; None if it cannot be read."""

    def __getitem__(self, name: str) -> Array:
        """Return an array."""


class Variables:
    """Variables of a MATLAB file by name, each an array if it holds numbers or a list of texts."""

    def __init__(self, path: Path, found: Mapping[str, Any]) -> None:
        self._path, self._found = path, found
        self._arrays = {n: array for n, v in found.items() if (array := _as_array(v)) is not None}

    @property
    def names(self) -> list[str]:
        """Names of the variables, in the order of the file."""
        return list(self._found)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of an array; None for another variable."""
        return self._arrays[name].shape if name in self._arrays else None

    def __getitem__(self, name: str) -> Array:
        """Return an array."""
        if name not in self._arrays:
            refuse(self._path, name, self._found[name])
        return self._arrays[name]


def read_npz(path: Path, choice: Choice | None = None) -> RawItems:
    """Read an array of samples and one of labels, by usual names or by shape.

    The names are X, data, features, embeddings, images and y, labels, targets in any case;
    ``train_`` and ``test_`` before or after them, or a boolean array ``test``, make a standard
    split. Arrays of texts and ids may be beside them.
    """
    with Archive(path, PLAIN_ARRAYS) as archive:
        return _read_archive(path, archive, choice or Choice())


def read_matlab(path: Path, choice: Choice | None = None) -> RawItems:
    """Read samples and labels of a MATLAB file, as `read_npz` does, by ``fea`` and ``gnd`` too.

    Samples along the last axis, as many as there are labels, are moved to the first.
    """
    choice = choice or Choice()
    return _read_archive(path, Variables(path, _with_fields(read_mat(path), choice)), choice)


def _with_fields(found: dict[str, Any], choice: Choice) -> dict[str, Any]:
    """Return variables with the fields of a structure of samples and labels in its place.

    Fields of structures called ``train`` and ``test`` are called ``train_X`` and so on; these may
    be fields of another, as in EMNIST.
    """
    for name, value in found.items():
        inner = {n: entries[0] for n, entries in value.items()} if is_structure(value) else {}
        if any(n.lower() in PARTS and is_structure(part) for n, part in inner.items()):
            found = {n: part for n, part in found.items() if n != name} | inner
    roles = ({*choice.features, *SAMPLES}, {choice.label, *LABELS})[: 1 + choice.needs_label]
    fields: dict[str, Any] = {}
    others = dict(found)
    for name, value in found.items():
        if is_structure(value) and all(
            role & {w for n in value for w in (n, n.lower())} for role in roles
        ):
            part = f"{name}_" if name.lower() in PARTS else ""
            inside = {part + field: entries[0] for field, entries in value.items()}
            if fields.keys() & inside.keys():  # which structure?
                return found
            fields |= inside
            del others[name]
    return found if fields.keys() & others.keys() else fields | others


def _as_array(value: Any) -> Array | None:
    """Return numbers, or a list of texts or of numbers, as an array; None for others."""
    if isinstance(value, int | float):
        return np.array([[value]])
    for kinds in (str, int | float):
        if isinstance(value, list) and all(isinstance(entry, kinds) for entry in value):
            return np.array(value)
    return value if isinstance(value, np.ndarray) else None


def _as_vector(array: Array) -> Array:
    """Return a row or a column, which have one long axis, with that axis alone."""
    return array.reshape(-1) if array.size == max(array.shape, default=1) else array


def _read_archive(path: Path, archive: Arrays, choice: Choice) -> RawItems:
    keys: dict[str, str] = {}
    taken: set[str] = set()
    # Of "x" and "X", the larger is usually meant.
    for name in sorted(archive.names, key=lambda n: -math.prod(archive.shape(n) or (0,))):
        lower = name.lower()
        while lower in taken:
            lower += " "
        keys[name] = lower
        taken.add(lower)
    every = {keys[name]: name for name in archive.names}
    raw = _read_parts(path, archive, every, choice)
    classes = _key(every, CLASS_NAMES, None)
    if classes is not None and archive.shape(classes) is not None:
        names, in_matlab = _as_vector(archive[classes]), isinstance(archive, Variables)
        labels = _named(raw.labels, names, in_matlab=in_matlab)
        if labels is not raw.labels and raw.summary is not None:
            raw.summary.left_out.pop(classes, None)
        raw = raw._replace(labels=labels)
    return raw


def _read_parts(path: Path, archive: Arrays, every: Mapping[str, str], choice: Choice) -> RawItems:
    """Read training and test samples in arrays of their own, or all samples."""
    parts: dict[str, dict[str, str]] = {}
    others = {}  # of no part, such as names of classes
    for lower, name in every.items():
        if match := _part(lower):
            parts.setdefault(PARTS[match["part"]], {})[match["name"]] = name
        else:
            others[lower] = name
    own = parts.get("train", {})
    has_samples = _key(own, SAMPLES, None) is not None
    if _key(others, SAMPLES, None) is None:
        has_samples |= any(len(_shape(archive, name) or ()) > 1 for name in own.values())
    if not has_samples or every.keys() & {"x", "y"} or choice.features:
        return _read_part(path, archive, every, choice)
    read = {p: _read_part(path, archive, keys, choice, others) for p, keys in parts.items()}
    held_out = read.pop("test" if "test" in read else "validation", None)
    train = read.pop("train")
    for other in read.values():
        train = stack_splits(train, other)._replace(test=None)
    if held_out is None:
        return train
    assert train.summary is not None
    assert held_out.summary is not None
    train.summary.left_out |= held_out.summary.left_out
    samples = held_out.summary.facts["samples"]
    train.summary.facts["test rows"] = f"{len(held_out.labels):,}, {samples}"
    return stack_splits(train, held_out)


def _part(name: str) -> re.Match[str] | None:
    """Match the name of an array of training, validation or test samples or of their labels."""
    return next(filter(None, (pattern.fullmatch(name) for pattern in OF_PART)), None)


def _read_part(
    path: Path,
    archive: Arrays,
    keys: Mapping[str, str],
    choice: Choice,
    beside: Mapping[str, str] | None = None,
) -> RawItems:
    """Read the arrays of which ``keys`` are the names in lower case; tell of those beside them."""
    if len(archive.names) == 1 and (only := archive[archive.names[0]]).dtype.names:
        return _read_records(path, only, choice)
    if {"data", "format", "shape"} <= set(archive.names):
        raise ValueError(
            f"{path}: must contain arrays X and y; got a sparse matrix of SciPy. Save "
            "numpy.savez(path, X=matrix.toarray(), y=labels)."
        )
    _check_named(path, keys, choice)
    wanted = choice.features[0] if choice.features else None
    samples, labels = _key(keys, SAMPLES, wanted), _key(keys, LABELS, choice.label)
    doubts = []
    if samples is None or (labels is None and choice.needs_label):
        samples, labels = _by_shape(path, archive, keys, samples, labels, choice)
        doubts.append(
            f"array {samples!r} holds the samples and {labels!r} the labels, by their shapes; to "
            "name others, pass --features NAME --label NAME (features=['NAME'], label='NAME')"
        )
    X = archive[samples]
    y = np.full(X.shape[:1], "") if labels is None else _as_vector(archive[labels])
    if isinstance(archive, Variables):
        doubts += _doubts_of_matlab(X, y, samples, labels)
        if X.ndim > 1 and len(y) != len(X) and y.shape == X.shape[-1:]:
            X = np.moveaxis(X, -1, 0)
    has_mask = "test" in archive.names and len(_shape(archive, "test") or ()) == 1
    mask = "test" if has_mask else None
    test = None if mask is None else _as_vector(archive[mask])
    raw = _checked(path, X, y, test, (samples, labels or "y"))
    raw, used = _with_columns(raw, archive, keys, choice)
    assert raw.summary is not None
    used |= {samples, labels, mask}
    unused = [n for n in (*keys.values(), *(beside or {}).values()) if n not in used]
    raw.summary.left_out |= dict.fromkeys(unused, "other arrays")
    shapes = {n: _shape(archive, n) or () for n in unused}
    doubts += _doubts_of_names(shapes, keys, choice, X, samples, labels)
    doubts += _doubts_of_rows(archive, shapes, len(X), samples, labels or "y")
    raw.summary.doubts.extend(doubts)
    return raw


def _with_columns(
    raw: RawItems, archive: Arrays, keys: Mapping[str, str], choice: Choice
) -> tuple[RawItems, set[str | None]]:
    """Add texts and ids of the samples, and return the names of their arrays."""
    columns: dict[str, Any] = {}
    used: set[str | None] = set()
    for role, names, named in (("texts", TEXTS, choice.text), ("ids", IDS, choice.id)):
        name = _key(keys, names, named)
        if name is None or (named is None and archive.shape(name) is None):
            continue
        array = _as_vector(archive[name])
        if array.shape == raw.labels.shape:
            used.add(name)
            is_bytes = array.dtype.kind == "S"
            decoded = np.char.decode(array, errors="replace") if is_bytes else array
            columns[role] = decoded.astype(object)
    return raw._replace(has_names=True, **columns), used


def _doubts_of_matlab(X: Array, y: Array, samples: str, labels: str | None) -> Iterator[str]:
    """Doubt what 0 and -1 mean among the labels, and which axis holds as many samples."""
    if {*np.unique(y)} == {-1, 0, 1}:
        yield (
            f"of the labels -1, 0 and 1 in {labels!r}, -1 means no label; if 0 does, save other "
            "numbers for the classes, and -1 for no label"
        )
    if labels is not None and X.ndim > 1 and len(y) == len(X) and y.shape == X.shape[-1:]:
        yield (
            f"the first axis of {samples!r} holds the samples, and the last is as long; if "
            "they are along the last, move it"
        )


def _doubts_of_names(
    shapes: Mapping[str, tuple[int, ...]],
    keys: Mapping[str, str],
    choice: Choice,
    X: Array,
    samples: str,
    labels: str | None,
) -> Iterator[str]:
    """Doubt samples and labels if others with a usual name are not read."""
    for role, named, name, usual in (
        ("features", bool(choice.features), samples, SAMPLES),
        ("label", choice.label is not None, labels, LABELS),
    ):
        others = [n for k, n in keys.items() if k.strip() in usual and not named]
        others = [n for n in others if n in shapes and shapes[n][:1] == X.shape[:1]]
        if others and (role == "label" or np.prod(shapes[others[0]]) != X.size):
            yield (
                f"array {name!r} holds the {'samples' if role == 'features' else 'labels'}, and "
                f"{others[0]!r} is not read; to read it instead, pass --{role} {others[0]} "
                f"({role}={others[0]!r})"
            )


def _doubts_of_rows(
    archive: Arrays, shapes: Mapping[str, tuple[int, ...]], n: int, samples: str, labels: str
) -> Iterator[str]:
    """Doubt arrays that may select some of the n rows, or hold more of them."""
    rows = [
        name
        for name, shape in shapes.items()
        if (len(shape) == 1 and shape[0] <= n)
        or (len(shape) == 2 and SOME_ROWS.search(name.lower()))
    ]
    if chosen := [repr(name) for name in rows if _selects_rows(name, _as_vector(archive[name]), n)]:
        yield (
            f"array {listed(chosen)} is not read; if it tells which rows are labeled, save "
            f"{labels} with -1 in the others; if it tells the test rows, save them as "
            "booleans called test"
        )
    more = [
        repr(name)
        for name, shape in shapes.items()
        if MORE_ROWS.search(lower := name.lower())
        or (len(shape) > 1 and (lower in PARTS or _part(lower)))
    ]
    if more:
        yield (
            f"array {listed(more)} is not read; if it holds more samples, append them to "
            f"{samples}, and their labels, or -1, to {labels}"
        )


def _check_named(path: Path, keys: Mapping[str, str], choice: Choice) -> None:
    """Raise ValueError unless the user names one array for each role, and it is there."""
    if len(choice.features) > 1:
        raise ValueError(
            f"{path}: features must name one array; got {listed(choice.features)}. Name one, or "
            "save them side by side: X = numpy.hstack([A, B])."
        )
    named = {"features": next(iter(choice.features), None), "text": choice.text, "id": choice.id}
    if choice.needs_label:
        named["label"] = choice.label
    for role, name in named.items():
        if name is not None and name not in (*keys, *keys.values()):
            raise ValueError(
                f"{path}: {role} must name an array; got {name!r}. Name one of "
                f"{listed(list(keys.values()))}."
            )


def _selects_rows(name: str, array: Array, n: int) -> bool:
    """Whether an array is a mask of n rows or, by its name and content, the numbers of some."""
    is_column = array.shape == (n,)
    if array.dtype == bool:
        return is_column
    if array.dtype.kind == "U" and is_column:
        return {folded(cell) for cell in array.tolist()} <= SPLITS.keys()
    if array.dtype.kind not in "iuf" or not array.size or not SOME_ROWS.search(name.lower()):
        return False
    if {*np.unique(array)} == {0, 1}:
        return is_column
    lines = (array,) if array.ndim == 1 else (array[0], array[:, 0])  # one per draw of rows
    is_distinct = any(len(np.unique(line)) == len(line) < n for line in lines)
    is_whole = is_distinct and bool((array == np.rint(array)).all())
    return is_whole and bool(0 <= array.min() <= array.max() <= n)


def _named(codes: Array, names: Array, *, in_matlab: bool) -> Array:
    """Return the names of classes for their numbers, "" for -1; the numbers if names are none.

    The first has the number 0, but 1 in a file of MATLAB without 0 among the numbers.
    """
    known = codes[codes != -1]
    is_list = names.ndim == 1 and names.dtype.kind == "U" and codes.dtype.kind in "iuf"
    is_list = is_list and len(np.unique(names)) == len(names)  # not one per sample
    # Beside a single number, -1 may be a class.
    is_signed = len(known) < len(codes) and len(np.unique(known)) < 2
    if not is_list or is_signed or not len(known) or not (known == np.rint(known)).all():
        return codes
    first = int(in_matlab and known.min() > 0)
    if not first <= known.min() <= known.max() < first + len(names):
        return codes
    return np.append(names, "")[np.where(codes == -1, -1, codes - first).astype(np.int64)]


def _read_records(path: Path, records: Array, choice: Choice) -> RawItems:
    """Read a structured array as a table."""
    columns = {str(n): as_column(records[n], str(path)).tolist() for n in records.dtype.names or ()}
    return read_rows(Table(path, of_cells(str(path), columns), lambda row: f"row {row}"), choice)


def _key(keys: Mapping[str, str], usual: Sequence[str], named: str | None) -> str | None:
    """Return the array that the user names, or else that has a usual name."""
    if named is not None:
        return named if named in keys.values() else keys.get(named)
    return next((keys[name] for name in usual if name in keys), None)


def _shape(archive: Arrays, name: str) -> tuple[int, ...] | None:
    """Return the shape of an array, as `_as_vector` would leave it; None if it cannot be read."""
    shape = archive.shape(name)
    n = math.prod(shape or ())
    return (n,) if shape is not None and n == max(shape, default=1) else shape


def _by_shape(
    path: Path,
    archive: Arrays,
    keys: Mapping[str, str],
    samples: str | None,
    labels: str | None,
    choice: Choice,
) -> tuple[str, str]:
    """Find the only matrix and the only column of as many rows."""
    shapes = {n: shape for n in keys.values() if (shape := _shape(archive, n)) is not None}
    for name in [samples] if samples else [] if shapes else list(keys.values())[:1]:
        archive[name]  # raises an error if it is of another kind
    matrices = (
        [samples] if samples else [n for n, s in shapes.items() if len(s) > 1 and n != labels]
    )
    if len(matrices) == 1 and not choice.features and choice.label is None:
        n = shapes[matrices[0]][:1]
        columns = [labels] if labels else [k for k, s in shapes.items() if s == n]
        others = (matrices[0].lower(), "test", *TEXTS, *IDS)
        columns = [name for name in columns if name.lower() not in others]
        # Numbers of rows and names of files are all distinct.
        if len(columns) == 1 and (labels or len(np.unique(archive[columns[0]])) < n[0]):
            return matrices[0], columns[0]
    raise ValueError(
        f"{path}: must contain arrays X and y; got [{listed(list(map(repr, keys.values())))}]. "
        "Name them: --features NAME --label NAME (features=['NAME'], label='NAME'); or save X, "
        "with one sample per row, and y."
    )


def read_npy_pair(path: Path, choice: Choice | None = None) -> RawItems:
    """Read ``X.npy`` with ``y.npy``, or ``name_X.npy`` with ``name_y.npy``."""
    labels, choice = label_file(path), choice or Choice()
    if not labels.is_file():
        X = read_npy(path)
        if X.dtype.names:
            return _read_records(path, X, choice)
        if not choice.needs_label:
            return _checked(path, X, np.full(len(X), ""), None)
        raise FileNotFoundError(
            f"{path}: its labels must be in {labels}, which is missing. Rename their file, or name "
            f"both: {path} y.npy."
        )
    return _checked(path, read_npy(path), read_npy(labels), None)


def read_arrays(
    rows: Path, labels: Path, choice: Choice | None = None, *, encoding: str | None = None
) -> RawItems:
    """Read samples from a .npy file, and labels from another or from a column of a table."""
    X = read_npy(rows)
    if table_suffix(labels) is None:
        return _checked(rows, X, read_npy(labels), None, labels=labels)
    table = read_table(labels, encoding=encoding)
    y, facts = read_labels(table, _label_column(table, (choice or Choice()).label))
    if len(y) != len(X):
        raise ValueError(
            f"{labels}: must have {len(X)} labels, one per row of {rows}; got {len(y)}. Name "
            "the column label, and write -1 into empty lines."
        )
    raw = _checked(rows, X, y, None, labels=labels)
    assert raw.summary is not None
    raw.summary.facts |= facts
    return raw


def _label_column(table: Table, name: str | None) -> str:
    """Return the column of labels that is named, or has a usual name, or is the only one."""
    names = table.columns.column_names
    wanted = LABEL_NAMES if name is None else (folded(name),)
    found = [n for n in names if folded(n) in wanted]
    if name is None and len(names) == 1:
        found = names
    if len(found) != 1:
        raise ValueError(
            f"{table.path}: which column holds the labels? The columns are {listed(names, 20)}. "
            "Pass --label NAME."
        )
    return found[0]


def read_array_folder(folder: Path, files: Sequence[Path], choice: Choice) -> RawItems:
    """Read .npy and .npz files in a folder, as `read_npz` does.

    Of several arrays, the only ``name.npy`` with ``name_y.npy`` holds the samples.
    """
    check_inside(folder, [str(path.relative_to(folder)) for path in files])
    arrays, known = ArrayFiles(folder, files), {*files}
    pairs = [path for path in files if path.suffix.lower() == ".npy" and label_file(path) in known]
    if len(pairs) == 1 and not choice.features and choice.label is None:
        samples, labels = map(arrays.name_of, (pairs[0], label_file(pairs[0])))
        choice = replace(choice, features=(samples,), label=labels)
    return _read_archive(folder, arrays, choice)


def read_npy_folder(folder: Path) -> RawItems:
    """Read ``{train,test}_{X,y}.npy`` and optionally ``{train,test}_text.txt``, one per line."""
    check_inside(folder, [name for name in NPY_FILES if (folder / name).is_symlink()])
    return stack_splits(_read_npy_part(folder, "train"), _read_npy_part(folder, "test"))


def _read_npy_part(folder: Path, part: str) -> RawItems:
    items = read_npy_pair(folder / f"{part}_X.npy")
    path = folder / f"{part}_text.txt"
    if not path.exists():
        other = next(folder.glob("*_text.txt"), None)
        if other is None:
            return items
        raise FileNotFoundError(f"{path} is missing, while {other.name} exists.")
    lines = read_text(path).removesuffix("\n").split("\n")
    if len(lines) != len(items.items):
        raise ValueError(
            f"{path}: must contain {len(items.items)} lines, one per row; got {len(lines)}."
        )
    return items._replace(texts=np.array(lines, dtype=object))


def _checked(
    path: Path,
    items: npt.NDArray[Any],
    y: npt.NDArray[Any],
    test: Any,
    names: tuple[str, str] = ("X", "y"),
    *,
    labels: Path | None = None,
) -> RawItems:
    """Check arrays against each other; texts may be the samples."""
    holds_texts = items.ndim == 1 and items.dtype.kind == "U"
    is_numeric = items.dtype.kind in "biuf" and items.ndim > 1 and 0 not in items.shape
    if not (holds_texts or is_numeric):
        one = " Save X.reshape(-1, 1) if a sample is one number." if items.ndim == 1 else ""
        one = " Save X.astype(float) of numbers." if items.dtype.kind == "U" else one
        if items.dtype.names:
            one = " Save numpy.lib.recfunctions.structured_to_unstructured(X)."
        raise ValueError(
            f"{path}: {names[0]} must be an array of numbers (n, d) or of images (n, height, width["
            f", channels]); got shape {items.shape}, dtype {items.dtype}.{one}"
        )
    y = _as_vector(y)
    if y.dtype.names:
        raise ValueError(
            f"{labels or path}: {names[1]} must hold numbers or texts; got records of "
            f"{listed(y.dtype.names)}. Save one of these columns."
        )
    if y.ndim != 1 or len(y) != len(items):
        raise ValueError(
            f"{labels or path}: {names[1]} must have {len(items)} labels, one per row; got shape "
            f"{y.shape}.{_way_out(items.shape, y.shape, *names, in_matlab=path.suffix == '.mat')}"
        )
    if test is not None and (test.dtype != bool or test.shape != y.shape):
        booleans = "test == 1" if test.shape == y.shape else "a mask, not the numbers of rows"
        raise ValueError(
            f"{path}: test must have {len(items)} booleans, one per row; "
            f"got shape {test.shape}, dtype {test.dtype}. Save booleans: {booleans}."
        )
    size = " x ".join(f"{length:,}" for length in items.shape)
    summary = Summary(str(path), {"samples": f"array {names[0]}, {size}"})
    if holds_texts:
        return RawItems(None, y, test, texts=items.astype(object), summary=summary)
    if items.dtype.kind == "f":
        check_finite(items.reshape(len(items), -1), str(path), names[0])
    if sum(length > 1 for length in items.shape[1:]) < 2:  # a vector, as (1, d) and (d, 1, 1) are
        items = items.reshape(len(items), -1)
    if has_channels_first(items.shape[1:]):
        items = np.moveaxis(items, 1, -1)
    return RawItems(items, y, test, summary=summary)


def _way_out(
    X_shape: tuple[int, ...], y_shape: tuple[int, ...], X: str, y: str, *, in_matlab: bool
) -> str:
    """Tell how to save labels, or samples, of shapes that do not fit."""
    n_long = sum(length > 1 for length in X_shape)
    if y_shape == X_shape[-1:]:
        return f" Save {X}.T." if n_long <= 2 else f" Save np.moveaxis({X}, -1, 0)."
    if 1 < len(y_shape) < len(X_shape) and y_shape == X_shape[: len(y_shape)]:
        columns = f"{X}.reshape(-1, {X}.shape[-1])", f"{y}.ravel()"
        if in_matlab:
            columns = f"reshape({X}, [], size({X}, ndims({X})))", f"{y}(:)"
        return f" If each pixel is a sample, save {' and '.join(columns)}."
    for n in (X_shape[0], X_shape[-1]):
        if len(y_shape) == 2 and n in y_shape:
            axis = 1 - y_shape.index(n)
            code = f"[~, y] = max({y}, [], {axis + 1})" if in_matlab else f"{y}.argmax(axis={axis})"
            return f" If they are one-hot, save {code}."
    return ""
