"""ARFF, in which Weka and OpenML name and describe the columns above the rows [1]_.

References
----------
.. [1] Weka manual, "Attribute-Relation File Format (ARFF)".
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

ARFF = re.compile(rb"(?:\s|%[^\n]*\n)*+@relation\s", re.IGNORECASE)
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
ATTRIBUTE = re.compile(rf"^[ \t]*@attribute\s+({QUOTED}|\S+)", re.IGNORECASE | re.MULTILINE)
RELATIONAL = re.compile(rf"{ATTRIBUTE.pattern}\s+relational\b", ATTRIBUTE.flags)
DATA = re.compile(r"^[ \t]*@data[^\n]*(?:\n|\Z)", re.IGNORECASE | re.MULTILINE)
CELL = re.compile(rf"\s*({QUOTED}|[^,]*?)\s*,")
ESCAPED = re.compile(r"\\(.)")
CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


def names_and_rows(path: Path, content: bytes) -> tuple[list[str], bytes, int]:
    r"""Return the names of attributes, the rows as CSV, and the number of lines above them.

    Types are not used, as columns tell them. Remarks among the rows become empty lines.

    Raises
    ------
    ValueError
        If it has no attributes or rows, or sparse ones, or tables in cells.

    Examples
    --------
    >>> names_and_rows(Path("t.arff"), b"@relation t\n@attribute 'a b' real\n@data\n1.5\n")
    (['a b'], b'1.5\n', 3)
    """
    text = content.decode().replace("\r\n", "\n").replace("\r", "\n")
    data = DATA.search(text)
    names = ATTRIBUTE.findall(text, 0, data.start() if data else len(text))
    rows = text[data.end() :] if data else ""
    if data is None or not names or not rows.strip():
        raise ValueError(f"{path}: must have @attribute and @data lines, and rows. Write it again.")
    n_above = text.count("\n", 0, data.end())
    if (found := RELATIONAL.search(text, 0, data.start())) is not None:
        raise ValueError(
            f"{path}: must have numbers or texts; attribute {_plain(found[1])!r} holds tables of "
            "its own, as of series. Write a column for each of their numbers."
        )
    if re.search(r"^\s*\{", rows, re.MULTILINE):
        raise ValueError(
            f"{path}: must have dense rows; got sparse ones in braces. In Weka, apply the filter "
            "SparseToNonSparse, and save it again."
        )
    if re.search(r"""['"%\\]""", rows):
        rows = _as_csv(rows)
    return [_plain(name) for name in names], rows.encode(), n_above


def _as_csv(rows: str) -> str:
    """Write quotes as CSV has them, and empty lines for remarks."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    for line in rows.split("\n"):
        is_row = line.strip() and not line.lstrip().startswith("%")
        writer.writerow(list(map(_plain, CELL.findall(f"{line},"))) if is_row else [])
    return written.getvalue()


def _plain(cell: str) -> str:
    """Return a cell or name without its quotes and backslashes."""
    if cell[:1] not in ("'", '"') or cell[-1:] != cell[:1]:
        return cell
    return ESCAPED.sub(lambda found: CONTROLS.get(found[1], found[1]), cell[1:-1])
