"""Tables of Apache Arrow: Parquet, and Feather and Arrow's own files and streams.

Both formats can state much in few bytes: one text that a million rows share, lengths without data,
or compressed zeros. So texts are read as codes of a dictionary, pages and compressed buffers are
asked how long they are, and what the columns will take is computed before they are decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ssdml.datasets.reading.formats.parquet_headers import column_chunks, pages
from ssdml.datasets.reading.table import Table, distinct
from ssdml.utils.files import (
    VALUE_BYTES,
    check_memory,
    check_regular,
    open_regular,
    parse_json,
    refuse_damage,
)

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = (".parquet", ".pq")
ARROW = (".feather", ".arrow", ".ipc")
HUGGING_FACE, PANDAS = b"huggingface", b"pandas"
MAGIC = b"ARROW1"  # begins and ends a file, not a stream
READ_ROWS = 2**16
MOST_IN_BATCH = 10**8  # bytes that values may take before they are counted
TEXTS = ("STRING", "NONE")  # logical types that Arrow reads as codes of a dictionary ...
DELTAS = {6, 7}  # ... but not from these encodings, DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY


def read_arrow(path: Path, on_disk: int | None = None) -> Table:
    """Read Parquet, Feather, or a file or stream of Arrow.

    Parameters
    ----------
    path : Path
    on_disk : int, optional
        Bytes on disk, by default of this file; it limits the memory.

    Raises
    ------
    ValueError
        If the file is damaged, holds no rows, or would take too much memory.
    """
    on_disk = on_disk or check_regular(path)
    with refuse_damage(path, "Write it again."), open_regular(path) as file:
        is_parquet = path.suffix.lower() in PARQUET
        columns = (_parquet if is_parquet else _arrow)(path, file, on_disk)
        columns.validate(full=True)  # offsets of a forged file may point anywhere
        columns = _with_texts(columns)
        names = _class_names(columns)
    if not len(columns):
        raise ValueError(f"{path}: must contain rows; got none.")
    index = _index(columns)
    columns = columns.rename_columns(distinct(columns.column_names))
    return Table(path, columns, lambda row: f"row {row}", index=index, class_names=names)


def _parquet(path: Path, file: Any, on_disk: int) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    metadata = parquet.read_metadata(file)
    groups = column_chunks(file)
    stated, coded, rows = VALUE_BYTES * metadata.num_rows, [], READ_ROWS
    for j in range(metadata.num_columns):
        leaf = metadata.schema.column(j)
        is_bytes = leaf.physical_type == "BYTE_ARRAY"
        width = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
        n_values, largest, encodings = 0, 0, set()
        for page in chain.from_iterable(pages(file, chunks[j]) for chunks in groups):
            stated += page.n_bytes
            n_values += page.n_values
            largest = max(largest, page.n_bytes)
            encodings.add(page.encoding)
        if is_bytes and leaf.logical_type.type in TEXTS and encodings.isdisjoint(DELTAS):
            coded.append(leaf.path)
        elif is_bytes and leaf.max_repetition_level:  # a row may have any number of values
            width = largest
        elif is_bytes:
            rows = min(rows, MOST_IN_BATCH // max(largest, 1) or 1)
        stated += max(width, VALUE_BYTES) * n_values
        check_memory(path, stated, on_disk)
    source = parquet.ParquetFile(file, read_dictionary=coded)
    batches, n_bytes = [], 0
    for group in range(len(groups)):  # one dictionary each
        for batch in source.iter_batches(rows, row_groups=[group]):
            n_bytes += _batch_bytes(batch)
            check_memory(path, n_bytes, on_disk)
            batches.append(batch)
    found = pa.Table.from_batches(batches, source.schema_arrow)
    plain = parquet.ParquetFile(file).schema_arrow
    columns = [  # Arrow damages slices of structs with null children if it casts all
        column if column.type == field.type else column.cast(_uncoded(field.type))
        for column, field in zip(found.columns, plain, strict=True)
    ]
    return pa.table(columns, plain.names, metadata=plain.metadata)


def _uncoded(kind: pa.DataType) -> pa.DataType:
    """Return a type that codes of a dictionary can be cast to; views are none."""
    import pyarrow as pa

    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _arrow(path: Path, file: Any, on_disk: int) -> pa.Table:
    """Read a stream, or a file, whose footer says where its batches are."""
    import pyarrow as pa
    from pyarrow import ipc

    is_file = file.read(len(MAGIC)) == MAGIC
    file.seek(0)
    stated = 0
    for message in _in_file(file) if is_file else ipc.MessageReader.open_stream(file):
        stated += sum(_uncompressed(message))
        check_memory(path, stated, on_disk)
    file.seek(0)
    batches, n_bytes = [], 0
    with ipc.open_file(file) if is_file else ipc.open_stream(file) as stream:
        numbers = range(stream.num_record_batches) if is_file else ()
        for batch in map(stream.get_batch, numbers) if is_file else stream:
            batch.validate()  # not of the values yet, of which there may be too many
            n_bytes += _batch_bytes(batch)
            check_memory(path, n_bytes, on_disk)
            batches.append(batch)
        return pa.Table.from_batches(batches, stream.schema)


def _with_texts(columns: pa.Table) -> pa.Table:
    """Read bytes in UTF-8 without zero bytes as texts, as Impala and others write them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = (pa.binary(), pa.large_binary(), pa.binary_view())
    for j, (name, column) in enumerate(zip(columns.column_names, columns.columns, strict=True)):
        kind = column.type
        if (kind.value_type if pa.types.is_dictionary(kind) else kind) in types:
            plain = column.cast(pa.large_binary())
            with suppress(pa.ArrowInvalid):  # not in UTF-8, as the bytes of images
                text = plain.cast(pa.large_string())
                if not pc.any(pc.match_substring(text, "\0")).as_py():
                    plain = text
            columns = columns.set_column(j, name, plain)
    return columns


def _in_file(file: Any) -> Iterator[Any]:
    """Read the messages of dictionaries and batches, which a footer lists."""
    from pyarrow import ipc

    end = struct.Struct(f"<i{len(MAGIC)}s")
    file.seek(-end.size, 2)
    length, _ = end.unpack(file.read(end.size))
    file.seek(-end.size - length, 2)
    footer = _Flat(file.read(length))
    for field in (2, 3):
        for offset, *_ in footer.structs(field, "<q2iq"):
            file.seek(offset)
            yield ipc.read_message(file)


def _batch_bytes(batch: pa.RecordBatch) -> int:
    n_bytes = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            n_bytes += decoded_bytes(column)
        except ValueError as error:
            raise ValueError(f"{error}, in column {name!r}; convert or drop it") from error
    return n_bytes


def decoded_bytes(array: pa.Array) -> int:
    """Bytes of an array once each value is written out: codes of a dictionary, views, no data.

    Examples
    --------
    >>> import pyarrow as pa
    >>> decoded_bytes(pa.array(["long text"] * 3).dictionary_encode())
    51
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    types, kind, least = pa.types, array.type, VALUE_BYTES * len(array)
    if isinstance(kind, pa.BaseExtensionType):
        return decoded_bytes(array.storage)
    if types.is_dictionary(kind):
        lengths = _lengths(array.dictionary)
        codes = np.asarray(pc.fill_null(array.indices, 0)) if len(lengths) else 0
        return least + int(np.sum(lengths[codes])) if len(lengths) else least
    if types.is_struct(kind):
        return least + sum(decoded_bytes(array.field(i)) for i in range(kind.num_fields))
    if types.is_fixed_size_list(kind):
        return least + decoded_bytes(array.flatten())
    if types.is_list(kind) or types.is_large_list(kind):
        first, last = (array.offsets[i].as_py() for i in (0, -1)) if len(array) else (0, 0)
        return least + decoded_bytes(array.values.slice(first, last - first))
    if _is_text(kind):
        return least + int(_lengths(array).sum())
    if types.is_nested(kind) or types.is_run_end_encoded(kind):
        raise ValueError(f"a column has the type {kind}, which is not read")
    return max(least, array.nbytes)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    views = types.is_string_view(kind) or types.is_binary_view(kind)
    plain = types.is_string(kind) or types.is_binary(kind)
    return bool(views or plain or types.is_large_string(kind) or types.is_large_binary(kind))


def _lengths(values: pa.Array) -> Any:
    """Return the bytes of each value, (n,)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if not _is_text(kind):
        if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
            raise ValueError(f"a dictionary has values of the type {kind}, which is not read")
        return np.zeros(len(values), dtype=np.int64)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(values.buffers()[1], dtype=np.int32)[::4]
        return views[values.offset : values.offset + len(values)].clip(0).astype(np.int64)
    return np.asarray(pc.fill_null(pc.binary_length(values), 0), dtype=np.int64).clip(0)


def _uncompressed(message: Any) -> Iterator[int]:
    """Bytes that each compressed buffer of a message states; Arrow would allocate them first."""
    if message.type not in ("record batch", "dictionary"):
        return
    body, header = message.body, _Flat(message.metadata.to_pybytes())
    batch = header.table(2)
    if message.type == "dictionary":
        batch = batch.table(1)
    if not batch.has(3):  # no compression
        return
    for offset, length in batch.structs(2, "<qq"):
        if length >= VALUE_BYTES:
            (stated,) = struct.unpack_from("<q", body, offset)
            yield max(stated, 0)


class _Flat:
    """A table of a FlatBuffer, whose fields have numbers."""

    def __init__(self, content: bytes, start: int | None = None) -> None:
        self._content = content
        self._start = self._integer("<I", 0) if start is None else start
        self._fields = self._start - self._integer("<i", self._start)

    def _integer(self, kind: str, place: int) -> int:
        return int(struct.unpack_from(kind, self._content, place)[0])

    def _place(self, field: int) -> int:
        """Return where a field is; 0 if it is not there."""
        at = 4 + 2 * field
        if at >= self._integer("<H", self._fields):
            return 0
        offset = self._integer("<H", self._fields + at)
        return self._start + offset if offset else 0

    def has(self, field: int) -> bool:
        return self._place(field) > 0

    def table(self, field: int) -> _Flat:
        place = self._place(field)
        return _Flat(self._content, place + self._integer("<I", place))

    def structs(self, field: int, form: str) -> Iterator[tuple[int, ...]]:
        """Read a vector of structs; none if the field is missing."""
        place = self._place(field)
        if not place:
            return
        place += self._integer("<I", place)
        for i in range(self._integer("<I", place)):
            yield struct.unpack_from(form, self._content, place + 4 + struct.calcsize(form) * i)


def _index(columns: pa.Table) -> tuple[str, ...]:
    """Return the columns that were the index of a pandas DataFrame."""
    found = _described(columns, PANDAS).get("index_columns", [])
    return tuple(n for n in found if isinstance(n, str)) if isinstance(found, list) else ()


def _class_names(columns: pa.Table) -> dict[str, list[str]]:
    return class_names(_described(columns, HUGGING_FACE).get("info", {}))


def class_names(info: Any) -> dict[str, list[str]]:
    """Return the names of the classes in Hugging Face's description of a data set, by column.

    A column may hold classes, or lists of them.

    Examples
    --------
    >>> class_names({"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}})
    {'label': ['cat', 'dog']}
    """
    features = info.get("features") if isinstance(info, dict) else None
    found: dict[str, list[str]] = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        inner = feature
        while isinstance(inner, list) or (isinstance(inner, dict) and "feature" in inner):
            inner = inner["feature"] if isinstance(inner, dict) else next(iter(inner), None)
        names = inner.get("names") if isinstance(inner, dict) else None
        if names and isinstance(names, list):
            found[name] = list(map(str, names))
    return found


def _described(columns: pa.Table, name: bytes) -> dict[str, Any]:
    """Return what pandas or Hugging Face wrote beside the columns, if it can be read."""
    try:
        content = parse_json((columns.schema.metadata or {}).get(name, b"{}"))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
