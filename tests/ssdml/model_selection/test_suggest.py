"""Parameters are chosen by the given labels alone, in bounded work; what was tried is told."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError

from ssdml import SSDML
from ssdml.graphs import knn_graph, propagate_labels
from ssdml.metric.selection import nearest_agrees
from ssdml.model_selection import suggest as suggestion
from ssdml.model_selection.suggest import COLUMNS, DECAYS, JUDGED_LABELS, N_NEIGHBORS
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
    return SSDML.suggest(*digits, random_state=0)


def test_the_choice_is_the_best_of_the_table_and_no_worse_than_the_default(suggested):
    table = pd.DataFrame(suggested.graphs)  # the names of the columns come along
    default, chosen = table.iloc[0], suggested.estimator.get_params()
    assert (default.n_neighbors, default.decay) == (10, 0.99)
    best = table[table.left_out == table.left_out.max()].sort_values("agreement").iloc[-1]
    assert (best.n_neighbors, best.decay) == (chosen["n_neighbors"], chosen["decay"])
    assert best.left_out >= default.left_out
    assert len(table.left_out.unique()) > 1  # the settings do differ


@pytest.mark.filterwarnings("ignore:propagate_labels. no label reaches:RuntimeWarning")
def test_each_row_of_the_table_is_what_hiding_one_label_at_a_time_gives(digits, suggested):
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


def test_fewer_columns_are_those_that_a_fit_with_so_many_has(digits, suggested):
    X, labels = digits
    trial = next(t for t in suggested.columns if t.n_components == 16)
    model = SSDML(**(suggested.estimator.get_params() | {"n_components": 16})).fit(X, labels)
    codes, judged = model.label_distributions_.argmax(axis=1), np.flatnonzero(labels == -1)
    assert trial.agreement == nearest_agrees(model.embedding_, codes, judged).mean()


def test_columns_are_given_up_only_where_nothing_is_lost(suggested):
    full, *fewer = suggested.columns
    assert full.n_components is None
    assert [t.n_components for t in fewer] == [32, 16, 8]
    chosen = suggested.estimator.n_components
    assert chosen in (16, 32)
    (kept,) = (t for t in fewer if t.n_components == chosen)
    assert kept.agreement > full.agreement - 0.005
    assert fewer[-1].agreement < full.agreement - 0.005  # which is why 8 are not enough


def test_the_estimator_is_not_fitted_and_has_what_it_was_given(digits):
    given = {"backbone": None, "angle": 30.0, "decay": 0.9, "n_neighbors": 6, "random_state": 3}
    found = SSDML.suggest(*digits, n_components=5, **given)
    assert found.estimator.get_params() == SSDML(5, **given).get_params()
    assert [(t.n_neighbors, t.decay) for t in found.graphs] == [(6, 0.9)]
    assert found.columns == ()
    assert "n_components  labeled" not in repr(found)
    with pytest.raises(NotFittedError):
        found.estimator.transform(digits[0])


def test_the_same_seed_gives_the_same_choice_and_labels_alone_count(digits, suggested):
    X, labels = digits
    again = SSDML.suggest(X, labels, random_state=0)
    assert again[1:] == suggested[1:]
    assert repr(again) == repr(suggested)
    generator = np.random.RandomState(0)
    assert SSDML.suggest(X, labels, random_state=generator).graphs == suggested.graphs


def test_work_is_bounded_by_settings_and_rows(digits, monkeypatch):
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
    monkeypatch.setattr(suggestion, "JUDGED_LABELS", 25)
    found = SSDML.suggest(X, labels, max_rows=200, n_components=None, random_state=0)
    assert rows == [200] * len(N_NEIGHBORS) * len(DECAYS)
    assert left_out == [25] * len(rows)
    assert len(found.graphs) == 12
    assert JUDGED_LABELS == 200


def test_more_labels_than_rows_are_allowed(digits):
    X, labels = digits
    found = SSDML.suggest(X, labels, max_rows=40, n_components=8, random_state=0)
    assert {trial.n_neighbors for trial in found.graphs} == set(N_NEIGHBORS)


def test_with_one_label_a_class_agreement_decides_and_it_is_said(digits):
    X, labels = digits
    one = np.full(len(labels), -1)
    rows = [np.flatnonzero(labels == c)[0] for c in range(10)]
    one[rows] = range(10)
    with pytest.warns(UserWarning, match="y must label two rows of a class, so that one can be"):
        found = SSDML.suggest(X, one, random_state=0)
    assert all(np.isnan(trial.left_out) for trial in found.graphs)
    best = max(found.graphs, key=lambda trial: trial.agreement)
    assert (found.estimator.n_neighbors, found.estimator.decay) == (best.n_neighbors, best.decay)
    assert " -  " in repr(found)  # nothing was left out


def test_a_class_of_one_label_does_not_count_for_the_others(digits):
    X, labels = digits
    few = np.where((labels == 3) & (np.arange(len(labels)) > 3), -1, labels)
    assert (few == 3).sum() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = SSDML.suggest(X, few, n_components=8, random_state=0)
    steps = np.array([trial.left_out for trial in found.graphs]) * ((few != -1).sum() - 1)
    np.testing.assert_allclose(steps, np.round(steps))


def test_rows_that_no_label_reaches_do_not_agree():
    X, y = make_blobs(100, 2, centers=[[0, 0], [5, 0], [1000, 0], [2000, 0]], random_state=0)
    labels = np.where((np.arange(100) < 30) & (y < 2), y, -1)  # two clusters without any
    found = SSDML.suggest(X, labels, n_components=2, n_neighbors=5, random_state=0)
    reached = (y < 2)[labels == -1].mean()
    assert all(trial.agreement <= reached for trial in found.graphs)
    assert max(trial.agreement for trial in found.graphs) > reached - 0.1


@pytest.mark.parametrize("n", [4, 8, 12])
def test_few_rows_have_few_neighbors(n):
    X, y = make_blobs(n, 3, centers=2, random_state=0)
    labels = np.where(np.arange(n) < n - 1, y, -1)
    found = SSDML.suggest(X, labels, random_state=0)
    numbers = {trial.n_neighbors for trial in found.graphs}
    assert numbers == {min(k, n - 1) for k in N_NEIGHBORS}
    assert (found.columns, found.estimator.n_components) == ((), None)  # one row says nothing
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "SSDML: returns the input")
        found.estimator.fit(X, labels)  # and no warning of more neighbors than rows


def test_where_all_rows_are_labeled_all_of_them_agree_or_not():
    X, y = make_blobs(60, 9, centers=3, cluster_std=4.0, random_state=0)
    found = SSDML.suggest(X, y, random_state=0)
    assert {t.n_components for t in found.columns} == {None, *(9 // part for part in COLUMNS)}
    assert all(0 < trial.agreement <= 1 for trial in found.graphs)


def test_one_class_alone_keeps_the_default():
    X, _ = make_blobs(60, 3, centers=2, random_state=0)
    labels = np.where(np.arange(60) < 5, 4, -1)
    found = SSDML.suggest(X, labels, random_state=0)
    assert (found.estimator.n_neighbors, found.estimator.decay) == (10, 0.99)


def test_the_literal_way_keeps_its_columns(digits):
    found = SSDML.suggest(*digits, partition_size=300, random_state=0)
    assert found.columns == ()
    assert found.estimator.n_components is None


def test_a_backbone_is_tried_with_its_representation(digits, short_training):
    kept = {"n_neighbors": 10, "decay": 0.99, "max_rounds": 1}
    X, labels = digits
    found = SSDML.suggest(X, labels, backbone="residual", max_rows=300, random_state=0, **kept)
    assert found.columns[0].n_components is None
    assert len(found.columns) == 4


def test_without_a_label_there_is_nothing_to_choose_by(digits):
    with pytest.raises(ValueError, match=r"SSDML: y must contain labels .* Label some rows\."):
        SSDML.suggest(digits[0], np.full(700, -1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rows": 1}, r"SSDML\.suggest: max_rows must be at least 16, for graphs.*; got 1"),
        ({"decay": 1.5}, "The 'decay' parameter of SSDML must be a float in the range"),
        ({"n_components": 65}, "n_components must be at most n_features = 64; got 65"),
    ],
)
def test_parameters_that_do_not_suit_are_refused(digits, options, message):
    with pytest.raises(ValueError, match=message):
        SSDML.suggest(*digits, **options)


def test_a_dask_array_is_refused(digits):
    array = pytest.importorskip("dask.array")
    X, labels = digits
    with pytest.raises(ValueError, match=r"X must be rows in memory; got a dask array\. Pass some"):
        SSDML.suggest(array.from_array(X), labels)
