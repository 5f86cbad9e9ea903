"""Predicted classes, their confidence and confusion."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.preprocessing import StandardScaler

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
    for metric in (StandardScaler(), object()):
        by_means = 100 * (nearest == y)[known].mean()
        assert label_accuracy(metric, *given) == pytest.approx(by_means)


class Fake:
    """Returns the probabilities it is given."""

    def __init__(self, classes, proba):
        self.classes_, self.proba = np.array(classes), proba

    def predict_proba(self, X):
        if self.proba is None:
            raise RuntimeError("no luck")
        return np.array(self.proba)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Fake([3, 5], None), "no luck"),
        (Fake([-1, 3], [[0.5, 0.5]] * 50), r"classes_ must be among the labels; got \[-1\]"),
        (Fake([3, 5], [[np.nan, 0.5]] * 50), "NaN or infinite"),
    ],
)
def test_unusable_predict_proba_falls_back_with_warning(rows, model, reason):
    few, y_few, Z = rows
    with pytest.warns(UserWarning, match=f"predict_proba of Fake cannot be used .*{reason}"):
        found = predict_classes(model, Z, Z, few, y_few)
    np.testing.assert_array_equal(found.classes, predict_classes(None, Z, Z, few, y_few).classes)
    assert not found.has_confidence


def test_predict_proba_without_classes_is_ignored(rows):
    few, y_few, Z = rows
    assert not predict_classes(Fake([], None), Z, Z, few, y_few).has_confidence


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
