"""Splitters and scorers for mostly unlabeled data."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.semi_supervised import LabelSpreading

from ssdml.evaluation import evaluate
from ssdml.model_selection import SemiSupervisedSplit, labeled_scorer


def partial_labels(rng, n=60, n_classes=3, share=0.5):
    y = rng.integers(0, n_classes, n)
    y[rng.random(n) < share] = -1
    y.flags.writeable = False
    return y


@pytest.fixture
def scarce_digits(rng):
    """Digits, 5% of them labeled."""
    digits = load_digits()
    y = np.where(rng.random(len(digits.target)) < 0.95, -1, digits.target)
    return digits.data / 16, y


def test_unlabeled_samples_train_and_are_never_tested(rng):
    y = partial_labels(rng)
    for train, test in SemiSupervisedSplit(4, random_state=0).split(np.zeros((60, 2)), y):
        assert set(np.flatnonzero(y == -1)) <= set(train)
        assert (y[test] != -1).all()
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(60))


def test_folds_are_stratified_and_cover_all_labels(rng):
    y = partial_labels(rng)
    tests = [test for _, test in SemiSupervisedSplit(4, random_state=0).split(y, y)]
    np.testing.assert_array_equal(np.sort(np.concatenate(tests)), np.flatnonzero(y != -1))
    counts = np.array([np.bincount(y[test], minlength=3) for test in tests])
    assert (np.ptp(counts, axis=0) <= 1).all()


@pytest.mark.parametrize("options", [{"shuffle": False}, {"random_state": 3}])
def test_fully_labeled_data_split_as_stratified_k_fold(rng, options):
    y = rng.integers(0, 3, 60)
    ours = SemiSupervisedSplit(3, **options).split(y, y)
    theirs = StratifiedKFold(3, **({"shuffle": True} | options)).split(y, y)
    for (train, test), (their_train, their_test) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(train, their_train)
        np.testing.assert_array_equal(test, their_test)


@pytest.mark.parametrize(
    "y",
    [
        ["a", None, "a", "b", "", "b"],
        pd.Series([0.0, float("nan"), 0.0, 1.0, float("nan"), 1.0]),
        pl.Series(["a", None, "a", "b", "", "b"]),
    ],
)
def test_missing_labels_of_any_kind(y):
    for train, test in SemiSupervisedSplit(2, random_state=0).split(np.zeros((6, 1)), y):
        assert {1, 4} <= set(train)
        assert len(test) == 2


def test_samples_of_a_group_stay_together(rng):
    y, groups = partial_labels(rng, n=120), np.repeat(np.arange(30), 4)
    split = SemiSupervisedSplit(3, random_state=0)
    tests = []
    for train, test in split.split(np.zeros((120, 1)), y, groups):
        assert not set(groups[train]) & set(groups[test])
        assert (y[test] != -1).all()
        others = np.flatnonzero((y == -1) & ~np.isin(groups, groups[test]))
        assert set(others) <= set(train)
        tests.append(test)
    np.testing.assert_array_equal(np.sort(np.concatenate(tests)), np.flatnonzero(y != -1))
    names = np.array([f"patient {group}" for group in groups], dtype=object)
    for (train, test), (other, _) in zip(
        split.split(y, y, names), split.split(y, y, names.astype(str)), strict=True
    ):
        np.testing.assert_array_equal(train, other)
        assert not set(names[train]) & set(names[test])


def test_folds_without_a_label_are_refused(monkeypatch):
    """As scikit-learn's StratifiedGroupKFold may make of as many groups as folds."""

    class Empty(StratifiedGroupKFold):
        def split(self, X, y, groups):
            *folds, (train, test) = super().split(X, y, groups)
            yield from (*folds, (np.concatenate([train, test]), test[:0]))

    y, groups = np.tile([0, 1], 8), np.arange(16) // 2
    monkeypatch.setattr("ssdml.model_selection.split.StratifiedGroupKFold", Empty)
    with pytest.raises(ValueError, match="each of n_splits = 4 folds must test a labeled sample"):
        next(SemiSupervisedSplit(4).split(None, y, groups))


@pytest.mark.parametrize("name", ["y", "groups"])
def test_another_order_than_that_of_the_samples_is_doubted(name):
    X, given = pd.DataFrame(np.zeros((8, 1))), {"y": [0, 1] * 4, "groups": [0, 0, 1, 1] * 2}
    given[name] = pd.Series(given[name], index=range(7, -1, -1))
    message = f"^SemiSupervisedSplit: {name} must be in the order of X; got the index of X in"
    with pytest.warns(UserWarning, match=message):
        next(SemiSupervisedSplit(2).split(X, **given))


def test_groups_in_another_order_than_that_of_the_labels_are_doubted():
    y = pd.Series([0, 1] * 4)
    groups = pd.Series([0, 0, 1, 1] * 2, index=y.index[::-1])
    message = "^SemiSupervisedSplit: groups must be in the order of y; got the index of y in"
    with pytest.warns(UserWarning, match=message):
        next(SemiSupervisedSplit(2).split(np.zeros((8, 1)), y, groups))


def test_searches_pass_groups_on(rng):
    y, groups = np.tile([0, 1], 20), np.arange(40) // 4
    X = rng.normal(size=(40, 2))
    search = GridSearchCV(
        KNeighborsClassifier(1), {"n_neighbors": [1]}, cv=SemiSupervisedSplit(2, random_state=0)
    )
    assert np.isfinite(search.fit(X, y, groups=groups).best_score_)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 1], r"groups must have n_samples = 6 entries; got shape \(2,\)"),
        ([0, 0, 0, 0, 1, 1], "at most the number of groups with labels = 1; got 2"),
        (
            np.ma.masked_less(range(-1, 5), 0),
            "groups must not have masked entries; got one at row 0",
        ),
        ([0, 1, 0, np.nan, 1, 1], "got 1 missing ones, the first in row 3"),
        (["a", None, "a", "b", "b", None], "got 2 missing ones, the first in row 1"),
        (pd.Series([0, 1, 0, 1, 1, pd.NA], dtype="Int64"), "got 1 missing ones, .* row 5"),
        (np.array([1, 2, "NaT", 1, 2, 2], "datetime64[ns]"), "got 1 missing ones"),
    ],
)
def test_unusable_groups_raise(groups, message):
    y = [0, 1, 0, 1, -1, -1]
    with pytest.raises(ValueError, match=f"^SemiSupervisedSplit: .*{message}"):
        next(SemiSupervisedSplit(2).split(np.zeros((6, 1)), y, groups))


def test_number_of_splits_and_repr():
    assert SemiSupervisedSplit(7).get_n_splits() == 7
    assert repr(SemiSupervisedSplit(7, random_state=1)) == (
        "SemiSupervisedSplit(n_splits=7, random_state=1, shuffle=True)"
    )


@pytest.mark.parametrize(
    "options",
    [{"n_splits": 1}, {"n_splits": 2.5}, {"shuffle": 1}, {"shuffle": False, "random_state": 0}],
)
def test_invalid_parameters_raise_as_in_scikit_learn(options):
    with pytest.raises((TypeError, ValueError)) as theirs:
        StratifiedKFold(**({"shuffle": True} | options))
    with pytest.raises(theirs.type, match=re.escape(str(theirs.value))):
        SemiSupervisedSplit(**options)


def test_class_with_fewer_labels_than_folds_warns():
    y = [0, 0, 0, 1, -1]
    with pytest.warns(UserWarning, match="least populated class in y has only 1 members"):
        folds = list(SemiSupervisedSplit(3, random_state=0).split(y, y))
    assert len(folds) == 3


@pytest.mark.parametrize(("y", "largest"), [([0, 0, 1, -1, -1, -1], 2), ([-1] * 6, 0)])
def test_more_folds_than_labels_raise(y, largest):
    with pytest.raises(
        ValueError,
        match=rf"n_splits must be at most the labels of the largest class = {largest}; got 3",
    ):
        next(SemiSupervisedSplit(3).split(np.zeros((6, 1)), y))


def test_labels_of_another_length_raise():
    with pytest.raises(ValueError, match="y must have n_samples = 5 entries; got 4"):
        next(SemiSupervisedSplit(2).split(np.zeros((5, 1)), [0, 0, 1, 1]))


def test_labels_are_required():
    with pytest.raises(ValueError, match="y must not be None"):
        next(SemiSupervisedSplit().split(np.zeros((5, 1))))


@pytest.mark.slow
def test_cross_validation_of_label_spreading():
    """The table of the how-to on searches, 50 fits; its last block is one draw of labels."""
    digits, model = load_digits(), LabelSpreading(gamma=1.0)
    wrong, right = [], []
    for seed in range(5):
        hidden = np.random.default_rng(seed).random(len(digits.target)) < 0.95
        X, y = digits.data / 16, np.where(hidden, -1, digits.target)
        split, scorer = SemiSupervisedSplit(5, random_state=seed), labeled_scorer("accuracy")
        wrong.append(cross_val_score(model, X, y, cv=StratifiedKFold(5)).mean())
        right.append(cross_val_score(model, X, y, cv=split, scoring=scorer).mean())
    assert max(wrong) < 0.1  # nearly all test labels are -1
    assert min(right) > 0.85
    assert np.mean(wrong) == pytest.approx(0.048, abs=0.001)
    assert np.mean(right) == pytest.approx(0.931, abs=0.01)


def test_search_scores_labeled_samples_alone(scarce_digits):
    X, y = scarce_digits
    search = GridSearchCV(
        LabelSpreading(kernel="rbf"),
        {"gamma": [1e-3, 1.0]},
        cv=SemiSupervisedSplit(4, random_state=0),
        scoring=labeled_scorer("accuracy"),
    ).fit(X, y)
    assert search.best_params_ == {"gamma": 1.0}
    assert search.best_score_ > 0.9


def test_search_scores_embeddings_once_pickled(scarce_digits):
    """As processes receive it."""
    X, y = scarce_digits
    search = GridSearchCV(
        make_pipeline(PCA(random_state=0)),
        {"pca__n_components": [1, 20]},
        cv=SemiSupervisedSplit(2, random_state=0),
        scoring={"R@1": labeled_scorer("R@1"), "NMI": labeled_scorer("NMI")},
        refit="R@1",
    )
    search = pickle.loads(pickle.dumps(search)).fit(X, y)
    assert search.best_params_ == {"pca__n_components": 20}
    assert (search.cv_results_["mean_test_NMI"] > 0).all()


class Constant(ClassifierMixin, TransformerMixin, BaseEstimator):
    """Predict the first column; the embedding is X."""

    def fit(self, X, y=None):
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0].astype(int)

    def transform(self, X):
        return np.asarray(X)


ROWS = np.array([[0.0], [1.0], [1.0], [0.0], [1.0]])
LABELS = np.array([0, 1, 0, -1, -1])


@pytest.mark.parametrize(
    "X",
    [ROWS, pd.DataFrame(ROWS), pl.DataFrame(ROWS), ROWS.tolist()],
    ids=lambda x: type(x).__name__,
)
def test_accuracy_counts_labeled_samples_alone(X):
    assert labeled_scorer()(Constant().fit(ROWS), X, LABELS) == pytest.approx(2 / 3)


def test_sparse_rows_are_scored():
    model = KNeighborsClassifier(1).fit(sparse.csr_array(ROWS[:2]), LABELS[:2])
    assert labeled_scorer()(model, sparse.csr_array(ROWS), LABELS) == pytest.approx(2 / 3)


def test_scikit_learn_scores_keep_their_unit():
    expected = balanced_accuracy_score(LABELS[:3], [0, 1, 1])
    score = labeled_scorer("balanced_accuracy")(Constant().fit(ROWS), ROWS, LABELS)
    assert score == pytest.approx(expected)


@pytest.mark.parametrize("name", ["NMI", "F1", "R@1", "R@3", "MAP@R", "RP"])
def test_embedding_scores_agree_with_evaluate(rng, name):
    X, y = rng.normal(size=(60, 3)), partial_labels(rng)
    known = y != -1
    expected = evaluate(X[known], y[known], ks=(1, 3))[name]
    assert labeled_scorer(name)(Constant(), X, y) == expected


def test_labels_may_be_names():
    model = KNeighborsClassifier(1).fit(ROWS[:2], ["no", "yes"])
    assert labeled_scorer()(model, ROWS, ["no", "yes", "no", None, ""]) == pytest.approx(2 / 3)


def test_scorer_pickles_and_has_a_repr():
    scorer = pickle.loads(pickle.dumps(labeled_scorer("R@1")))
    assert scorer(Constant(), ROWS, LABELS) == labeled_scorer("R@1")(Constant(), ROWS, LABELS)
    assert repr(scorer) == "labeled_scorer('R@1')"


def test_splitter_can_be_cloned():
    search = GridSearchCV(PCA(), {}, cv=SemiSupervisedSplit(3, random_state=1))
    assert clone(search).cv.n_splits == 3


def test_scorers_of_functions_are_taken():
    X, y = np.arange(6.0)[:, None], np.array([0, 0, 1, 1, -1, -1])
    model = KNeighborsClassifier(1).fit(X[:4], [0, 1, 1, 1])
    macro = make_scorer(f1_score, average="macro")
    assert labeled_scorer(macro)(model, X, y) == labeled_scorer("f1_macro")(model, X, y) < 1
    assert labeled_scorer(lambda model, X, y: float(len(y)))(model, X, y) == 4
    with pytest.raises(ValueError, match=r"scoring must be one of .*; got None\."):
        labeled_scorer(None)


def test_scoring_without_labels_raises():
    with pytest.raises(ValueError, match=r"all 5 entries are unlabeled\. Split with Semi"):
        labeled_scorer()(Constant(), ROWS, [-1] * 5)


def test_scores_of_an_embedding_need_one():
    model = KNeighborsClassifier(1).fit(ROWS, [0, 1, 0, 1, 0])
    with pytest.raises(TypeError, match=r"must have transform for R@1.*got KNeighborsClassifier"):
        labeled_scorer("R@1")(model, ROWS, [0, 1, 0, 1, -1])


def test_retrieval_without_pairs_raises():
    with pytest.raises(
        ValueError, match=r"R@1 needs a class with two labels .*got 2 labels.* fewer folds"
    ):
        labeled_scorer("R@1")(Constant(), ROWS[:2], [0, 1])


def test_misspelled_score_gets_a_suggestion():
    with pytest.raises(ValueError, match=r"scoring must be one of .*; got 'acuracy'. Did you mean"):
        labeled_scorer("acuracy")


def test_metrics_of_labels_alone_are_refused_with_a_way_out():
    with pytest.raises(TypeError, match=r"Pass sklearn\.metrics\.make_scorer\(accuracy_score\)"):
        labeled_scorer(accuracy_score)
    assert callable(labeled_scorer(make_scorer(accuracy_score)))


def test_groups_are_routed_to_the_split(rng):
    y, groups = rng.integers(0, 2, 40), np.arange(40) // 4
    options = {"cv": SemiSupervisedSplit(2, random_state=0), "return_indices": True}
    with config_context(enable_metadata_routing=True):
        model = KNeighborsClassifier()
        found = cross_validate(model, y[:, None], y, params={"groups": groups}, **options)
        cross_validate(model, y[:, None], y, **options)
    for train, test in zip(*(found["indices"][part] for part in ("train", "test")), strict=True):
        assert not set(groups[train]) & set(groups[test])


def test_errors_about_labels_name_the_splitter_and_the_scorer():
    y = np.zeros((4, 1), int)
    with pytest.raises(ValueError, match=r"^SemiSupervisedSplit: y must have one dimension"):
        next(SemiSupervisedSplit(2).split(np.zeros((4, 1)), y))
    with pytest.raises(ValueError, match=r"^labeled_scorer: y must have one dimension"):
        labeled_scorer()(None, np.zeros((4, 1)), y)
