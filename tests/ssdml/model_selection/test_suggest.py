"""Suggested parameters: chosen from labels alone, with bounded work, shown as a table."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError

from ssdml import SSDML
from ssdml.graphs import knn_graph, propagate_labels
from ssdml.metric.selection import nearest_neighbor_correct
from ssdml.model_selection import suggest as suggestion
from ssdml.model_selection.suggest import (
    COLUMNS,
    DECAYS,
    LEFT_OUT_LABELS,
    N_NEIGHBORS,
    SUGGESTED,
    suggest_parameters,
)
from ssdml.utils.linalg import graph_rows


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:700] / 16, y[:700]
    labels = np.where(np.arange(700) < 60, y, -1)
    for array in (X, labels):
        array.flags.writeable = False
    return X, labels


@pytest.fixture(scope="module")
def suggested(digits):
    return suggest_parameters(SSDML(random_state=0), *digits)


def test_choice_is_the_best_of_the_table(suggested):
    table = pd.DataFrame(suggested.graphs)
    default, chosen = table.iloc[0], suggested.estimator.get_params()
    assert (default.n_neighbors, default.decay) == (10, 0.99)
    best = table[table.left_out == table.left_out.max()].sort_values("agreement").iloc[-1]
    assert (best.n_neighbors, best.decay) == (chosen["n_neighbors"], chosen["decay"])
    assert best.left_out >= default.left_out
    assert len(table.left_out.unique()) > 1  # settings matter


@pytest.mark.filterwarnings("ignore:propagate_labels. no label reaches:RuntimeWarning")
def test_scores_agree_with_hiding_labels_one_by_one(digits, suggested):
    X, labels = digits
    shares = np.unique(labels[labels != -1], return_counts=True)[1]
    trial = suggested.graphs[7]
    graph = knn_graph(graph_rows(X), trial.n_neighbors)
    right = []
    for row in np.flatnonzero(labels != -1):
        others = labels.copy()
        others[row] = -1
        found = propagate_labels(graph, others, decay=trial.decay, class_prior=shares)
        right.append(found[row].argmax() == labels[row])
    assert trial.left_out == pytest.approx(np.mean(right))
    found, solution = propagate_labels(graph, labels, decay=trial.decay, return_solution=True)
    found, reached = found.argmax(axis=1), solution.values.any(axis=1)
    agree = (reached & (found == found[graph.indices[:, 0]]))[labels == -1]
    assert trial.agreement == pytest.approx(agree.mean(), abs=2e-3)  # a loose solver


def test_column_scores_are_those_of_a_fit(digits, suggested):
    X, labels = digits
    trial = next(t for t in suggested.columns if t.n_components == 16)
    model = SSDML(**(suggested.estimator.get_params() | {"n_components": 16})).fit(X, labels)
    codes, judged = model.label_distributions_.argmax(axis=1), np.flatnonzero(labels == -1)
    assert trial.agreement == nearest_neighbor_correct(model.embedding_, codes, judged).mean()


def test_columns_are_cut_only_without_loss(suggested):
    full, *fewer = suggested.columns
    assert full.n_components is None
    assert [t.n_components for t in fewer] == [32, 16, 8]
    chosen = suggested.estimator.n_components
    assert chosen in (16, 32)
    (kept,) = (t for t in fewer if t.n_components == chosen)
    assert kept.agreement > full.agreement - 0.005
    assert fewer[-1].agreement < full.agreement - 0.005  # so 8 are too few


def test_kept_parameters_stay_and_nothing_is_fitted(digits):
    given = {"backbone": None, "angle": 30.0, "decay": 0.9, "n_neighbors": 6, "random_state": 3}
    found = suggest_parameters(SSDML(5, **given), *digits, kept=SUGGESTED)
    assert found.estimator.get_params() == SSDML(5, **given).get_params()
    assert [(t.n_neighbors, t.decay) for t in found.graphs] == [(6, 0.9)]
    assert found.columns == ()
    assert "n_components  labeled" not in repr(found)
    with pytest.raises(NotFittedError):
        found.estimator.transform(digits[0])


def test_same_seed_gives_the_same_choice(digits):
    first, same, generated = (
        suggest_parameters(SSDML(random_state=state), *digits, max_rows=150)
        for state in (0, 0, np.random.RandomState(0))
    )
    assert same[1:] == first[1:] == generated[1:]
    assert repr(same) == repr(first)


def test_work_is_bounded(digits, monkeypatch):
    X, labels = digits
    rows, left_out = [], []

    def noted_propagation(graph, known, **options):
        rows.append(graph.n_samples)
        return propagate_labels(graph, known, **options)

    def noted_leaving(graph, known, judged, **options):
        left_out.append(len(judged))
        return plain(graph, known, judged, **options)

    plain = suggestion.leave_one_out
    monkeypatch.setattr(suggestion, "propagate_labels", noted_propagation)
    monkeypatch.setattr(suggestion, "leave_one_out", noted_leaving)
    monkeypatch.setattr(suggestion, "LEFT_OUT_LABELS", 25)
    found = suggest_parameters(
        SSDML(random_state=0), X, labels, kept=["n_components"], max_rows=200
    )
    assert rows == [200] * len(N_NEIGHBORS) * len(DECAYS)
    assert left_out == [25] * len(rows)
    assert len(found.graphs) == 12
    assert LEFT_OUT_LABELS == 200


def test_max_rows_may_be_below_the_labels(digits):
    X, labels = digits
    found = suggest_parameters(
        SSDML(8, random_state=0), X, labels, kept=["n_components"], max_rows=40
    )
    assert {trial.n_neighbors for trial in found.graphs} == set(N_NEIGHBORS)


def test_one_label_per_class_warns_and_uses_agreement(digits):
    X, labels = digits
    one = np.full(len(labels), -1)
    rows = [np.flatnonzero(labels == c)[0] for c in range(10)]
    one[rows] = range(10)
    with pytest.warns(
        UserWarning, match="y must label two rows of a class to leave one out; got one"
    ):
        found = suggest_parameters(SSDML(random_state=0), X, one)
    assert all(np.isnan(trial.left_out) for trial in found.graphs)
    best = max(found.graphs, key=lambda trial: trial.agreement)
    assert (found.estimator.n_neighbors, found.estimator.decay) == (best.n_neighbors, best.decay)
    assert " -  " in repr(found)


def test_classes_with_one_label_are_not_left_out(digits):
    X, labels = digits
    few = np.where((labels == 3) & (np.arange(len(labels)) > 3), -1, labels)
    assert (few == 3).sum() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = suggest_parameters(SSDML(8, random_state=0), X, few, kept=["n_components"])
    steps = np.array([trial.left_out for trial in found.graphs]) * ((few != -1).sum() - 1)
    np.testing.assert_allclose(steps, np.round(steps))


def test_unreached_rows_do_not_agree():
    X, y = make_blobs(100, 2, centers=[[0, 0], [5, 0], [1000, 0], [2000, 0]], random_state=0)
    labels = np.where((np.arange(100) < 30) & (y < 2), y, -1)  # two clusters without labels
    found = suggest_parameters(
        SSDML(2, n_neighbors=5, random_state=0), X, labels, kept=["n_components", "n_neighbors"]
    )
    reached = (y < 2)[labels == -1].mean()
    assert all(trial.agreement <= reached for trial in found.graphs)
    assert max(trial.agreement for trial in found.graphs) > reached - 0.1


@pytest.mark.parametrize("n", [4, 8, 12])
def test_few_rows_limit_the_neighbors(n):
    X, y = make_blobs(n, 3, centers=2, random_state=0)
    labels = np.where(np.arange(n) < n - 1, y, -1)
    found = suggest_parameters(SSDML(random_state=0), X, labels)
    numbers = {trial.n_neighbors for trial in found.graphs}
    assert numbers == {min(k, n - 1) for k in N_NEIGHBORS}
    assert (found.columns, found.estimator.n_components) == ((), None)  # too few rows to validate
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "SSDML: returns the input")
        found.estimator.fit(X, labels)  # no warning on n_neighbors


def test_fully_labeled_data_score_all_rows():
    X, y = make_blobs(60, 9, centers=3, cluster_std=4.0, random_state=0)
    found = suggest_parameters(SSDML(random_state=0), X, y)
    assert {t.n_components for t in found.columns} == {None, *(9 // part for part in COLUMNS)}
    assert all(0 < trial.agreement <= 1 for trial in found.graphs)


def test_one_class_keeps_the_default():
    X, _ = make_blobs(60, 3, centers=2, random_state=0)
    labels = np.where(np.arange(60) < 5, 4, -1)
    found = suggest_parameters(SSDML(random_state=0), X, labels)
    assert (found.estimator.n_neighbors, found.estimator.decay) == (10, 0.99)


def test_partitions_keep_their_columns(digits):
    found = suggest_parameters(SSDML(partition_size=300, random_state=0), *digits)
    assert found.columns == ()
    assert found.estimator.n_components is None


def test_backbone_is_scored_with_its_representation(digits, short_training):
    model = SSDML(backbone="residual", max_rounds=1, random_state=0)
    found = suggest_parameters(model, *digits, kept=["n_neighbors", "decay"], max_rows=300)
    assert found.columns[0].n_components is None
    assert len(found.columns) == 4


def test_missing_labels_raise(digits):
    with pytest.raises(ValueError, match=r"SSDML: y must contain labels .* Label some rows\."):
        suggest_parameters(SSDML(), digits[0], np.full(700, -1))


@pytest.mark.parametrize(
    ("params", "options", "message"),
    [
        ({}, {"max_rows": 1}, r"suggest_parameters: max_rows must be at least 16.*; got 1"),
        ({}, {"kept": ["decoy"]}, "kept must be one of 'n_neig.*got 'decoy'. Did you mean 'decay'"),
        ({"decay": 1.5}, {}, "The 'decay' parameter of SSDML must be a float in the range"),
        ({"n_components": 65}, {}, "n_components must be at most n_features = 64; got 65"),
    ],
)
def test_invalid_parameters_raise(digits, params, options, message):
    with pytest.raises(ValueError, match=message):
        suggest_parameters(SSDML(**params), *digits, **options)


def test_the_class_itself_is_refused(digits):
    with pytest.raises(TypeError, match=r"suggest_parameters: estimator must be an SSDML\(...\)"):
        suggest_parameters(SSDML, *digits)


def test_dask_arrays_raise(digits):
    array = pytest.importorskip("dask.array")
    X, labels = digits
    with pytest.raises(
        ValueError, match=r"X must be an array in memory; got a dask array\. Pass a"
    ):
        suggest_parameters(SSDML(), array.from_array(X), labels)
