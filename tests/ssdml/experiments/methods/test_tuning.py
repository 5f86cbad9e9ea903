"""Tuned methods: cross-validation on the labeled samples, and the grids."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier

from ssdml.datasets import Dataset
from ssdml.experiments import METHODS, compare
from ssdml.experiments.methods.classifiers import PoissonClassifier
from ssdml.experiments.methods.deep import deep_methods
from ssdml.experiments.methods.tuning import GRIDS, MAX_UNLABELED, Tuned, grid
from ssdml.utils.labels import is_unlabeled

IMAGES = Dataset(
    "small", np.zeros((2, 784), np.float32), np.arange(2), ("a", "b"), item_shape=(28, 28)
)
FACTORIES = METHODS | deep_methods(IMAGES)


class Scaled(BaseEstimator):
    """Scale the first column; record the sizes of the training sets."""

    seen: list = []  # noqa: RUF012

    def __init__(self, factor=0.0):
        self.factor = factor

    def fit(self, X, y):
        Scaled.seen.append((self.factor, len(y), int((~is_unlabeled(np.asarray(y))).sum())))
        return self

    def transform(self, X):
        return X * np.array([self.factor, 1.0])


@pytest.fixture
def rows(rng):
    """Classes apart along the first column; equal noise in the second."""
    y = np.arange(90) % 2
    X = np.stack([4.0 * y + 0.3 * rng.standard_normal(90), 4.0 * rng.standard_normal(90)], axis=1)
    return X, np.where(np.arange(90) < 12, y, -1)


def test_the_setting_that_separates_held_out_labels_wins(rows):
    Scaled.seen = []
    model = Tuned(Scaled(), grid(factor=[0.0, 1.0, 100.0]), 0).fit(*rows)
    assert model.best_params_ == {"factor": 100.0}
    assert model.accuracies_[2] == 100 > model.accuracies_[0]
    # Three folds of the labeled rows with all others, then everything.
    assert Scaled.seen[:9] == [(f, 86, 8) for f in (0.0, 1.0, 100.0) for _ in range(3)]
    assert Scaled.seen[9:] == [(100.0, 90, 12)]
    np.testing.assert_array_equal(model.transform(rows[0])[:, 0], 100 * rows[0][:, 0])


def test_search_subsamples_and_refit_uses_all_samples(rng):
    Scaled.seen = []
    y = np.full(MAX_UNLABELED + 500, -1)
    y[:6] = [0, 1, 0, 1, 0, 1]
    Tuned(Scaled(), [{}], 0).fit(rng.standard_normal((len(y), 2)), y)
    assert [n for _, n, _ in Scaled.seen] == 3 * [MAX_UNLABELED + 4] + [len(y)]


class Constant(ClassifierMixin, Scaled):
    """A classifier that predicts a constant class."""

    def predict(self, X):
        return np.full(len(X), int(self.factor))


def test_a_tuned_classifier_stays_a_classifier(rows):
    X, labels = rows
    labels[[1, 3, 5]] = -1  # most of the rest are of class 0
    model = Tuned(Constant(), grid(factor=[1.0, 0.0]), 0).fit(X, labels)
    assert model.best_params_ == {"factor": 0.0}
    assert is_classifier(model)
    assert (model.predict(X) == 0).all()
    assert not is_classifier(Tuned(Scaled(), [{}], 0))
    assert not hasattr(Tuned(Scaled(), [{}], 0), "predict")


def test_a_classifier_without_transform_is_tuned(rows):
    X, labels = rows
    model = Tuned(PoissonClassifier(), grid(n_neighbors=[10, 5]), 0).fit(X, labels)
    assert is_classifier(model)
    assert not hasattr(model, "transform")
    np.testing.assert_array_equal(model.predict(X), model.estimator_.predict(X))


def test_each_seed_draws_its_own_samples_and_folds(rng, monkeypatch):
    assert MAX_UNLABELED == 4000
    monkeypatch.setattr("ssdml.experiments.methods.tuning.MAX_UNLABELED", 30)
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


def test_ties_go_to_the_first_setting(rows):
    model = Tuned(Scaled(), grid(factor=[100.0, 200.0]), 0).fit(*rows)
    assert model.accuracies_[0] == model.accuracies_[1]
    assert model.best_params_ == {"factor": 100.0}


def test_one_label_per_class_uses_the_default(rows):
    X, labels = rows
    one = np.where(np.arange(90) < 2, labels, -1)
    with pytest.warns(UserWarning, match="must label two samples of a class"):
        model = Tuned(Scaled(), grid(factor=[3.0, 1.0]), 0).fit(X, one)
    assert model.best_params_ == {"factor": 3.0}
    assert not len(model.accuracies_)


@pytest.mark.parametrize("name", [name for name in GRIDS if name in FACTORIES])
def test_every_grid_has_six_settings_default_first(name):
    settings = GRIDS[name]
    assert len(settings) == len({str(setting) for setting in settings}) == 6
    model = FACTORIES[name](0, None)
    usual = {key.removeprefix("estimator__"): value for key, value in model.get_params().items()}
    assert all(usual[key] == value for key, value in settings[0].items())
    for setting in settings:
        model.set_params(**setting)


@pytest.mark.parametrize("name", ["lrml", "isdml"])
def test_grids_of_pair_methods_can_drop_dissimilar_pairs(name):
    """Without that setting they can stay below the input."""
    assert {setting["dissimilar_weight"] for setting in GRIDS[name]} == {None, 0.0}


def test_every_method_with_parameters_has_a_grid():
    alone = {"input", "initial", "logistic", "knn", "tabpfn"}  # nothing to tune, or by themselves
    assert FACTORIES.keys() | {"umap"} | alone == GRIDS.keys() | alone


def test_the_grid_is_part_of_the_hash(blobs, tmp_path, monkeypatch):
    (row,) = compare(blobs, ["lda-tuned"], out=tmp_path / "a", seeds=[0], labels_per_class=[4])
    assert row["status"] == "ok"
    monkeypatch.setitem(GRIDS, "lda", GRIDS["lda"][:2])
    (other,) = compare(blobs, ["lda-tuned"], out=tmp_path / "b", seeds=[0], labels_per_class=[4])
    assert other["config_hash"] != row["config_hash"]


def test_tables_and_names_are_tuned(rows):
    X, labels = rows
    expected = Tuned(Scaled(), grid(factor=[0.0, 1.0]), 0).fit(X, labels)
    names = pd.Series(np.array(["ant", "bee", None])[labels], index=np.arange(90)[::-1])
    model = Tuned(Scaled(), grid(factor=[0.0, 1.0]), 0)
    model.fit(pd.DataFrame(X, index=names.index), names)
    np.testing.assert_array_equal(model.accuracies_, expected.accuracies_)
    with pytest.raises(ValueError, match="Tuned: y must have a label for each of the 90 rows"):
        model.fit(X, names[:20])


@pytest.mark.parametrize("settings", [[], ["factor"]])
def test_settings_without_parameters_are_refused(settings, rows):
    with pytest.raises(ValueError, match="Tuned: settings must be dictionaries of parameters"):
        Tuned(Scaled(), settings).fit(*rows)
