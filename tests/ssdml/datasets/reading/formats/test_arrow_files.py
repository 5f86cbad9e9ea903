"""Parquet and Arrow: what files state is checked before memory is allocated."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from ssdml.datasets.reading.formats.arrow_files import decoded_bytes, read_arrow

N = 10_000
LONG = "x" * 10_000  # in each of N rows: 100 MB
CODES = pa.DictionaryArray.from_arrays(pa.array(np.zeros(N, np.int32)), pa.array([LONG]))
LISTS = pa.ListArray.from_arrays(pa.array(np.arange(N + 1, dtype=np.int32)), CODES)
WIDE = pa.array([LONG.encode()] * N, pa.binary(len(LONG)))
PREFIXES = pa.array([f"{LONG}{i}" for i in range(N // 4)])
LISTS_OF_PREFIXES = pa.array([PREFIXES.to_pylist()])
DELTA = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}
DELTA_IN_LISTS = DELTA | {"column_encoding": {"a.list.element": "DELTA_BYTE_ARRAY"}}
NULLS = pa.Array.from_buffers(pa.null(), 2**31 - 2, [None])


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.02")


def views() -> pa.Array:
    one = pa.array([LONG], pa.string_view())
    of_all = pa.py_buffer(one.buffers()[1].to_pybytes() * N)
    return pa.Array.from_buffers(pa.string_view(), N, [None, of_all, *one.buffers()[2:]])


def write_stream(path, column, **options):
    table = pa.table({"a": column})
    with ipc.new_stream(path, table.schema, options=ipc.IpcWriteOptions(**options)) as stream:
        stream.write_table(table)


def write_file(path, column, **options):
    table = pa.table({"a": column})
    with ipc.new_file(path, table.schema, options=ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table)


def write_parquet(path, column, **options):
    parquet.write_table(pa.table({"a": column}), path, **options)


@pytest.mark.parametrize(
    ("name", "write", "column", "options"),
    [
        ("text.parquet", write_parquet, CODES, {"store_schema": False}),
        ("category.parquet", write_parquet, CODES, {}),
        ("list.parquet", write_parquet, LISTS, {}),
        ("zeros.parquet", write_parquet, np.zeros(3 * 10**6), {}),
        ("wide.parquet", write_parquet, WIDE, {"store_schema": False}),
        ("prefixes.parquet", write_parquet, PREFIXES, DELTA),
        ("lists.parquet", write_parquet, LISTS_OF_PREFIXES, DELTA_IN_LISTS),
        ("category.arrow", write_stream, CODES, {}),
        ("list.arrow", write_stream, LISTS, {}),
        ("views.arrow", write_stream, views(), {}),
        ("nulls.arrow", write_stream, NULLS, {}),
        ("zeros.arrow", write_stream, np.zeros(3 * 10**6), {"compression": "zstd"}),
        ("zeros.feather", write_file, np.zeros(3 * 10**6), {"compression": "zstd"}),
    ],
)
def test_much_from_few_bytes_is_refused(tmp_path, name, write, column, options):
    path = tmp_path / name
    write(path, column, **options)
    with pytest.raises(ValueError, match=rf"{name}: takes .* GB in memory"):
        read_arrow(path)


def varint(number: int, n_bytes: int) -> bytes:
    """Integer of Thrift's compact protocol, in at least this many bytes."""
    parts = [2 * number >> 7 * i & 127 for i in range(n_bytes)]
    return bytes([*(part | 128 for part in parts[:-1]), parts[-1]])


def test_pages_are_believed_rather_than_the_footer(tmp_path):
    path = tmp_path / "t.parquet"
    write_parquet(path, np.zeros(3 * 10**6), use_dictionary=False, compression="zstd")
    chunk = parquet.read_metadata(path).row_group(0).column(0)
    stated = varint(chunk.total_uncompressed_size, 4)
    content = path.read_bytes()
    assert stated in content
    path.write_bytes(content.replace(stated, varint(1, 4)))
    assert parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 1
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(ValueError, match=r"t\.parquet: takes .* GB in memory"):
        read_arrow(path)
    assert pa.default_memory_pool().max_memory() == before


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize(
    "encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "dictionary"]
)
def test_texts_of_each_encoding_are_read(tmp_path, version, encoding):
    named = {"use_dictionary": False, "column_encoding": {"a": encoding}}
    options = {} if encoding == "dictionary" else named
    column = pa.array(["a", None, "ab", "abc"])
    write_parquet(tmp_path / "t.parquet", column, data_page_version=version, **options)
    assert read_arrow(tmp_path / "t.parquet").columns.column(0).to_pylist() == column.to_pylist()


@pytest.mark.parametrize(
    "column",
    [
        [{"bytes": b"abc", "path": None}] * 9,  # images, as Hugging Face keeps them
        [["a", "b"], []] * 5,
        [{"x": 1.0, "y": None}] * 9,
        ["a", "b", None],
    ],
)
def test_row_groups_are_read(tmp_path, column):
    content = {"a": pa.array(column), "label": pa.array(["x"] * len(column))}
    parquet.write_table(pa.table(content), tmp_path / "t.parquet", row_group_size=4)
    read = read_arrow(tmp_path / "t.parquet").columns
    assert read.column(0).to_pylist() == column
    assert read.schema.field(0).type == content["a"].type


def test_runs_are_refused(tmp_path):
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 2], pa.int32()), pa.array(["x"]))
    write_stream(tmp_path / "runs.arrow", runs)
    with pytest.raises(ValueError, match=r"runs\.arrow: cannot be read \(a column has the type"):
        read_arrow(tmp_path / "runs.arrow")


def test_offsets_outside_of_the_data_are_refused(tmp_path):
    path = tmp_path / "t.arrow"
    write_stream(path, pa.array(["first", "second"]))
    content, offsets = path.read_bytes(), np.array([0, 5, 11], np.int32).tobytes()
    assert offsets in content
    path.write_bytes(content.replace(offsets, np.array([0, 5, 2**30], np.int32).tobytes()))
    with pytest.raises(ValueError, match=r"t\.arrow: "):
        read_arrow(path)


@pytest.mark.parametrize(
    ("array", "n_bytes"),
    [
        (pa.array([1, 2, None]), 25),
        (pa.array(["abc", None]), 19),
        (pa.array(["abc", "abc"]).dictionary_encode(), 22),
        (pa.array(["abc", None, "longer than twelve bytes"], pa.string_view()), 51),
        (pa.array([[1.0, 2.0], [], None]), 40),
        (pa.array([[1.0, 2.0], [3.0]]).slice(1), 16),
        (pa.array([{"a": 1, "b": "xyz"}]), 27),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2)), 48),
        (pa.nulls(5), 40),
    ],
)
def test_bytes_are_those_of_the_values(array, n_bytes):
    assert decoded_bytes(array) == n_bytes


@pytest.mark.parametrize("write", [write_stream, write_file, write_parquet])
def test_codes_and_lists_of_texts_are_read(tmp_path, write):
    path = tmp_path / ("t.parquet" if write is write_parquet else "t.arrow")
    for column in (CODES.slice(0, 2), LISTS.slice(0, 2), pa.array(["a", None, "a"])):
        write(path, column)
        assert read_arrow(path).columns.column(0).to_pylist() == column.to_pylist()
        assert read_arrow(path).columns.schema.field(0).type == column.type


def test_views_of_texts_are_read(tmp_path):
    texts = pa.array(["x", None, "y"]).cast(pa.string_view())
    parquet.write_table(pa.table({"a": [1.5, 2.5, 3.5], "label": texts}), tmp_path / "t.parquet")
    found = read_arrow(tmp_path / "t.parquet").columns
    assert found["label"].to_pylist() == ["x", None, "y"]
    assert found["a"].to_pylist() == [1.5, 2.5, 3.5]


def test_a_column_that_is_not_read_is_named(tmp_path):
    maps = pa.array([[("x", 1.0)]], pa.map_(pa.string(), pa.float64()))
    parquet.write_table(pa.table({"a": [1.5], "scores": maps}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"map<.*is not read, in column 'scores'; convert or drop"):
        read_arrow(tmp_path / "t.parquet")


@pytest.mark.parametrize("write", [write_parquet, write_file])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), None])
def test_bytes_in_utf8_are_texts_and_others_stay(tmp_path, write, kind):
    """Impala, Hive and older versions of Spark do not say that these are texts."""

    def read(values):
        cells = pa.array(values, kind) if kind else pa.array(values).dictionary_encode()
        path = tmp_path / ("t.arrow" if write is write_file else "t.parquet")
        write(path, cells)
        return read_arrow(path)

    assert read(["größe".encode(), None]).columns.to_pydict() == {"a": ["größe", None]}
    for content in (b"\x89PNG\r\n", b"GIF8\0\0", "größe".encode("cp1252")):
        column = read([b"text", content]).columns["a"]
        assert (column.to_pylist(), column.type) == ([b"text", content], pa.large_binary())
