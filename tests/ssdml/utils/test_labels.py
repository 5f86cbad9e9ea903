"""Encoding and reading of partial labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import entropy

from ssdml.utils.labels import confidences, encode_partial_labels, read_labels


@pytest.mark.parametrize(
    "y",
    [
        ["b", None, "a", "", "b"],
        np.array(["b", "", "a", "", "b"]),
        np.array(["b", None, "a", float("nan"), "b"], dtype=object),
        ["b", -1, "a", float("nan"), "b"],
        np.array(["b", -1, "a", float("nan"), "b"]),
        np.array([b"b", b"", b"a", b"-1", b"b"]),
        pd.Series(["b", -1, "a", float("nan"), "b"]).astype(str),
        pd.Series(["b", None, "a", pd.NA, "b"]),
        pd.Series(["b", None, "a", None, "b"], dtype="category"),
        pl.Series(["b", None, "a", None, "b"]),
    ],
)
def test_strings_are_encoded_from_any_container(y):
    codes, classes = encode_partial_labels(y)
    np.testing.assert_array_equal(codes, [1, -1, 0, -1, 1])
    np.testing.assert_array_equal(classes, ["a", "b"])
    assert codes.dtype == np.int64
    assert classes.dtype.kind == "U"


@pytest.mark.parametrize(
    "y",
    [
        [30, -1, 7, -1, 30],
        np.array([30, -1, 7, -1, 30], dtype=np.int8),
        [30.0, float("nan"), 7.0, -1.0, 30.0],
        [30, None, 7, "", 30],
        pd.Series([30, None, 7, pd.NA, 30], dtype="Int64"),
        pl.Series([30, None, 7, None, 30]),
    ],
)
def test_numbers_are_encoded_from_any_container(y):
    codes, classes = encode_partial_labels(y)
    np.testing.assert_array_equal(codes, [1, -1, 0, -1, 1])
    np.testing.assert_array_equal(classes, [7, 30])


def test_codes_decode_to_the_labels(rng):
    y = rng.choice(["x", "yy", "z", ""], 50)
    codes, classes = encode_partial_labels(y)
    np.testing.assert_array_equal(np.where(codes == -1, "", classes[codes]), y)


def test_unlabeled_marks_can_be_chosen():
    codes, classes = encode_partial_labels(["?", "a", ""], unlabeled=["?"])
    np.testing.assert_array_equal(codes, [-1, 1, 0])
    np.testing.assert_array_equal(classes, ["", "a"])
    codes, _ = encode_partial_labels([0, -1, 2], unlabeled=[0])
    np.testing.assert_array_equal(codes, [-1, 0, 1])


def test_booleans_are_two_classes():
    codes, classes = encode_partial_labels([True, False, True])
    np.testing.assert_array_equal(codes, [1, 0, 1])
    np.testing.assert_array_equal(classes, [False, True])


def test_large_integers_stay_distinct():
    _, classes = encode_partial_labels([2**60, 2**60 + 1, None])
    assert classes.tolist() == [2**60, 2**60 + 1]


@pytest.mark.parametrize("y", [[], [None, None], [-1, -1], ["", ""], [float("nan")]])
def test_no_labels_give_no_classes(y):
    codes, classes = encode_partial_labels(y)
    np.testing.assert_array_equal(codes, np.full(len(y), -1))
    assert len(classes) == 0


def test_labels_of_two_kinds_raise():
    with pytest.raises(TypeError, match=r"y must hold labels of one kind.*; got int, str"):
        encode_partial_labels(["a", 3, None])


def test_two_dimensional_labels_raise():
    with pytest.raises(ValueError, match=r"y must be 1-D; got shape \(2, 1\)"):
        encode_partial_labels([[0], [1]])


@pytest.mark.parametrize(
    "y",
    [
        [3, -1, 0],
        np.array([3, -1, 0], dtype=np.int8),
        np.array([3.0, -1.0, 0.0]),
        np.array([3, -1, 0], dtype=object),
        pd.Series([3, -1, 0]),
        pl.Series([3, -1, 0]),
    ],
)
def test_whole_numbers_are_read_from_any_container(y):
    labels = read_labels(y, 3, "who", "Way out.")
    np.testing.assert_array_equal(labels, [3, -1, 0])
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (None, ValueError, r"^who requires y to be passed, but the target y is None\.$"),
        (
            [0, 1],
            ValueError,
            r"^who: y must have shape \(3,\), one label per row; got shape \(2,\)",
        ),
        (np.zeros((3, 2)), ValueError, "y should be a 1d array"),
        (["a", "b", "c"], TypeError, "^who: y must hold integers, .*encode_partial_labels"),
        (np.array([0.5, 1, 2], dtype=object), TypeError, "^who: y must hold integers"),
        ([-1, -1, -1], ValueError, r"^who: y must contain labels beside -1 .*-1\. Way out\.$"),
    ],
)
def test_invalid_labels_raise_with_the_callers_name(y, error, message):
    with pytest.raises(error, match=message):
        read_labels(y, 3, "who", "Way out.")


def test_confidence_is_1_if_certain_0_if_uniform():
    for n_classes in (2, 3, 10):
        np.testing.assert_array_equal(confidences(np.eye(n_classes)), 1)
        uniform = np.full((1, n_classes), 1 / n_classes)
        np.testing.assert_allclose(confidences(uniform), 0, atol=1e-15)


def test_one_class_is_always_certain():
    np.testing.assert_array_equal(confidences(np.ones((4, 1))), 1)


def test_confidence_is_the_documented_formula(rng):
    distributions = rng.dirichlet(np.full(5, 0.4), 200)
    entropies = entropy(distributions, axis=1)
    found = confidences(distributions)
    np.testing.assert_allclose(found, (1 - entropies / np.log(5)) ** 2, atol=1e-12)
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_array_equal(np.argsort(-found), np.argsort(entropies))


def test_confidence_falls_towards_uniform():
    shares = np.linspace(0, 1, 20)[:, None]
    found = confidences((1 - shares) * np.eye(4)[[2]] + shares / 4)
    assert found[0] == 1
    assert (np.diff(found) < 0).all()


def test_confidence_is_invariant_to_permutations(rng):
    distributions = rng.dirichlet(np.ones(6), 30)
    found, order = confidences(distributions), rng.permutation(30)
    np.testing.assert_allclose(confidences(distributions[:, ::-1]), found, atol=1e-14)
    np.testing.assert_array_equal(confidences(distributions[order]), found[order])


def test_float32_confidence_stays_in_range(rng):
    """Their sums are one give or take rounding, and so are their entropies."""
    rows = [rng.dirichlet(np.full(10, a), 50) for a in (0.02, 1.0, 1e9)]
    distributions = np.concatenate([*rows, np.full((1, 10), 0.1), np.eye(10)])
    found = confidences(distributions.astype(np.float32))
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_allclose(found, confidences(distributions), atol=1e-5)


def test_zero_rows_have_no_confidence():
    for n_classes in (1, 3):
        assert (confidences(np.zeros((2, n_classes))) == 0).all()
