"""Label-scarce splits: seeded, nested, saved and verified."""

from __future__ import annotations

import errno
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ssdml.datasets import Dataset, load_dataset
from ssdml.datasets.splits import LabelScarceSplit, label_scarce_split


def dataset(y, test=None):
    y = np.asarray(y)
    X = np.zeros((len(y), 1), dtype=np.float32)
    names = tuple("abcdefgh"[: y.max() + 1])
    return Dataset("toy", X, y, names, None if test is None else np.asarray(test, dtype=bool))


@pytest.fixture
def digits():
    return load_dataset("digits")


@pytest.fixture
def split(digits):
    return label_scarce_split(digits, 5, seed=0)


def test_split_depends_on_the_seed_only(digits, split):
    assert label_scarce_split(digits, 5, seed=0).digest == split.digest
    other = label_scarce_split(digits, 5, seed=1)
    assert other.digest != split.digest
    assert set(other.labeled) != set(split.labeled)


def test_split_digest_is_stable(split):
    # Paired comparisons and saved results rest on it: a change here breaks both.
    assert split.digest == ("f9cce2a42de3ff7d807aa1c8a6870f91a455939cf953d90cd6491f017b8bd064")
    np.testing.assert_array_equal(split.labeled[:5], [68, 150, 182, 196, 357])


def test_labels_are_nested(digits):
    splits = [label_scarce_split(digits, count, seed=3) for count in (1, 2, 5, 10)]
    for small, large in pairwise(splits):
        assert set(small.labeled) < set(large.labeled)
        np.testing.assert_array_equal(small.test, large.test)


def test_every_class_is_labeled_and_held_out(digits, split):
    np.testing.assert_array_equal(np.bincount(digits.y[split.labeled]), [5] * 10)
    thirds = np.round(np.bincount(digits.y) / 3)
    np.testing.assert_array_equal(np.bincount(digits.y[split.test]), thirds)


def test_rows_are_partitioned_into_train_and_test(digits, split):
    rows = np.sort(np.concatenate([split.train, split.test]))
    np.testing.assert_array_equal(rows, np.arange(len(digits.y)))
    assert set(split.labeled) <= set(split.train)


def test_standard_test_rows_are_kept():
    toy = dataset([0, 1, 0, 1, 0, 1], test=[1, 1, 0, 0, 0, 0])
    for seed in range(5):
        split = label_scarce_split(toy, 1, seed=seed)
        np.testing.assert_array_equal(split.test, [0, 1])
        np.testing.assert_array_equal(split.train, [2, 3, 4, 5])
        assert sorted(toy.y[split.labeled]) == [0, 1]


def test_unlabeled_rows_are_training_rows_only():
    y = [0, 1, -1, 0, 1, -1, 0, 1]
    split = label_scarce_split(dataset(y), 1, seed=0)
    assert {2, 5} <= set(split.train)
    assert not {2, 5} & (set(split.labeled) | set(split.test))
    split = label_scarce_split(dataset(y, test=[0, 0, 1, 0, 0, 0, 1, 1]), 1, seed=0)
    np.testing.assert_array_equal(split.train, [0, 1, 3, 4, 5])
    np.testing.assert_array_equal(split.test, [6, 7])


def test_small_class_is_fully_labeled_with_warning():
    toy = dataset([0] * 9 + [1] * 3 + [2])
    with pytest.warns(
        UserWarning, match=r"labels_per_class=3 .*; got fewer in 'b' \(2\), 'c' \(1\)"
    ):
        split = label_scarce_split(toy, 3, seed=0)
    np.testing.assert_array_equal(np.bincount(toy.y[split.labeled]), [3, 2, 1])


def test_partial_labels_are_minus_one_elsewhere(digits, split):
    y = split.partial_labels(digits.y)
    assert len(y) == len(split.train)
    np.testing.assert_array_equal(split.train[y != -1], split.labeled)
    np.testing.assert_array_equal(y[y != -1], digits.y[split.labeled])


def test_split_of_another_data_set_raises(split):
    with pytest.raises(
        ValueError, match=r"more than 1796; got shape \(10,\). Is this the split of"
    ):
        split.partial_labels(np.zeros(10, dtype=int))
    with pytest.raises(ValueError, match=r"^given_labels: y must hold a label for every row"):
        split.given_labels(np.zeros(10, dtype=int))


@pytest.mark.parametrize("given", ["partial_labels", "given_labels"])
@pytest.mark.parametrize(("unknown", "shown"), [(np.nan, "nan"), (0.5, "0.5"), ("a", "'a'")])
def test_labels_that_are_no_codes_raise(digits, split, given, unknown, shown):
    y = digits.y.astype(object if isinstance(unknown, str) else float)
    y[3] = unknown
    with pytest.raises(TypeError, match=f"^{given}: y must hold integers.*got {shown} in row 3"):
        getattr(split, given)(y)


def test_split_round_trips(split, tmp_path):
    split.save(tmp_path / "split.json")
    loaded = LabelScarceSplit.load(tmp_path / "split.json")
    assert loaded.digest == split.digest
    assert (loaded.seed, loaded.labels_per_class) == (0, 5)
    for name in ("train", "test", "labeled"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(split, name))
    assert [path.name for path in tmp_path.iterdir()] == ["split.json"]


@pytest.mark.parametrize(
    ("key", "value"), [("seed", 1), ("labels_per_class", 4), ("test", [0]), ("labeled", [1, 2])]
)
def test_modified_file_raises(split, tmp_path, key, value):
    path = tmp_path / "split.json"
    split.save(path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, key: value}))
    with pytest.raises(ValueError, match=r"split.json: the content does not match its sha256"):
        LabelScarceSplit.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a label-scarce split.* Recreate the split from its seed"),
        ('{"schema": 1, "sha256": ', "not a label-scarce split"),
        ("[1, 2]", "not a label-scarce split"),
        ('{"schema": 1, "sha256": "", "train": [0]}', "not a label-scarce split.*'test'"),
        ('{"schema": 2, "sha256": ""}', "schema must be 1; got 2"),
    ],
)
def test_invalid_file_is_named(tmp_path, content, message):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ValueError, match=rf"x\.json: {message}"):
        LabelScarceSplit.load(tmp_path / "x.json")


def test_full_disk_leaves_the_earlier_file(split, tmp_path, monkeypatch):
    path = tmp_path / "split.json"
    split.save(path)
    before = path.read_text()
    write = Path.write_text

    def full(self, text, **options):
        write(self, text[:10], **options)
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        split.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["split.json"]
    assert path.read_text() == before


def test_zero_labels_per_class_raise(digits):
    with pytest.raises(ValueError, match="labels_per_class must be at least 1; got 0"):
        label_scarce_split(digits, 0, seed=0)


@pytest.mark.parametrize(
    ("y", "test", "message"),
    [
        ([-1, -1, -1], None, "training rows with labels; got none. Label two rows of a class"),
        ([0, 1, 2], None, "test rows with labels; got none. Label two rows of a class"),
        ([0, 1, -1], [0, 0, 1], "test rows with labels; got none. Label some of them"),
        ([-1, -1, 0], [0, 0, 1], "training rows with labels; got none. Label some of them"),
        ([0, 1], [1, 1], "training rows with labels; got none. Change its test, or leave it out"),
        ([0, 1], [0, 0], "test rows with labels; got none. Change its test, or leave it out"),
    ],
)
def test_data_set_without_training_or_test_labels_raises(y, test, message):
    with pytest.raises(ValueError, match=f"^label_scarce_split: 'toy' must have {message}"):
        label_scarce_split(dataset(y, test=test), 1, seed=0)


def test_disjoint_test_classes_need_no_labels(recwarn):
    y = np.repeat([0, 1, 2, 3], 6)
    split = label_scarce_split(dataset(y, test=y >= 2), 5, seed=0)
    np.testing.assert_array_equal(np.bincount(y[split.labeled]), [5, 5])
    assert not recwarn


def test_small_training_class_of_disjoint_classes_warns():
    y = np.repeat([0, 1, 2, 3], [6, 3, 6, 2])
    with pytest.warns(UserWarning, match=r"got fewer in 'b' \(3\)\. All of their rows"):
        label_scarce_split(dataset(y, test=y >= 2), 5, seed=0)


def test_class_without_training_rows_warns():
    y = np.repeat([0, 1, 2], 6)
    test = (y == 2) | (np.arange(18) % 6 == 0)
    with pytest.warns(UserWarning, match=r"got fewer in 'c' \(0\)"):
        label_scarce_split(dataset(y, test=test), 5, seed=0)
