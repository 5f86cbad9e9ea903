"""Text below lines with @: ARFF of Weka and OpenML [1]_, and series of the UCR archive [2]_.

References
----------
.. [1] Weka manual, "Attribute-Relation File Format (ARFF)".
.. [2] Dau et al., "The UCR time series archive", IEEE/CAA Journal of Automatica Sinica 2019; its
   files that end in .ts.
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

AT_LINES = re.compile(rb"(?:\s|[%#][^\n]*\n)*+@(?:relation|problemname)\s", re.IGNORECASE)
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
ATTRIBUTE = re.compile(rf"^[ \t]*@attribute\s+({QUOTED}|\S+)", re.IGNORECASE | re.MULTILINE)
RELATIONAL = re.compile(rf"{ATTRIBUTE.pattern}\s+relational\b", ATTRIBUTE.flags)
DATA = re.compile(r"^[ \t]*@data[^\n]*(?:\n|\Z)", re.IGNORECASE | re.MULTILINE)
SERIES = re.compile(r"^[ \t]*@problemname\s", re.IGNORECASE | re.MULTILINE)
SERIES_LABEL = re.compile(r"^@(class|target)label\s+true\b", re.IGNORECASE | re.MULTILINE)
TIMES = re.compile(r"^@timestamps\s+true\b", re.IGNORECASE | re.MULTILINE)
CELL = re.compile(rf"\s*({QUOTED}|[^,]*?)\s*,")
ESCAPED = re.compile(r"\\(.)")
CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


def names_and_rows(path: Path, content: bytes) -> tuple[list[str], bytes, int]:
    r"""Return the names of columns, the rows as CSV, and the number of lines above them.

    Types are not used, as columns tell them. Remarks among the rows become empty lines. Series have
    a column for each time of each dimension.

    Raises
    ------
    ValueError
        If it has no attributes or rows, or sparse ones, or tables in cells; if series have time
        stamps, or not one length.

    Examples
    --------
    >>> names_and_rows(Path("t.arff"), b"@relation t\n@attribute 'a b' real\n@data\n1.5\n")
    (['a b'], b'1.5\n', 3)
    >>> names_and_rows(Path("t.ts"), b"@problemName t\n@classLabel true x y\n@data\n1.5,2:x\n")
    (['t1', 't2', 'class'], b'1.5,2,x\n', 3)
    """
    text = content.decode().replace("\r\n", "\n").replace("\r", "\n")
    data = DATA.search(text)
    rows = text[data.end() :] if data else ""
    if data is not None and SERIES.search(text, 0, data.start()):
        return _series(path, text[: data.end()], rows)
    names = ATTRIBUTE.findall(text, 0, data.start() if data else len(text))
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


def _series(path: Path, head: str, rows: str) -> tuple[list[str], bytes, int]:
    """Return the names of columns, the rows as CSV, and the number of lines above them."""
    if TIMES.search(head):
        raise ValueError(
            f"{path}: must have series without time stamps. Write values at equal times, with "
            "@timeStamps false."
        )
    label, n_above = SERIES_LABEL.search(head), head.count("\n")
    lengths, written = None, []
    for line, row in enumerate(rows.split("\n"), n_above + 1):
        is_row = row.strip() and not row.lstrip().startswith(("#", "%"))
        dimensions = row.split(":")[: -1 if label else None] if is_row else []
        found = [dimension.count(",") + 1 for dimension in dimensions]
        lengths = lengths or found
        if is_row and found != lengths:
            raise ValueError(
                f"{path}, line {line}: must have as many values in each dimension as the rows "
                f"above; got {sum(found)} after {sum(lengths)}. Bring the series to one length."
            )
        written.append(row.replace(":", ",") if is_row else "")
    if not lengths:
        raise ValueError(f"{path}: must have series below @data; got none. Write them again.")
    names = [
        f"d{d} t{t}" if len(lengths) > 1 else f"t{t}"
        for d, length in enumerate(lengths, 1)
        for t in range(1, length + 1)
    ]
    return [*names, *([label[1].lower()] if label else [])], "\n".join(written).encode(), n_above


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
