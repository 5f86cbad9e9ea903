"""Calibrated confidence, and labels that contradict the others."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs

from ssdml import SSDML
from ssdml.evaluation import calibration_error
from ssdml.graphs import knn_graph, propagate_labels
from ssdml.metric.prediction import (
    best_power,
    calibrate,
    neighbor_votes,
    sharpened,
    stratified_folds,
)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, y, np.where(np.arange(len(y)) < 200, y, -1)


def test_power_recovers_the_temperature(rng):
    logits = 2 * rng.standard_normal((20_000, 4))
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (truth.cumsum(axis=1) < rng.random((len(truth), 1))).sum(axis=1)
    soft = sharpened(truth, 0.25)
    assert best_power(soft, codes) == pytest.approx(4, rel=0.05)
    np.testing.assert_allclose(sharpened(soft, 4), truth, atol=1e-12)
    assert calibration_error(soft, codes) > 10 > 1.5 > calibration_error(truth, codes)


def test_power_keeps_classes_and_dtype(rng):
    rows = rng.dirichlet(np.ones(5), 50).astype(np.float32)
    sharp = sharpened(rows, 7.0)
    assert sharp.dtype == np.float32
    np.testing.assert_array_equal(sharp.argmax(axis=1), rows.argmax(axis=1))
    np.testing.assert_allclose(sharp.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(sharpened(rows, 1.0), rows, rtol=1e-5)


def test_power_stays_finite_at_full_accuracy():
    right = np.tile([0.6, 0.4], (10, 1))
    assert 1 < best_power(right, np.zeros(10, int)) < 50
    more = np.tile([0.6, 0.4], (1000, 1))
    assert best_power(more, np.zeros(1000, int)) > best_power(right, np.zeros(10, int))


def test_no_class_is_held_out_entirely(rng):
    labels = rng.permutation(np.repeat([0, 1, 2, 3, -1], [1, 2, 7, 30, 50]))
    rows, folds = stratified_folds(labels, rng)
    assert sorted(labels[rows].tolist()) == [1] * 2 + [2] * 7 + [3] * 30
    for fold in range(5):
        left = np.setdiff1d(np.flatnonzero(labels >= 0), rows[folds == fold])
        assert set(labels[left]) == {0, 1, 2, 3}


def test_held_out_distributions_agree_with_propagation():
    X, _ = make_blobs(60, 3, centers=2, cluster_std=3.0, random_state=0)
    labels = np.where(np.arange(60) < 2, np.arange(60) % 2, -1)
    labels[2:4] = labels[:2]
    graph = knn_graph(X, 5)
    found = calibrate(graph, labels, X, decay=0.9, n_neighbors=5, rng=np.random.default_rng(0))
    rows, folds = stratified_folds(labels, np.random.default_rng(0))
    np.testing.assert_array_equal(found.rows, rows)
    for row, fold, given in zip(rows, folds, found.distributions, strict=True):
        known = labels.copy()
        known[rows[folds == fold]] = -1
        expected = propagate_labels(graph, known, decay=0.9)[[row]]
        np.testing.assert_allclose(
            given, sharpened(expected, found.of_rows)[0], atol=0.02
        )  # a loose solver


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
    raw = proba ** (1 / model.confidence_powers_[1])
    raw /= raw.sum(axis=1, keepdims=True)
    assert calibration_error(raw, y[test]) > 25
    assert calibration_error(proba, y[test]) < 5
    right = model.transduction_[150:] == y[seen][150:]
    assert abs(model.transduction_confidence_[150:].mean() - right.mean()) < 0.05


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


def test_one_label_per_class_is_not_calibrated(digits):
    X, y, _ = digits
    labels = np.full(len(y), -1)
    labels[:10] = y[:10]
    model = SSDML(random_state=0).fit(X, labels)
    assert model.confidence_powers_ == (1.0, 1.0)
    np.testing.assert_allclose(
        model.transduction_confidence_, model.label_distributions_.max(axis=1)
    )
    with pytest.raises(ValueError, match=r"needs held-out labels; got none\. Fit rows in memory"):
        model.suspected_labels()


def test_powers_are_saved(digits, tmp_path):
    X, _, labels = digits
    model = SSDML(random_state=0).fit(X, labels)
    model.save(tmp_path / "model")
    again = SSDML.load(tmp_path / "model")
    assert again.confidence_powers_ == model.confidence_powers_
    np.testing.assert_array_equal(again.predict_proba(X[:9]), model.predict_proba(X[:9]))
