"""Encoding and reading of partial labels."""

from __future__ import annotations

import datetime
import decimal
import enum

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy.stats import entropy

from ssdml.utils.labels import (
    as_column,
    check_order,
    check_same_kind,
    confidences,
    encode_column,
    encode_partial_labels,
    is_unlabeled,
    read_labels,
    warn_of_labels_in,
)


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


MARKS = ("", " ", "NaN", "nan", "NA", "n/a", "N/A", "#N/A", "<NA>", "null", "NULL", "None", "?")
MARKS += (r"\N",)
MARKS += ("-1", "-1.0", " -1 ", "unlabeled", "Unlabelled", "UNKNOWN", "unknown ")


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pl.Series])
@pytest.mark.parametrize("mark", MARKS)
def test_every_mark_of_no_label_is_known(mark, kind):
    codes, classes = encode_partial_labels(kind(["a", mark, "b"]))
    np.testing.assert_array_equal(codes, [0, -1, 1])
    assert classes.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "mark", [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, -1, -1.0, np.int8(-1)]
)
@pytest.mark.parametrize("others", [("a", "b"), (7, 8), (False, True)])
def test_missing_values_of_every_type_are_marks(mark, others):
    codes, classes = encode_partial_labels([others[0], mark, others[1]])
    np.testing.assert_array_equal(codes, [0, -1, 1])
    assert classes.tolist() == list(others)


@pytest.mark.parametrize(
    "name", ["none of these", "nano", "-10", "11", "1", "-", "0", "N", "false"]
)
def test_names_like_marks_are_classes(name):
    assert encode_partial_labels([name, "x"])[1].tolist() == sorted([name, "x"])


@pytest.mark.parametrize(
    ("unlabeled", "labels"),
    [
        ("unlabeled", ["unlabeled", "a", "b"]),
        ("todo", [" ToDo", "a", "NA"]),
        ("9", [9, 1, 2]),
        ("9", [9.0, 1.0, 2.0]),
        (9, ["9", "1", "-1"]),
        (b"x", ["x", "a", "b"]),
        (True, [True, False, False]),
    ],
)
def test_one_mark_need_not_be_in_a_list(unlabeled, labels):
    codes, classes = encode_partial_labels(labels, unlabeled=unlabeled)
    assert codes[0] == -1
    assert (codes[1:] >= 0).all()
    assert labels[0] not in classes.tolist()


class Mood(str, enum.Enum):  # noqa: UP042
    """Strings whose str() is another text."""

    GOOD = "good"
    NONE = "unknown"


@pytest.mark.parametrize(
    "y",
    [
        [Mood.GOOD, Mood.NONE],
        [Mood.GOOD, None],
        np.array([Mood.GOOD, Mood.NONE], dtype=object),
        pd.Series([Mood.GOOD, Mood.NONE]),
    ],
)
def test_members_of_an_enumeration_of_strings_are_their_values(y):
    codes, classes = encode_partial_labels(y)
    np.testing.assert_array_equal(codes, [0, -1])
    assert classes.tolist() == ["good"]


def test_a_column_in_a_frame_of_polars_is_refused_with_a_way_out():
    with pytest.raises(ValueError, match=r"got shape \(2, 1\)\. Pass numpy\.ravel\(y\)"):
        encode_partial_labels(pl.DataFrame({"label": ["a", None]}))
    with pytest.raises(
        TypeError, match=r"^encode_partial_labels: y must be a list .* got LazyFrame"
    ):
        encode_partial_labels(pl.LazyFrame({"label": ["a", None]}))


def test_masked_entries_have_no_label():
    masked = np.ma.masked_array(["a", "b", "a"], mask=[0, 1, 0])
    assert encode_partial_labels(masked)[1].tolist() == ["a"]
    codes, classes = encode_partial_labels(np.ma.masked_array([3, 9, 4], mask=[0, 1, 0]))
    np.testing.assert_array_equal(codes, [0, -1, 1])
    assert classes.tolist() == [3, 4]
    assert encode_partial_labels(np.ma.masked_array([3, 9]))[1].tolist() == [3, 9]


def test_booleans_are_two_classes():
    codes, classes = encode_partial_labels([True, False, True])
    np.testing.assert_array_equal(codes, [1, 0, 1])
    np.testing.assert_array_equal(classes, [False, True])


@pytest.mark.parametrize(
    "labels", [["007", "7", "07"], ["1_2", "12"], ["1", "1.0", "1e0"], [" a", "a"], ["A", "a"]]
)
def test_different_strings_stay_distinct(labels):
    assert encode_partial_labels(labels)[1].tolist() == sorted(labels)


LARGE = [2**60, 2**60 + 1]


@pytest.mark.parametrize(
    "y",
    [
        [*LARGE, None],
        [*LARGE, -1.0],
        pl.Series([*LARGE, None]),
        pd.Series([*LARGE, None], dtype="Int64"),
        pa.array([*LARGE, None]),
        pa.chunked_array([[*LARGE, None]]),
        np.array([*LARGE, 0], np.uint64),
    ],
)
def test_large_integers_stay_distinct(y):
    assert encode_partial_labels(y, unlabeled=[None, -1, 0])[1].tolist() == LARGE


@pytest.mark.parametrize(
    "y",
    [
        [["a"], ["b", "c"], []],
        ["a", ("b", "c")],
        pd.Series([["a"], ["b"]]),
        [{"a"}, {"b"}],
        [{"a": 1}, None],
        pl.Series([["a"], ["b", "c"]]),
    ],
)
def test_several_labels_per_row_raise(y):
    with pytest.raises(
        TypeError, match="encode_partial_labels: y must hold one label per row; got"
    ):
        encode_partial_labels(y)


@pytest.mark.parametrize("y", [[], [None, None], [-1, -1], ["", ""], [float("nan")]])
def test_no_labels_give_no_classes(y):
    codes, classes = encode_partial_labels(y)
    np.testing.assert_array_equal(codes, np.full(len(y), -1))
    assert len(classes) == 0


@pytest.mark.parametrize(
    ("y", "kinds"),
    [(["a", 3, None], "int, str"), ([True, 1], "bool, int"), ([True, "True"], "bool")],
)
def test_labels_of_two_kinds_raise(y, kinds):
    with pytest.raises(TypeError, match=rf"y must hold labels of one kind.*; got {kinds}"):
        encode_partial_labels(y)


def test_errors_of_a_column_begin_with_its_name():
    with pytest.raises(TypeError, match=r"^t\.csv: y must hold labels of one kind"):
        encode_column(as_column(["a", 3], "t.csv"), "t.csv")
    with pytest.raises(TypeError, match=r"^t\.csv: y must hold one label per row"):
        as_column([["a"], ["b", "c"]], "t.csv")


def test_kinds_of_labels_are_compared():
    kinds = [np.array(["a"]), np.array([1.0]), np.array([True])]
    for i, j in np.ndindex(3, 3):
        if i == j:
            check_same_kind(kinds[i], kinds[j], "who", ("y", "gallery"))
            continue
        with pytest.raises(TypeError, match="who: y and gallery must hold labels of one kind; got"):
            check_same_kind(kinds[i], kinds[j], "who", ("y", "gallery"))
    check_same_kind(kinds[0], np.array([]), "who", ("y", "gallery"))


@pytest.mark.parametrize("y", [[[0], [1]], [[0, 1]]])
def test_labels_in_a_column_or_a_row_raise(y):
    with pytest.raises(ValueError, match=r"one dimension, .* shape .*\. Pass numpy\.ravel"):
        encode_partial_labels(y)


@pytest.mark.parametrize(
    "y",
    [
        [3, -1, 0],
        np.array([3, -1, 0], dtype=np.int8),
        np.array([3.0, -1.0, 0.0]),
        np.array([3, -1, 0], dtype=object),
        pd.Series([3, -1, 0]),
        pl.Series([3, -1, 0]),
        [3, None, 0],
        [3.0, float("nan"), 0.0],
        [3, "", 0],
        pd.Series([3, None, 0], dtype="Int64"),
        np.ma.masked_array([3, 5, 0], mask=[0, 1, 0]),
        torch.tensor([3, -1, 0]),
    ],
)
def test_whole_numbers_are_read_from_any_container(y):
    labels, names = read_labels(y, 3, "who", "Way out.")
    np.testing.assert_array_equal(labels, [3, -1, 0])
    assert names is None
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (
            None,
            ValueError,
            r"^who requires y to be passed, but .* None\. .* inside a Dataset are not",
        ),
        (
            [0, 1],
            ValueError,
            r"^who: y must have shape \(3,\), one label per row; got shape \(2,\)",
        ),
        (np.zeros((3, 2)), ValueError, r"^who: y must have one dimension, .*of indicators, n"),
        (
            np.array([0.5, 1, 2], dtype=object),
            ValueError,
            "^who: y must hold integers .*; got continuous values, 0.5 in row 0",
        ),
        ([-1, -1, -1], ValueError, r"^who: y must contain labels beside -1 .*-1\. Way out\.$"),
    ],
)
def test_invalid_labels_raise_with_the_callers_name(y, error, message):
    with pytest.raises(error, match=message):
        read_labels(y, 3, "who", "Way out.")


def test_names_are_read_with_their_classes():
    labels, names = read_labels(["b", None, "a", "?"], 4, "who", "Way out.")
    np.testing.assert_array_equal(labels, [1, -1, 0, -1])
    assert names.tolist() == ["a", "b"]
    labels, names = read_labels(np.array([True, False]), 2, "who")
    np.testing.assert_array_equal(labels, [1, 0])
    assert names.tolist() == [False, True]


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


@pytest.mark.parametrize("mark", ["-1", "-1.", "-1.00", "-1.000e+00", "-1E0", " -1.0 "])
def test_minus_one_is_known_however_it_is_written(mark):
    assert is_unlabeled(np.array([mark, "1", "-10", "-01", "-1.5"])).tolist() == [True] + 4 * [
        False
    ]


@pytest.mark.parametrize(
    "y",
    [
        np.array(["a", "", "b"], dtype=np.dtypes.StringDType()),
        np.array(["a", None, "b"], dtype=np.dtypes.StringDType(na_object=None)),
        [b"a", None, b"b"],
        np.array([b"a", b"", b"b"]),
    ],
    ids=["strings", "strings with None", "bytes in a list", "bytes"],
)
def test_every_kind_of_text_is_a_name(y):
    codes, names = read_labels(y, 3, "here")
    assert codes.tolist() == [0, -1, 1]
    assert names.tolist() == ["a", "b"]
    assert names.dtype.kind == "U"


@pytest.mark.parametrize(
    "label",
    [
        datetime.date(2020, 1, 1),
        decimal.Decimal("1.5"),
        pd.Period("2020-01"),
        enum.Enum("E", "A").A,
    ],
)
def test_labels_of_other_types_are_refused_by_name(label):
    with pytest.raises(TypeError, match=r"^here: y must hold names, .*; got .* Pass text for it"):
        read_labels([label, None, label], 3, "here")


def test_complex_labels_are_refused_by_name():
    with pytest.raises(TypeError, match=r"^here: y must hold names, .*; got .*, a complex128"):
        read_labels(np.array([1j, -1]), 2, "here")


def test_dates_are_refused_by_name():
    days = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")
    with pytest.raises(TypeError, match=r"^here: y must hold names, .* got np\.datetime64"):
        read_labels(days, 2, "here")


@pytest.mark.parametrize("y", [None, "abc", {"a": 1}, {"a"}, iter("ab"), 3])
def test_what_is_no_list_of_labels_is_named(y):
    name = type(y).__name__
    with pytest.raises(TypeError, match=f"y must be a list or an array of labels, .*; got {name}"):
        encode_partial_labels(y)


def test_bytes_in_another_encoding_are_named():
    with pytest.raises(ValueError, match=r"y must hold text in UTF-8 .*; got b'\\xff'\. Decode"):
        encode_partial_labels([b"a", b"\xff"])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint64])
def test_minus_one_cast_to_an_unsigned_type_is_doubted(dtype):
    labels = np.array([0, -1, 1, -1]).astype(dtype)
    with pytest.warns(UserWarning, match=r"must be signed for -1 .* got \d+ in uint"):
        encode_partial_labels(labels)
    codes, classes = encode_partial_labels(np.arange(256, dtype=np.uint8))  # all of them classes
    assert codes.tolist() == classes.tolist() == list(range(256))


def test_integers_of_any_size_are_encoded():
    codes, classes = encode_partial_labels([2**70, None, 5])
    assert codes.tolist() == [1, -1, 0]
    assert classes.tolist() == [5, 2**70]
    with pytest.raises(ValueError, match=f"who: y must fit into int64; got {2**70}.*to codes"):
        read_labels([2**70, None, 5], 3, "who")


def test_confidences_of_tensors_are_those_of_arrays():
    rows = np.array([[0.5, 0.5], [0.9, 0.1]])
    found = confidences(torch.tensor(rows, requires_grad=True))
    np.testing.assert_array_equal(found, confidences(rows))


def test_labels_in_another_order_than_the_samples_are_doubted():
    X, y = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=list("pqr")), pd.Series([0, 1, -1])
    for index in (list("pqr"), list("qrs"), [0, 1, 2]):
        check_order(X, y.set_axis(index), "here")
    check_order(X, y.tolist(), "here")
    check_order(X.to_numpy(), y, "here")
    with pytest.warns(
        UserWarning, match=r"here: y must be in the order of X; .*y\.loc\[X\.index\]"
    ):
        check_order(X, y.set_axis(list("rqp")), "here")


@pytest.mark.parametrize("mark", [-100, -2])
def test_other_marks_than_minus_one_give_a_warning(mark):
    with pytest.warns(UserWarning, match=rf"who: y .*; got {mark}, which counts as a class. If it"):
        labels, _ = read_labels(np.array([3.0, mark, -1]), 3, "who")
    assert labels.tolist() == [3, mark, -1]


@pytest.mark.parametrize(("names", "told"), [(None, "column 2"), (["p", "q", "code"], "'code'")])
def test_labels_among_the_features_give_a_warning(rng, names, told):
    labels = np.arange(40) % 4 - 1
    X = np.column_stack([rng.random((40, 2)), labels])
    with pytest.warns(UserWarning, match=f"who: X must not hold the labels; .*{told} equals y"):
        warn_of_labels_in(X, labels, "who", names)
    X[30, 2] = 7
    warn_of_labels_in(X, labels, "who", names)
