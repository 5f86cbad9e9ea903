"""Predicted classes, their confidence and confusion."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import confusion_matrix
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.preprocessing import StandardScaler

from ssdml import SSDML
from ssdml.baselines import LRML
from ssdml.evaluation import calibration_error
from ssdml.evaluation.predictions import (
    Predictions,
    confusion,
    label_accuracy,
    predict_classes,
    reliability_of,
)


@pytest.fixture
def rows(rng):
    """Labeled rows with their classes, 3, 5 and 8, and rows to be predicted."""
    y_few = np.repeat([3, 5, 8], 4)
    few = rng.normal(size=(12, 2)) + y_few[:, None]
    return few, y_few, rng.normal(size=(50, 2)) + rng.choice([3, 5, 8], 50)[:, None]


@pytest.fixture
def blobs():
    """Overlapping classes, five labels each."""
    X, y = make_blobs(150, 3, centers=3, cluster_std=4.0, random_state=0)
    return X, y, np.where(np.arange(150) < 15, y, -1)


def test_predict_proba_is_used(rows):
    few, y_few, Z = rows
    model = KNeighborsClassifier(3).fit(few, y_few)
    found = predict_classes(model, Z, -Z, few, y_few)  # not by the embedding
    np.testing.assert_array_equal(found.classes, model.predict(Z))
    np.testing.assert_allclose(found.confidence, model.predict_proba(Z).max(axis=1))
    assert found.has_confidence


def test_accuracy_of_classifiers_and_metrics(rows, rng):
    few, y_few, Z = rows
    model, y = KNeighborsClassifier(3).fit(few, y_few), rng.choice([-1, 3, 5, 8], 50)
    known, given = y >= 0, (Z, -Z, y, few, y_few)  # not by the embedding
    own = 100 * (model.predict(Z) == y)[known].mean()
    assert label_accuracy(model, *given) == pytest.approx(own)
    nearest = NearestCentroid().fit(few, y_few).predict(-Z)
    clusters = KMeans(3, random_state=0).fit(few)  # its labels are no classes
    for metric in (StandardScaler(), object(), clusters):
        by_means = 100 * (nearest == y)[known].mean()
        assert label_accuracy(metric, *given) == pytest.approx(by_means)


@pytest.mark.parametrize("model", [SSDML(random_state=0), LRML()], ids=["SSDML", "LRML"])
def test_accuracy_of_our_estimators_is_their_own(blobs, model):
    X, y, labels = blobs
    model.fit(X, labels)
    Z, known = model.transform(X), labels >= 0
    found = label_accuracy(model, X, -Z, y, -Z[known][::-1], labels[known])
    assert found == pytest.approx(100 * model.score(X, y))
    predicted = predict_classes(model, X, -Z, Z[known], labels[known])
    np.testing.assert_array_equal(predicted.classes, model.predict(X))
    assert predicted.by_predict


class Fake:
    """Predicts the first class, with the probabilities it is given."""

    def __init__(self, classes, proba):
        self.classes_, self.proba = np.array(classes), proba

    def predict(self, X):
        return np.full(len(X), 3)

    def predict_proba(self, X):
        if self.proba is None:
            raise RuntimeError("no luck")
        return np.array(self.proba)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Fake([3, 5], None), "no luck"),
        (Fake([-1, 5], [[0.5, 0.5]] * 50), r"classes_ must hold the predicted .*; got \[-1  5\]"),
        (Fake([3, 5], [[np.nan, 0.5]] * 50), "NaN or infinite"),
    ],
)
def test_unusable_predict_proba_is_left_out_with_warning(rows, model, reason):
    few, y_few, Z = rows
    with pytest.warns(UserWarning, match=f"predict_proba of Fake cannot be used .*{reason}"):
        found = predict_classes(model, Z, Z, few, y_few)
    assert (found.classes == 3).all()
    assert found.by_predict
    assert not found.has_confidence


class Given:
    """Predicts what it is given."""

    classes_ = (3, 5, 8)

    def __init__(self, predicted):
        self.predicted = predicted

    def predict(self, X):
        return self.predicted


@pytest.mark.parametrize(
    ("predicted", "message"),
    [
        (np.full(49, 3), r"one class per row, shape \(50,\); got shape \(49,\)"),
        (np.full((50, 1), 3), r"one class per row.*got shape \(50, 1\)"),
        (None, r"one class per row.*got shape \(\)"),
        (np.full(50, 3.5), r"classes of the labels.*, int64; got 3.5 in row 0, dtype float64"),
        (np.full(50, "3"), r"classes of the labels.*got '3' in row 0, dtype <U1"),
        (np.r_[np.full(49, 3), -1], r"classes of the labels.*got -1 in row 49, dtype int64"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda model, Z, few, y_few: label_accuracy(model, Z, Z, np.full(50, 3), few, y_few),
        lambda model, Z, few, y_few: predict_classes(model, Z, Z, few, y_few),
    ],
    ids=["accuracy", "classes"],
)
def test_predictions_must_be_classes_of_the_labels(rows, predicted, message, use):
    few, y_few, Z = np.tile(rows[0], (9, 1)), np.tile(rows[1], 9), rows[2]
    with pytest.raises(ValueError, match=rf"Given\.predict must return {message}"):
        use(Given(predicted), Z, few, y_few)


def test_whole_numbers_and_lists_are_classes(rows):
    few, y_few, Z = rows
    model = Given([3.0] * 20 + [8.0] * 30)
    assert label_accuracy(model, Z, Z, np.full(50, 3), few, y_few) == pytest.approx(40)
    classes = predict_classes(model, Z, Z, few, y_few).classes
    assert classes.dtype == y_few.dtype
    np.testing.assert_array_equal(classes, [3] * 20 + [8] * 30)


def test_confidence_is_that_of_the_predicted_class(rows):
    """It need not be the most probable one; columns come in any order."""
    few, y_few, Z = rows
    found = predict_classes(Fake([8, 3, 5], [[0.5, 0.2, 0.3]] * 50), Z, Z, few, y_few)
    np.testing.assert_allclose(found.confidence, 0.2)


def test_a_model_without_classes_is_scored_by_means(rows):
    few, y_few, Z = rows
    found = predict_classes(Fake([], None), Z, Z, few, y_few)
    np.testing.assert_array_equal(found.classes, predict_classes(None, Z, Z, few, y_few).classes)
    assert not found.by_predict


def test_nearest_mean_has_no_confidence(rows):
    few, y_few, Z = rows
    found = predict_classes(object(), None, Z, few, y_few)
    np.testing.assert_array_equal(found.classes, NearestCentroid().fit(few, y_few).predict(Z))
    assert not found.has_confidence
    assert reliability_of(found, found.classes) is None


def test_confusion_matches_scikit_learn(rng):
    y, taken = rng.integers(-1, 4, 200), rng.integers(0, 4, 200)
    wanted = confusion_matrix(y[y >= 0], taken[y >= 0], labels=range(4))
    found = confusion(taken, y)
    counts = np.zeros((4, 4), dtype=int)
    counts[found.true, found.predicted] = found.counts
    np.testing.assert_array_equal(counts, wanted)
    assert found.counts.min() > 0


def test_reliability_error_is_calibration_error(rng):
    proba = rng.dirichlet(np.ones(3), 400)
    y = rng.permutation(np.arange(400) % 3)
    found = Predictions(proba.argmax(1), proba.max(1))
    assert reliability_of(found, y).error == pytest.approx(calibration_error(proba, y))
