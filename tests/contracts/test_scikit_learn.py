"""Estimators are classifiers of scikit-learn: splitters, ensembles, displays, curves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.ensemble import VotingClassifier
from sklearn.metrics import ConfusionMatrixDisplay, log_loss
from sklearn.model_selection import cross_val_predict, cross_val_score, learning_curve

from ssdml import SSDML, DeepSSDML
from ssdml.baselines import (
    APIT,
    APLLR,
    ISDML,
    LRML,
    SERAPH,
    DeepBaseline,
    DeepSupervised,
    DeepUnsupervised,
)

LINEAR = [SSDML(max_rounds=1, random_state=0), LRML(), SERAPH(tol=0.1), ISDML(), APLLR(), APIT()]
DEEP = [DeepSSDML(), DeepSSDML.paper(), DeepBaseline(), DeepSupervised(), DeepUnsupervised()]
every_estimator = pytest.mark.parametrize("estimator", LINEAR, ids=lambda e: type(e).__name__)


@pytest.fixture(scope="module")
def data():
    """Three clusters sorted by class, which folds without stratification would separate."""
    X, y = make_blobs(90, 4, centers=3, random_state=0)
    order = np.argsort(y, kind="stable")
    return X[order], y[order]


@pytest.mark.parametrize("estimator", [*LINEAR, *DEEP], ids=lambda e: type(e).__name__)
def test_estimators_are_classifiers(estimator):
    assert is_classifier(estimator)


@every_estimator
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_an_integer_cv_is_stratified(data, estimator, share):
    X, y = data
    labels = np.where(np.random.default_rng(0).random(len(y)) < share, y, -1)
    assert cross_val_score(estimator, X, labels, cv=2).min() > 0.6  # at most a third without


@every_estimator
def test_ensembles_displays_and_curves_accept_them(data, estimator):
    X, names = data[0], np.array(["ash", "birch", "cedar"])[data[1]]
    pair = VotingClassifier([("one", estimator), ("two", clone(estimator))], voting="soft")
    assert pair.fit(X, names).score(X, names) > 0.9
    assert CalibratedClassifierCV(estimator, cv=2).fit(X, names).score(X, names) > 0.9
    assert (cross_val_predict(estimator, X, names, cv=2) == names).mean() > 0.9
    scores = learning_curve(estimator, X, names, cv=2, train_sizes=[1.0], shuffle=True)[2]
    assert scores.min() > 0.9
    model = clone(estimator).fit(X, names)
    shown = ConfusionMatrixDisplay.from_estimator(model, X, names)
    assert np.trace(shown.confusion_matrix) > 80


@every_estimator
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_sum_to_one_in_the_precision_of_x(data, estimator, dtype):
    X, y = data[0].astype(dtype), np.where(np.arange(90) % 3 == 0, data[1], -1)
    model = clone(estimator).fit(X, y)
    for found in (model.predict_proba(X + 0.5), model.label_distributions_):
        assert found.dtype == dtype
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=4 * np.finfo(dtype).eps)
    assert np.isfinite(log_loss(data[1], model.predict_proba(X)))  # without a warning


@every_estimator
@pytest.mark.filterwarnings("ignore:.* rows of X are farther")
def test_score_tells_that_no_class_is_of_the_fit(data, estimator):
    X, y = data
    with pytest.warns(
        UserWarning, match=r"score: y must hold a class of the fit, \[0, 1\]; got \[2\]"
    ):
        assert clone(estimator).fit(X[y < 2], y[y < 2]).score(X[y == 2], y[y == 2]) == 0


def test_scores_are_weighted(data):
    X, y = data
    model = clone(LINEAR[0]).fit(X, y)
    wrong = np.where(np.arange(len(y)) < 10, (y + 1) % 3, y)
    weights = np.where(np.arange(len(y)) < 10, 0.0, 1.0)
    assert model.score(X, wrong) < model.score(X, wrong, sample_weight=weights)
    labels = np.where(np.arange(len(y)) < 10, -1, y)
    expected = model.score(X, labels)
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(90,\), .*\(3,\)"):
        model.score(X, y, sample_weight=np.ones(3))
    assert model.score(X, wrong, sample_weight=weights) == pytest.approx(expected)
    for given, error, message in (
        (-weights, ValueError, r"at least 0; got -1\.0 in row 10\. Pass 0"),
        (np.ma.masked_equal(weights, 0), ValueError, "finite and at least 0; got nan in row 0"),
        (np.where(weights > 0, np.nan, 1), ValueError, "finite and at least 0; got nan in row 10"),
        (1 - weights, ValueError, "above 0 for a labeled row; got 0 for all of them"),
        (["heavy"] * 90, TypeError, "hold numbers; got list: could not convert"),
    ):
        with pytest.raises(error, match=f"SSDML.score: sample_weight must .*{message}"):
            model.score(X, labels, sample_weight=given)


@pytest.mark.parametrize(
    ("convert", "error", "message"),
    [
        (sparse.csr_array, TypeError, r"X must be dense; got a sparse csr_array"),
        (iter, TypeError, "X must be an array or a table of numbers; got iterator"),
    ],
)
def test_score_checks_samples_as_predict_does(data, convert, error, message):
    X, y = data
    with pytest.raises(error, match=message):
        clone(LINEAR[0]).fit(X, y).score(convert(X), y)
