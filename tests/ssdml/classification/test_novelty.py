"""Rows of no class with a label."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from ssdml import SSDML
from ssdml.classification.novelty import Novelty, novel_groups, prior_log_odds
from ssdml.graphs import knn_graph


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:1000] / 16, y[:1000]
    return X, y, SSDML(random_state=0).fit(X[:900], five_labels(y[:900], hidden=4))


def five_labels(y, hidden=None):
    labels = np.full(len(y), -1)
    for c in set(range(10)) - {hidden}:
        labels[np.flatnonzero(y == c)[:5]] = c
    return labels


def test_a_class_without_labels_is_novel(digits):
    X, y, model = digits
    scores, new = model.novelty_score(), model.novelty_score(X[900:])
    free = np.setdiff1d(np.arange(900), model.labeled_rows_)
    assert roc_auc_score(y[free] == 4, scores[free]) > 0.95
    assert roc_auc_score(y[900:] == 4, new) > 0.95
    assert abs(scores[free].mean() - (y[free] == 4).mean()) < 0.15
    assert scores[model.labeled_rows_].max() == 0
    assert 0 <= scores.min() <= scores.max() <= 1


def test_little_is_novel_if_all_classes_are_labeled(digits):
    X, y, _ = digits
    model = SSDML(random_state=0).fit(X[:900], five_labels(y[:900]))
    assert (model.novelty_score() > 0.5).mean() < 0.05


def test_far_rows_are_novel(digits):
    X, _, model = digits
    noise = np.random.default_rng(0).permuted(X[:50], axis=1)
    assert (model.novelty_score(noise) > 0.9).mean() > 0.9


def test_rejected_rows_have_no_class(digits):
    X, y, model = digits
    predicted, kept = model.predict(X[900:], reject=0.5), model.predict(X[900:])
    rejected = predicted == -1
    np.testing.assert_array_equal(predicted[~rejected], kept[~rejected])
    np.testing.assert_array_equal(rejected, model.novelty_score(X[900:]) >= 0.5)
    assert (predicted == kept)[y[900:] != 4].mean() > 0.75
    names = np.array(["a", "b"])[(y[:300] > 4).astype(int)]
    names[50:] = ""
    model = SSDML(random_state=0).fit(X[:300], names)
    assert set(model.predict(X, reject=0.0).tolist()) == {""}
    truths = np.where(np.arange(300) < 50, y[:300] > 4, None)
    model = SSDML(random_state=0).fit(X[:300], truths)
    assert set(model.predict(X, reject=0.0).tolist()) == {None}


def test_groups_of_novel_rows_are_classes(digits):
    _, y, model = digits
    groups = model.suggest_classes()
    assert (y[groups[0]] == 4).mean() > 0.8
    assert all(model.novelty_score()[group].min() >= 0.5 for group in groups)


def test_a_saved_model_knows_novel_rows(digits, tmp_path):
    X, _, model = digits
    model.save(tmp_path)
    loaded = SSDML.load(tmp_path)
    np.testing.assert_allclose(loaded.novelty_score(X[900:]), model.novelty_score(X[900:]))
    np.testing.assert_allclose(loaded.novelty_score(), model.novelty_score())


def test_other_labels_make_other_scores(digits):
    X, y, model = digits
    before = model.novelty_score()[y[:900] == 4].mean()
    again = SSDML(random_state=0).fit(X[:900], five_labels(y[:900], hidden=4))
    assert again.novelty_score()[y[:900] == 4].mean() == before
    after = again.relabel(five_labels(y[:900])).novelty_score()
    assert after[y[:900] == 4].mean() < before - 0.5


def test_scores_grow_with_distance_and_log_odds():
    novelty = Novelty(np.zeros(100, np.float32), np.linspace(1, 2, 100, dtype=np.float32))
    far = novelty.probabilities(np.full(4, -3.0), np.array([1.0, 1.9, 1.99, 3.0]))
    assert (np.diff(far) > 0).all()
    np.testing.assert_allclose(far[[0, 3]], [1 / (1 + np.e**3), 1], atol=1e-6)
    near = novelty.probabilities(np.array([-3.0, 0.0, 3.0]), np.ones(3))
    np.testing.assert_allclose(near, 1 / (1 + np.exp([3.0, 0.0, -3.0])), rtol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4])
def test_the_share_of_novel_rows_is_recovered(rng, share):
    novel = rng.random(20_000) < share
    scores = rng.standard_normal(20_000) + np.where(novel, 1.5, -1.5)
    log_odds = prior_log_odds(3 * scores)  # of two normal densities 3 apart
    assert abs(1 / (1 + np.exp(-log_odds)) - share) < 0.02


def test_small_groups_are_left_out(rng):
    X = np.concatenate([rng.standard_normal((30, 2)), [[99, 99], [99, 100]]])
    groups = novel_groups(knn_graph(X, 1), np.array([30, 31]))
    assert groups == []


def test_bad_thresholds_and_models_are_refused(digits):
    X, y, model = digits
    with pytest.raises(ValueError, match="reject must be from 0 to 1; got -1"):
        model.predict(X, reject=-1)
    with pytest.raises(ValueError, match="X must be finite"):
        model.novelty_score(X * np.nan)
    paper = SSDML.paper(random_state=0).fit(X[:200], np.where(np.arange(200) < 40, y[:200], -1))
    with pytest.raises(ValueError, match="novelty_score: needs the graphs of a fit in memory"):
        paper.novelty_score(X)
