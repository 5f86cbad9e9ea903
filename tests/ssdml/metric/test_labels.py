"""Labels of any kind: they come back as they were given, or an error names what is wrong."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import DataConversionWarning

from ssdml import SSDML


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (
            np.zeros(89, int),
            ValueError,
            r"SSDML: y must have shape \(90,\), one label per row; got",
        ),
        (np.zeros((90, 2), int), ValueError, r"y must have one dimension, .*\(90, 2\)\. Keep"),
        (None, ValueError, "SSDML requires y to be passed, but the target y is None"),
        (np.full(90, -1), ValueError, "SSDML: y must contain labels beside -1 .*Label some rows"),
        (np.array([None] * 90), ValueError, "must contain labels beside -1 .*Label some rows"),
        (np.full(90, np.nan), ValueError, "must contain labels beside -1 .*Label some rows"),
        (np.full(90, 0.5), ValueError, "must hold integers .*got continuous values, 0.5 in row 0"),
        (["a", 1] * 45, TypeError, "SSDML: y must hold labels of one kind.*; got int, str"),
        ([True, 1] * 45, TypeError, "SSDML: y must hold labels of one kind.*; got bool, int"),
        ([["a", "b"], ["a"]] * 45, TypeError, r"one label per row; got \['a', 'b'\] in row 0"),
    ],
    ids="length 2-D missing unlabeled None NaN fractions mixed booleans several".split(),
)
def test_invalid_labels_raise(X, labels, error, message):
    with pytest.raises(error, match=message):
        SSDML().fit(X, labels)


def test_labels_may_be_any_integers(X, y):
    names = np.array([-7, 3, 10**12])
    model = SSDML(random_state=0).fit(X, np.where(y < 0, -1, names[y]))
    np.testing.assert_array_equal(model.classes_, names)
    assert set(model.predict(X)) == set(names)


NAMES = np.array(["ash", "birch", "cedar", ""])  # the last for -1


@pytest.mark.parametrize(
    "convert",
    [
        lambda names: names,
        lambda names: [name or None for name in names],
        lambda names: np.where(names == "", np.nan, names.astype(object)),
        lambda names: pd.Series(names).replace("", None).astype("category"),
        lambda names: pl.Series(names).replace("", None),
        lambda names: np.ma.masked_array(names, names == ""),
        lambda names: np.char.encode(names),
    ],
    ids="array None NaN pandas polars masked bytes".split(),
)
def test_names_of_any_container_come_back(X, y, plain, convert):
    named = SSDML(random_state=0).fit(X, convert(NAMES[y]))
    assert named.classes_.tolist() == ["ash", "birch", "cedar"]
    np.testing.assert_array_equal(named.transform(X), plain.transform(X))
    np.testing.assert_array_equal(named.transduction_, NAMES[plain.transduction_])
    np.testing.assert_array_equal(named.predict(X), NAMES[plain.predict(X)])
    assert named.score(X, convert(NAMES[y])) == plain.score(X, y)
    suspects = named.suspected_labels()
    np.testing.assert_array_equal(suspects.labels, NAMES[plain.suspected_labels().labels])


def test_booleans_come_back(X, y):
    labels = np.array([False, True, True, None], dtype=object)[y]
    model = SSDML(random_state=0).fit(X, labels)
    assert model.classes_.tolist() == [False, True]
    assert model.predict(X).dtype == bool
    assert model.score(X, labels) > 0.9


def test_minus_one_cast_to_an_unsigned_type_is_doubted(X, y):
    with pytest.warns(UserWarning, match="SSDML: y must be signed for -1") as record:
        SSDML(random_state=0).fit(X, y.astype(np.uint8))
    assert record[0].filename == __file__


def test_labels_of_a_table_in_another_order_are_doubted(X, y):
    rows, labels = pd.DataFrame(X), pd.Series(y)
    rows.columns = rows.columns.astype(str)
    with pytest.warns(UserWarning, match="SSDML: y must be in the order of X") as record:
        SSDML(random_state=0).fit(rows, labels.sort_values())
    assert record[0].filename == __file__
    model = SSDML(random_state=0).fit(rows[::-1], labels[::-1])
    for call in (model.score, model.extend):
        message = rf"SSDML\.{call.__name__}: y must be in the order of X"
        with pytest.warns(UserWarning, match=message) as record:
            call(rows, labels.sort_values())
        assert record[0].filename == __file__


def test_scoring_labels_of_another_kind_raises(X, y):
    model = SSDML(random_state=0).fit(X, NAMES[y])
    with pytest.raises(TypeError, match=r"SSDML\.score: y and the labels of the fit must hold"):
        model.score(X, y)


def test_refit_forgets_the_names(X, y):
    model = SSDML(random_state=0).fit(X, NAMES[y])
    assert model.fit(X, y).classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", [float, object, np.int8], ids=str)
def test_integers_of_any_dtype_are_labels(X, y, plain, kind):
    other = SSDML(random_state=0).fit(X, y.astype(kind))
    np.testing.assert_array_equal(other.transform(X), plain.transform(X))
    assert other.classes_.dtype == np.int64
    assert plain.score(X, y.astype(kind)) == plain.score(X, y)


@pytest.mark.parametrize("method", ["fit", "score"])
def test_column_of_labels_warns(X, y, plain, method):
    model = copy.copy(plain)
    with pytest.warns(DataConversionWarning, match="column-vector y was passed") as caught:
        getattr(model, method)(X, y[:, None])
    assert caught[0].filename == __file__
