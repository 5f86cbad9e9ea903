"""Kind, place and size of files, before they are read."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
import socket
import struct
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ssdml import SSDML, DeepSSDML
from ssdml.datasets import LabelScarceSplit, label_scarce_split, load_dataset
from ssdml.utils.files import (
    VARIABLE,
    check_inside,
    check_memory,
    check_npy,
    check_regular,
    check_signature,
    open_regular,
    parse_json,
    read_npz,
    read_regular,
)
from tests.deep import small_images, small_model, small_network


def test_regular_files_and_links_to_them_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "link").symlink_to("a")
    assert read_regular(tmp_path / "a") == read_regular(tmp_path / "link") == b"content"
    assert check_regular(tmp_path / "a") == 7


def excel(path):
    pd.DataFrame({"p": [1.5]}).to_excel(path.with_suffix(".xlsx"))
    path.with_suffix(".xlsx").rename(path)


def write(save, path):
    with path.open("wb") as file:
        save(file, np.eye(2))


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
DISGUISED = {
    ("t.csv", r"a zip file.* \.xlsx or"): excel,
    ("t.json", r"compressed by gzip\. Let its name end in \.gz"): (
        lambda path: path.write_bytes(gzip.compress(b"[]"))
    ),
    ("t.tsv", r"a Parquet file\. .* \.parquet"): lambda path: pd.DataFrame({"p": [1]}).to_parquet(
        path
    ),
    ("t.data", r"compressed by bzip2\. Let its name end in \.bz2"): (
        lambda path: path.write_bytes(bz2.compress(b"1"))
    ),
    ("t.dat", r"a netCDF file\. Save its"): lambda path: path.write_bytes(b"CDF\x01\0\0"),
    ("u.txt", r"a sparse matrix of Matrix Market\. Load it with scipy\.io\.mmread"): (
        lambda path: path.write_text("%%MatrixMarket matrix coordinate\n1 1 1\n1 1 5\n")
    ),
    ("v.csv", r"a file of XML\. Export its labels"): (
        lambda path: path.write_text("<?xml version='1.0'?>\n<Error>Access, denied</Error>\n")
    ),
    ("w.txt", r"a file of rich text"): lambda path: path.write_text("{\\rtf1 a, b}\n"),
    ("t.txt", r"an Arrow file"): lambda path: pd.DataFrame({"p": [1]}).to_feather(path),
    ("t.feather", r"a file of Feather 1\. Write version 2"): lambda path: path.write_bytes(
        b"FEA1\0\0\0\0\1"
    ),
    ("t.npz", r"an array of NumPy\. .* \.npy"): lambda path: write(np.save, path),
    ("t.npy", r"a zip file"): lambda path: write(np.savez, path),
    ("t.parquet", r"a pointer of Git LFS\. .*git lfs pull"): lambda path: path.write_text(POINTER),
    ("X.npy", r"a pointer of Git LFS"): lambda path: path.write_text(POINTER),
    ("u.csv", r"a web page\. Download"): lambda path: path.write_text("\n<!DOCTYPE html>\n<html>"),
    ("t.zip", r"text\. Let its name end in \.csv"): lambda path: path.write_text("p,label\n1,a\n"),
    ("t.mat", r"text\. Let its name end in \.csv"): lambda path: path.write_text(" 1.0e+00 2\n"),
    ("u.mat", r"a web page"): lambda path: path.write_text("<!DOCTYPE html>\n<html>"),
    ("t.xlsx", r"text\. Let its name end in \.csv"): lambda path: path.write_text("p,label\n1,a\n"),
}


@pytest.mark.parametrize(("name", "problem"), DISGUISED)
def test_files_of_another_kind_than_their_name_are_told(tmp_path, name, problem):
    path = tmp_path / name
    DISGUISED[name, problem](path)
    if name == "X.npy":
        np.save(tmp_path / "y.npy", np.zeros(2))
    with pytest.raises(ValueError, match=rf"{name}: must be what its name says; it is {problem}"):
        load_dataset(path)


@pytest.mark.parametrize("content", ["PAR1,label\n1,a\n", "Pk,label\n1,a\n", ""])
def test_texts_that_begin_like_other_files_pass(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_text(content)
    check_signature(path)


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


KINDS = {
    "a named pipe": make_pipe,
    "a socket": make_socket,
    "a folder": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("check", [open_regular, read_regular, check_regular])
@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_of_files_are_refused(tmp_path, monkeypatch, kind, check):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    KINDS[kind](Path("x.npy"))
    with pytest.raises(ValueError, match=rf"^x\.npy must be a regular file; got {kind}\. Copy"):
        check(Path("x.npy"))


def test_a_pipe_that_replaces_the_file_does_not_block(tmp_path, monkeypatch):
    path = tmp_path / "x"
    os.mkfifo(path)
    monkeypatch.setattr("ssdml.utils.files.check_regular", lambda path: 0)
    with pytest.raises(ValueError, match=r"x must be a regular file; got a named pipe"):
        open_regular(path)


@pytest.mark.parametrize("check", [open_regular, check_regular])
def test_missing_file_is_named(tmp_path, check):
    with pytest.raises(FileNotFoundError, match=r"x\.npy is missing"):
        check(tmp_path / "x.npy")


OUTSIDE = [
    "../secret.png",
    "a/../../secret.png",
    "a/..",
    "/etc/passwd",
    "..\\secret.png",
    "C:\\secret.png",
    "C:secret.png",
    "\\\\host\\share\\x.png",
    "a\0.png",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_outside_of_the_folder_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"names must stay inside; got .* Remove or rename it"):
        check_inside(tmp_path, ["good.png", name])


def test_names_that_no_file_can_have_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"names must be Unicode text; got 'a\\udf1c\.png'\. Rem"):
        check_inside(tmp_path, ["good.png", "a\udf1c.png"])
    check_inside(tmp_path, [os.fsdecode(b"caf\xe9.png")])


def test_links_out_of_the_folder_are_refused(tmp_path):
    folder, elsewhere = tmp_path / "data", tmp_path / "data-of-others"
    folder.mkdir()
    elsewhere.mkdir()
    (elsewhere / "secret.png").touch()
    (folder / "file.png").symlink_to(elsewhere / "secret.png")
    (folder / "folder").symlink_to(elsewhere)
    for name in ("file.png", "folder/secret.png"):
        with pytest.raises(
            ValueError, match=r"links must stay inside .*data-of-others/secret\.png"
        ):
            check_inside(folder, [name])


def test_links_inside_and_a_linked_folder_are_accepted(tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a..b.png").touch()
    (folder / "link.png").symlink_to("sub/a..b.png")
    (tmp_path / "linked").symlink_to(folder)
    for place in (folder, tmp_path / "linked"):
        check_inside(place, ["link.png", "sub/a..b.png", "./sub/a..b.png", "not there.png"])


def test_memory_is_limited_by_ratio_and_by_variable(monkeypatch):
    path = Path("x.gz")
    check_memory(path, 10**9, 0)
    check_memory(path, 5 * 10**9, 10**8)
    message = (
        r"x\.gz: takes 3\.0 GB in memory, from 18 MB on disk; at most 1\.0 GB are read\. If you "
        r"trust the file, set the environment variable SSDML_MAX_GB=4\."
    )
    with pytest.raises(ValueError, match=message):
        check_memory(path, 3 * 10**9, 18 * 10**6)
    with pytest.raises(ValueError, match=r"SSDML_MAX_GB=4 or more\."):
        check_memory(path, 3 * 10**9, 18 * 10**6, so_far=True)
    monkeypatch.setenv(VARIABLE, "4")
    check_memory(path, 3 * 10**9, 18 * 10**6)


@pytest.mark.parametrize("given", ["much", "nan", "inf"])
def test_a_wrong_limit_is_named(monkeypatch, given):
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ValueError, match=rf"SSDML_MAX_GB must be a number .*; got '{given}'"):
        check_memory(Path("x"), 1, 1)


ARRAYS = {
    "floats": np.arange(6.0).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "none": np.zeros((0, 3)),
    "one": np.array(2.5),
    "text": np.array(["a", "ß"]),
    "flags": np.array([True, False]),
}


def npy(header, content=b"", version=1):
    """A .npy file with any header."""
    text = header.encode() + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + content


def described(shape, descr="'<f8'"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


HEADERS = {
    "nothing": b"",
    "another file": b"%PDF-1.7",
    "a huge shape": npy(described("(1000000000, 1000)"), bytes(8)),
    "an endless shape": npy(described("(" + "10**9," * 3 + ")"), bytes(8)),
    "a negative shape": npy(described("(-1,)"), bytes(8)),
    "a short file": npy(described("(2,)"), bytes(8)),
    "a long file": npy(described("(1,)"), bytes(9)),
    "objects": npy(described("(1,)", "'|O'"), bytes(8)),
    "objects in a structure": npy(described("(1,)", "[('a', '|O')]"), bytes(8)),
    "an unknown dtype": npy(described("(1,)", "'<q99'"), bytes(8)),
    "open brackets": npy("{" * 200),
    "open string": npy("{'descr"),
    "deep brackets": npy("(" * 9000 + ")" * 900),
    "no dictionary": npy("[1, 2]"),
    "missing keys": npy("{'descr': '<f8'}"),
    "code": npy("__import__('os').mkdir('pwned')"),
    "a later version": npy(described("(1,)"), bytes(8), version=9),
    "a long header": npy(described("(1,)") + " " * 20_000, bytes(8), version=2),
    "zero bytes": npy("\0" * 60),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_numpy_pass(tmp_path, name):
    np.save(tmp_path / "x.npy", ARRAYS[name])
    check_npy(tmp_path / "x.npy")
    np.savez_compressed(tmp_path / "x.npz", **ARRAYS)
    np.testing.assert_array_equal(read_npz(tmp_path / "x.npz")[name], ARRAYS[name])
    assert list(read_npz(tmp_path / "x.npz", [name, "other"])) == [name]


@pytest.mark.parametrize("case", HEADERS)
def test_damaged_header_is_refused_by_name(tmp_path, case):
    path = tmp_path / "x.npy"
    path.write_bytes(HEADERS[case])
    with pytest.raises(ValueError, match=re.escape(f"{path}: cannot be read (")):
        check_npy(path)
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", HEADERS[case])
    with pytest.raises(ValueError, match=re.escape(f"{path}: x cannot be read (")):
        read_npz(path)


def test_npz_is_refused_by_its_size(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros(3))
    content = bytearray(path.read_bytes())
    size = content.index(b"PK\1\2") + 24
    content[size : size + 4] = struct.pack("<I", 3 * 10**9)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.npz: takes 3\.0 GB in memory"):
        read_npz(path)


def test_bytes_in_npz_count_as_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("SSDML_MAX_GB", "0.002")
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(10**6, np.int8))
    with pytest.raises(ValueError, match=r"x\.npz: takes 0\.0 GB in memory"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize("flip", range(0, 400, 7))
def test_npz_with_a_turned_byte_is_refused_or_whole(tmp_path, flip):
    path, buffer = tmp_path / "x.npz", io.BytesIO()
    np.savez_compressed(buffer, x=np.arange(50))
    content = bytearray(buffer.getvalue())
    content[flip % len(content)] ^= 0xFF
    path.write_bytes(content)
    with suppress(ValueError):
        found = read_npz(path)
        assert not found or np.array_equal(found["x"], np.arange(50))


@pytest.mark.parametrize("text", [b"[" * 10**5, b"{", b"\xff", b"", b"9" * 5000])
def test_damaged_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_home_is_found_wherever_a_path_is_given(tmp_path, monkeypatch):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir(), elsewhere.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.chdir(elsewhere)
    X, _, labels = small_images(n=120)
    model = SSDML(random_state=0).fit(X.reshape(120, 64), labels)
    model.save("~/model")
    assert isinstance(SSDML.load(Path("~/model")), SSDML)
    deep = small_model(epochs=1, checkpoint_dir="~/run").fit(X, labels)
    deep.save("~/deep")
    DeepSSDML.load("~/deep", backbone=small_network())
    lines = [f"{i % 7},{i % 5},{'xy'[i % 2]}" for i in range(40)]
    (home / "table.csv").write_text("\n".join(["a,b,label", *lines]))
    split = label_scarce_split(load_dataset("~/table.csv"), 2, seed=0)
    split.save("~/split.json")
    assert LabelScarceSplit.load("~/split.json").digest == split.digest
    names = {"model", "run", "deep", "split.json", "table.csv"}
    assert {path.name for path in home.iterdir()} == names
    assert not list(elsewhere.iterdir())
    with pytest.raises(FileNotFoundError, match=r"'~\$table\.xlsx' is neither a data set"):
        load_dataset("~$table.xlsx")  # of Excel, where a table is open
