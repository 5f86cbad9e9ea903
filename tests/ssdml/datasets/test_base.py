"""Data sets of arrays are checked where they are made."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.datasets import Dataset


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


def test_a_data_set_is_shown_in_one_line():
    y, test = np.array([0, 1, -1, 1]), np.array([False, False, False, True])
    shown = repr(Dataset("mine", np.eye(4), y, ("a", "b"), test))
    assert shown == "<Dataset 'mine': 4 samples in 2 classes, 3 labeled, 1 for testing>"
