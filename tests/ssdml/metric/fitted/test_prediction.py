"""Calibrated confidence, and labels that contradict the others."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ssdml import SSDML
from ssdml.evaluation import calibration_error
from ssdml.metric.fitted.prediction import neighbor_votes


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, y, np.where(np.arange(len(y)) < 200, y, -1)


def test_votes_weight_by_distance():
    votes = neighbor_votes(np.array([[0.0, 2.0, 2.0]]), np.eye(3)[None])
    expected = np.array([1, np.exp(-1), np.exp(-1)])
    np.testing.assert_allclose(votes[0], expected / expected.sum())


@pytest.mark.parametrize("seed", [0, 1])
def test_confidences_of_digits_are_calibrated(digits, seed):
    X, y, _ = digits
    rng = np.random.default_rng(seed)
    seen = rng.permutation(len(y))[:1200]
    labels = np.where(np.arange(1200) < 150, y[seen], -1)
    model = SSDML(random_state=seed).fit(X[seen], labels)
    test = np.setdiff1d(np.arange(len(y)), seen)
    proba = model.predict_proba(X[test])
    assert calibration_error(proba, y[test]) < 5
    right = model.transduction_[150:] == y[seen][150:]
    confidence = model.transduction_confidence_[150:].mean()
    assert abs(confidence - right.mean()) < 0.05
    assert abs(confidence - proba.max(axis=1).mean()) < 0.015


def test_wrong_labels_are_the_first_suspects(digits):
    X, y, labels = digits
    rng = np.random.default_rng(0)
    wrong = rng.choice(200, 10, replace=False)
    noisy = labels.copy()
    noisy[wrong] = (noisy[wrong] + rng.integers(1, 10, 10)) % 10
    suspects = SSDML(random_state=0).fit(X, noisy).suspected_labels()
    assert np.isin(suspects.rows[:10], wrong).sum() >= 7
    np.testing.assert_array_equal(suspects.labels, noisy[suspects.rows])
    assert (np.diff(suspects.confidences) <= 0).all()
    found = np.isin(suspects.rows, wrong)
    assert (suspects.classes[found] == y[suspects.rows[found]]).mean() > 0.8


def test_one_label_per_class_leaves_no_suspects(digits):
    X, y, _ = digits
    labels = np.full(len(y), -1)
    labels[:10] = y[:10]
    model = SSDML(random_state=0).fit(X, labels)
    np.testing.assert_allclose(
        model.transduction_confidence_, model.label_distributions_.max(axis=1)
    )
    with pytest.raises(ValueError, match=r"needs held-out labels; got none\. Fit rows in memory"):
        model.suspected_labels()


def test_saved_models_predict_the_same_without_held_out_labels(digits, tmp_path):
    X, _, labels = digits
    model = SSDML(random_state=0).fit(X, labels)
    model.save(tmp_path / "model")
    again = SSDML.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X[:9]), model.predict_proba(X[:9]))
    with pytest.raises(ValueError, match="saved without graphs do not keep them"):
        again.suspected_labels()
