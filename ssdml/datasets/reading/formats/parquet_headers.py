"""Headers of Parquet: where the pages of each column are, and how long.

The headers [1]_ are structs in Thrift's compact protocol [2]_. pyarrow would tell the same of the
footer, but ends the process where statistics in it contradict each other.

References
----------
.. [1] Apache Parquet, ``parquet.thrift``.
.. [2] Apache Thrift, "Thrift compact protocol encoding".
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

PARQUET_MAGIC = b"PAR1"
PARQUET_END = struct.Struct(f"<I{len(PARQUET_MAGIC)}s")


class Chunk(NamedTuple):
    """First byte of the pages of one column in one row group, and one past the last."""

    start: int
    end: int


class Page(NamedTuple):
    """Size and encoding of a page, by its header."""

    n_bytes: int  # uncompressed
    n_values: int
    encoding: int | None


def column_chunks(file: BinaryIO) -> list[list[Chunk]]:
    """Read the footer of a file: the chunks of each row group.

    Raises
    ------
    ValueError
        If it is damaged.

    Examples
    --------
    >>> import io
    >>> import pyarrow as pa
    >>> from pyarrow import parquet
    >>> file = io.BytesIO()
    >>> parquet.write_table(pa.table({"a": [1.5, 2.5, 2.5]}), file, compression="none")
    >>> [[chunk]] = column_chunks(file)
    >>> list(pages(file, chunk))
    [Page(n_bytes=16, n_values=2, encoding=0), Page(n_bytes=9, n_values=3, encoding=8)]
    """
    size = file.seek(0, 2)
    file.seek(max(size - PARQUET_END.size, 0))
    tail = file.read()
    length, magic = PARQUET_END.unpack(tail) if len(tail) == PARQUET_END.size else (0, b"")
    if magic != PARQUET_MAGIC or length > size - PARQUET_END.size:
        raise ValueError("it has no footer")
    file.seek(size - PARQUET_END.size - length)
    footer = _thrift_struct(io.BytesIO(file.read(length)))
    return [[_chunk(entry) for entry in _list_of(group, 1)] for group in _list_of(footer, 4)]


def _chunk(entry: Any) -> Chunk:
    metadata = _field_of(entry, 3, dict)
    start = _field_of(metadata, 9, int)
    dictionary = metadata.get(11)
    if isinstance(dictionary, int) and dictionary > 0 and not 0 < start <= dictionary:
        start = dictionary  # without rows there is no other page, and start is 0
    return Chunk(start, start + _field_of(metadata, 7, int))


def pages(file: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """Read the headers of the pages of a chunk, not their content.

    Raises ValueError if they are damaged.
    """
    at = chunk.start
    while at < chunk.end:
        file.seek(at)
        header = _thrift_struct(file)
        found = next((number for number in (5, 7, 8) if number in header), None)
        of_data = {} if found is None else _field_of(header, found, dict)
        n_bytes, compressed = (_field_of(header, number, int) for number in (2, 3))
        n_values = _field_of(of_data, 1, int) if of_data else 0
        if min(n_bytes, compressed, n_values) < 0:
            raise ValueError(f"the page at byte {at} has a negative size")
        yield Page(n_bytes, n_values, of_data.get(4 if found == 8 else 2))
        at = file.tell() + compressed


def _field_of(fields: Any, number: int, kind: type) -> Any:
    value = fields.get(number) if isinstance(fields, dict) else None
    if not isinstance(value, kind):
        raise ValueError(f"a header lacks the field {number}")
    return value


def _list_of(fields: Any, number: int) -> list[Any]:
    return list(_field_of(fields, number, list))


def _thrift_struct(file: BinaryIO) -> dict[int, Any]:
    """Read integers, lists and structs by the number of their field; others are None."""
    fields: dict[int, Any] = {}
    number = 0
    while head := _byte(file):
        number = number + (head >> 4) if head >> 4 else _zigzag(file)
        is_boolean = head & 15 in (1, 2)  # which has no bytes of its own
        fields[number] = None if is_boolean else _thrift_value(file, head & 15)
    return fields


def _thrift_value(file: BinaryIO, kind: int) -> Any:
    if kind in (1, 2, 3):
        return _byte(file)
    if kind in (4, 5, 6):
        return _zigzag(file)
    if kind in (7, 8):  # a floating-point number, text
        file.seek(8 if kind == 7 else _varint(file), 1)
        return None
    if kind in (9, 10):  # a list, a set
        head = _byte(file)
        length = head >> 4 if head >> 4 < 15 else _varint(file)
        return [_thrift_value(file, head & 15) for _ in range(length)]
    if kind == 12:
        return _thrift_struct(file)
    raise ValueError(f"a header has a field of kind {kind}")


def _zigzag(file: BinaryIO) -> int:
    number = _varint(file)
    return number >> 1 ^ -(number & 1)


def _varint(file: BinaryIO) -> int:
    number = 0
    for shift in range(0, 64, 7):
        part = _byte(file)
        number |= (part & 127) << shift
        if part < 128:
            return number
    raise ValueError("a header has a number of more than 64 bits")


def _byte(file: BinaryIO) -> int:
    found = file.read(1)
    if not found:
        raise ValueError("a header is cut off")
    return found[0]
