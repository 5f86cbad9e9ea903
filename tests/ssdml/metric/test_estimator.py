"""SSDML: better than the input, with a fallback to it, and compatible with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ssdml import SSDML
from ssdml.classification.forms import forms_with_graphs
from ssdml.evaluation import evaluate, few_label_accuracy
from ssdml.graphs.neighbors.knn import knn_graph
from ssdml.graphs.propagation.labels import propagate_labels
from ssdml.metric.alternation import learn_classes
from ssdml.metric.selection import nearest_mean_correct
from ssdml.model_selection import SemiSupervisedSplit, labeled_scorer
from ssdml.utils.labels import in_precision


@pytest.fixture(scope="module")
def fitted(digits):
    """With as many triplets as a user has."""
    X, _, labels = digits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssdml.metric.alternation.N_TRIPLETS", 50_000)
        return SSDML(random_state=0).fit(X, labels)


def scores(Z, digits):
    _, y, labels = digits
    known = labels != -1
    return evaluate(Z, y), few_label_accuracy(Z[known], labels[known], Z[~known], y[~known])


# Quality


def test_metric_beats_the_input(digits, fitted):
    before, accuracy_before = scores(digits[0], digits)
    after, accuracy = scores(fitted.transform(digits[0]), digits)
    assert after["NMI"] > before["NMI"] + 5
    assert after["R@1"] > before["R@1"] - 0.5
    assert accuracy > accuracy_before + 4


def test_classes_follow_the_better_witness(digits, fitted):
    """Logistic regression sees the labeled rows alone, label propagation no direction."""
    X, y, labels = digits
    known = labels != -1
    by_rows = LogisticRegression(C=10, max_iter=1000).fit(X[known], labels[known]).score(X, y)
    by_graph = (propagate_labels(knn_graph(X, 10), labels).argmax(axis=1) == y).mean()
    found = (fitted.transduction_ == y).mean()
    assert found > by_rows + 0.05
    assert found > by_graph - 0.02


@pytest.mark.parametrize("case", ["rare classes", "labeled", "unlabeled", "all"])
def test_copies_of_rows_teach_nothing_new(digits, fitted, case):
    """As made by oversampling: labels of copies seemed to confirm each other."""
    X, y, labels = digits
    rows = np.arange(len(y))
    if case != "all":
        classes = 5 if case == "rare classes" else 10
        rows = np.flatnonzero((labels != -1) & (y < classes)).repeat(30)
    given = np.full(len(rows), -1) if case == "unlabeled" else labels[rows]
    model = SSDML(random_state=0).fit(np.r_[X, X[rows]], np.r_[labels, given])
    right = (model.transduction_[: len(y)] == y).mean()
    assert right > (fitted.transduction_ == y).mean() - 0.015
    assert (model.transduction_[len(y) :] == model.transduction_[rows]).mean() > 0.99
    embedding = model.transform(np.r_[X, X[rows]])
    atol = 1e-4 * np.abs(embedding).max()
    np.testing.assert_allclose(model.embedding_, embedding, rtol=0, atol=atol)


def test_seed_determines_the_approximate_search(digits, monkeypatch):
    monkeypatch.setattr("ssdml.graphs.neighbors.knn.EXACT_WORK", 0)
    X, labels = digits[0][:900], digits[2][:900]
    first, same, other = (SSDML(random_state=seed).fit(X, labels) for seed in (0, 0, 1))
    np.testing.assert_array_equal(same.label_distributions_, first.label_distributions_)
    assert (other.label_distributions_ != first.label_distributions_).any()


def test_new_rows_are_predicted_as_accurately(digits):
    X, y, labels = digits
    seen = np.arange(len(X)) % 3 > 0
    model = SSDML(random_state=0).fit(X[seen], labels[seen])
    of_seen = (model.transduction_ == y[seen]).mean()
    assert of_seen > 0.85
    assert abs(model.score(X[~seen], y[~seen]) - of_seen) < 0.03  # 2.4 standard errors
    assert model.score(X, np.where(seen, -1, y)) == model.score(X[~seen], y[~seen])


def test_votes_follow_the_induction_formula(digits):
    """Row by row, where there is no classifier."""
    X, _, labels = digits
    model = SSDML(propagation="one-sided", mining="neighborhood", random_state=0).fit(X, labels)
    assert model.classifier_ is None
    Z = model.transform(X[:3])
    for row, proba in zip(Z, model.predict_proba(X[:3]), strict=True):
        distances = np.linalg.norm(model.embedding_.astype(float) - row, axis=1)
        nearest = np.argsort(distances, kind="stable")[:10]
        weights = np.exp(-((distances[nearest] / distances[nearest[-1]]) ** 2))
        expected = weights @ model.label_distributions_[nearest] / weights.sum()
        np.testing.assert_allclose(proba, expected, atol=1e-4)  # distances are float32


def test_training_rows_are_predicted_as_they_were_found(digits, fitted):
    assert (fitted.predict(digits[0]) == fitted.transduction_).mean() > 0.97


def test_history_describes_each_round(fitted):
    assert len(fitted.history_) == 2
    for entry in fitted.history_:
        assert entry["n_triplets"] > 10_000
        before, after = entry["objective"]
        assert after < before
    assert 0 <= fitted.history_[0]["changed"] < 0.1
    assert fitted.triplets_.anchor.size == fitted.history_[-1]["n_triplets"]


def test_fitted_attributes(digits, fitted):
    X, y, _ = digits
    np.testing.assert_array_equal(fitted.classes_, np.arange(10))
    assert (fitted.transduction_ == y).mean() > 0.9
    np.testing.assert_allclose(fitted.label_distributions_.sum(axis=1), 1, rtol=1e-5)
    # at training rows, from the graph instead of a search
    np.testing.assert_allclose(fitted.embedding_, fitted.transform(X), atol=1e-4)
    assert fitted.n_features_in_ == 64
    assert fitted.representation_(X).shape == (len(X), 10 + 64)
    assert fitted.components_.shape == (64, 10 + 64)
    np.testing.assert_array_equal(fitted.held_out_.rows, np.flatnonzero(digits[2] != -1))


# The guard


MODES = [{}, {"propagation": "one-sided", "mining": "neighborhood"}]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_guard_falls_back_to_the_input(digits, harmful_metric, mode):
    X, _, labels = digits
    message = r"SSDML: returns the input instead: .* worse: .*% with the input\. Label more rows"
    with pytest.warns(UserWarning, match=message) as caught:
        model = SSDML(input_weight=0, random_state=0, **mode).fit(X, labels)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(model.transform(X), X)
    assert model.input_weight_ == np.inf
    assert model.history_


def test_guard_can_be_disabled(digits, harmful_metric):
    X, y, labels = digits
    model = SSDML(input_weight=0, guard=False, random_state=0).fit(X, labels)
    assert evaluate(model.transform(X), y)["R@1"] < evaluate(X, y)["R@1"] - 5


@pytest.mark.parametrize("draw", range(3))
def test_labels_by_chance_leave_neighbors_and_clusters_as_they_are(blobs, draw):
    """Class probabilities explain no held-out label, so the input has by far the largest weight."""
    X, y, _ = blobs
    labels = np.full(len(y), -1)
    labels[:40] = np.random.default_rng(draw).permutation(np.arange(40) % 2)
    model = SSDML(random_state=0).fit(X, labels)
    assert model.held_out_.explained < 0.05
    assert model.input_weight_ > 3
    before, after = evaluate(X, y), evaluate(model.transform(X), y)
    assert after["NMI"] > before["NMI"] - 0.3
    assert after["R@1"] > before["R@1"] - 0.3


def test_guard_compares_equal_numbers_of_columns(digits):
    """All 64 columns of the input beat a single learned one, but one of the input does not."""
    X, _, labels = digits
    known = labels != -1
    model = SSDML(1, random_state=0).fit(X, labels)
    assert np.isfinite(model.input_weight_)
    principal = PCA(1).fit(X).transform(X[known])
    of_learned, of_input = (
        nearest_mean_correct(Z, labels[known]).mean()
        for Z in (model.transform(X[known]), principal)
    )
    assert of_learned > of_input


# Within scikit-learn


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_output_can_be_a_frame(blobs, library):
    frames = pytest.importorskip(library)
    X, _, labels = blobs
    table = frames.DataFrame({name: X[:, i] for i, name in enumerate("abcde")})
    model = SSDML(3, random_state=0).set_output(transform=library).fit(table, labels)
    result = model.transform(table)
    assert isinstance(result, frames.DataFrame)
    assert list(result.columns) == ["ssdml0", "ssdml1", "ssdml2"]
    assert list(model.feature_names_in_) == list("abcde")
    np.testing.assert_allclose(result.to_numpy(), model.embedding_, rtol=1e-5)  # of float32


def test_pipeline_passes_labels_on(blobs):
    X, y, labels = blobs
    pipeline = make_pipeline(StandardScaler(), SSDML(random_state=0)).fit(X, labels)
    assert pipeline.score(X, y) > 0.9
    assert list(pipeline.get_feature_names_out()) == [f"ssdml{i}" for i in range(10)]
    known = labels != -1
    by_neighbors = KNeighborsClassifier(1).fit(pipeline.transform(X[known]), labels[known])
    assert by_neighbors.score(pipeline.transform(X), y) > 0.9


@pytest.mark.parametrize("scoring", ["accuracy", "NMI"])
def test_grid_search_never_scores_an_unlabeled_row(blobs, scoring):
    X, _, labels = blobs
    search = GridSearchCV(
        SSDML(random_state=0),
        {"n_neighbors": [5, 10]},
        cv=SemiSupervisedSplit(2, random_state=0),
        scoring=labeled_scorer(scoring),
        error_score="raise",
    ).fit(X, labels)
    assert search.best_score_ > 0.9
    assert search.transform(X).shape == (120, 3 + 2 + 5)


def test_refit_forgets_the_previous_fit(blobs):
    X, _, labels = blobs
    model = SSDML(random_state=0).fit(X[:, :3], labels)
    again = model.fit(X, labels).transform(X)
    np.testing.assert_array_equal(again, clone(model).fit(X, labels).transform(X))
    assert model.set_params(propagation="one-sided", input_weight=0.0, guard=False) is model


def test_distributions_are_those_of_the_evidence(blobs):
    X, _, labels = blobs
    model = SSDML(max_rounds=1, random_state=0).fit(X, labels)
    forms = forms_with_graphs(X, 10, labels=labels, rng=np.random.default_rng(0))
    expected = learn_classes(forms, labels, n_jobs=None)[1]
    np.testing.assert_array_equal(model.label_distributions_, in_precision(expected, X.dtype))


def test_one_sided_distributions_agree_with_propagation(blobs):
    X, _, labels = blobs
    model = SSDML(propagation="one-sided", mining="neighborhood", random_state=0).fit(X, labels)
    np.testing.assert_array_equal(
        model.label_distributions_, propagate_labels(knn_graph(X, 10), labels)
    )


@pytest.mark.parametrize("dtype", ["float16", ">f4"])
def test_short_numbers_are_learned_in_single_precision(digits, dtype):
    X, _, y = digits
    short = X.astype(dtype)
    found, single = (SSDML(random_state=0).fit(rows, y) for rows in (short, short.astype("f4")))
    assert found.embedding_.dtype == found.transform(short).dtype == np.float32
    np.testing.assert_array_equal(found.transform(short), single.transform(short.astype("f4")))


def test_two_samples_are_told_once_that_triplets_are_missing():
    with pytest.warns(UserWarning, match="SSDML: found no triplets of two samples") as told:
        model = SSDML(n_neighbors=1, random_state=0).fit([[0.0, 1.0], [2.0, 3.0]], [3, 7])
    assert len(told) == 1
    assert model.predict([[0.0, 1.1], [2.0, 2.9]]).tolist() == [3, 7]


@pytest.mark.parametrize("way", ["pipeline", "cross-validation"])
def test_warnings_name_the_line_beyond_scikit_learn(way, digits):
    X, y, model = digits[0][:90], digits[1][:90], SSDML(n_neighbors=100)
    with pytest.warns(UserWarning, match="n_neighbors must be below") as caught:
        make_pipeline(model).fit(X, y) if way == "pipeline" else cross_val_score(model, X, y, cv=2)
    assert {warning.filename for warning in caught} == {__file__}
