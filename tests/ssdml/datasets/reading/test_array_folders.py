"""Arrays in the files of a folder."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.datasets import load_dataset
from ssdml.datasets.reading.arrays import read_npy_folder
from ssdml.datasets.reading.formats import npy
from ssdml.datasets.reading.formats.npy import label_file
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.paths import read_path
from tests.arrays import X, Y, assert_read


def test_folder_of_training_and_test_pairs(tmp_path):
    for name, rows in (("train", [0, 1]), ("test", [2])):
        np.save(tmp_path / f"{name}_X.npy", X[rows])
        np.save(tmp_path / f"{name}_y.npy", Y[rows])
    assert_read(read_npy_folder(tmp_path), test=[False, False, True])
    np.save(tmp_path / "val_X.npy", X)
    assert read_path(tmp_path).summary.left_out == {"val_X.npy": "not read"}
    assert read_npy_folder(tmp_path).texts is None
    (tmp_path / "train_text.txt").write_text("first\nsecond, \u2028ß\n", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match=r"test_text\.txt is missing, while train_text"):
        read_npy_folder(tmp_path)
    (tmp_path / "test_text.txt").write_text("third\n", encoding="utf-8")
    assert read_npy_folder(tmp_path).texts.tolist() == ["first", "second, \u2028ß", "third"]
    (tmp_path / "train_text.txt").write_text("first\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"train_text\.txt: must contain 2 lines, one per row; got 1"
    ):
        read_npy_folder(tmp_path)


NAMES = ["x_{}, y_{}", "{}_images, {}_labels", "X{}, y{}", "{}X, {}Y", "{}/x, {}/y", "{}/x, {}.y"]


@pytest.mark.parametrize("names", [*NAMES, "kmnist-{}-imgs, kmnist-{}-labels"])
@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_folder_is_read_as_an_archive_of_its_files(tmp_path, names, ending):
    folder = tmp_path / "folder"
    arrays = {}
    for part, rows in (("train", slice(2)), ("test", slice(2, 3))):
        samples, labels = names.format(part, part).split(", ")
        arrays |= {samples: X[rows], labels: Y[rows]}
    for name, array in arrays.items():
        path = folder / f"{name}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        (np.save if ending == ".npy" else np.savez)(path, array)
    raw = read_path(folder)
    assert_read(raw, test=[False, False, True])
    np.savez(tmp_path / "a.npz", **{n.removeprefix("kmnist-"): v for n, v in arrays.items()})
    archive = read_path(tmp_path / "a.npz").summary
    assert raw.summary.facts == archive.facts
    assert raw.summary.left_out == archive.left_out == {}


def test_archives_in_a_folder_are_parts_by_their_names(tmp_path):
    for name, rows in (("train", slice(2)), ("test", slice(2, 3))):
        np.savez(tmp_path / f"{name}.npz", X=X[rows], y=Y[rows], w=X[rows, 0])
    raw = read_path(tmp_path)
    assert_read(raw, test=[False, False, True])
    assert raw.summary.left_out == dict.fromkeys(["train/w", "test/w"], "other arrays")


def test_files_of_arrays_are_named_as_arrays_are(tmp_path):
    for name, array in (("features", X), ("labels", Y), ("texts", Y), ("ids", np.arange(3))):
        np.save(tmp_path / f"{name}.npy", array)
    raw = read_path(tmp_path)
    assert_read(raw)
    assert (raw.texts.tolist(), raw.ids.tolist()) == (Y.tolist(), [0, 1, 2])
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    np.save(tmp_path / "codes.npy", Y[::-1])
    assert_read(read_path(tmp_path, Choice(features=("features",), label="codes")), Y[::-1])
    assert load_dataset(tmp_path, label="codes").class_names == ("cat", "dog")
    with pytest.raises(
        ValueError, match=r"label must name an array; got 'code'\. Name one of codes"
    ):
        load_dataset(tmp_path, label="code")


@pytest.mark.parametrize("stem", ["X", "embeddings", "part/emb"])
def test_only_pair_of_files_is_read(tmp_path, stem):
    (tmp_path / "part").mkdir()
    np.save(tmp_path / f"{stem}.npy", X)
    np.save(label_file(tmp_path / f"{stem}.npy"), Y)
    assert_read(read_path(tmp_path))
    np.save(tmp_path / "other.npy", X + 1)
    raw = read_path(tmp_path)
    assert_read(raw)
    assert raw.summary.left_out == {"other": "other arrays"}


def test_arrays_of_one_sample_each_are_refused(tmp_path):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", X)
    with pytest.raises(
        ValueError, match=r"must contain arrays X and y; got \['a', 'b'\]\. Name them"
    ):
        read_path(tmp_path)


def test_link_out_of_a_folder_of_arrays_is_refused(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    np.save(tmp_path / "secret.npy", X)
    (folder / "train_X.npy").symlink_to(tmp_path / "secret.npy")
    with pytest.raises(ValueError, match=r"links must stay inside the folder; 'train_X\.npy'"):
        read_npy_folder(folder)


def test_files_that_are_no_arrays_are_told(tmp_path):
    for name, array in (("X", X), ("y", Y)):
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "notes.md").touch()
    np.savez(tmp_path / "more.npz", X=X)
    left_out = {"notes.md": "not read", "more": "other arrays"}
    assert read_path(tmp_path).summary.left_out == left_out


def test_folder_beside_the_archive_it_was_in(tmp_path):
    np.savez(tmp_path / "data.npz", X=X + 1, y=Y, z=Y)
    (tmp_path / "data").mkdir()
    for name, array in (("X", X), ("y", Y)):
        np.save(tmp_path / "data" / f"{name}.npy", array)
    raw = read_path(tmp_path)
    assert_read(raw)
    left_out = dict.fromkeys(["data.npz/X", "data.npz/y", "data.npz/z"], "other arrays")
    assert raw.summary.left_out == left_out


def test_each_of_many_files_is_opened_once(tmp_path, monkeypatch):
    opened = []
    real = npy.check_npy
    monkeypatch.setattr(npy, "check_npy", lambda path, *rest: opened.append(path) or real(path))
    for name in "abcd":
        np.save(tmp_path / f"{name}.npy", X)
    with pytest.raises(ValueError, match="must contain arrays X and y"):
        read_path(tmp_path)
    assert sorted(opened) == sorted(tmp_path.iterdir())
