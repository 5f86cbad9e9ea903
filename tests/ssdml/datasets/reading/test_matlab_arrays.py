"""Reader of arrays in the files of MATLAB."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat

from ssdml.datasets import load_dataset
from ssdml.datasets.reading.names import Choice
from ssdml.datasets.reading.paths import read_path
from tests.arrays import X, Y, assert_read


def test_matlab_files_are_read_as_npz(tmp_path):
    path, test = tmp_path / "items.mat", np.array([False, True, False])
    for arrays in ({"X": X, "y": Y.astype(object)}, {"Fea": X, "gnd": Y.astype(object)}):
        savemat(path, arrays | {"options": {"k": 3}}, do_compression=True)
        assert_read(read_path(path))
    savemat(path, {"X": X.T, "labels": np.array([[1], [2], [1]]), "test": test})
    assert_read(read_path(path), labels=[1, 2, 1], test=test)
    savemat(path, {"trainX": X, "trainY": [1, 2, 1]} | {"testX": X[:2], "testY": [1, 2]})
    assert read_path(path).test.tolist() == [False] * 3 + [True] * 2


def test_images_of_matlab_are_along_its_last_axis(tmp_path, rng):
    images = rng.integers(0, 256, (8, 7, 3, 20), dtype=np.uint8)
    savemat(tmp_path / "train_8x7.mat", {"X": images, "y": rng.integers(1, 3, (20, 1))})
    data = load_dataset(tmp_path / "train_8x7.mat")
    assert data.item_shape == (8, 7, 3)
    np.testing.assert_allclose(data.X[4].reshape(8, 7, 3), images[..., 4] / 255, rtol=1e-6)


def test_sparse_matrix_of_matlab_is_refused_by_name(tmp_path):
    savemat(tmp_path / "t.mat", {"fea": sparse.csc_array(X), "gnd": [1, 2, 1]})
    with pytest.raises(
        ValueError, match=r"t\.mat: fea must be numbers .* sparse .* save full\(fea\)"
    ):
        read_path(tmp_path / "t.mat")


def test_samples_of_parts_may_be_along_the_last_axis(tmp_path):
    arrays = {"train_data": X.T, "train_label": [[1, 2, 1]], "test_data": X[:1].T, "test_label": 2}
    savemat(tmp_path / "t.mat", arrays)
    raw = read_path(tmp_path / "t.mat")
    assert_read(raw, [1, 2, 1, 2], [False] * 3 + [True], np.vstack([X, X[:1]]))


def test_as_many_samples_as_features_are_doubted(tmp_path):
    savemat(tmp_path / "t.mat", {"X": X @ X.T, "y": [[1], [2], [1]]})
    raw = read_path(tmp_path / "t.mat")
    assert_read(raw, [1, 2, 1], samples=X @ X.T)
    assert raw.summary.doubts == [
        "the first axis of 'X' holds the samples, and the last is as long; if they are along the "
        "last, move it"
    ]


@pytest.mark.parametrize("samples", [X[:, :1], X[:1], X[:1, :1]])
def test_one_feature_or_one_sample_is_read(tmp_path, samples):
    labels = np.arange(len(samples))
    savemat(tmp_path / "t.mat", {"X": samples, "y": labels[:, None]})
    assert_read(read_path(tmp_path / "t.mat"), labels, samples=samples)
    savemat(tmp_path / "t.mat", {"X": samples})
    unlabeled = read_path(tmp_path / "t.mat", Choice(needs_label=False))
    assert_read(unlabeled, [""] * len(samples), samples=samples)


@pytest.mark.parametrize("labels", [["cat  ", "dog", "cat"], ["a", "b", "a"], ["\u00e9", "b", "c"]])
def test_rows_of_characters_are_labels(tmp_path, labels):
    savemat(tmp_path / "t.mat", {"X": X, "y": np.array(labels)})
    assert_read(read_path(tmp_path / "t.mat"), [label.strip() for label in labels])


def test_numbers_in_cells_are_labels(tmp_path):
    savemat(tmp_path / "t.mat", {"X": X, "y": np.array([1, 2, 1], object)})
    assert_read(read_path(tmp_path / "t.mat"), [1, 2, 1])


@pytest.mark.parametrize(
    ("codes", "labels"),
    [
        ([1.0, 2.0, 1.0], ["a", "b", "a"]),
        ([2, 3, -1], ["b", "c", ""]),
        ([0, 1, 0], ["a", "b", "a"]),
        ([1, 4, 1], [1, 4, 1]),
        ([-1, 1, 1], [-1, 1, 1]),
        ([1, np.nan, 2], [1, np.nan, 2]),
    ],
)
def test_classes_are_counted_from_1(tmp_path, codes, labels):
    names = np.array(["a", "b", "c"], object)
    savemat(tmp_path / "t.mat", {"X": X, "y": codes, "class_names": names})
    np.testing.assert_array_equal(read_path(tmp_path / "t.mat").labels, labels)


def test_classes_of_all_parts_are_counted_alike(tmp_path):
    arrays = {"trainX": X, "trainY": [0, 1, 2], "testX": X[:2], "testY": [1, 2]}
    names = np.array(["a", "b", "c"], object)
    savemat(tmp_path / "t.mat", arrays | {"class_names": names})
    assert read_path(tmp_path / "t.mat").labels.tolist() == ["a", "b", "c", "b", "c"]


def test_classes_of_minus_1_and_1_are_doubted(tmp_path):
    savemat(tmp_path / "t.mat", {"X": X, "y": [[1], [-1], [1]]})
    with pytest.warns(UserWarning, match="the only class is '1', as -1 means no label; if -1 is a"):
        load_dataset(tmp_path / "t.mat")


def test_classes_beside_0_are_doubted(tmp_path):
    savemat(tmp_path / "t.mat", {"X": X, "y": [[1], [-1], [0]]})
    assert read_path(tmp_path / "t.mat").summary.doubts[0].startswith("of the labels -1, 0 and 1")
    savemat(tmp_path / "t.mat", {"X": X, "y": [[1], [0], [0]]})
    assert not read_path(tmp_path / "t.mat").summary.doubts


@pytest.mark.parametrize("name", ["data", "orl"])
def test_fields_of_a_structure_are_read(tmp_path, name):
    savemat(tmp_path / "t.mat", {name: {"fea": X.T, "gnd": [1, 2, 1], "k": 3}, "version": "1.0"})
    raw = read_path(tmp_path / "t.mat")
    assert_read(raw, [1, 2, 1])
    assert raw.summary.left_out.keys() == {"k", "version"}


@pytest.mark.parametrize("around", [None, "dataset"])
def test_structures_are_parts_by_their_names(tmp_path, around):
    parts = {"train": {"X": X, "y": [1, 2, 1]}, "test": {"X": X[:1], "y": 2}}
    savemat(tmp_path / "t.mat", parts if around is None else {around: parts})
    raw = read_path(tmp_path / "t.mat")
    assert_read(raw, [1, 2, 1, 2], [False] * 3 + [True], np.vstack([X, X[:1]]))


TWO = np.array([[(X[0], 1), (X[1], 2)]], dtype=[("X", object), ("y", object)])
MATRICES = np.empty(2, object)
MATRICES[:] = [X, X[:, :1]]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"X": MATRICES, "y": [1, 2, 1]}, "X must be .* cell array. In MATLAB, save .* as X{1}. "),
        ({"X": X, "y": "cat"}, "y must be .*; got text. In MATLAB, save cellstr(y). "),
        (
            {"X": X + 1j, "y": [1, 2, 1]},
            "X must be .*; got complex numbers. In MATLAB, save real(X)",
        ),
        ({"data": TWO}, "data must be .*; got structures. .* such as vertcat(data.FIELD). "),
        ({"d": {"a": X, "b": 1}}, "d must be .*; got a structure. .* save(FILE, '-struct', 'd', "),
        (
            {"data": {"X": sparse.csc_array(X), "y": [1, 2, 1]}},
            "X must .* sparse .* save full(X). ",
        ),
        ({n: {"X": X, "y": [1, 2, 1]} for n in ("a", "b")}, "a must be .*; got a structure. "),
        ({"X": X, "y": np.eye(3)}, "y must .* one-hot, save [~, y] = max(y, [], 2)."),
        ({"X": X.T, "y": np.eye(4)[:, :3]}, "y must .* one-hot, save [~, y] = max(y, [], 1)."),
        (
            {"data": np.zeros((3, 4, 5)), "labels": np.eye(3, 4)},
            "labels .* save reshape(data, [], size(data, ndims(data))) and labels(:).",
        ),
        ({"X": X, "y": [1, 2, 1], "test": [1.0, 0, 0]}, "test must .* Save booleans: test == 1."),
    ],
)
def test_other_variables_have_ways_out(tmp_path, variables, message):
    savemat(tmp_path / "t.mat", variables)
    with pytest.raises(ValueError, match=r"t\.mat: " + re.escape(message).replace(r"\.\*", ".*")):
        read_path(tmp_path / "t.mat")
