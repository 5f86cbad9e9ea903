"""Kind, place and size of files, before they are read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ssdml.utils.files import (
    VARIABLE,
    check_inside,
    check_memory,
    check_regular,
    open_regular,
    read_regular,
)


def test_regular_files_and_links_to_them_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "link").symlink_to("a")
    assert read_regular(tmp_path / "a") == read_regular(tmp_path / "link") == b"content"
    assert check_regular(tmp_path / "a") == 7


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
    monkeypatch.setenv(VARIABLE, "4")
    check_memory(path, 3 * 10**9, 18 * 10**6)


@pytest.mark.parametrize("given", ["much", "nan", "inf"])
def test_a_wrong_limit_is_named(monkeypatch, given):
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ValueError, match=rf"SSDML_MAX_GB must be a number .*; got '{given}'"):
        check_memory(Path("x"), 1, 1)
