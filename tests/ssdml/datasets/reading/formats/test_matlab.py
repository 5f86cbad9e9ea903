"""Reader of MATLAB 5 files, compared with SciPy's on files that are whole."""

from __future__ import annotations

import re
import struct
import time
import zlib

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from ssdml.datasets.reading.formats.matlab import Unread, read_mat

TABLE = np.empty((1, 3), dtype=[("fname", object), ("class", object)])
TABLE["fname"][0] = ["a.jpg", "bb.jpg", "ccc.jpg"]
TABLE["class"][0] = [1, 196, 3]
CONTENT = {
    "text": "Rolls-Royce é",
    "names": np.array(["one", "", "three"], dtype=object),
    "number": 2.5,
    "count": 7,
    "row": np.arange(12.0),
    "bytes": np.arange(300, dtype=np.uint8),
    "none": np.zeros((0, 0)),
    "table": TABLE,
}


@pytest.mark.parametrize("compressed", [False, True])
def test_every_kind_of_value_is_read(tmp_path, compressed):
    path = tmp_path / "x.mat"
    savemat(path, CONTENT, do_compression=compressed)
    found = read_mat(path, *CONTENT)
    of_scipy = loadmat(path)
    for name in ("row", "bytes", "none", "number", "count"):
        np.testing.assert_array_equal(found[name], of_scipy[name])
    assert found["text"] == of_scipy["text"].item()
    assert found["names"] == ["one", "", "three"]
    assert found["table"] == {"fname": TABLE["fname"][0].tolist(), "class": [1, 196, 3]}


def test_big_endian_file_is_read(tmp_path):
    header = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x01\x00MI"
    body = struct.pack(">IIII", 6, 8, 6, 0) + struct.pack(">IIii", 5, 8, 1, 1)
    body += struct.pack(">HH4s", 1, 1, b"x\0\0\0") + struct.pack(">IId", 9, 8, 2.5)
    (tmp_path / "x.mat").write_bytes(header + struct.pack(">II", 14, len(body)) + body)
    assert loadmat(tmp_path / "x.mat", squeeze_me=True)["x"] == 2.5
    assert read_mat(tmp_path / "x.mat", "x") == {"x": 2.5}


def little(kind, body):
    return struct.pack("<II", kind, len(body)) + body + b"\0" * (-len(body) % 8)


def matrix(kind, shape, *parts, name=b"x"):
    head = little(6, struct.pack("<II", kind, 0)) + little(
        5, struct.pack(f"<{len(shape)}i", *shape)
    )
    return little(14, head + little(1, name) + b"".join(parts))


def mat(*elements):
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(elements)


def nested(depth):
    inside = matrix(6, (1, 1), little(9, bytes(8)), name=b"")
    for _ in range(depth):
        inside = matrix(1, (1, 1), inside, name=b"")
    return matrix(1, (1, 1), inside)


HUGE = 2**31 - 1
UNREAD = {
    "a sparse matrix": matrix(5, (1, 1), little(9, bytes(8))),
    "an object": matrix(3, (1, 1), little(9, bytes(8))),
    "a function": matrix(16, (1, 1), little(9, bytes(8))),
    "complex numbers": matrix(0x806, (1, 1), little(9, bytes(8)), little(9, bytes(8))),
}
HOSTILE = {
    "a size beyond the end": mat(struct.pack("<II", 14, 2**31) + bytes(16)),
    "more numbers than bytes": mat(matrix(6, (HUGE, HUGE), little(9, bytes(8)))),
    "more cells than bytes": mat(matrix(1, (HUGE, HUGE))),
    "more structures than bytes": mat(
        matrix(2, (HUGE, HUGE), little(5, struct.pack("<i", 8)), little(1, b"field\0\0\0"))
    ),
    "structures without fields": mat(
        matrix(2, (HUGE, 1), little(5, struct.pack("<i", 8)), little(1, b""))
    ),
    "names of no length": mat(
        matrix(2, (1, 1), little(5, struct.pack("<i", 0)), little(1, b"field\0\0\0"))
    ),
    "a negative shape": mat(matrix(6, (-1, -1), little(9, bytes(8)))),
    "an unknown class": mat(matrix(99, (1, 1), little(9, bytes(8)))),
    "an unknown type": mat(matrix(6, (1, 1), little(99, bytes(8)))),
    "an object without a class": mat(little(14, little(6, struct.pack("<II", 17, 0)))),
    "text of an unknown type": mat(matrix(4, (1, 1), little(9, bytes(8)))),
    "text of half a character": mat(matrix(4, (1, 1), little(4, b"a"))),
    "cells of numbers": mat(matrix(1, (1, 1), little(9, bytes(8)))),
    "deep cells": mat(nested(2000)),
    "no arrays": mat(little(14, b"\0" * 7)),
    "a small element of 9 bytes": mat(struct.pack("<HHI", 14, 9, 0)),
    "a damaged stream": mat(struct.pack("<II", 15, 20) + zlib.compress(bytes(100))[:15] + bytes(5)),
    "a header alone": mat(),
    "rows of too few characters": mat(matrix(4, (2, 2), little(4, b"a\0b\0"))),
    "no byte order": b"MATLAB 5.0 MAT-file".ljust(128) + bytes(8),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file_is_refused_by_name(tmp_path, case):
    path = tmp_path / "x.mat"
    path.write_bytes(HOSTILE[case])
    start = time.perf_counter()
    with pytest.raises(ValueError, match=re.escape(f"{path}: damaged, or not a MATLAB file (")):
        read_mat(path, "x")
    assert time.perf_counter() - start < 2


def test_compressed_zeros_are_refused_by_their_size(tmp_path):
    inside = struct.pack("<II", 14, 2 * 10**9)
    stream = zlib.compress(inside + bytes(10**6))
    (tmp_path / "x.mat").write_bytes(mat(struct.pack("<II", 15, len(stream)) + stream))
    with pytest.raises(ValueError, match=r"x\.mat: takes 16\.0 GB in memory"):
        read_mat(tmp_path / "x.mat", "x")


@pytest.mark.parametrize("kind", UNREAD)
def test_other_kinds_are_refused_if_they_are_asked_for(tmp_path, kind):
    path = tmp_path / "x.mat"
    rest = matrix(6, (1, 1), little(9, struct.pack("<d", 2)), name=b"y")
    path.write_bytes(mat(UNREAD[kind], rest))
    assert read_mat(path) == {"x": Unread(kind), "y": 2}
    assert read_mat(path, "y") == {"y": 2}
    with pytest.raises(ValueError, match=rf"x\.mat: x must be .*; got {kind}\. In "):
        read_mat(path, "x")


def test_objects_are_named_with_their_class(tmp_path):
    path = tmp_path / "x.mat"
    names = [little(1, text) for text in (b"x", b"MCOS", b"categorical")]
    numbers = matrix(13, (2, 1), little(6, struct.pack("<II", 1, 2)), name=b"")
    opaque = little(14, b"".join([little(6, struct.pack("<II", 17, 0)), *names, numbers]))
    path.write_bytes(mat(opaque, numbers))  # the last holds the objects
    assert read_mat(path) == {"x": Unread("an object of class categorical")}
    with pytest.raises(ValueError, match=r"x must .* categorical\. In MATLAB, save cellstr\(x\)"):
        read_mat(path, "x")


def test_rows_of_characters_are_texts(tmp_path):
    savemat(tmp_path / "x.mat", {"x": np.array(["ab ", "\u00e9", "cde"])})
    assert read_mat(tmp_path / "x.mat", "x") == {"x": ["ab", "\u00e9", "cde"]}


def test_numbers_keep_their_shape_and_class(tmp_path, rng):
    arrays = {
        "pictures": rng.integers(0, 256, (2, 3, 4), dtype=np.uint8),
        "wide": rng.normal(size=(2, 5)),
        "whole": np.arange(6.0).reshape(3, 2),  # stored in bytes
        "single": np.ones((2, 2), np.float32),
        "mask": np.array([[True, False], [False, True]]),
    }
    savemat(tmp_path / "x.mat", arrays)
    for name, array in read_mat(tmp_path / "x.mat").items():
        np.testing.assert_array_equal(array, arrays[name], strict=True)


@pytest.mark.parametrize(
    "start", [b"MATLAB 7.3 MAT-file", b"\x89HDF\r\n", b"\0\0\0\0", b"\x32\0\0\0", b"\0\0\3\xe8"]
)
def test_other_versions_say_how_to_save(tmp_path, start):
    (tmp_path / "x.mat").write_bytes(start.ljust(512))
    with pytest.raises(ValueError, match=r"x\.mat: must be a MATLAB 5 file; .*, save it by -v7"):
        read_mat(tmp_path / "x.mat", "x")


def test_missing_variable_and_file_are_named(tmp_path):
    savemat(tmp_path / "x.mat", {"a": 1})
    with pytest.raises(ValueError, match=r"x\.mat: must contain a, b; b is missing"):
        read_mat(tmp_path / "x.mat", "a", "b")
    with pytest.raises(FileNotFoundError, match=r"y\.mat is missing"):
        read_mat(tmp_path / "y.mat", "a")
