"""Headers of Parquet files, compared with what pyarrow tells."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from ssdml.datasets.reading.formats.arrow_files import read_arrow
from ssdml.datasets.reading.formats.parquet_headers import Chunk, column_chunks, pages

TABLE = pa.table(
    {
        "numbers": np.arange(5000.0),
        "texts": [f"text {i}" for i in range(5000)],
        "lists": [["a", "b"], []] * 2500,
        "structs": [{"x": 1, "y": None}] * 5000,
    }
)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("options", [{}, {"compression": "zstd", "data_page_size": 1000}])
def test_chunks_and_pages_are_those_of_pyarrow(version, options):
    file = io.BytesIO()
    options |= {"data_page_version": version, "row_group_size": 2000}
    parquet.write_table(TABLE, file, **options)
    metadata, groups = parquet.read_metadata(file), column_chunks(file)
    assert len(groups) == metadata.num_row_groups == 3
    for i, chunks in enumerate(groups):
        assert len(chunks) == metadata.num_columns
        for j, chunk in enumerate(chunks):
            told = metadata.row_group(i).column(j)
            assert chunk.start == (told.dictionary_page_offset or told.data_page_offset)
            assert chunk.end - chunk.start == told.total_compressed_size
            found = list(pages(file, chunk))
            data = found[told.has_dictionary_page :]
            assert sum(page.n_values for page in data) == told.num_values
            headers = told.total_uncompressed_size - sum(page.n_bytes for page in found)
            assert 10 * len(found) < headers < 100 * len(found)


def written() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"a": ["x", "y"]}), file, store_schema=False)
    return file.getvalue()


@pytest.mark.parametrize("end", [0, 4, 8, 20, -1, -8])
def test_cut_files_are_refused(end):
    with pytest.raises(ValueError, match="it has no footer"):
        column_chunks(io.BytesIO(written()[:end]))


def test_a_footer_that_contradicts_itself_ends_no_process(tmp_path):
    optional, required = (b"\x25" + kind + b"\x18\x01a" for kind in (b"\x02", b"\x00"))
    content = written()
    assert content.count(optional) == 1
    (tmp_path / "t.parquet").write_bytes(content.replace(optional, required))
    with pytest.raises(ValueError, match=r"t\.parquet: cannot be read"):
        read_arrow(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"\x15", "is cut off"),
        (b"\x15\x00\x00", "lacks the field 2"),
        (b"\x25\x01\x15\x02\x00", "has a negative size"),
        (b"\x15" + b"\xff" * 11, "more than 64 bits"),
        (b"\x1b\x00", "a field of kind 11"),
        (b"\x19\xfc" + b"\xff" * 8 + b"\x01", "is cut off"),  # a list of 2^63 structs
    ],
)
def test_damaged_headers_are_refused(header, message):
    with pytest.raises(ValueError, match=message):
        list(pages(io.BytesIO(header), Chunk(0, len(header))))


def test_deep_headers_are_refused(tmp_path):
    content = written()
    path = tmp_path / "t.parquet"
    deep = b"\x1c" * 100_000
    path.write_bytes(content[:4] + deep + len(deep).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ValueError, match=r"t\.parquet: cannot be read"):
        read_arrow(path)
