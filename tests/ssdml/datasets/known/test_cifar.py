"""Reader of CIFAR's pickles by their opcodes, and hostile files."""

from __future__ import annotations

import os
import pickle
import struct

import numpy as np
import pytest

from ssdml.datasets import load_dataset
from ssdml.datasets.known.cifar import MOST_OPCODES, read_cifar10, read_pickle


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
    raw = read_cifar10(tmp_path)
    assert raw.items.shape == (18, 32, 32, 3)
    assert raw.items[0, 5, 7].tolist() == [0, 200, 0]
    assert raw.labels[:3].tolist() == ["cat", "airplane", "bird"]
    np.testing.assert_array_equal(np.flatnonzero(raw.test), [15, 16, 17])


def test_python_2_pickle_is_read(tmp_path, rng):
    write_cifar(tmp_path, rng)
    for path in tmp_path.iterdir():  # where numpy 1 kept it, as in the published files
        old = path.read_bytes().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
        path.write_bytes(old)
    assert read_cifar10(tmp_path).items.shape == (18, 32, 32, 3)


@pytest.mark.parametrize("as_path", [True, False])
def test_cifar100_has_its_fine_classes(tmp_path, rng, as_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    names = {b"fine_label_names": [b"apple", b"bear", b"rose"], b"coarse_label_names": [b"x"]}
    (folder / "meta").write_bytes(pickle.dumps(names, protocol=2))
    pixels = rng.integers(0, 256, (7, 3, 32, 32), dtype=np.uint8)
    for part, rows in (("train", slice(4)), ("test", slice(4, 7))):
        fine, images = [2, 0, 1, 2, 0, 1, 2][rows], pixels[rows].reshape(-1, 3072)
        batch = {b"data": images, b"fine_labels": fine, b"coarse_labels": [0] * len(fine)}
        (folder / part).write_bytes(pickle.dumps(batch, protocol=2))
    where = (folder,) if as_path else ("cifar100",)
    data = load_dataset(*where, data_dir=tmp_path)
    assert data.class_names == ("apple", "bear", "rose")
    assert data.y.tolist() == [2, 0, 1, 2, 0, 1, 2]
    assert data.test.tolist() == [False] * 4 + [True] * 3
    expected = pixels.transpose(0, 2, 3, 1).reshape(7, -1) / np.float32(255)
    np.testing.assert_array_equal(data.X, expected)


def test_a_folder_of_batches_is_read_by_its_path(tmp_path, rng):
    write_cifar(tmp_path, rng)
    (tmp_path / "readme.html").write_text("<h1>CIFAR-10</h1>")
    data = load_dataset(tmp_path)
    assert (len(data.y), data.item_shape, data.test.sum()) == (18, (32, 32, 3), 3)
    assert data.class_names == ("airplane", "bird", "cat")
    assert "samples: 18 images of 32 x 32 pixels" in str(data.summary)


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


def test_pickle_that_runs_code_raises(tmp_path, rng, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cifar(tmp_path, rng)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(ValueError, match=r"data_batch_3: not a batch .*contains \w+\.mkdir"):
        read_cifar10(tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_damaged_and_missing_batches_are_named(tmp_path, rng):
    write_cifar(tmp_path, rng)
    path = tmp_path / "data_batch_2"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="data_batch_2: not a batch of CIFAR"):
        read_cifar10(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_2 is missing"):
        read_cifar10(tmp_path)
    write_cifar(tmp_path, rng)
    short = {b"data": np.zeros((3, 3072), dtype=np.uint8), b"labels": [0]}
    path.write_bytes(pickle.dumps(short, protocol=2))
    with pytest.raises(ValueError, match=r"data_batch_2: must hold rows of 3072 bytes"):
        read_cifar10(tmp_path)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_every_protocol_of_the_published_kinds_is_read(protocol):
    content = {
        "text": "é",
        b"bytes": b"a\0\xff",
        "labels": [0, 255, 65536, -1, 2**40],
        "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "constants": [None, True, False],
        "again": {"again": []},
    }
    read = read_pickle(pickle.dumps(content, protocol))
    if protocol < 2:  # without an opcode for booleans: they are integers there
        read["constants"] = [None, *map(bool, read["constants"][1:])]
    assert read == content


def test_python_2_strings_are_bytes():
    assert read_pickle(b"(dp0\nS'a'\np1\n(lp2\nI3\nas.") == {b"a": [3]}


def damaged_batch(folder, rng, content):
    write_cifar(folder, rng)
    path = folder / "data_batch_3"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol=2))
    return path


def pickled_array(shape, dtype=b"u1", content=b"\0" * 3072):
    """A pickle of data and labels whose array has any shape and dtype."""
    whole = pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [0]}, protocol=2)
    old = b"(K\x01K\x01M\x00\x0c\x86"
    assert old in whole
    numbers = b"".join(b"J" + struct.pack("<i", size) for size in shape)
    return whole.replace(old, b"(K\x01(" + numbers + b"t").replace(b"u1", dtype)


HOSTILE = {
    "a huge shape": (pickled_array((2**30, 3072)), "data must have a shape of 3072 bytes"),
    "a negative shape": (pickled_array((-1, -3072)), "data must have a shape of 3072 bytes"),
    "a dtype of objects": (pickled_array((384, 8), b"O8"), "data must have the dtype uint8"),
    "a named dtype": (pickle.dumps({"data": np.zeros(2, "f8")}, 2), "it has no labels"),
    "a dtype of another state": (
        pickled_array((1, 3072)).replace(b"NNNJ", b"NN\x88J"),
        "data must have the dtype uint8",
    ),
    "no array": ({"data": b"\0" * 3072, "labels": [0]}, "data must be an array of bytes"),
    "no dictionary": ([1, 2], "not a batch of CIFAR; it holds a list of 2"),
    "a key that is no text": (
        {"data": 1, "labels": [], 3: 4},
        r"keys must be text; got 3",
    ),
    "a label that is no integer": (
        {"data": np.zeros((1, 3072), np.uint8), "labels": ["a"]},
        "labels must be a list of integers",
    ),
    "nothing": (b"", "not a batch of CIFAR"),
    "an instance": (b"(i__main__\nA\n.", "opcode INST, which is not allowed"),
    "an extension": (b"\x82\x01.", "opcode EXT1, which is not allowed"),
    "too few arguments": (b"\x80\x02\x86.", "an opcode lacks its arguments"),
    "no mark": (b"\x80\x02}t.", "not a batch of CIFAR"),
    "a call of a number": (b"\x80\x02K\x01)R.", "an opcode must change a Name; got 1"),
    "endless marks": (b"\x80\x02" + b"(" * 1000 + b".", "not a batch of CIFAR"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_batch_is_refused_by_name(tmp_path, rng, case):
    content, message = HOSTILE[case]
    damaged_batch(tmp_path, rng, content)
    with pytest.raises(ValueError, match=rf"data_batch_3: .*{message}"):
        read_cifar10(tmp_path)


@pytest.mark.parametrize("label", [-1, 3, 2**70])
def test_label_without_a_class_name_is_refused(tmp_path, rng, label):
    pixels = np.zeros((2, 3072), np.uint8)
    damaged_batch(tmp_path, rng, {b"data": pixels, b"labels": [0, label]})
    message = r"data_batch_3: labels must be from 0 to 2, .* 3 classes; got .* for image 1\."
    with pytest.raises(ValueError, match=message):
        read_cifar10(tmp_path)


def test_too_many_opcodes_are_refused():
    with pytest.raises(ValueError, match="more than 2000000 opcodes"):
        read_pickle(b"\x80\x02" + b"}" * MOST_OPCODES)


def test_wrong_class_names_are_refused(tmp_path, rng):
    for names, message in (
        ([1, 2], "must be a list of names; got a list of 2"),
        ([b"\xff"], "must be text in UTF-8"),
    ):
        write_cifar(tmp_path, rng)
        (tmp_path / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
        with pytest.raises(ValueError, match=rf"batches\.meta: label_names {message}"):
            read_cifar10(tmp_path)
