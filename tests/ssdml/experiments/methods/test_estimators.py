"""Classifiers as embeddings, and supervised UMAP."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.datasets import make_blobs

from ssdml.evaluation import few_label_accuracy
from ssdml.experiments import METHODS
from ssdml.experiments.methods.estimators import ClassDistributions, SupervisedUMAP


@pytest.fixture
def blobs():
    X, y = make_blobs(120, 3, centers=3, random_state=0)
    labels = np.full(120, -1)
    for c in range(3):
        labels[np.flatnonzero(y == c)[:4]] = c
    return X, y, labels


@pytest.mark.parametrize("name", ["label-spreading", "self-training"])
def test_a_classifier_predicts_its_most_probable_class(blobs, name):
    X, y, labels = blobs
    names = np.array([3, 7, 11])
    y, labels = names[y], np.where(labels < 0, -1, names[labels])
    model = METHODS[name](0, None).fit(X[:90], labels[:90])
    Z = model.transform(X[90:])
    np.testing.assert_allclose(Z.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(X[90:]), model.classifier_.predict(X[90:]))
    np.testing.assert_array_equal(model.predict(X[90:]), names[Z.argmax(axis=1)])
    assert is_classifier(model)
    assert model.score(X[90:], y[90:]) > 0.8


def test_unreached_samples_embed_at_the_origin():
    class Unsure:
        def predict_proba(self, X):
            return np.full((len(X), 2), np.nan)

    model = ClassDistributions(None)
    model.classifier_ = Unsure()
    assert (model.transform(np.ones((3, 2))) == 0).all()


@pytest.mark.parametrize("name", ["label-spreading", "self-training"])
def test_the_transduction_of_a_classifier_is_passed_on(name, blobs):
    X, y, labels = blobs
    model = METHODS[name](0, None).fit(X, labels)
    assert np.array_equal(model.transduction_, model.classifier_.transduction_)
    assert np.mean(model.transduction_ == y) > 0.9


def test_umap_uses_partial_labels(blobs):
    pytest.importorskip("umap")
    X, y, labels = blobs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, of its libraries
        Z = SupervisedUMAP(2).fit(X, labels).transform(X)
    assert Z.shape == (120, 2)
    known = labels >= 0
    assert few_label_accuracy(Z[known], y[known], Z[~known], y[~known]) > 80


def test_umap_requires_a_label(blobs):
    pytest.importorskip("umap")
    with pytest.raises(ValueError, match="must label some samples; got only -1"):
        SupervisedUMAP().fit(blobs[0], np.full(120, -1))
