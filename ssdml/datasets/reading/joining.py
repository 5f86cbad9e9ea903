"""Join the tables of a folder, such as training and test rows, below each other."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

from ssdml.datasets.reading.summary import counted, listed
from ssdml.datasets.reading.table import LABEL_NAMES, Table, folded, names_labels

MOST_COMPARED = 10  # columns of rows that may be copies
LABELS = re.compile(r"(.*[_\-. ])?(y|labels?|targets?)([_\-. ].*)?", re.IGNORECASE)  # of files

Part = tuple[str | None, Table]  # rows of one split, None if none is named


def joined(folder: Path, parts: list[Part]) -> Table:
    """Put tables below each other, with the split of each row in a column.

    Raises
    ------
    ValueError
        If they differ in most columns, or share most rows.
    """
    import pyarrow as pa

    parts = _spelled_alike(parts)
    _check_alike(folder, parts)
    _refuse_copies(folder, [table for _, table in parts])
    tables, has_splits = [], len({split for split, _ in parts}) > 1
    for split, table in parts:
        columns = table.columns
        if has_splits and "split" not in columns.column_names:
            splits = pa.array([split or "train"] * len(columns))
            columns = columns.append_column("split", splits)
        tables.append(columns)
    try:
        columns = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(
            f"{folder}: its tables must have the same columns ({error}). Name one file."
        ) from error
    starts = [0, *accumulate(map(len, tables))]

    def place(row: int) -> str:
        number = bisect_right(starts, row) - 1
        _, table = parts[number]
        return f"{table.place(row - starts[number])} of {table.path}"

    _, first = parts[0]
    names = listed([table.path.name for _, table in parts])
    notes = (f"{counted(len(parts), 'table')}: {names}",)
    doubts = tuple(f"{t.path.name}: {doubt}" for _, t in parts for doubt in t.doubts)
    return replace(
        first,
        path=folder,
        columns=columns,
        place=place,
        notes=notes,
        doubts=doubts,
        starts=tuple(starts[1:-1]),
    )


def _check_alike(folder: Path, parts: list[Part]) -> None:
    """Raise ValueError if a table lacks most columns of the others, but for labels.

    So does a file of labels alone, such as y_train.txt beside X_train.txt.
    """
    alone = [
        t.path for _, t in parts if t.columns.num_columns == 1 and LABELS.fullmatch(t.path.stem)
    ]
    if 0 < len(alone) < len(parts):
        raise ValueError(
            f"{folder}: its tables must have their labels in a column; {alone[0]} seems to hold "
            "those of another table. Write them into it: frame['label'] = labels."
        )
    labels = [[n for n in t.columns.column_names if folded(n) in LABEL_NAMES] for _, t in parts]
    for one, other in pairwise(filter(None, labels)):
        if {*one}.isdisjoint(other):
            raise ValueError(
                f"{folder}: its tables must name the labels alike; got {one[0]!r} and "
                f"{other[0]!r}. Rename one of these columns."
            )
    columns = [{n for n in t.columns.column_names if not names_labels(n)} for _, t in parts]
    every = set().union(*columns)
    for (_, table), own in zip(parts, columns, strict=True):
        others = [names for names in columns if names is not own]
        if 2 * len(own) < len(every) or (own and others and own.isdisjoint(set().union(*others))):
            raise ValueError(
                f"{folder}: its tables must have the same columns; {table.path} lacks "
                f"{listed(sorted(every - own))}. Name one file, or join the tables by their ids."
            )


def _spelled_alike(parts: list[Part]) -> list[Part]:
    """Write the names of columns in the case that is first, unless a table has both.

    Examples
    --------
    >>> import pyarrow as pa
    >>> tables = [pa.table({name: [1]}) for name in ("Id", "id")]
    >>> parts = [(None, Table(Path("t.csv"), table, str)) for table in tables]
    >>> [table.columns.column_names for _, table in _spelled_alike(parts)]
    [['Id'], ['Id']]
    """
    counts = [Counter(map(folded, table.columns.column_names)) for _, table in parts]
    first: dict[str, str] = {}
    alike = []
    for split, table in parts:
        names = table.columns.column_names
        for number, name in enumerate(names):
            if all(count[folded(name)] < 2 for count in counts):
                names[number] = first.setdefault(folded(name), name)
        alike.append((split, replace(table, columns=table.columns.rename_columns(names))))
    return alike


def _refuse_copies(folder: Path, tables: list[Table]) -> None:
    """Raise ValueError if most rows of a table are in another one, as in those of several folds.

    Rows of few values may occur again by chance, so that only equal tables of them are copies.
    """
    alike = set.intersection(*({*table.columns.column_names} for table in tables))
    names = [name for name in tables[0].columns.column_names if name in alike]
    first: dict[int, int] = {}  # the number of the table where each row is first
    n_distinct: list[int] = []
    for number, table in enumerate(tables):
        rows = _hashed_rows(table, names)
        n_distinct.append(len(rows))
        again = Counter(first.setdefault(row, number) for row in rows)
        for other in again.keys() - {number}:
            n_fewest = min(n_distinct[other], len(rows))
            are_distinct = 2 * n_fewest > min(len(tables[other]), len(table))
            is_copy = len(table) > 1 and table.columns.equals(tables[other].columns)
            is_copy |= are_distinct and 2 * again[other] > n_fewest
            own = [{*t.columns.column_names} - alike for t in (tables[other], table)]
            if is_copy and all(own):
                raise ValueError(
                    f"{folder}: its tables must have the same columns; {tables[other].path} and "
                    f"{table.path} have rows of the same {listed(names)}, and other columns. Join "
                    "them: frame.merge(other)."
                )
            if is_copy:
                raise ValueError(
                    f"{folder}: its tables must differ; {again[other]:,} rows of {table.path} are "
                    f"in {tables[other].path}. Name one file, or remove the copy; of several "
                    "folds, keep one in the folder."
                )


def _hashed_rows(table: Table, names: Sequence[str]) -> set[int]:
    """Hash some cells of each row, none of lists or bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = []
    for name in names[:: len(names) // MOST_COMPARED + 1]:
        with suppress(pa.ArrowException):
            cells.append(table.columns[name].cast(pa.large_string()))
    if not cells:
        return set()
    between = pa.scalar("\x1f", pa.large_string())
    texts = pc.binary_join_element_wise(*cells, between, null_handling="replace")
    return set(map(hash, texts.to_pylist()))
