"""Settings are chosen by the labeled rows, as many for every method, and none sees a test row."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier

from ssdml.datasets import Dataset
from ssdml.experiments import METHODS, compare
from ssdml.experiments.methods.deep import deep_methods
from ssdml.experiments.methods.tuning import GRIDS, SEARCHED_ROWS, Tuned, grid

IMAGES = Dataset(
    "small", np.zeros((2, 784), np.float32), np.arange(2), ("a", "b"), item_shape=(28, 28)
)
FACTORIES = METHODS | deep_methods(IMAGES)


class Scaled(BaseEstimator):
    """The first column times a factor: what it learned from is written down."""

    seen: list = []  # noqa: RUF012

    def __init__(self, factor=0.0):
        self.factor = factor

    def fit(self, X, y):
        Scaled.seen.append((self.factor, len(y), int((y >= 0).sum())))
        return self

    def transform(self, X):
        return X * np.array([self.factor, 1.0])


@pytest.fixture
def rows(rng):
    """Classes far apart along the first column, and noise as large in the second."""
    y = np.arange(90) % 2
    X = np.stack([4.0 * y + 0.3 * rng.standard_normal(90), 4.0 * rng.standard_normal(90)], axis=1)
    return X, np.where(np.arange(90) < 12, y, -1)


def test_the_setting_that_separates_unseen_labeled_rows_is_chosen(rows):
    Scaled.seen = []
    model = Tuned(Scaled(), grid(factor=[0.0, 1.0, 100.0]), 0).fit(*rows)
    assert model.best_params_ == {"factor": 100.0}
    assert model.accuracies_[2] == 100 > model.accuracies_[0]
    # Three folds of the labeled rows with all others, and at last everything.
    assert Scaled.seen[:9] == [(f, 86, 8) for f in (0.0, 1.0, 100.0) for _ in range(3)]
    assert Scaled.seen[9:] == [(100.0, 90, 12)]
    np.testing.assert_array_equal(model.transform(rows[0])[:, 0], 100 * rows[0][:, 0])


def test_of_many_rows_some_are_searched_and_all_are_learned(rng):
    Scaled.seen = []
    y = np.full(SEARCHED_ROWS + 500, -1)
    y[:6] = [0, 1, 0, 1, 0, 1]
    Tuned(Scaled(), [{}], 0).fit(rng.standard_normal((len(y), 2)), y)
    assert [n for _, n, _ in Scaled.seen] == 3 * [SEARCHED_ROWS + 4] + [len(y)]


class Constant(ClassifierMixin, Scaled):
    """A classifier that says one class of every row, whatever its embedding."""

    def predict(self, X):
        return np.full(len(X), int(self.factor))


def test_a_classifier_is_tuned_by_what_it_says_and_stays_one(rows):
    X, labels = rows
    labels[[1, 3, 5]] = -1  # so that most that are left are of class 0
    model = Tuned(Constant(), grid(factor=[1.0, 0.0]), 0).fit(X, labels)
    assert model.best_params_ == {"factor": 0.0}
    assert is_classifier(model)
    assert (model.predict(X) == 0).all()
    assert not is_classifier(Tuned(Scaled(), [{}], 0))
    assert not hasattr(Tuned(Scaled(), [{}], 0), "predict")


def test_each_seed_searches_other_rows_on_other_folds(rng, monkeypatch):
    """As many rows without a label as are told, all labeled ones, two of a class being enough."""
    assert SEARCHED_ROWS == 4000
    monkeypatch.setattr("ssdml.experiments.methods.tuning.SEARCHED_ROWS", 30)
    X, labels = rng.standard_normal((90, 2)), np.full(90, -1)
    labels[:40] = np.arange(40) // 2
    searched, tested = [], []
    monkeypatch.setattr(
        Tuned, "_accuracy", lambda self, setting, X, y, train, test: float(tested.append(test) or 0)
    )
    for seed in (0, 1):
        model = Tuned(Scaled(), [{}], seed)
        rows = model._searched(labels)
        assert set(range(40)) < set(rows)
        assert len(rows) == 70
        assert len(model._accuracies(X, labels)) == 1
        searched.append(rows.tolist())
    assert searched[0] != searched[1]
    assert len(tested) == 4
    assert tested[0].tolist() != tested[2].tolist()


def test_ties_go_to_the_first(rows):
    model = Tuned(Scaled(), grid(factor=[100.0, 200.0]), 0).fit(*rows)
    assert model.accuracies_[0] == model.accuracies_[1]
    assert model.best_params_ == {"factor": 100.0}


def test_with_one_label_a_class_the_first_setting_is_taken_with_a_warning(rows):
    X, labels = rows
    one = np.where(np.arange(90) < 2, labels, -1)
    with pytest.warns(UserWarning, match="must label two rows of a class"):
        model = Tuned(Scaled(), grid(factor=[3.0, 1.0]), 0).fit(X, one)
    assert model.best_params_ == {"factor": 3.0}
    assert not len(model.accuracies_)


@pytest.mark.parametrize("name", [name for name in GRIDS if name in FACTORIES])
def test_every_method_has_six_settings_and_its_default_is_the_first(name):
    settings = GRIDS[name]
    assert len(settings) == len({str(setting) for setting in settings}) == 6
    model = FACTORIES[name](0, None)
    usual = {key.removeprefix("estimator__"): value for key, value in model.get_params().items()}
    assert all(usual[key] == value for key, value in settings[0].items())
    for setting in settings:
        model.set_params(**setting)


@pytest.mark.parametrize("name", ["lrml", "isdml"])
def test_methods_that_push_dissimilar_pairs_apart_may_leave_it(name):
    """Nothing else brings them from below their input to it."""
    assert {setting["dissimilar_weight"] for setting in GRIDS[name]} == {None, 0.0}


def test_every_method_that_has_parameters_can_be_tuned():
    assert FACTORIES.keys() | {"umap"} == GRIDS.keys() | {"input", "initial"}


def test_a_tuned_method_runs_and_its_grid_is_in_the_hash(blobs, tmp_path, monkeypatch):
    (row,) = compare(blobs, ["lda-tuned"], out=tmp_path / "a", seeds=[0], labels_per_class=[4])
    assert row["status"] == "ok"
    monkeypatch.setitem(GRIDS, "lda", GRIDS["lda"][:2])
    (other,) = compare(blobs, ["lda-tuned"], out=tmp_path / "b", seeds=[0], labels_per_class=[4])
    assert other["config_hash"] != row["config_hash"]
