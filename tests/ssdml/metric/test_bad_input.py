"""Difficult and invalid input of SSDML: a correct result, or an actionable error."""

from __future__ import annotations

import copy
import datetime
import os
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from ssdml import SSDML
from ssdml.datasets import load_dataset
from tests.ssdml.metric.conftest import blobs

MODELS = [SSDML(), SSDML(propagation="one-sided", mining="neighborhood"), SSDML.paper()]


@pytest.fixture(params=MODELS, ids=["default", "one-sided", "paper"])
def model(request):
    """A new estimator of each kind."""
    return type(request.param)(**request.param.get_params()).set_params(random_state=0)


def check_finite_everywhere(model, X):
    """Embedding, matrix and predictions are finite."""
    assert np.isfinite(model.transform(X)).all()
    assert np.isfinite(model.get_mahalanobis_matrix()).all()
    proba = model.predict_proba(X)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-6)


def test_finite_check_can_fail(X, plain):
    fitted = copy.copy(plain)
    fitted.components_ = np.full((4, 4), np.nan)
    with pytest.raises((AssertionError, ValueError)):
        check_finite_everywhere(fitted, X)


# Invalid X


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: torch.tensor(X, requires_grad=True),
        lambda X: pd.Series(list(X)),
        lambda X: pd.DataFrame({"embedding": list(X)}),
        lambda X: pd.Series(list(torch.tensor(X))),
        lambda X: pl.Series(X.tolist()),
        lambda X: pl.Series(X, dtype=pl.Array(pl.Float64, 4)),
        lambda X: pa.chunked_array([X.tolist()]),
        lambda X: np.ma.masked_array(X, np.zeros(X.shape, bool)),
    ],
    ids="tensor series frame tensors polars arrays pyarrow unmasked".split(),
)
def test_rows_of_any_container_are_read(X, y, plain, convert):
    model = SSDML(random_state=0).fit(convert(X), y)
    assert model.n_features_in_ == 4
    np.testing.assert_array_equal(model.transform(convert(X)), plain.transform(X))
    assert model.score(convert(X), y) == plain.score(X, y)


def test_half_precision_tensors_are_read(X, y):
    rows = torch.tensor(X).bfloat16()
    model = SSDML(random_state=0).fit(rows, y)
    plain = SSDML(random_state=0).fit(rows.float().numpy(), y)
    np.testing.assert_array_equal(model.transform(rows), plain.transform(rows.float().numpy()))


def test_views_of_conjugated_tensors_are_read(X, y, plain):
    rows = torch.complex(torch.zeros(X.shape, dtype=torch.float64), -torch.tensor(X)).conj().imag
    assert rows.is_neg()
    np.testing.assert_array_equal(plain.transform(rows), plain.transform(X))


def test_masked_entry_is_named(X, y, plain):
    rows = np.ma.masked_array(X, X == X[3, 2])
    message = "SSDML: X must not have masked entries; got one at row 3, column 2. Impute"
    with pytest.raises(ValueError, match=message):
        SSDML().fit(rows, y)
    with pytest.raises(ValueError, match=message):
        plain.predict(rows)


@pytest.mark.parametrize("row", [0, 5])
@pytest.mark.parametrize("wrong", [[1.0], None, [[1.0]]])
def test_vector_of_another_length_is_named(X, y, wrong, row):
    rows = list(X)
    rows[row] = wrong
    column = np.empty(90, dtype=object)
    column[:] = rows
    with pytest.raises(ValueError, match=f"X must hold vectors of one length, 4 .* in row {row}"):
        SSDML().fit(column, y)


def test_vectors_beside_numbers_are_named(X, y):
    frame = pd.DataFrame({"age": range(90), "embedding": list(X)})
    with pytest.raises(
        ValueError, match="SSDML: X must hold numbers; column 'embedding' holds vec"
    ):
        SSDML().fit(frame, y)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_entry_is_named(X, y, plain, value):
    bad = X.copy()
    bad[3, 2] = value
    message = f"SSDML: X must be finite; got {value} at row 3, column 2. Impute"
    with pytest.raises(ValueError, match=message):
        SSDML().fit(bad, y)
    with pytest.raises(ValueError, match=message):
        plain.transform(bad)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (np.empty((0, 4)), ValueError, r"0 sample\(s\) .*minimum of 2 is required by SSDML"),
        (np.empty((90, 0)), ValueError, r"X must have a column; got 0 .*\(90, 0\).* Select"),
        (pd.DataFrame(index=range(90)), ValueError, r"X must have a column; got .*\(90, 0\)"),
        (np.ones((1, 4)), ValueError, r"1 sample\(s\) .*minimum of 2 is required by SSDML"),
        (
            np.ones(90),
            ValueError,
            r"must have two .* got shape \(90,\)\. .*\(X, \(-1, 1\)\)",
        ),
        (np.ones((90, 2, 2)), ValueError, r"got shape \(90, 2, 2\)\. .*\(X, \(len\(X\), -1\)\)\."),
        (
            np.array([["a", "b"]] * 90),
            ValueError,
            "X must hold numbers; it holds text",
        ),
        (np.array([["a", 1]] * 90, dtype=object), ValueError, "X must hold numbers; it holds text"),
        (
            np.array([[{}, 1]] * 90, dtype=object),
            TypeError,
            r"it holds \{\}, .* Pass pandas",
        ),
        (np.ones((90, 4)) + 1j, ValueError, "Complex data not supported: pass X.real"),
        (
            sparse.csr_array(np.eye(90)),
            TypeError,
            r"X must be dense; got a sparse csr_array\. .*X\.toarray",
        ),
    ],
    ids="no-rows no-columns no-table one-row 1-D 3-D strings mixed objects complex sparse".split(),
)
def test_invalid_rows_raise(rows, error, message):
    with pytest.raises(error, match=message):
        SSDML().fit(rows, np.zeros(rows.shape[0], dtype=int))


def test_a_single_column_of_arrow_raises(y):
    with pytest.raises(ValueError, match=r"SSDML: X must have two .* got shape \(90,\)"):
        SSDML().fit(pa.array(np.ones(90)), y)


def test_new_rows_of_another_width_raise(X, plain):
    with pytest.raises(ValueError, match="X has 3 features, but SSDML is expecting 4 features"):
        plain.transform(X[:, :3])


def test_too_many_components_raise(X, y):
    with pytest.raises(ValueError, match="n_components must be at most n_features = 4; got 5"):
        SSDML(5).fit(X, y)


def test_columns_of_a_table_are_named(X, y):
    table = pd.DataFrame(X).add_prefix("p")
    doubled = table.rename(columns={"p1": "p0"})
    with pytest.raises(ValueError, match="X must have columns of different names; got 'p0' twice"):
        SSDML().fit(doubled, y)
    sparse = table.astype(pd.SparseDtype(float, 0))
    with pytest.raises(TypeError, match=r"column 'p0' is sparse\. Pass X\.sparse\.to_dense\(\)"):
        SSDML().fit(sparse, y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("t.csv", r"got str\. Pass ssdml\.datasets\.load_dataset\(path\)\.X"),
        ({"p": [1.0, 2.0]}, r"got dict\. Pass pandas\.DataFrame\(X\)"),
        (load_digits(), r"got Bunch\. Pass one of its arrays, such as X\['data'\]"),
        (load_dataset("digits"), r"got Dataset\. Pass X\.X, and its labels X\.y"),
        (pl.LazyFrame({"p": [1.0, 2.0]}), r"got LazyFrame\. Pass X\.collect\(\)"),
        (iter([[1.0], [2.0]]), "got list_iterator. Pass an array of shape"),
        (None, "got NoneType. Pass an array of shape"),
        (pl.DataFrame({"p": [0.5, 1], "q": ["x", "y"]}), "column 'q' holds text, such as 'x'"),
        (pa.table({"p": [0.5, 1], "q": ["x", "y"]}), "column 'q' holds text, such as 'x'"),
        (pl.DataFrame({"day": [datetime.date(2020, 1, 1)] * 2}), "column 'day' holds dates"),
        (pa.table({"v": [[1.0, 2.0]] * 2, "p": [1, 2]}), "column 'v' holds vectors"),
    ],
    ids=lambda given: type(given).__name__ if not isinstance(given, str) else None,
)
def test_other_containers_are_named(given, message):
    with pytest.raises((TypeError, ValueError), match=f"SSDML: X must .*{message}"):
        SSDML().fit(given, [0, 1])


def test_underflow_of_the_variance_is_named(X, y):
    with pytest.raises(ValueError, match="X must have a variance above 0; it underflows"):
        SSDML().fit(X.astype(np.float64) * 1e-170, y)


@pytest.mark.parametrize("reject", [-0.1, 1.5])
def test_reject_is_a_probability(X, plain, reject):
    for method in (lambda: plain.predict(X, reject=reject), lambda: plain.suggest_classes(reject)):
        with pytest.raises(ValueError, match=f"reject must be from 0 to 1; got {reject}"):
            method()


def test_score_needs_labels(X, plain):
    with pytest.raises(ValueError, match=r"SSDML.score: y must contain labels .*Score rows with"):
        plain.score(X, np.full(90, -1))


# Few, unusual or unreachable labels


def test_one_labeled_class_returns_the_input(X, y):
    model = SSDML()
    message = (
        "returns the input instead: propagation finds a single class. Label at least one other; -1 "
        "means unlabeled"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        model.fit(X, np.where(y == 1, 1, -1))
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(model.transform(X), X)
    np.testing.assert_array_equal(model.predict(X), 1)


def test_one_labeled_class_is_enough_for_the_paper(X, y):
    """Its triplets come from neighborhoods, not from classes."""
    model = SSDML.paper(random_state=0)
    with pytest.warns(RuntimeWarning, match="no label reaches 30 of 90 rows; they get the class"):
        model.fit(X, np.where(y == 1, 1, -1))
    np.testing.assert_array_equal(model.predict(X), 1)
    check_finite_everywhere(model, X)


def test_one_label_per_class_is_enough(model, X):
    labels = np.full(90, -1)
    for c in range(3):
        labels[np.flatnonzero(blobs()[1] == c)[0]] = c
    assert model.fit(X, labels).score(X, blobs()[1]) > 0.95
    check_finite_everywhere(model, X)


def test_class_with_one_label_is_kept(model, X, y):
    labels = y.copy()
    labels[np.flatnonzero(y == 2)[1:]] = -1
    model.fit(X, labels)
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    assert model.score(X, blobs()[1]) > 0.9


def test_all_rows_may_be_labeled(model, X):
    labels = blobs()[1]
    assert model.fit(X, labels).score(X, labels) > 0.95


@pytest.mark.parametrize("make", [partial(SSDML, propagation="one-sided"), SSDML.paper])
def test_unreached_rows_warn(make, X, y):
    rows = np.vstack([X, X + 1000])
    model = make(mining="neighborhood", random_state=0)
    with pytest.warns(RuntimeWarning, match="no label reaches 90 of 180 rows"):
        model.fit(rows, np.r_[y, np.full(90, -1)])
    check_finite_everywhere(model, rows)
    prior = np.bincount(y[y >= 0]) / 24
    np.testing.assert_allclose(model.label_distributions_[90:], np.tile(prior, (90, 1)))


def test_classifiers_reach_rows_beyond_the_graph(X, y):
    rows = np.vstack([X, X + 1000])
    model = SSDML(random_state=0).fit(rows, np.r_[y, np.full(90, -1)])
    check_finite_everywhere(model, rows)
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1, rtol=1e-6)


def test_isolated_class_is_found(model, X, y, rng):
    """Twelve distant rows, the first three labeled."""
    rows = np.vstack([X, 1000 + rng.standard_normal((12, 4))])
    model.fit(rows, np.r_[y, [9] * 3, [-1] * 9])
    np.testing.assert_array_equal(model.predict(rows) == 9, np.arange(102) >= 90)


def test_isolated_fully_labeled_class_is_kept(model, X, y, rng):
    """No unlabeled row belongs to it."""
    rows = np.vstack([X, 1000 + rng.standard_normal((12, 4))])
    model.fit(rows, np.r_[y, [9] * 12])
    np.testing.assert_array_equal(model.classes_, [0, 1, 2, 9])
    np.testing.assert_array_equal(model.transduction_ == 9, np.arange(102) >= 90)


# Few, equal or constant rows


def test_fewer_rows_than_neighbors_warn(model, X):
    rows, labels = X[:3], [0, 1, -1]
    message = "SSDML: n_neighbors must be below n_samples = 3; got 10. Using 2."
    with pytest.warns(UserWarning, match=message) as caught:
        model.fit(rows, labels)
    assert caught[0].filename == __file__
    check_finite_everywhere(model, rows)


@pytest.mark.parametrize(("n_neighbors", "n_samples"), [(1, 90), (10, 2)])
def test_neighborhood_mining_needs_two_neighbors(X, y, n_neighbors, n_samples, monkeypatch):
    monkeypatch.setattr("ssdml.metric.estimator.knn_graph", None)
    message = f"SSDML: n_neighbors must be at least 2, .* got {n_neighbors} among {n_samples} rows"
    with pytest.raises(ValueError, match=rf"{message}\. Raise it, or pass mining='propagated'"):
        SSDML.paper(n_neighbors=n_neighbors).fit(X[:n_samples], y[:n_samples])


@pytest.mark.filterwarnings("ignore:propagate_labels. no label reaches")  # neighbors are few
@pytest.mark.parametrize("options", [{"n_neighbors": 2}, {"mining": "propagated"}])
def test_suggested_fix_of_neighborhoods_works(X, y, options):
    model = SSDML.paper(random_state=0, **{"n_neighbors": 1} | options)
    check_finite_everywhere(model.fit(X, y), X)


def test_duplicates_are_allowed(model, X, y):
    """Each row ten times: most neighbors are its copies."""
    model.set_params(n_neighbors=12)
    rows = np.repeat(X[:24], 10, axis=0)
    labels = np.where(np.arange(240) % 10 == 0, np.repeat(y[:24], 10), -1)
    assert model.fit(rows, labels).score(rows, np.repeat(y[:24], 10)) > 0.9
    check_finite_everywhere(model, rows)


@pytest.mark.parametrize("value", [0.0, 5.0])
@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.filterwarnings("ignore:SSDML. returns the input instead")
def test_equal_rows_warn(model, y, value, balanced):
    rows = np.full((90, 4), value)
    labels = np.where(y < 0, -1, np.arange(90) % 3) if balanced else y
    message = r"SSDML: X must have rows that differ; got 90 equal ones\. Check how X was made"
    with pytest.warns(UserWarning, match=message) as caught:
        model.fit(rows, labels)
    assert caught[0].filename == __file__
    check_finite_everywhere(model, rows)


def test_zero_and_constant_rows_are_allowed(model, X, y):
    rows = X.copy()
    rows[::9] = 0
    rows[1::9] = 3
    rows[-1] = rows[0]  # must not count as all equal
    rows[:, 1] = 0
    rows[:, 2] = 5
    model.fit(rows, y)
    check_finite_everywhere(model, rows)


@pytest.mark.parametrize("n_components", [None, 1])
def test_one_feature_is_enough(model, X, y, n_components):
    rows = X[:, :1]
    model.set_params(guard=False, n_components=n_components).fit(rows, y)
    if n_components is not None or model.partition_size is not None:
        assert model.transform(rows).shape == (90, 1)
    check_finite_everywhere(model, rows)


def test_more_features_than_rows_are_allowed(model, rng):
    truth = np.arange(30) % 3
    rows = rng.standard_normal((30, 100)) + 12 * np.eye(3, 100)[truth]
    model.fit(rows, np.where(np.arange(30) < 12, truth, -1))
    assert model.score(rows, truth) > 0.9
    check_finite_everywhere(model, rows)


def test_integers_become_float64(model, X, y):
    whole = np.round(X * 5).astype(np.int16)
    by_whole = model.fit(whole, y).transform(whole)
    by_float = model.fit(whole.astype(float), y).transform(whole.astype(float))
    assert by_whole.dtype == np.float64
    np.testing.assert_array_equal(by_whole, by_float)


def test_memory_layout_does_not_matter(model, X, y):
    first = model.fit(np.ascontiguousarray(X), y).transform(X)
    other = model.fit(np.asfortranarray(X), y).transform(X)
    np.testing.assert_allclose(other, first, rtol=1e-6, atol=1e-9)


def test_read_only_arrays_are_not_modified(model, X, y):
    y.flags.writeable = False
    before = X.copy()
    model.fit(X, y).predict(X)
    np.testing.assert_array_equal(X, before)


# Interrupted fits


@pytest.mark.parametrize(
    "kernel",
    [
        "ssdml.classification.forms.graph_of_distinct",
        "ssdml.metric.estimator.learn_classes",
        "ssdml.metric.alternation.found_triplets",
        "ssdml.metric.alternation.learn_metric",
        "ssdml.metric.fitted.kept.embed",  # the last step, when the components are known
    ],
)
def test_interrupted_fit_is_not_fitted(X, y, plain, monkeypatch, kernel):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    model = copy.copy(plain)
    with monkeypatch.context() as patch:
        patch.setattr(kernel, interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X[:, :3], y)
    with pytest.raises(NotFittedError, match="SSDML instance is not fitted"):
        model.transform(X)
    with pytest.raises(NotFittedError, match="SSDML instance is not fitted"):
        model.predict(X)
    assert model.fit(X, y).transform(X).shape[0] == 90


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_truncated_file_raises(X, y, tmp_path, dtype):
    """Reading beyond the end of a mapped file would kill the process."""
    np.save(tmp_path / "X.npy", X.astype(dtype))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = SSDML(random_state=0).fit(mapped, y)
    whole = (tmp_path / "X.npy").stat().st_size
    os.truncate(tmp_path / "X.npy", whole - 1)
    message = f"SSDML: X must be in a file of at least {whole} bytes, .*; got {whole - 1}. Write"
    for method in (model.transform, model.predict, lambda rows: model.fit(rows, y)):
        with pytest.raises(ValueError, match=message):
            method(mapped[:10])
    with pytest.raises(NotFittedError):
        model.transform(X)


@pytest.mark.parametrize("columns", [4, 120])
@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_scale_of_single_precision_does_not_matter(rng, X, y, columns, scale):
    noise = 0.1 * rng.standard_normal((90, columns - 4))
    rows = (np.hstack([X, noise]) * rng.uniform(0.5, 2, (90, 1))).astype(np.float32)
    expected = SSDML(random_state=0).fit(rows, y)
    found = SSDML(random_state=0).fit(rows * np.float32(scale), y)  # warnings are errors
    np.testing.assert_array_equal(found.transduction_, expected.transduction_)


def test_errors_of_numpy_do_not_matter(X, y):
    rows = 20 * X  # classes far apart: probabilities underflow
    expected = SSDML(random_state=0).fit(rows, y).predict(rows)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(SSDML(random_state=0).fit(rows, y).predict(rows), expected)


def test_pairs_are_read_as_rows(X, y, plain):
    pairs = np.stack([X[:5], X[5:10]], axis=1)
    distances = plain.pair_distance(torch.tensor(pairs, requires_grad=True))
    np.testing.assert_array_equal(distances, plain.pair_distance(pairs))
    with pytest.raises(ValueError, match=r"pair_distance: pairs must hold numbers; it holds text"):
        plain.pair_distance(np.full((3, 2, 4), "a"))


@pytest.mark.parametrize("name", ["Unnamed: 0", "__index_level_0__"])
def test_an_index_among_the_columns_causes_a_warning(name, rng):
    X, y = blobs()
    labels = np.where(np.arange(len(y)) < 20, y, -1)
    table = pd.DataFrame(X).add_prefix("f")
    table.insert(0, name, rng.permutation(len(X)))
    with pytest.warns(UserWarning, match=f"X must not hold the numbers of rows; column '{name}'"):
        SSDML(random_state=0).fit(table, labels)
    table[name] = X[:, 0]  # a measurement that has lost its name
    SSDML(random_state=0).fit(table, labels)
