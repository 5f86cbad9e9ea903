"""Zip files of images: damaged, forged, too large, or written by other programs."""

from __future__ import annotations

import struct
import zipfile

import pytest

from ssdml.datasets.reading.image_folders import read_image_zip
from tests.images import SPLIT, write_images, zipped


def test_damaged_zip_is_named(tmp_path):
    write_images(tmp_path / "pets", SPLIT)
    path = zipped(tmp_path / "pets", tmp_path / "pets.zip")
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(ValueError, match=r"pets\.zip: truncated or damaged"):
        read_image_zip(path)
    flipped = bytearray(whole)
    flipped[60] ^= 0xFF  # inside the first image: its checksum no longer fits
    path.write_bytes(flipped)
    with pytest.raises(ValueError, match=r"pets\.zip: truncated or damaged .*CRC"):
        read_image_zip(path)


def test_zip_with_dots_in_front_of_names(tmp_path):
    write_images(tmp_path / "pets", SPLIT)
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        for name in SPLIT:
            archive.writestr(f"./{name}", (tmp_path / "pets" / name).read_bytes())
    assert sorted(read_image_zip(tmp_path / "pets.zip").labels) == ["cat", "cat", "dog"]


@pytest.mark.parametrize("name", ["../cat/a.png", "/cat/a.png", "cat/../a.png"])
def test_zip_with_names_outside_is_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as archive:
        archive.writestr(name, b"")
    with pytest.raises(ValueError, match=r"pets\.zip: names must stay inside; got"):
        read_image_zip(tmp_path / "pets.zip")


def test_zip_that_takes_too_much_is_refused_before_it_is_read(tmp_path):
    write_images(tmp_path / "pets", SPLIT)
    path = zipped(tmp_path / "pets", tmp_path / "pets.zip")
    content = bytearray(path.read_bytes())
    size = content.index(b"PK\1\2") + 24  # of the first file, as the directory of the zip tells it
    content[size : size + 4] = struct.pack("<I", 1_300_000_000)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"pets\.zip: takes 1\.3 GB in memory"):
        read_image_zip(path)


def test_an_entry_without_a_name_is_no_image(tmp_path):
    write_images(tmp_path / "pets", ["cat/1.png"])
    path = zipped(tmp_path / "pets", tmp_path / "pets.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("dog.png/", b"")
        with archive.open(zipfile.ZipInfo(""), "w"):  # as damaged archives have
            pass
    assert read_image_zip(path).ids.tolist() == ["cat/1.png"]


def test_zip_with_backslashes(tmp_path):
    write_images(tmp_path, ["1.png"])
    content = (tmp_path / "1.png").read_bytes()
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        for name in ("cat/1.png", "dog/2.png"):
            entry = zipfile.ZipInfo(name)
            entry.filename = f"photos\\{name}".replace("/", "\\")
            archive.writestr(entry, content)
    assert read_image_zip(tmp_path / "t.zip").labels.tolist() == ["cat", "dog"]


def test_encrypted_zip_is_named(tmp_path):
    write_images(tmp_path, ["cat/1.png"])
    path = zipped(tmp_path, tmp_path.with_suffix(".zip"))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"is encrypted\. Unzip it, and name the folder\."):
        read_image_zip(path)


def test_tables_in_a_zip_file_of_images_are_told(tmp_path):
    write_images(tmp_path / "d", ["1.png", "2.png"])
    (tmp_path / "d/labels.csv").write_text("filename,label\n1.png,a\n2.png,b\n")
    with pytest.raises(ValueError, match=r"Or unzip it, as 'labels\.csv' is not read in a zip"):
        read_image_zip(zipped(tmp_path / "d", tmp_path / "d.zip"))
