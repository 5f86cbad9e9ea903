"""References without a metric: labeled samples alone, and Poisson learning."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from ssdml.experiments import METHODS
from ssdml.experiments.methods import registry
from ssdml.experiments.methods.classifiers import (
    FOLDS,
    LabeledRowsClassifier,
    PoissonClassifier,
    poisson_weights,
)
from ssdml.graphs import knn_graph, poisson_learning


@pytest.fixture
def rows():
    """Overlapping classes 3, 7 and 11; seven labels each among 240 rows."""
    X, y = make_blobs(240, 4, centers=3, cluster_std=5.0, random_state=1)
    y = np.array([3, 7, 11])[y]
    labels = np.full(240, -1)
    for c in np.unique(y):
        labels[np.flatnonzero(y == c)[:7]] = c
    return X, y, labels


def labels_of(labels, *counts):
    """Keep so many labels of each class."""
    kept = np.full_like(labels, -1)
    for c, count in zip(np.unique(labels[labels >= 0]), counts, strict=True):
        kept[np.flatnonzero(labels == c)[:count]] = c
    return kept


@pytest.mark.parametrize("name", ["logistic", "knn"])
def test_parameters_have_the_best_held_out_accuracy(rows, name):
    """Against scikit-learn on the labeled samples alone; the unlabeled ones are never seen."""
    X, _, labels = rows
    model, known = METHODS[name](0, None), labels >= 0
    X = np.where(known[:, None], X, np.nan)
    ((parameter, values),) = model.grid.items()
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    means = []
    for value in values:
        tried = METHODS[name](0, None).classifier.set_params(**{parameter: value})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # more neighbors than samples
            scores = cross_val_score(tried, X[known], labels[known], cv=folds, error_score=0.0)
        means.append(scores.mean())
    assert len({round(float(mean), 9) for mean in means}) > 1
    fitted = model.fit(X, labels).estimator_
    assert getattr(fitted, parameter) == values[int(np.argmax(means))]
    alone = METHODS[name](0, None).classifier.set_params(**fitted.get_params())
    alone.fit(X[known], labels[known])
    np.testing.assert_array_equal(model.predict(rows[0]), alone.predict(rows[0]))
    np.testing.assert_array_equal(model.predict_proba(rows[0]), alone.predict_proba(rows[0]))
    assert is_classifier(model)
    assert not hasattr(model, "transform")


@pytest.mark.parametrize("name", ["logistic", "knn"])
@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 1, 1), (7, 1, 2)])
def test_few_and_uneven_labels_are_enough(rows, name, counts):
    X, _, labels = rows
    model = METHODS[name](0, None).fit(X, labels_of(labels, *counts))
    assert model.classes_.tolist() == [3, 7, 11]
    if counts == (1, 1, 1):  # nothing to choose by
        assert model.estimator_.get_params() == model.classifier.get_params()


def test_parameters_that_fit_no_fold_are_not_chosen(rows):
    X, _, labels = rows
    wide = {"n_neighbors": [1000, 1]}
    model = LabeledRowsClassifier(KNeighborsClassifier(1000), wide).fit(X, labels)
    assert model.estimator_.n_neighbors == 1


def test_no_grid_keeps_the_parameters(rows):
    X, _, labels = rows
    model = METHODS["logistic"](0, None).set_params(grid=None, classifier__C=0.5).fit(X, labels)
    assert model.estimator_.C == 0.5


def test_the_first_value_wins_a_tie(rows):
    _, y, labels = rows
    model = LabeledRowsClassifier(LogisticRegression(), {"C": [3.0, 2.0]})
    model.fit(100.0 * (y[:, None] == np.unique(y)), labels)
    assert model.estimator_.C == 3.0


def test_tabpfn_sees_labeled_samples_alone(rows, monkeypatch):
    """A classifier takes its place: its weights are not at hand."""

    class Recorder(ClassifierMixin, BaseEstimator):
        def __init__(self, random_state=0):
            self.random_state = random_state

        def fit(self, X, y):
            self.classes_, self.n_seen_ = np.unique(y), len(X)
            return self

        def predict(self, X):
            return np.full(len(X), self.classes_[0])

    X, _, labels = rows
    monkeypatch.setitem(sys.modules, "tabpfn", SimpleNamespace(TabPFNClassifier=Recorder))
    model = registry._tabpfn(3, None).fit(X, labels)
    assert (model.estimator_.n_seen_, model.estimator_.random_state) == (21, 3)
    assert (model.predict(X) == 3).all()


def test_poisson_scores_are_those_of_the_graph(rows):
    X, _, labels = rows
    model = PoissonClassifier(6, class_prior="uniform").fit(X, labels)
    weights = poisson_weights(knn_graph(X, 6))
    expected = poisson_learning(weights, labels, class_prior="uniform")
    np.testing.assert_array_equal(model.scores_, expected)
    np.testing.assert_array_equal(model.transduction_, np.array([3, 7, 11])[expected.argmax(1)])


def test_poisson_weights_match_the_formula(rng):
    X = rng.standard_normal((30, 3))
    d = np.linalg.norm(X[:, None] - X, axis=2)
    order = np.argsort(d, axis=1)[:, 1:5]
    V = np.zeros((30, 30))
    for i, near in enumerate(order):
        V[i, near] = np.exp(-4 * (d[i, near] / d[i, near[-1]]) ** 2)
    np.testing.assert_allclose(poisson_weights(knn_graph(X, 4)).toarray(), V + V.T, atol=1e-12)


def test_duplicates_have_finite_poisson_weights():
    weights = poisson_weights(knn_graph(np.repeat([[0.0], [1.0]], 4, axis=0), 2))
    assert np.isfinite(weights.data).all()
    assert weights.data.max() == 2


def test_new_samples_take_scores_of_their_neighbors(rows):
    X, _, labels = rows
    model = PoissonClassifier(5).fit(X[:200], labels[:200])
    d = np.linalg.norm(X[200:, None] - X[:200], axis=2)
    near = np.argsort(d, axis=1)[:, :5]
    scale = np.take_along_axis(d, near, axis=1)
    votes = np.exp(-4 * (scale / scale[:, -1:]) ** 2)[:, :, None] * model.scores_[near]
    expected = model.classes_[votes.sum(axis=1).argmax(axis=1)]
    np.testing.assert_array_equal(model.predict(X[200:]), expected)
