"""Classes of test rows, how sure a method is, and what is taken for what."""

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
    predictions,
    reliability_of,
)


@pytest.fixture
def rows(rng):
    """Labeled rows with their classes, 3, 5 and 8, and rows to be predicted."""
    y_few = np.repeat([3, 5, 8], 4)
    few = rng.normal(size=(12, 2)) + y_few[:, None]
    return few, y_few, rng.normal(size=(50, 2)) + rng.choice([3, 5, 8], 50)[:, None]


def test_a_method_that_predicts_is_asked(rows):
    few, y_few, Z = rows
    model = KNeighborsClassifier(3).fit(few, y_few)
    found = predictions(model, Z, -Z, few, y_few)  # not by the embedding
    np.testing.assert_array_equal(found.classes, model.predict(Z))
    np.testing.assert_allclose(found.confidence, model.predict_proba(Z).max(axis=1))
    assert found.are_own


def test_a_classifiers_accuracy_is_its_own_and_a_metrics_that_of_the_nearest_mean(rows, rng):
    few, y_few, Z = rows
    model, y = KNeighborsClassifier(3).fit(few, y_few), rng.choice([-1, 3, 5, 8], 50)
    known, given = y >= 0, (Z, -Z, y, few, y_few)  # not by the embedding
    own = 100 * (model.predict(Z) == y)[known].mean()
    assert label_accuracy(model, *given) == pytest.approx(own)
    nearest = NearestCentroid().fit(few, y_few).predict(-Z)
    for metric in (StandardScaler(), object()):
        by_means = 100 * (nearest == y)[known].mean()
        assert label_accuracy(metric, *given) == pytest.approx(by_means)


class Says:
    """Predicts what it is told."""

    def __init__(self, classes, proba):
        self.classes_, self.proba = np.array(classes), proba

    def predict_proba(self, X):
        if self.proba is None:
            raise RuntimeError("no luck")
        return np.array(self.proba)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Says([3, 5], None), "no luck"),
        (Says([-1, 3], [[0.5, 0.5]] * 50), r"classes_ must be among the labels; got \[-1\]"),
        (Says([3, 5], [[np.nan, 0.5]] * 50), "NaN or infinite"),
    ],
)
def test_a_word_that_is_of_no_use_is_told_and_the_nearest_mean_counts(rows, model, reason):
    few, y_few, Z = rows
    with pytest.warns(UserWarning, match=f"predict_proba of Says is of no use.*{reason}"):
        found = predictions(model, Z, Z, few, y_few)
    np.testing.assert_array_equal(found.classes, predictions(None, Z, Z, few, y_few).classes)
    assert not found.are_own


def test_a_method_that_knows_no_class_is_not_asked(rows):
    few, y_few, Z = rows
    assert not predictions(Says([], None), Z, Z, few, y_few).are_own


def test_any_other_goes_by_the_nearest_mean_and_is_not_sure(rows):
    few, y_few, Z = rows
    found = predictions(object(), None, Z, few, y_few)
    np.testing.assert_array_equal(found.classes, NearestCentroid().fit(few, y_few).predict(Z))
    assert not found.are_own
    assert reliability_of(found, found.classes) is None


def test_a_confusion_is_that_of_scikit_learn_and_unknown_rows_are_left_out(rng):
    y, taken = rng.integers(-1, 4, 200), rng.integers(0, 4, 200)
    wanted = confusion_matrix(y[y >= 0], taken[y >= 0], labels=range(4))
    found = confusion(taken, y)
    counts = np.zeros((4, 4), dtype=int)
    counts[found.true, found.taken] = found.counts
    np.testing.assert_array_equal(counts, wanted)
    assert found.counts.min() > 0


def test_the_error_of_the_bins_is_the_calibration_error(rng):
    proba = rng.dirichlet(np.ones(3), 400)
    y = rng.permutation(np.arange(400) % 3)
    found = Predictions(proba.argmax(1), proba.max(1))
    assert reliability_of(found, y).error == pytest.approx(calibration_error(proba, y))
