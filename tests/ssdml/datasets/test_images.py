"""Readers of IDX files and class folders, and damaged files."""

from __future__ import annotations

import gzip
import os
import struct
import sys
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from ssdml.datasets import load_dataset
from ssdml.datasets.images import (
    read_idx,
    read_idx_folder,
    read_image_folder,
    read_image_zip,
)

IMAGES = np.arange(4 * 3 * 2, dtype=np.uint8).reshape(4, 3, 2)


def idx_bytes(array, kind=0x08):
    return (
        struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + array.tobytes()
    )


def write_idx_folder(folder, *, zipped=True, n_labels=4):
    labels = np.array([3, 0, 3, 1], dtype=np.uint8)[:n_labels]
    for prefix in ("train", "t10k"):
        for name, array in (("images-idx3", IMAGES), ("labels-idx1", labels)):
            path = folder / f"{prefix}-{name}-ubyte"
            if zipped:
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(idx_bytes(array)))
            else:
                path.write_bytes(idx_bytes(array))


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_read_gzipped_or_plain(tmp_path, zipped):
    write_idx_folder(tmp_path, zipped=zipped)
    raw = read_idx_folder(tmp_path)
    np.testing.assert_array_equal(raw.items, np.concatenate([IMAGES, IMAGES]))
    np.testing.assert_array_equal(raw.labels, [3, 0, 3, 1, 3, 0, 3, 1])
    np.testing.assert_array_equal(raw.test, [False] * 4 + [True] * 4)


def test_idx_values_are_big_endian(tmp_path):
    values = np.array([1, -2, 300], dtype=">i4")
    (tmp_path / "x").write_bytes(idx_bytes(values, kind=0x0C))
    np.testing.assert_array_equal(read_idx(tmp_path / "x", n_axes=1), [1, -2, 300])


WHOLE = idx_bytes(IMAGES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (WHOLE[:-5], r"truncated; 35 bytes, its header announces 40 \(shape \(4, 3, 2\)\)"),
        (WHOLE + b"\0", "too long; more than 40 bytes, its header announces 40"),
        (WHOLE[:7], "truncated; 7 bytes, less than its header of 16"),
        (b"", "truncated; 0 bytes"),
        (b"\x89PNG" + WHOLE[4:], "wrong magic number 0x89504e47; .* begins with 0x00000803"),
        (idx_bytes(IMAGES[0]) + b"\0" * 9, "wrong magic number 0x00000802"),
    ],
)
def test_damaged_idx_file_is_named(tmp_path, content, message):
    path = tmp_path / "images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"images-idx3-ubyte: {message}"):
        read_idx(path, n_axes=3)


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-12], lambda c: b"no gzip" + c, lambda c: c[:30] + b"!" + c[31:]]
)
def test_damaged_gzip_is_named(tmp_path, damage):
    path = tmp_path / "images.gz"
    path.write_bytes(damage(gzip.compress(WHOLE)))
    with pytest.raises(ValueError, match=r"images\.gz: truncated or damaged"):
        read_idx(path, n_axes=3)


def test_missing_idx_file_is_named(tmp_path):
    write_idx_folder(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte\[\.gz\] is missing"):
        read_idx_folder(tmp_path)


def test_wrong_number_of_labels_raises(tmp_path):
    write_idx_folder(tmp_path, n_labels=3)
    with pytest.raises(ValueError, match=r"train-labels.*: must hold 4 labels; got 3"):
        read_idx_folder(tmp_path)


def write_images(folder, names, *, mode="RGB", size=(4, 3)):
    """One-colored images whose first channel is their number."""
    for i, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size, i if mode == "L" else (i, 100, 200)).save(path)


def zipped(folder, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*.*"):
            archive.write(file, file.relative_to(folder))
    return path


SPLIT = ["train/cat/1.png", "train/dog/2.bmp", "test/cat/3.png"]


@pytest.mark.parametrize("read", [read_image_folder, read_image_zip])
def test_class_folders_below_train_and_test(tmp_path, read):
    write_images(tmp_path / "pets", SPLIT)
    (tmp_path / "pets" / "notes.txt").write_text("no image")
    place = tmp_path / "pets"
    raw = read(place if read is read_image_folder else zipped(place, tmp_path / "pets.zip"))
    assert raw.items.shape == (3, 3, 4, 3)  # rows, columns, channels
    found = dict(
        zip(raw.items[:, 0, 0, 0].tolist(), zip(raw.labels, raw.test, strict=True), strict=True)
    )
    assert found == {0: ("cat", False), 1: ("dog", False), 2: ("cat", True)}


def test_class_folders_without_standard_split(tmp_path):
    write_images(tmp_path, ["dog/b.png", "cat/a.jpg"], mode="L")
    raw = read_image_folder(tmp_path)
    assert raw.items.shape == (2, 3, 4)
    assert raw.labels.tolist() == ["cat", "dog"]
    assert raw.test is None


@pytest.mark.parametrize("name", ["unlabeled", "unlabelled", "Unlabelled"])
def test_images_in_unlabeled_folder_have_no_label(tmp_path, name):
    write_images(tmp_path, ["cat/a.png", f"{name}/b.png", "unlabeled cats/c.png"])
    assert sorted(read_image_folder(tmp_path).labels) == ["", "cat", "unlabeled cats"]
    data = load_dataset(str(tmp_path))
    assert data.class_names == ("cat", "unlabeled cats")
    assert sorted(data.y) == [-1, 0, 1]


def test_gray_image_among_colored_becomes_rgb(tmp_path):
    write_images(tmp_path, ["cat/a.png"], mode="RGB")
    write_images(tmp_path, ["cat/b.png", "cat/c.png"], mode="L")
    raw = read_image_folder(tmp_path)
    assert raw.items.shape == (3, 3, 4, 3)
    assert raw.items[2, 0, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "must contain class/image files.*; got no images"),
        (["1.png"], r"must contain class/image files.*; got 1 images, the first '1\.png'"),
        (["cat/1.png", "train/dog/2.png"], "must contain class/image files"),
        (
            ["train/cat/1.png", "valid/cat/2.png"],
            r"must be train and test; got \['train', 'valid'\]",
        ),
    ],
)
def test_wrong_tree_raises(tmp_path, names, message):
    write_images(tmp_path, names)
    with pytest.raises(ValueError, match=message):
        read_image_folder(tmp_path)


def test_image_of_another_size_is_named(tmp_path):
    write_images(tmp_path, ["cat/a.png"])
    write_images(tmp_path, ["cat/b.png"], size=(5, 5))
    with pytest.raises(ValueError, match=r"one size, \(3, 4\) as cat/a.png; got \(5, 5\) in cat/b"):
        read_image_folder(tmp_path)


@pytest.mark.parametrize("kept", [0, 30, 50])
def test_damaged_image_is_named(tmp_path, kept):
    write_images(tmp_path, ["cat/a.png"])
    path = tmp_path / "cat" / "a.png"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"1 of 1 files are not images .*: cat/a\.png\. Replace"):
        read_image_folder(tmp_path)


def test_damaged_images_are_counted(tmp_path):
    names = [f"cat/{i}.png" for i in range(9)]
    write_images(tmp_path, names)
    for name in names[1:8]:
        (tmp_path / name).write_bytes(b"")
    told = r"7 of 9 files .*: cat/1\.png, .*, cat/5\.png and 2 more\. Replace"
    with pytest.raises(ValueError, match=told):
        read_image_folder(tmp_path)


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


def test_missing_pillow_says_what_to_install(tmp_path, monkeypatch):
    write_images(tmp_path, ["cat/a.png"])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match="needs Pillow: pip install pillow"):
        read_image_folder(tmp_path)


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


def test_links_and_pipes_among_images_are_refused(tmp_path):
    write_images(tmp_path, ["pets/cat/a.png", "secret/b.png"])
    link = tmp_path / "pets/cat/b.png"
    link.symlink_to(tmp_path / "secret/b.png")
    with pytest.raises(ValueError, match=r"links must stay inside .*'cat/b\.png' leads to"):
        read_image_folder(tmp_path / "pets")
    link.unlink()
    os.mkfifo(link)
    with pytest.raises(ValueError, match=r"b\.png must be a regular file; got a named pipe"):
        read_image_folder(tmp_path / "pets")


def png(width, height, *, whole=True):
    """A black gray image of any size, or its header with no pixels."""

    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    packed = zlib.compressobj(9)
    rows = (
        b"".join(packed.compress(bytes(width + 1)) for _ in range(height if whole else 0))
        + packed.flush()
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*part) for part in ((b"IHDR", header), (b"IDAT", rows), (b"IEND", b""))
    )


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_500, 17_000])
def test_image_of_too_many_pixels_is_refused(tmp_path, side):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(png(side, side, whole=False))
    message = r": cat/a\.png: must have at most 89478485 pixels .* Resize it"
    with pytest.raises(ValueError, match=message):
        read_image_folder(tmp_path)


def test_images_that_take_too_much_together_are_refused(tmp_path):
    (tmp_path / "cat").mkdir()
    for i in range(20):
        (tmp_path / "cat" / f"{i}.png").write_bytes(png(8_000, 8_000) if not i else b"")
    with pytest.raises(ValueError, match=r"takes 1\.3 GB in memory, .* SSDML_MAX_GB=2"):
        read_image_folder(tmp_path)


def test_zip_that_takes_too_much_is_refused_before_it_is_read(tmp_path):
    write_images(tmp_path / "pets", SPLIT)
    path = zipped(tmp_path / "pets", tmp_path / "pets.zip")
    content = bytearray(path.read_bytes())
    size = content.index(b"PK\1\2") + 24  # of the first file, as the directory of the zip tells it
    content[size : size + 4] = struct.pack("<I", 1_300_000_000)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"pets\.zip: takes 1\.3 GB in memory"):
        read_image_zip(path)


def test_other_formats_are_not_tried(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(ValueError, match=r"1 of 1 files are not images .*: cat/a\.png"):
        read_image_folder(tmp_path)


def test_gzip_is_refused_by_the_size_in_its_header(tmp_path):
    header = struct.pack(">BBBBIII", 0, 0, 8, 3, 1_000_000, 60, 60)
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(header + bytes(10**6)))
    with pytest.raises(ValueError, match=r"images\.gz: takes 3\.6 GB in memory, .*SSDML_MAX_GB=4"):
        read_idx(path, n_axes=3)


def test_gzip_is_read_no_further_than_its_header_says(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(WHOLE + bytes(50 * 10**6)))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"images\.gz: too long; more than 40 bytes"):
        read_idx(path, n_axes=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * 10**6
