"""Data sets of arrays are checked where they are made."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from ssdml.datasets import Dataset, label_scarce_split


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "b", "a"], r"whole numbers of shape \(3,\); got <U1 .*encode_partial_labels"),
        ([0, 1], r"whole numbers of shape \(3,\); got int64 of shape \(2,\)"),
        ([0, 1, -2], "at least -1; got -2"),
        ([0, 1, 2], "lie below the number of class_names = 2; got 2. Name all classes"),
    ],
)
def test_labels_are_numbers_of_classes(y, message):
    with pytest.raises(ValueError, match=f"^Dataset: y must (be )?{message}"):
        Dataset("mine", np.eye(3), np.array(y), ("a", "b"))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"test": [0, 0, 1]}, r"test must be True or False .*int64 of shape \(3,\).* == 1\."),
        ({"test": np.array([0, 0, 1])}, r"test must be .*Pass test == 1\."),
        ({"test": np.array([2])}, r"test must be .*\. Pass numpy.isin\(numpy.arange\(3\), test\)"),
        ({"test": {2}}, r"test must be .*isin\(numpy.arange\(3\), numpy.array\(\[\*test\]\)\)"),
        ({"test": np.array([2, 0, 1])}, r"test must be .*Pass numpy.isin\(numpy.arange\(3\)"),
        ({"test": [True, None, True]}, r"test must be .*numpy.array\(\[\*test\]\).astype\(bool\)"),
        ({"gallery": np.array(["q", "g", "g"])}, "gallery must be .*<U1.* gallery == 'gallery' if"),
        ({"test": [True, False]}, r"test must have shape \(3,\), an entry per sample; got \(2,\)"),
        ({"ids": [1, 2]}, r"ids must have shape \(3,\), an entry per sample; got \(2,\)"),
    ],
)
def test_parts_are_masks_or_entries_of_all_samples(part, message):
    with pytest.raises(ValueError, match=f"^Dataset: {message}"):
        Dataset("mine", np.eye(3), np.array([0, 1, 0]), ("a", "b"), **part)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("ab", "class_names must be a sequence of names; got 'ab'"),
        ({"a", "b"}, r"class_names must be a sequence of names; got {.*}\. Pass a list"),
        ((0, 1), "must be text; got 0"),
    ],
)
def test_class_names_are_text(names, message):
    with pytest.raises(TypeError, match=f"^Dataset: .*{message}"):
        Dataset("mine", np.eye(2), np.array([0, 1]), names)


def test_lists_tensors_and_tables_become_arrays():
    X, y, test = np.eye(3), [0, 1, -1], [False, True, False]
    for samples in (X.tolist(), torch.tensor(X), pd.DataFrame(X)):
        data = Dataset("mine", samples, y, ["a", "b"], test)
        np.testing.assert_array_equal(data.of_rows([1, 2]).X, X[1:])
        assert data.of_rows([1, 2]).test.tolist() == [True, False]
        assert data.y.tolist() == y
        assert label_scarce_split(data, 1, seed=0).test.tolist() == [1]


def test_lists_of_images_and_of_texts_keep_them():
    images = [np.full((2, 2), i) for i in range(3)]
    data = Dataset("mine", images, [0, 1, 0], ("a", "b"), texts=["a", "bc", "d"], ids=["a", 1, 2])
    np.testing.assert_array_equal(data.of_rows([2, 1]).X, [images[2], images[1]])
    assert data.texts.dtype == object
    assert data.of_rows([1, 0]).ids.tolist() == [1, "a"]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (sparse.eye_array(2), "must be dense; got a sparse"),
        (None, "must be an array or a table of numbers; got NoneType"),
        ({"data": np.eye(2)}, r"must be an array or a table .*; got dict\. Pass .* X\['data'\]"),
    ],
)
def test_samples_are_an_array(samples, message):
    with pytest.raises(TypeError, match=f"^Dataset: X {message}"):
        Dataset("mine", samples, [0, 1], ("a", "b"))


def test_names_of_numpy_become_plain_text():
    data = Dataset(np.str_("mine"), np.eye(2), [0, 1], np.array(["a", "b"]))
    assert repr((data.name, data.class_names)) == "('mine', ('a', 'b'))"


def test_labels_and_masks_in_another_order_are_doubted():
    y, test = pd.Series([0, 1], index=[1, 0]), pd.Series([False, True])
    with pytest.warns(UserWarning, match="^Dataset: y must be in the order of X"):
        Dataset("mine", pd.DataFrame(np.eye(2)), y, ("a", "b"))
    with pytest.warns(UserWarning, match="^Dataset: test must be in the order of X"):
        Dataset("mine", pd.DataFrame(np.eye(2), index=[1, 0]), [0, 1], ("a", "b"), test)
    with pytest.warns(UserWarning, match="^Dataset: test must be in the order of y"):
        Dataset("mine", np.eye(2), y, ("a", "b"), test)


def test_a_data_set_is_shown_in_one_line():
    y, test = np.array([0, 1, -1, 1]), np.array([False, False, False, True])
    shown = repr(Dataset("mine", np.eye(4), y, ("a", "b"), test))
    assert shown == "<Dataset 'mine': 4 samples in 2 classes, 3 labeled, 1 for testing>"
