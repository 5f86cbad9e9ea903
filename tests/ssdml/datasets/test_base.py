"""Data sets of arrays are checked where they are made."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

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
        (
            {"test": [0, 0, 1]},
            r"test must be True or False .*got int64 of shape \(3,\).* test == 1",
        ),
        ({"test": [2]}, r"test must be .*got int64 of shape \(1,\).*isin\(numpy.arange\(3\), test"),
        ({"gallery": np.array(["q", "g", "g"])}, "gallery must be .*got <U1.* gallery == 'q'"),
        ({"test": [True, False]}, r"test must have shape \(3,\), an entry per sample; got \(2,\)"),
        ({"ids": [1, 2]}, r"ids must have shape \(3,\), an entry per sample; got \(2,\)"),
    ],
)
def test_parts_are_masks_or_entries_of_all_samples(part, message):
    with pytest.raises(ValueError, match=f"^Dataset: {message}"):
        Dataset("mine", np.eye(3), np.array([0, 1, 0]), ("a", "b"), **part)


@pytest.mark.parametrize(
    ("names", "message"),
    [("ab", "class_names must be a sequence of names; got 'ab'"), ((0, 1), "must be text; got 0")],
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


def test_labels_in_another_order_are_doubted():
    with pytest.warns(UserWarning, match="^Dataset: y must be in the order of X"):
        Dataset("mine", pd.DataFrame(np.eye(2)), pd.Series([0, 1], index=[1, 0]), ("a", "b"))


def test_a_data_set_is_shown_in_one_line():
    y, test = np.array([0, 1, -1, 1]), np.array([False, False, False, True])
    shown = repr(Dataset("mine", np.eye(4), y, ("a", "b"), test))
    assert shown == "<Dataset 'mine': 4 samples in 2 classes, 3 labeled, 1 for testing>"
