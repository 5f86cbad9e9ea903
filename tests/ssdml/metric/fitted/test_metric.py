"""Learned metrics: embedding, distances and matrix agree."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.validation import validate_data

from ssdml import SSDML
from ssdml.classification.new_rows import ClassInterpolator
from ssdml.metric.features import ClassRepresentation
from ssdml.metric.fitted.metric import LearnedMetric
from ssdml.metric.fitted.prediction import BLOCK_ENTRIES, embed


class Stretch(LearnedMetric, BaseEstimator):
    """A fixed metric: twice the first feature, minus the second."""

    def __init__(self, representation=None):
        self.representation = representation

    def fit(self, X, y=None):
        validate_data(self, X)
        self.components_ = np.array([[2.0, 0.0], [0.0, -1.0], [0.0, 0.0]])
        self.representation_ = self.representation
        return self


@pytest.fixture
def X(rng):
    X = rng.standard_normal((20, 2))
    X.flags.writeable = False
    return X


def test_transform_applies_the_components(X):
    expected = np.column_stack([2 * X[:, 0], -X[:, 1], np.zeros(20)])
    np.testing.assert_allclose(Stretch().fit(X).transform(X), expected)


def test_representation_comes_before_the_components(X):
    model = Stretch(representation=np.square).fit(X)
    expected = np.column_stack([2 * X[:, 0] ** 2, -(X[:, 1] ** 2), np.zeros(20)])
    np.testing.assert_allclose(model.transform(X), expected)
    assert model.get_metric()(X[0], X[1]) == pytest.approx(
        np.linalg.norm(expected[0] - expected[1])
    )


def test_embedding_is_float32_if_the_rows_are(X):
    model = Stretch().fit(X)
    assert model.transform(X.astype(np.float32)).dtype == np.float32
    assert model.transform(X).dtype == np.float64
    assert model.transform([[1, 2]]).dtype == np.float64


def test_pair_distance_agrees_with_the_quadratic_form(X):
    model = Stretch().fit(X)
    pairs = np.stack([X[:10], X[10:]], axis=1)
    distances = model.pair_distance(pairs)
    gaps = X[:10] - X[10:]
    quadratic = np.einsum("ni,ij,nj->n", gaps, model.get_mahalanobis_matrix(), gaps)
    np.testing.assert_allclose(distances**2, quadratic, rtol=1e-12)
    embedding = model.transform(X)
    np.testing.assert_allclose(distances, np.linalg.norm(embedding[:10] - embedding[10:], axis=1))
    np.testing.assert_array_equal(model.pair_score(pairs), -distances)
    metric = model.get_metric()
    np.testing.assert_allclose(distances, [metric(u, v) for u, v in pairs])


def test_mahalanobis_matrix_by_hand(X):
    np.testing.assert_array_equal(Stretch().fit(X).get_mahalanobis_matrix(), np.diag([4.0, 1.0]))


def test_scikit_learn_takes_the_metric(X):
    y = np.arange(20) % 2
    model = Stretch().fit(X)
    by_metric = KNeighborsClassifier(3, metric=model.get_metric()).fit(X, y).predict(X)
    by_embedding = KNeighborsClassifier(3).fit(model.transform(X), y).predict(model.transform(X))
    np.testing.assert_array_equal(by_metric, by_embedding)


def test_metric_embeds_each_row_once(X, monkeypatch):
    model, seen = Stretch().fit(X), []
    embedder = model._embedder

    def counted(rows, who):
        seen.extend(rows)
        return embedder(rows, who=who)

    monkeypatch.setattr(Stretch, "_embedder", staticmethod(counted))
    metric = model.get_metric()
    for u in X[:5]:
        for v in X[:5]:
            metric(u, v)
    assert len(seen) == 5


def test_metric_can_be_copied_and_pickled(X):
    y = np.arange(20) % 2
    metric = Stretch().fit(X).get_metric()
    expected = metric(X[0], X[1])
    for again in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert again(X[0], X[1]) == expected
    search = GridSearchCV(KNeighborsClassifier(3, metric=metric), {"n_neighbors": [3]}, n_jobs=2)
    by_metric = search.fit(X, y).predict(X)
    embedding = Stretch().fit(X).transform(X)
    np.testing.assert_array_equal(
        by_metric, KNeighborsClassifier(3).fit(embedding, y).predict(embedding)
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1.0], r"rows must have 2 entries, .*; got shape \(1,\)\. Of pairs"),
        ([[1.0, 2.0]] * 2, r"rows must have 2 entries, .*; got shape \(2, 2\)\. Of pairs"),
        (None, r"rows must have 2 entries, .*; got shape \(\)"),
        ([1.0, np.nan], "must be finite; got nan at row 0, column 1"),
    ],
)
def test_metric_names_bad_rows(X, row, message):
    metric = Stretch().fit(X).get_metric()
    for pair in ((row, X[0]), (X[0], row)):
        with pytest.raises(ValueError, match=f"^Stretch.get_metric: .*{message}"):
            metric(*pair)


def test_pairs_of_wrong_shape_raise(X):
    with pytest.raises(
        ValueError, match=r"pairs must have shape \(n_pairs, 2, n_features = 2\); got"
    ):
        Stretch().fit(X).pair_distance(X)
    with pytest.raises(ValueError, match=r"got \(1, 3, 2\)"):
        Stretch().fit(X).pair_distance(X[None, :3])


def test_bad_entry_of_a_new_row_is_named(X):
    with pytest.raises(ValueError, match="Stretch: X must be finite; got inf at row 1, column 0"):
        Stretch().fit(X).transform([[0.0, 0.0], [np.inf, 0.0]])


def test_bad_entry_beyond_the_first_block_is_named(rng):
    X = rng.standard_normal((BLOCK_ENTRIES // 2 + 5, 2))
    X[-2, 1] = np.nan
    row = len(X) - 2
    with pytest.raises(ValueError, match=f"X must be finite; got nan at row {row}, column 1"):
        Stretch().fit(X[:5]).transform(X)


def test_rows_wider_than_a_block_are_embedded(rng):
    X = rng.standard_normal((3, BLOCK_ENTRIES + 1))
    components = rng.standard_normal((2, BLOCK_ENTRIES + 1))
    np.testing.assert_allclose(embed(X, components, None), X @ components.T)


def test_columns_are_named_after_the_class(X):
    names = Stretch().fit(X).get_feature_names_out()
    assert list(names) == ["stretch0", "stretch1", "stretch2"]


@pytest.mark.parametrize(
    "method", ["get_mahalanobis_matrix", "get_metric", "get_feature_names_out"]
)
def test_methods_need_a_fit(method):
    with pytest.raises(NotFittedError, match="Stretch instance is not fitted"):
        getattr(Stretch(), method)()


@pytest.mark.parametrize("container", ["default", "pandas", "polars"])
def test_pair_distances_ignore_the_output_container(rng, container):
    X = rng.standard_normal((60, 3))
    model = SSDML(random_state=0).fit(X, np.arange(60) % 2)
    expected = model.pair_distance(X.reshape(30, 2, 3))
    model.set_output(transform=container)
    distances = model.pair_distance(X.reshape(30, 2, 3))
    assert isinstance(distances, np.ndarray)
    np.testing.assert_array_equal(distances, expected)
    assert model.predict_proba(X).shape == (60, 2)


def test_faiss_index_finds_nearest_neighbors(X):
    model = Stretch().fit(X)
    squares, rows = model.to_faiss(X[5:]).search(model.transform(X[:5]).astype(np.float32), 3)
    gaps = model.transform(X[:5])[:, None] - model.transform(X[5:])
    full = (gaps**2).sum(axis=2)
    np.testing.assert_array_equal(rows, np.argsort(full, axis=1)[:, :3])
    np.testing.assert_allclose(squares, np.sort(full, axis=1)[:, :3], rtol=1e-4, atol=1e-5)


def test_faiss_index_doubts_rows_far_from_zero(X):
    model = Stretch().fit(X)
    model.to_faiss(X + 1e3)
    model.to_faiss(np.full((3, 2), 1e6))  # equal rows stay equal
    with pytest.warns(UserWarning, match=r"^Stretch.to_faiss: X must .* Subtract the mean of X"):
        found = model.to_faiss(X + 1e6).search(model.transform(X + 1e6).astype(np.float32), 3)[1]
    full = ((model.transform(X)[:, None] - model.transform(X)) ** 2).sum(axis=2)
    assert (found != np.argsort(full, axis=1)[:, :3]).any()


@pytest.mark.parametrize("kind", ["linear", "classes", "out of core"])
def test_models_of_earlier_versions_load(X, rng, tmp_path, kind):
    """Names as version 0.1 writes them."""
    arrays = {
        "components_": rng.standard_normal((2, 2 if kind == "linear" else 4)),
        "classes_": np.array([3, 7]),
        "label_distributions_": rng.dirichlet(np.ones(2), 20),
        "transduction_": np.array([3, 7] * 10),
    }
    represented, kept = X, slice(10 if kind == "out of core" else None)
    if kind != "linear":
        parts = {
            "mean": np.zeros(2),
            "matrix": np.eye(2),
            "rows": X[kept].astype(np.float32),
            "scales": np.ones(len(X[kept])),
            "trend": rng.standard_normal((3, 2)).astype(np.float32),
            "residuals": rng.standard_normal((20, 2)).astype(np.float32)[kept],
            "n_neighbors": np.array(3),
        }
        arrays |= {f"classifier_{name}": part for name, part in parts.items()}
        represented = ClassRepresentation(ClassInterpolator(**parts))(X)
    arrays["embedding_"] = (represented @ arrays["components_"].T)[kept]
    if kind == "out of core":
        arrays["reference_rows_"] = np.arange(10)
    save_file(arrays, tmp_path / "model.safetensors")
    config = {
        "schema": 1,
        "class": "SSDML",
        "ssdml": "0.1.0",
        "arrays": "model.safetensors",
        "params": SSDML(n_neighbors=3).get_params(),
        "n_features_in": 2,
        "feature_names_in": ["a", "b"],
        "represents_classes": kind != "linear",
        "input_weight": None,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="has no checksum"):
        model = SSDML.load(tmp_path)
    frame = pd.DataFrame(X, columns=["a", "b"])
    np.testing.assert_allclose(model.transform(frame), represented @ arrays["components_"].T)
    assert model.predict_proba(frame).shape == (20, 2)
    assert set(model.predict(frame)) <= {3, 7}
    assert model.input_weight_ == np.inf
