"""Readers of IDX files, CIFAR batches and class folders, and damaged files."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

from ssdml.datasets import load_dataset
from ssdml.datasets.images import (
    read_cifar_batches,
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
        (WHOLE + b"\0", "too long; 41 bytes, its header announces 40"),
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


def write_cifar(folder, rng, **changes):
    names = [b"airplane", b"bird", b"cat"]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        batch = {b"data": rng.integers(0, 256, (3, 3072), dtype=np.uint8), b"labels": [2, 0, 1]}
        (folder / name).write_bytes(pickle.dumps(batch | changes, protocol=2))


def test_cifar_batches_are_read_channels_last(tmp_path, rng):
    pixels = np.zeros((3, 3, 32, 32), dtype=np.uint8)
    pixels[0, 1, 5, 7] = 200  # green, row 5, column 7
    write_cifar(tmp_path, rng, **{})
    first = {b"data": pixels.reshape(3, 3072), b"labels": [2, 0, 1]}
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(first, protocol=2))
    raw = read_cifar_batches(tmp_path)
    assert raw.items.shape == (18, 32, 32, 3)
    assert raw.items[0, 5, 7].tolist() == [0, 200, 0]
    assert raw.labels[:3].tolist() == ["cat", "airplane", "bird"]
    np.testing.assert_array_equal(np.flatnonzero(raw.test), [15, 16, 17])


def test_python_2_pickle_is_read(tmp_path, rng):
    write_cifar(tmp_path, rng)
    for path in tmp_path.iterdir():  # where numpy 1 kept it, as in the published files
        old = path.read_bytes().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
        path.write_bytes(old)
    assert read_cifar_batches(tmp_path).items.shape == (18, 32, 32, 3)


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


def test_pickle_that_runs_code_raises(tmp_path, rng, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cifar(tmp_path, rng)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(ValueError, match=r"data_batch_3: not a batch .*contains \w+\.mkdir"):
        read_cifar_batches(tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_damaged_and_missing_batches_are_named(tmp_path, rng):
    write_cifar(tmp_path, rng)
    path = tmp_path / "data_batch_2"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="data_batch_2: not a batch of CIFAR"):
        read_cifar_batches(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_2 is missing"):
        read_cifar_batches(tmp_path)
    write_cifar(tmp_path, rng)
    short = {b"data": np.zeros((3, 3072), dtype=np.uint8), b"labels": [0]}
    path.write_bytes(pickle.dumps(short, protocol=2))
    with pytest.raises(ValueError, match=r"data_batch_2: must hold rows of 3072 bytes"):
        read_cifar_batches(tmp_path)


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
