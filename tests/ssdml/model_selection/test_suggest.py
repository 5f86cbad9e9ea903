"""Suggested parameters: chosen from labels alone, with bounded work, shown as a table."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError

from ssdml import SSDML
from ssdml.classification.forms import forms_with_graphs
from ssdml.classification.learning import learn_evidence
from ssdml.metric.alternation import learn_classes
from ssdml.metric.selection import nearest_mean_correct, nearest_neighbor_correct
from ssdml.model_selection import suggest as suggestion
from ssdml.model_selection.suggest import COLUMNS, N_NEIGHBORS, SUGGESTED, suggest_parameters


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
    assert default.n_neighbors == 10
    best = table[table.held_out == table.held_out.max()].sort_values("likelihood").iloc[-1]
    assert best.n_neighbors == chosen["n_neighbors"]
    assert best.held_out >= default.held_out
    assert len(table.likelihood.unique()) == len(N_NEIGHBORS)  # settings matter


def test_scores_are_those_of_held_out_labels(digits, suggested):
    """With a search of each graph by itself."""
    X, labels = digits
    for trial in suggested.graphs:
        rng = np.random.default_rng(0)
        forms = forms_with_graphs(X, trial.n_neighbors, labels=labels, rng=rng)
        rows, codes, distributions = learn_classes(forms, labels, n_jobs=None)[0].evidence.held_out
        np.testing.assert_array_equal(codes, labels[rows])
        assert trial.held_out == (distributions.argmax(axis=1) == codes).mean()
        chosen = distributions[np.arange(len(rows)), codes]
        assert trial.likelihood == pytest.approx(np.log(chosen).mean())


def test_column_scores_are_those_of_a_fit(digits, suggested):
    """The labeled rows have the class probabilities that the other labels give them."""
    X, labels = digits
    trial = next(t for t in suggested.columns if t.n_components == 16)
    model = SSDML(**(suggested.estimator.get_params() | {"n_components": 16})).fit(X, labels)
    codes, judged = model.label_distributions_.argmax(axis=1), np.flatnonzero(labels == -1)
    agrees = nearest_neighbor_correct(model.transform(X), codes, judged)
    assert trial.agreement == pytest.approx(agrees.mean(), abs=2 / len(judged))
    rows, known, distributions = model.held_out_
    held_out = np.hstack([np.sqrt(distributions), X[rows]]) @ model.components_.T
    assert trial.labeled == nearest_mean_correct(held_out, known).mean()


def test_columns_are_cut_only_without_loss(suggested):
    full, *fewer = suggested.columns
    assert full.n_components is None
    assert [t.n_components for t in fewer] == [32, 16, 8]
    chosen = suggested.estimator.n_components
    for trial in suggested.columns:
        if trial.n_components == chosen:
            assert trial.agreement > full.agreement - 0.005
            assert trial.labeled > full.labeled - 0.01


def test_kept_parameters_stay_and_nothing_is_fitted(digits):
    given = {"angle": 30.0, "decay": 0.9, "n_neighbors": 6, "random_state": 3}
    found = suggest_parameters(SSDML(5, **given), *digits, kept=SUGGESTED)
    assert found.estimator.get_params() == SSDML(5, **given).get_params()
    assert [trial.n_neighbors for trial in found.graphs] == [6]
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
    searched, learned = [], []

    def noted_search(rows, *args, search=forms_with_graphs, **options):
        searched.append(len(rows))
        return search(rows, *args, **options)

    def noted_learning(forms, known, diffusions, learn=learn_evidence):
        learned.append((len(known), forms[0].graph.n_neighbors))
        return learn(forms, known, diffusions)

    monkeypatch.setattr(suggestion, "forms_with_graphs", noted_search)
    monkeypatch.setattr(suggestion, "learn_evidence", noted_learning)
    suggest_parameters(SSDML(random_state=0), X, labels, kept=["n_components"], max_rows=200)
    assert searched == [200]
    assert learned == [(200, k) for k in N_NEIGHBORS]


def test_max_rows_may_be_below_the_labels(digits):
    X, labels = digits
    found = suggest_parameters(
        SSDML(8, random_state=0), X, labels, kept=["n_components"], max_rows=40
    )
    assert {trial.n_neighbors for trial in found.graphs} == set(N_NEIGHBORS)


def test_one_label_per_class_warns_and_keeps_the_graph(digits):
    X, labels = digits
    one = np.full(len(labels), -1)
    rows = [np.flatnonzero(labels == c)[0] for c in range(10)]
    one[rows] = range(10)
    with pytest.warns(
        UserWarning, match="y must label two rows of a class to hold one out; got one"
    ):
        found = suggest_parameters(SSDML(n_neighbors=8, random_state=0), X, one)
    assert all(np.isnan(trial.held_out) for trial in found.graphs)
    assert found.estimator.n_neighbors == 8
    assert all(np.isnan(trial.labeled) for trial in found.columns)
    assert " -  " in repr(found)


def test_classes_with_one_label_are_not_held_out(digits):
    X, labels = digits
    few = np.where((labels == 3) & (np.arange(len(labels)) > 3), -1, labels)
    assert (few == 3).sum() == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = suggest_parameters(SSDML(8, random_state=0), X, few, kept=["n_components"])
    steps = np.array([trial.held_out for trial in found.graphs]) * ((few != -1).sum() - 1)
    np.testing.assert_allclose(steps, np.round(steps))


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
    assert all(0 < trial.held_out <= 1 for trial in found.graphs)


def test_one_class_keeps_the_default():
    X, _ = make_blobs(60, 3, centers=2, random_state=0)
    labels = np.where(np.arange(60) < 5, 4, -1)
    found = suggest_parameters(SSDML(random_state=0), X, labels)
    assert found.estimator.n_neighbors == 10


def test_partitions_keep_their_columns(digits):
    found = suggest_parameters(SSDML(partition_size=300, random_state=0), *digits)
    assert found.columns == ()
    assert found.estimator.n_components is None


def test_one_sided_fits_are_scored_by_their_labeled_rows(digits):
    model = SSDML(propagation="one-sided", mining="neighborhood", random_state=0)
    found = suggest_parameters(model, *digits, kept=["n_neighbors"], max_rows=300)
    assert found.columns[0].n_components is None
    assert len(found.columns) == 4
    assert all(0 < trial.labeled <= 1 for trial in found.columns)


def test_missing_labels_raise(digits):
    with pytest.raises(ValueError, match=r"SSDML: y must contain labels .* Label some rows\."):
        suggest_parameters(SSDML(), digits[0], np.full(700, -1))


@pytest.mark.parametrize(
    ("params", "options", "message"),
    [
        ({}, {"max_rows": 1}, r"suggest_parameters: max_rows must be at least 16.*; got 1"),
        ({}, {"kept": ["n_neighbor"]}, "kept must be one of .*Did you mean 'n_neighbors'"),
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
