"""Validation of choices, labels, numbers and seeds."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse

from ssdml.evaluation import reliability
from ssdml.graphs import KNNGraph
from ssdml.utils.validation import (
    UNLABELED,
    as_array,
    as_generator,
    check_cells,
    check_labels,
    check_rows,
    choose,
    without_container,
    without_tensor,
)


def test_choose_returns_the_entry():
    assert choose({"a": 1, "b": 2}, "b", "letter") == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kmn", r"^affinity must be one of 'knn', 'rbf'; got 'kmn'. Did you mean 'knn'\?$"),
        ("xyz", r"^affinity must be one of 'knn', 'rbf'; got 'xyz'.$"),
        (None, r"got None.$"),
        (["knn"], r"got \['knn'\]."),
    ],
)
def test_choose_suggests_the_nearest_name(name, message):
    with pytest.raises(ValueError, match=message):
        choose({"knn": 0, "rbf": 1}, name, "affinity")


@pytest.mark.parametrize(
    "given",
    [[0, -1, 3], np.array([0, -1, 3], np.int8), [0.0, -1.0, 3.0], np.array([0, -1, 3], object)],
)
def test_labels_become_integers(given):
    labels = check_labels(given, 3, "here")
    np.testing.assert_array_equal(labels, [0, UNLABELED, 3])
    assert labels.dtype == np.int64


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ([0, None, 1], "None in row 1, dtype object"),
        ([0, np.nan, 1], "nan in row 1, dtype float64"),
        (["a", "b", "c"], "'a' in row 0, dtype <U1"),
        ([1, 0.5, 2], "0.5 in row 1, dtype float64"),
        ([False, True, True], "False in row 0, dtype bool"),
        (np.array([2, 1, "a"], dtype=object), "'a' in row 2, dtype object"),
        ([2, 1, "a"], "'a' in row 2, dtype <U21"),
        (np.array([2, 1, True], dtype=object), "True in row 2, dtype object"),
    ],
)
def test_invalid_labels_point_to_the_encoder(given, got):
    message = (
        f"here: y must hold integers, -1 for unlabeled rows; got {got}. "
        "ssdml.datasets.encode_partial_labels converts names, True and False to codes, and None, "
        "NaN and '' to -1."
    )
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        check_labels(given, 3, "here")


@pytest.mark.parametrize("given", [[0, 1], [[0], [1], [2]], 0])
def test_labels_need_one_per_row(given):
    with pytest.raises(ValueError, match=r"here: y must have shape \(3,\), one label per row; got"):
        check_labels(given, 3, "here")


def test_as_generator_accepts_all_seeds():
    as_rng = partial(as_generator, name="rng", who="draw")
    draws = {
        as_rng(7).integers(2**40),
        as_rng(np.random.default_rng(7)).integers(2**40),
    }
    assert len(draws) == 1
    old = [as_rng(np.random.RandomState(7)).integers(2**40) for _ in range(2)]
    assert old[0] == old[1]
    generator = np.random.default_rng(0)
    assert as_rng(generator) is generator
    assert as_rng(None).integers(2**60) != as_rng(None).integers(2**60)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_tensors_become_arrays(dtype):
    values = torch.tensor([[1.5, 2.0]]).to(dtype)
    if dtype.is_floating_point:
        values.requires_grad_()
    found = without_tensor(values, "here")
    np.testing.assert_array_equal(found, [[1.5 if dtype.is_floating_point else 1, 2.0]])
    assert found.dtype == (np.float32 if dtype == torch.bfloat16 else str(dtype)[6:])


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.eye(3).to_sparse(), r"must be dense; got .* torch.sparse_coo. Pass X.to_dense\(\)"),
        (torch.empty(3, 3, device="meta"), "must hold data; got a tensor on the device 'meta'"),
    ],
)
def test_tensors_without_an_array_are_refused(tensor, message):
    with pytest.raises(TypeError, match=f"^here: X {message}"):
        without_tensor(tensor, "here")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.date_range("2020-01-01", periods=3), r"holds dates\. Drop it"),
        (pd.to_timedelta([1, 2, 3], "s"), r"holds dates\. Drop it"),
        (["Ulm", "Bonn", "Rome"], r"holds text, such as 'Ulm'\. Drop it, or encode it"),
        (pd.Categorical(["Ulm", "Bonn", "Ulm"]), "holds text, such as 'Ulm'"),
        ([[1.0], [2.0], [3.0]], r"holds vectors\. Pass np\.stack"),
        (["[1]", "[2]", "[3]"], r"holds vectors as text, such as '\[1\]'\. Pass np\.stack\(\[np"),
        (["[1, 2]"] * 3, r"holds vectors as text, such as '\[1, 2\]'\. Pass np\.stack\(\[json"),
        (pd.interval_range(0, 3), r"holds Interval\(0, 1, .*, of type Interval\. Drop it, or pass"),
        (pd.period_range("2020", periods=3, freq="D"), "holds Period.*, of type Period"),
        ([1j, 2.0, 3.0], r"holds 1j, of type complex"),
        ([1.0, None, "Ulm"], "holds text, such as 'Ulm'"),
        (pd.Series([1.0, pd.NA, 2.0], dtype=object), "holds missing values, <NA>. Impute them"),
    ],
)
def test_columns_without_numbers_are_named(column, message):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": column})
    with pytest.raises(ValueError, match=f"^here: X must hold numbers; column 'b' {message}"):
        without_container(frame, "here")
    whole = frame.assign(b=["1", "2.5", "-3e1"])  # scikit-learn reads these
    assert without_container(whole, "here") is whole


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.date_range("2020-01-01", periods=3), "column 'b' holds dates"),
        (pd.to_timedelta([1, 2, 3], "s"), "column 'b' holds dates"),
        (pd.Categorical(pd.date_range("2020", periods=3)), "column 'b' holds dates"),
        ([1j, 2.0, 3.0], "column 'b' holds 1j, of type complex"),
        (["Ulm", "Bonn", "Rome"], "column 'b' holds text, such as 'Ulm'"),
        (pd.arrays.SparseArray([0, 0, 1]), r"column 'b' is sparse\. Pass X\.sparse"),
    ],
)
def test_the_only_column_of_a_table_is_checked(column, message):
    with pytest.raises((TypeError, ValueError), match=f"^here: X .*{message}"):
        without_container(pd.DataFrame({"b": column}), "here")


def test_missing_cells_of_nullable_columns_are_named():
    frame = pd.DataFrame({"a": [1.5, None, 2.5], "b": [True, False, None]}).convert_dtypes()
    with pytest.raises(ValueError, match="X must be finite; got nan at row 1, column 0"):
        check_rows(frame, "here")
    full = frame.fillna({"a": 3.5, "b": True})
    np.testing.assert_array_equal(check_rows(full, "here"), [[1.5, 1], [3.5, 0], [2.5, 1]])


def test_a_single_column_without_numbers_is_named():
    for X, column in ((pd.Series(["[1]"]), "it"), (pd.DataFrame({"b": ["[1]"]}), "column 'b'")):
        with pytest.raises(ValueError, match=f"^here: X must hold numbers; {column} holds vectors"):
            without_container(X, "here")
    assert len(without_container(pd.Series(["1", None]), "here")) == 2


@pytest.mark.parametrize(
    "names", ["X y", "detach numpy", "collect lazy", "toarray get_columns", "column_names a"]
)
def test_columns_may_be_called_like_methods(names):
    frame = pd.DataFrame(np.eye(2), columns=names.split())
    np.testing.assert_array_equal(check_rows(frame, "here"), np.eye(2))


@pytest.mark.parametrize("table", [pl.DataFrame, pa.table])
def test_text_below_a_null_is_named(table):
    with pytest.raises(ValueError, match="column 'b' holds text, such as 'Ulm'"):
        without_container(table({"a": [1.0, 2.0], "b": [None, "Ulm"]}), "here")


@pytest.mark.parametrize("table", [pl.DataFrame, pa.table])
def test_only_column_of_a_table_may_hold_vectors(table):
    vectors = table({"v": [[1, 2], [3, 4]]})
    np.testing.assert_array_equal(without_container(vectors, "here"), [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="column 'v' holds vectors"):
        without_container(table({"v": [[1, 2], [3, 4]], "w": [1, 2]}), "here")


def test_lists_of_arrow_are_vectors():
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, 3.0, 4.0]), 2)
    for X in (lists, pa.chunked_array([lists])):
        np.testing.assert_array_equal(without_container(X), [[1, 2], [3, 4]])


def test_records_are_refused_with_a_way_out():
    records = np.zeros(3, dtype=[("a", float), ("b", float)])
    with pytest.raises(TypeError, match=r"^here: X must be a plain array; .* fields a, b\. Pass"):
        without_container(records, "here")


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array])
def test_sparse_matrices_are_refused_with_a_way_out(kind):
    with pytest.raises(TypeError, match=r"here: X must be dense; .* Pass X\.toarray\(\), or its"):
        without_container(kind(np.eye(3)), "here")


class Foreign:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnGPU(Foreign):
    def __array__(self, *args, **options):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")

    def get(self):
        return self.array


class Relation:
    def to_pandas(self):
        return pd.DataFrame(np.eye(2))


class Variables(dict):
    def to_dataframe(self):
        return pd.DataFrame(np.eye(2))


def test_lists_text_of_numbers_and_dlpack_are_arrays():
    for X in (np.eye(2), np.eye(2).tolist(), Foreign(np.eye(2))):
        np.testing.assert_array_equal(check_cells(X, "here"), np.eye(2))
    np.testing.assert_array_equal(check_rows(np.eye(2).astype(str), "here"), np.eye(2))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4"])
def test_short_numbers_of_other_libraries_become_float32(name):
    dtype = pytest.importorskip("ml_dtypes").__dict__[name]
    rows = check_rows(np.eye(2, dtype=dtype), "here")
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, np.eye(2))


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (["a text", "another"], ValueError, "must hold numbers; it holds text, such as 'a text'"),
        ([[1.0, "a"]], ValueError, "must hold numbers; it holds text, such as 'a'"),
        ([{"a": 1.0}], TypeError, r"must hold numbers; it holds \{'a': 1.0\}.* Pass pandas.DataFr"),
        ([[1.0, 2.0], [1.0]], ValueError, "must have rows of one length; .* Pad or drop others"),
        (np.zeros((2, 2), "M8[s]"), ValueError, "must hold numbers; it holds dates"),
        (np.zeros((2, 2), "m8[s]"), ValueError, "must hold numbers; it holds dates"),
        (np.eye(2) + 1j, ValueError, r"must hold real numbers; got dtype complex128.* X\.real"),
        (
            OnGPU(np.eye(2)),
            TypeError,
            r"must be an array in main memory; got OnGPU\. Pass X\.get\(\)",
        ),
        (Relation(), TypeError, r"must be an array or a table .*; got Relation.* X\.to_pandas\(\)"),
        (Variables(), TypeError, r"must be an array or a table .*; got Var.* X\.to_dataframe\(\)"),
        ({"a": np.eye(2)}, TypeError, r"must be an array .*; got dict\. Pass one .* X\['a'\]"),
        ({"a": [1.0]}, TypeError, r"must be an array .*; got dict\. Pass pandas\.DataFrame\(X\)"),
        (len, TypeError, "must be an array or a table .*; got builtin_.* Pass an array"),
    ],
)
def test_data_without_numbers_are_refused_with_a_way_out(X, error, message):
    with pytest.raises(error, match=f"^here: X {message}"):
        check_rows(X, "here")


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda masked: reliability(masked, [True, False, True]), "confidence"),
        (lambda masked: KNNGraph(np.zeros((3, 1), int), masked[:, None]), "distances"),
        (lambda masked: as_array(masked, "who", "class_prior"), "class_prior"),
    ],
)
def test_masked_entries_are_not_read_as_the_numbers_below(read, name):
    masked = np.ma.masked_equal([0.5, 0.25, 1.0], 0.25)
    with pytest.raises(ValueError, match=f"{name} must not have masked entries; got one at row 1"):
        read(masked)
    assert isinstance(as_array(np.ma.masked_array([1.0]), "who", "X"), np.ndarray)
