"""Reader of IDX files, and damaged files."""

from __future__ import annotations

import gzip
import struct
import tracemalloc

import numpy as np
import pytest

from ssdml.datasets import load_dataset
from ssdml.datasets.known.idx import read_idx, read_idx_folder

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


EXPECTED = np.concatenate([IMAGES, IMAGES]).reshape(8, -1) / np.float32(255)


@pytest.mark.parametrize("name", ["", "raw", "KMNIST/raw"])
def test_files_like_those_of_mnist_are_read_by_their_path(tmp_path, name):
    (tmp_path / name).mkdir(parents=True, exist_ok=True)
    write_idx_folder(tmp_path / name)
    data = load_dataset(tmp_path)
    np.testing.assert_array_equal(data.X, EXPECTED)
    np.testing.assert_array_equal(data.y, [2, 0, 2, 1, 2, 0, 2, 1])
    np.testing.assert_array_equal(data.test, [False] * 4 + [True] * 4)
    assert (data.item_shape, data.class_names) == ((3, 2), ("0", "1", "3"))
    if name.startswith("KMNIST"):
        np.testing.assert_array_equal(load_dataset("kmnist", data_dir=tmp_path).X, EXPECTED)


def test_one_file_of_images_is_read_with_its_labels(tmp_path):
    write_idx_folder(tmp_path, zipped=False)
    for path in list(tmp_path.iterdir()):  # as some archives have them
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    data = load_dataset(tmp_path / "t10k-images.idx3-ubyte")
    np.testing.assert_array_equal(data.X, EXPECTED[4:])
    assert data.test is None
    (tmp_path / "t10k-labels.idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte\[\.gz\] is missing"):
        load_dataset(tmp_path / "t10k-images.idx3-ubyte")


def test_parts_of_several_data_sets_are_an_error(tmp_path):
    write_idx_folder(tmp_path)
    for path in list(tmp_path.iterdir()):
        (tmp_path / f"emnist-letters-{path.name}").write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=r"one data set; got images of emnist-letters-t10k, emn"):
        load_dataset(tmp_path)
    data = load_dataset(tmp_path / "emnist-letters-train-images-idx3-ubyte.gz")
    np.testing.assert_array_equal(data.X, EXPECTED[:4])
    (tmp_path / "MNIST").mkdir()
    write_idx_folder(tmp_path / "MNIST")
    with pytest.raises(ValueError, match=r"one data set; got .*, .*/MNIST\. Name one"):
        load_dataset(tmp_path)


def test_training_images_alone_have_no_test_rows(tmp_path):
    write_idx_folder(tmp_path)
    for path in tmp_path.glob("t10k*"):
        path.unlink()
    data = load_dataset(tmp_path)
    assert (len(data.y), data.test) == (4, None)


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
