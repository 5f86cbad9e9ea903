"""The calibration error of predicted probabilities."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from ssdml.evaluation import calibration_error, reliability

PROBA = np.array([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.8, 0.0], [0.3, 0.3, 0.4]])


@pytest.mark.parametrize("missing", [-1, None, np.nan, ""])
def test_unlabeled_rows_do_not_count(missing):
    names = ["a", "b", "b"]
    y = [*names, missing] if missing in (None, "") else [0, 1, 1, missing]
    expected = calibration_error(PROBA[:3, :2], y[:3])
    classes = ["a", "b", "c"] if missing in (None, "") else [0, 1, 2]
    assert calibration_error(PROBA, y, classes=classes) == pytest.approx(expected)
    assert expected == pytest.approx(100 * (0.1 + 0.1 + 0.2) / 3)


def test_columns_may_be_in_any_order():
    expected = calibration_error(PROBA, [0, 1, 1, 2])
    shuffled = calibration_error(PROBA[:, [2, 0, 1]], list("abbc"), classes=["c", "a", "b"])
    assert shuffled == pytest.approx(expected)


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.parametrize("y", ["abbc", "abba"])
def test_columns_of_a_table_are_found_by_name(table, y):
    """Even if a class is in no row."""
    expected = calibration_error(PROBA, list(y), classes=["a", "b", "c"])
    named = table({name: PROBA[:, "abc".index(name)] for name in "cab"})
    assert calibration_error(named, list(y)) == pytest.approx(expected)


def test_columns_of_other_names_are_in_order():
    named = pd.DataFrame(PROBA, columns=["p1", "p2", "p3"])
    assert calibration_error(named, list("abbc")) == calibration_error(PROBA, list("abbc"))


def test_rows_of_unknown_classes_are_wrong():
    assert calibration_error([[0.7, 0.3]], ["z"], classes=["a", "b"]) == pytest.approx(70)


def test_numbers_of_columns_are_taken_with_a_warning():
    with pytest.warns(UserWarning, match="y has 2 of 3 classes, .* Pass classes=model.classes_"):
        found = calibration_error(PROBA[:3], [0, 1, 1])
    assert found == pytest.approx(calibration_error(PROBA[:3], [0, 1, 1], classes=[0, 1, 2]))


@pytest.mark.parametrize(
    ("proba", "y", "options", "error", "message"),
    [
        ([[2, -1.0]] * 2, [0, 1], {}, ValueError, r"sum to 1 .*got \[2.0, -1.0\] in row 0"),
        ([[0.5, 0.5], [0.5, 0.4]], [0, 1], {}, ValueError, "in row 1. Pass the result of predict"),
        (PROBA, [0, 1], {}, ValueError, "a label for each of the 4 rows of probabilities; got 2"),
        (PROBA, [-1] * 4, {}, ValueError, "must contain labels; all 4 entries are unlabeled"),
        (PROBA, list("abba"), {}, ValueError, "y must name .*got 2 classes for 3 columns. Pass cl"),
        (PROBA, [5, 6, 6, 5], {}, ValueError, "y must name the class of each column; got 2"),
        (PROBA, list("abba"), {"classes": ["a", "b"]}, ValueError, "classes must name the class"),
        (PROBA, list("abba"), {"classes": [0, 1, 2]}, TypeError, "classes and y must hold labels"),
    ],
)
def test_bad_input_is_named(proba, y, options, error, message):
    with pytest.raises(error, match=f"^calibration_error: .*{message}"):
        calibration_error(proba, y, **options)


def test_reliability_takes_lists_and_names_the_rest():
    bins = reliability([0.6, 0.9], [True, False], n_bins=2)
    assert bins.counts.tolist() == [2]
    assert bins.error == pytest.approx(25)
    for confidence, is_right, message in (
        ([1.5], [True], r"confidence must be between 0 and 1; got 1\.5"),
        ([0.5], [True, False], r"must have shape \(n,\), .*got shapes \(1,\) and \(2,\), bool"),
        ([[0.9], [0.9, 0.1]], [True], "confidence must have rows of one length"),
        ([[0.9, 0.1]], ["a"], r"must have shape \(n,\), .*Pass predict_proba\(X\)\.max"),
    ):
        with pytest.raises(ValueError, match=message):
            reliability(confidence, is_right)
    with pytest.raises(ValueError, match="n_bins must be at least 1; got 0"):
        calibration_error([[0.5, 0.5]], [0], classes=[0, 1], n_bins=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_reliability_takes_tensors(dtype):
    confidence = torch.tensor([0.5, 1.0], dtype=dtype, requires_grad=True)
    assert reliability(confidence, torch.tensor([True, True])).error == 25


def test_probabilities_of_one_class_need_a_second_column():
    message = r"a column per class; got shape \(2,\)\. .* pass numpy\.column_stack\(\[1 - p, p\]\)"
    with pytest.raises(ValueError, match=message):
        calibration_error([0.2, 0.9], [0, 1])


def test_classes_of_columns_must_differ():
    """Columns of one name gave a number as if both were right."""
    with pytest.raises(ValueError, match=r"classes must differ; got \['a', 'a'\]"):
        calibration_error([[0.5, 0.5]] * 2, ["a", "b"], classes=["a", "a"])
