"""Other labels, and new rows, for a fitted model."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from ssdml import SSDML
from ssdml.metric.fitted.kept import saved
from ssdml.metric.fitted.saving import save_metric


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:900] / 16, y[:900]


def some(y, per_class):
    labels = np.full(len(y), -1)
    for c in np.unique(y):
        labels[np.flatnonzero(y == c)[:per_class]] = c
    return labels


def accuracy(model, y, labels):
    return (model.transduction_ == y)[labels == -1].mean()


def test_relabeling_is_as_accurate_as_a_new_fit(digits):
    X, y = digits
    few, more = some(y, 1), some(y, 6)
    model = SSDML(random_state=0).fit(X, few)
    before = accuracy(model, y, more)
    model.relabel(more)
    fresh = SSDML(random_state=0).fit(X, more)
    assert accuracy(model, y, more) > max(before + 0.02, accuracy(fresh, y, more) - 0.01)
    np.testing.assert_array_equal(model.labeled_rows_, np.flatnonzero(more != -1))
    assert model.score(X, y) > fresh.score(X, y) - 0.01
    assert len(model.suspected_labels().rows) < 20


def test_one_round_is_repeated_exactly(digits):
    X, y = digits
    labels = some(y, 4)
    fresh = SSDML(random_state=0, max_rounds=1).fit(X, labels)
    again = SSDML(random_state=0, max_rounds=1).fit(X, some(y, 2)).relabel(labels)
    np.testing.assert_allclose(again.label_distributions_, fresh.label_distributions_, atol=1e-5)


def test_few_new_labels_update_the_classes_alone(digits):
    X, y = digits
    labels = some(y, 5)
    model = SSDML(random_state=0).fit(X, labels)
    components, before = model.components_, model.label_distributions_
    more = labels.copy()
    new = np.flatnonzero(labels == -1)[:100:10]
    more[new] = y[new]
    model.relabel(more)
    fresh = SSDML(random_state=0).fit(X, more)
    assert accuracy(model, y, more) > accuracy(fresh, y, more) - 0.01
    np.testing.assert_array_equal(model.components_, components)
    np.testing.assert_array_equal(model.transduction_[more != -1], more[more != -1])
    held_out = model.held_out_
    assert set(new) <= set(held_out.rows)  # they were predicted before they had a label
    at = np.flatnonzero(np.isin(held_out.rows, new))
    np.testing.assert_array_equal(held_out.distributions[at], before[held_out.rows[at]])
    gap = (
        held_out.distributions.max(axis=1).mean() - fresh.held_out_.distributions.max(axis=1).mean()
    )
    assert abs(gap) < 0.1


def test_new_labels_of_copies_are_not_held_out(digits):
    """The earlier probabilities knew the labels of equal rows."""
    X, y = digits
    labels = some(y, 5)
    rows = np.flatnonzero(labels != -1)[::5]
    X, y, copies = np.r_[X[rows], X], np.r_[y[rows], y], np.arange(len(rows))
    labels = np.r_[np.full(len(rows), -1), labels]
    model = SSDML(random_state=0).fit(X, labels)
    before = model.held_out_.rows
    labels[copies] = y[copies]
    np.testing.assert_array_equal(model.relabel(labels).held_out_.rows, before)
    np.testing.assert_array_equal(model.labeled_rows_, np.flatnonzero(labels != -1))
    assert accuracy(model, y, labels) > 0.85


def test_few_new_labels_join_the_leaves_of_the_same_trees(digits):
    X, y = digits
    labels = some(y, 5)
    model = SSDML(random_state=0).fit(X, labels)
    before = model.classifier_.trees
    more = labels.copy()
    more[np.flatnonzero(labels == -1)[:10]] = y[labels == -1][:10]
    after = model.relabel(more).classifier_.trees
    assert after.nodes is before.nodes
    assert (len(before.codes), len(after.codes)) == (50, 60)
    np.testing.assert_array_equal(after.codes, more[more != -1])
    model.extend(X[:5] + 0.01, np.full(5, -1))
    assert len(model.classifier_.trees.codes) == 60


def test_changed_and_removed_labels_are_forgotten(digits):
    X, y = digits
    right, wrong = some(y, 5), some(y, 5)
    rows = np.flatnonzero(right != -1)[:2]
    wrong[rows] = (right[rows] + 1) % 10
    model = SSDML(random_state=0).fit(X, wrong)
    model.relabel(right)
    fresh = SSDML(random_state=0).fit(X, right)
    assert accuracy(model, y, right) > accuracy(fresh, y, right) - 0.01
    np.testing.assert_array_equal(model.transduction_[rows], right[rows])
    fewer = right.copy()
    fewer[rows] = -1
    model.relabel(fewer)
    assert not set(rows) & (set(model.labeled_rows_) | set(model.held_out_.rows))


def test_many_small_steps_are_learned_as_one_large(digits):
    """The weights are learned again once a quarter of the labels has changed."""
    X, y = digits
    labels, more = some(y, 4), some(y, 6)
    by_steps = SSDML(random_state=0, max_rounds=1).fit(X, labels)
    for part in np.array_split(np.flatnonzero(labels != more), 2):
        labels = labels.copy()
        labels[part] = more[part]
        by_steps.relabel(labels)
    at_once = SSDML(random_state=0, max_rounds=1).fit(X, some(y, 4)).relabel(more)
    np.testing.assert_array_equal(by_steps.label_distributions_, at_once.label_distributions_)


def test_names_that_change_are_not_an_update(digits):
    """As many classes, with the same codes, but another name."""
    X, y = digits
    labels = some(y, 5)
    names = np.array([f"class {c}" for c in range(10)] + [""])
    model = SSDML(random_state=0).fit(X, names[labels])
    model.relabel(np.where(labels == 9, "other", names[labels]))
    assert "other" in set(model.predict(X))


def test_a_label_can_name_a_new_class(digits):
    X, y = digits
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "7", "8", "nine"])[y]
    known = some(y, 3)
    labels = np.where((known != -1) & (known != 9), names, "")
    model = SSDML(random_state=0).fit(X, labels)
    assert "nine" not in model.classes_
    model.relabel(np.where(known != -1, names, ""))
    assert model.predict(X[y == 9]).tolist().count("nine") > 0.7 * (y == 9).sum()
    assert model.transform(X[:2]).shape[1] == model.components_.shape[0]


def test_an_extended_model_learns_from_new_rows_and_labels(digits):
    X, y = digits
    labels = some(y, 3)
    labels[600:] = -1
    model = SSDML(random_state=0).fit(X[:600], labels[:600])
    model.extend(X[600:750]).extend(X[750:], np.where(np.arange(150) < 20, y[750:], -1))
    assert len(model.transduction_) == len(model.embedding_) == 900
    assert set(range(750, 770)) <= set(model.labeled_rows_)
    np.testing.assert_array_equal(model.transduction_[750:770], y[750:770])
    fresh = SSDML(random_state=0).fit(
        X, np.where(np.isin(np.arange(900), model.labeled_rows_), y, -1)
    )
    assert accuracy(model, y, labels) > accuracy(fresh, y, labels) - 0.02


def test_copies_that_extend_a_model_teach_nothing_new(digits, tmp_path):
    X, y = digits
    labels = some(y, 5)
    model = SSDML(random_state=0, max_rounds=1).fit(X, labels)
    before = accuracy(model, y, labels)
    rows = np.flatnonzero((labels != -1) & (y < 5)).repeat(30)
    model.extend(X[rows], y[rows])
    assert (model.transduction_[:900] == y)[labels == -1].mean() > before - 0.01
    np.testing.assert_array_equal(model.transduction_[900:], y[rows])
    model.save(tmp_path)
    embedding = SSDML.load(tmp_path).transform(np.r_[X, X[rows]])
    np.testing.assert_allclose(model.embedding_, embedding, rtol=0, atol=1e-4)


def test_earlier_labels_stay_when_names_are_added(digits):
    X, y = digits
    names = np.where(some(y, 3)[:500] != -1, np.where(y < 5, "low", "high")[:500], "")
    model = SSDML(random_state=0).fit(X[:500], names)
    kept = model.transduction_[model.labeled_rows_].tolist()
    model.extend(X[500:520], ["odd"] + [None] * 19)
    assert model.classes_.tolist() == ["high", "low", "odd"]
    assert model.transduction_[model.labeled_rows_].tolist() == [*kept, "odd"]


def test_a_pickled_model_can_be_relabeled_and_extended(digits):
    X, y = digits
    model = pickle.loads(pickle.dumps(SSDML(random_state=0).fit(X[:500], some(y, 2)[:500])))
    model.relabel(some(y, 3)[:500]).extend(X[500:600])
    assert len(model.transduction_) == 600


def test_a_model_saved_with_graphs_can_be_relabeled(digits, tmp_path):
    X, y = digits
    model = SSDML(random_state=0).fit(X, some(y, 2))
    model.save(tmp_path, graphs=True)
    loaded = SSDML.load(tmp_path, X)
    for before, after in zip(model.held_out_, loaded.held_out_, strict=True):
        np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(loaded.suspected_labels().rows, model.suspected_labels().rows)
    more = some(y, 4)
    np.testing.assert_allclose(
        loaded.relabel(more).label_distributions_,
        model.relabel(more).label_distributions_,
        atol=1e-5,
    )
    assert len(loaded.extend(X[:10]).transduction_) == 910
    with pytest.raises(ValueError, match=r"X must have shape \(900, 64\), as in the fit; got \(9"):
        SSDML.load(tmp_path, X[:9])
    assert SSDML.load(tmp_path, X.astype(np.float32)) is not None
    swapped = np.vstack([X[1::-1], X[2:]])
    for other in (X[::-1].copy(), 2 * X, X[:, ::-1], swapped):
        with pytest.raises(
            ValueError, match="X must be the samples of the fit, rows and columns in"
        ):
            SSDML.load(tmp_path, other)
    table = pd.DataFrame(X).add_prefix("pixel")
    SSDML(random_state=0).fit(table, some(y, 2)).save(tmp_path, graphs=True)
    with pytest.raises(ValueError, match="feature names should match"):
        SSDML.load(tmp_path, table[table.columns[::-1]])
    model.save(tmp_path)
    with pytest.raises(ValueError, match="Omit X, or save with graphs=True"):
        SSDML.load(tmp_path, X)


def test_forms_of_wide_rows_are_restored(digits, tmp_path):
    X, y = np.hstack([digits[0][:200]] * 2), digits[1][:200]
    model = SSDML(random_state=0).fit(X, some(y, 3))
    model.save(tmp_path, graphs=True)
    loaded = SSDML.load(tmp_path, X)
    np.testing.assert_array_equal(
        loaded.predict_proba(X[:9] + 0.1), model.predict_proba(X[:9] + 0.1)
    )
    for form, restored in zip(model._kept.forms, loaded._kept.forms, strict=True):
        np.testing.assert_array_equal(restored.rows, form.rows)


def test_damaged_graphs_are_refused(digits, tmp_path):
    X, y = digits
    model = SSDML(random_state=0).fit(X[:100], some(y, 2)[:100])
    kept = saved(model._kept, model.held_out_)
    for name, wrong in (
        ("form_0_indices", kept["form_0_indices"] + 95),
        ("form_0_distances", kept["form_0_distances"][:50]),
        ("form_0_matrix", kept["form_0_matrix"][:3]),
        ("form_0_matrix", 2 * kept["form_0_matrix"]),
        ("nearer_indices", kept["nearer_indices"][:50]),
        ("held_out_codes", kept["held_out_codes"] + 10),
        ("held_out_distributions", kept["held_out_distributions"][:5]),
    ):
        save_metric(model, tmp_path, kept | {name: wrong})
        with pytest.raises(ValueError, match=r"is damaged: .* Save it again"):
            SSDML.load(tmp_path, X[:100])


def test_models_without_graphs_say_what_to_do(digits, tmp_path):
    X, y = digits
    model = SSDML(random_state=0).fit(X[:200], some(y, 2)[:200])
    model.save(tmp_path)
    loaded = SSDML.load(tmp_path)
    np.testing.assert_array_equal(loaded.labeled_rows_, model.labeled_rows_)
    with pytest.raises(ValueError, match=r"relabel: needs the graphs .* fit all samples again"):
        loaded.relabel(y[:200])
    paper = SSDML.paper(random_state=0).fit(X[:200], some(y, 2)[:200])
    with pytest.raises(ValueError, match=r"extend: needs the graphs of a fit in memory"):
        paper.extend(X[200:])


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_samples_that_changed_after_the_fit_are_refused(digits, value):
    X, y = digits
    X, labels = X.copy(), some(y, 3)
    model = SSDML(random_state=0).fit(X, labels)
    before = model.predict(X)
    X[7:9] = value
    for change in (lambda: model.relabel(labels), lambda: model.extend(X[:3])):
        with pytest.raises(ValueError, match=r"X must be as it was in the fit; .* change a copy"):
            change()
    X[7:9] = digits[0][7:9]
    np.testing.assert_array_equal(model.relabel(labels).predict(X), before)


def test_labels_in_another_order_than_the_samples_give_a_warning(digits, tmp_path):
    X, y = digits
    frame = pd.DataFrame(X, index=[f"r{i}" for i in range(len(X))]).add_prefix("c")
    labels = pd.Series(some(y, 3), index=frame.index)
    model = SSDML(random_state=0).fit(frame, labels)
    model.save(tmp_path, graphs=True)
    for fitted in (model, SSDML.load(tmp_path, frame)):
        fitted.relabel(labels)
        with pytest.warns(UserWarning, match=r"SSDML\.relabel: y must be in the order of X"):
            fitted.relabel(labels[::-1])
        fitted.relabel(labels.to_numpy())
    model.extend(frame[:3])  # which an index does not tell apart
    model.relabel(pd.concat([labels, labels[:3]]))


def test_rows_beyond_the_precision_of_the_fit_are_refused(digits):
    X, y = digits
    model = SSDML(random_state=0).fit(X[:200].astype(np.float32), some(y, 2)[:200])
    with pytest.raises(ValueError, match=r"SSDML\.extend: X must be finite; got inf at row 0"):
        model.extend(np.full((1, 64), 1e39))


def test_bad_labels_and_rows_are_refused(digits):
    X, y = digits
    model = SSDML(random_state=0).fit(X[:200], some(y, 2)[:200])
    before = model.transduction_
    with pytest.raises(ValueError, match=r"y must have shape \(200,\)"):
        model.relabel(y[:10])
    with pytest.raises(ValueError, match="Label some rows"):
        model.relabel(np.full(200, -1))
    with pytest.raises(ValueError, match="X must be finite; got nan"):
        model.extend(np.full((1, 64), np.nan))
    with pytest.raises(ValueError, match=r"SSDML\.extend: X must have a finite variance"):
        model.extend(np.full((1, 64), 1e200))
    with (
        pytest.warns(UserWarning, match="extend: X must not have a row far from all .*; row 1, w"),
        pytest.raises(ValueError, match="as X"),
    ):
        model.extend([X[0], np.full(64, 1e6)], y[:1])
    with pytest.raises(ValueError, match="y must have 10 labels, as X; got 2"):
        model.extend(X[200:210], [1, 2])
    with pytest.raises(ValueError, match=r"extend: y must have one dim.*\(10, 1\)\. Pass numpy"):
        model.extend(X[200:210], y[200:210, None])
    with pytest.raises(TypeError, match=r"extend: y must be a list or an array .*; got iterator"):
        model.extend(X[200:210], iter(y[200:210]))
    with (
        pytest.warns(UserWarning, match=r"extend: y must be signed for -1 .* got 255 in uint8"),
        pytest.raises(ValueError, match="as X"),
    ):
        model.extend(X[200:210], np.uint8([1, 255]))
    assert model.transduction_ is before
