"""SSDML on dask arrays: agrees with a fit in memory."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from ssdml import SSDML
from ssdml.classification.forms import forms_with_graphs
from ssdml.classification.new_rows import interpolator
from ssdml.evaluation import evaluate, few_label_accuracy
from ssdml.graphs.triplets import Triplets
from ssdml.metric import out_of_core
from ssdml.metric.alternation import update_metric
from ssdml.metric.features import Whitening
from tests.chunks import in_chunks

da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.usefixtures("small_partitions")


@pytest.fixture(scope="module")
def rows(overlapping):
    return overlapping


@pytest.fixture(scope="module")
def fitted(rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out_of_core, "PARTITION_ROWS", 200)  # as `small_partitions`
        return SSDML(random_state=0).fit(in_chunks(rows[0]), rows[1])


# Agreement with a fit in memory


@pytest.mark.parametrize(
    "options",
    [
        {"max_rounds": 1},
        {"max_rounds": 1, "n_components": 2},
        {"max_rounds": 1, "input_weight": 0, "guard": False},
        {"mining": "neighborhood", "propagation": "one-sided"},
    ],
    ids=str,
)
def test_one_partition_agrees_with_a_fit_in_memory(rows, monkeypatch, options):
    """All rows are reference rows."""
    monkeypatch.setattr(out_of_core, "PARTITION_ROWS", 600)
    X, labels, _ = rows
    model = SSDML(random_state=3, **options)
    expected = model.fit(X, labels).__dict__.copy()
    model.fit(in_chunks(X), labels)
    np.testing.assert_allclose(model.components_, expected["components_"], atol=1e-10)
    np.testing.assert_array_equal(model.label_distributions_, expected["label_distributions_"])
    np.testing.assert_array_equal(model.transduction_, expected["transduction_"])
    np.testing.assert_allclose(model.embedding_, expected["embedding_"], atol=1e-5)
    for one, two in zip(model.triplets_, expected["triplets_"], strict=True):
        np.testing.assert_array_equal(one, two)
    last = expected["history_"][-1]
    assert model.input_weight_ == expected["input_weight_"]
    np.testing.assert_allclose(model.history_[0]["objective"], last["objective"], rtol=1e-10)


def test_metric_agrees_with_the_pooled_triplets(rows):
    """Learn from all rows, given their classes and the pooled triplets."""
    X, labels, _ = rows
    model = SSDML(input_weight=0, guard=False, random_state=0).fit(in_chunks(X), labels)
    assert len(model.history_) == 3
    twin = Whitening()
    twin.learn(X, model.label_distributions_.argmax(axis=1))
    update_metric(twin, X, model.triplets_, SSDML())
    M = twin.components.T @ twin.components
    np.testing.assert_allclose(model.get_mahalanobis_matrix(), M, rtol=1e-9, atol=1e-12)


# 3 s for ten fits
def test_partitions_keep_most_of_the_gain(monkeypatch):
    """Three partitions of 400 digits keep half of the gain, and the neighbors of the input."""
    monkeypatch.setattr(out_of_core, "PARTITION_ROWS", 400)
    gains = []
    for seed in range(5):
        X, y, labels = some_digits(seed)
        known = labels != -1
        model = SSDML(random_state=seed)
        embeddings = (X, model.fit(in_chunks(X, 200), labels).transform(X))
        assert len(model.history_) == 3
        embeddings += (model.fit(X, labels).transform(X),)
        accuracies = [
            few_label_accuracy(Z[known], labels[known], Z[~known], y[~known]) for Z in embeddings
        ]
        gains.append(np.array(accuracies[1:]) - accuracies[0])
        before, after = (evaluate(Z, y, scores=["R@1"])["R@1"] for Z in embeddings[:2])
        assert after > before - 1
    of_partitions, of_whole = np.mean(gains, axis=0)
    assert of_partitions > of_whole / 2 > 2


def some_digits(seed):
    """1,200 digits in random order, five labels per class."""
    rng = np.random.default_rng(seed)
    X, y = load_digits(return_X_y=True)
    chosen = rng.permutation(len(X))[:1200]
    X, y = X[chosen], y[chosen]
    labels = np.full(1200, -1)
    for c in range(10):
        labels[rng.choice(np.flatnonzero(y == c), 5, replace=False)] = c
    return X, y, labels


def test_attributes_follow_the_row_order(rows, fitted):
    X, labels, y = rows
    assert (fitted.transduction_ == y).mean() > 0.9
    assert (fitted.label_distributions_.argmax(axis=1) == fitted.transduction_).all()
    anchor, positive, negative, weight = fitted.triplets_
    assert (y[anchor] == y[positive]).mean() > 0.8  # 1/3 for shuffled rows
    assert (y[anchor] != y[negative]).mean() > 0.8
    assert np.unique(anchor).size == 600
    assert sum(entry["n_triplets"] for entry in fitted.history_) == len(weight)
    assert [entry["rows"] for entry in fitted.history_] == [(0, 200), (200, 400), (400, 600)]
    assert fitted.n_features_in_ == 5
    assert np.isin(np.flatnonzero(labels != -1), fitted.reference_rows_).all()
    found = fitted.transform(X[fitted.reference_rows_])
    np.testing.assert_allclose(found, fitted.embedding_, atol=1e-5)  # classes are in float32


def test_dask_labels_and_integer_rows(rows):
    X, labels, _ = rows
    whole = np.round(X * 8)
    plain = SSDML(random_state=0).fit(in_chunks(whole), labels)
    other = SSDML(random_state=0).fit(in_chunks(whole.astype(np.int32)), da.from_array(labels))
    np.testing.assert_array_equal(plain.components_, other.components_)
    np.testing.assert_array_equal(plain.transduction_, other.transduction_)


def test_float32_is_kept(rows):
    X, labels, _ = rows
    model = SSDML(random_state=0).fit(in_chunks(X.astype(np.float32)), labels)
    for name in ("components_", "label_distributions_", "embedding_"):
        assert getattr(model, name).dtype == np.float32


def test_pooled_triplets_keep_their_ends():
    """Two partitions with rows 5, 3 and 8, 9; each mined one triplet."""

    def summary(numbers, anchor, positive, negative):
        ends = (np.array([place]) for place in (anchor, positive, negative))
        places = np.arange(len(numbers))
        return out_of_core.Summary(
            np.ones((2, 1)),
            np.array(numbers),
            np.array(numbers, dtype=float)[:, None],
            Triplets(*ends, np.ones(1)),
            places[:1],
            ({"rows": numbers},),
            None,
            None,
        )

    pool = out_of_core.pool_summaries([summary([5, 3], 0, 1, 0), summary([8, 9], 1, 0, 1)])
    assert pool.numbers[pool.triplets.anchor].tolist() == [5, 9]
    assert pool.numbers[pool.triplets.positive].tolist() == [3, 8]
    assert pool.numbers[pool.references].tolist() == [5, 8]


# Prediction and fallback


@pytest.mark.parametrize(
    "mode", [{}, {"propagation": "one-sided", "mining": "neighborhood"}], ids=str
)
def test_guard_falls_back_to_the_input(harmful_metric, mode):
    X, _, labels = some_digits(0)
    message = r"SSDML: returns the input instead: .* worse: .*% with the input\. Label more rows"
    with pytest.warns(UserWarning, match=message) as caught:
        model = SSDML(input_weight=0, random_state=0, **mode).fit(in_chunks(X, 300), labels)
    assert caught[-1].filename == __file__
    np.testing.assert_array_equal(model.transform(X), X)
    assert model.input_weight_ == np.inf


def test_transform_and_predict_work_by_blocks(rows, fitted):
    X, labels, y = rows
    chunked = in_chunks(X, 70)
    for method in ("transform", "predict_proba", "predict"):
        lazy, plain = getattr(fitted, method)(chunked), getattr(fitted, method)(X)
        assert isinstance(lazy, da.Array)
        assert lazy.chunks[0] == chunked.chunks[0]
        assert lazy.dtype == plain.dtype
        np.testing.assert_allclose(lazy.compute(), plain, rtol=1e-12, atol=1e-12)
    assert fitted.score(chunked, y) == fitted.score(X, y) > 0.85
    assert fitted.score(chunked, labels) == fitted.score(X, labels)


def test_prediction_uses_the_reference_rows(rows, monkeypatch):
    """The interpolator of those rows alone, with their distributions and the first pool."""
    X, labels, _ = rows
    combine, pools = out_of_core.combine, []

    def seen(rows, *given):
        pools.append(rows.direct)
        return combine(rows, *given)

    monkeypatch.setattr(out_of_core, "combine", seen)
    monkeypatch.setattr(out_of_core, "REFERENCE_ROWS", 100)
    few = SSDML(random_state=0).fit(in_chunks(X), labels)
    kept = few.reference_rows_
    assert 100 <= len(kept) <= 115
    form = forms_with_graphs(X[kept], 10, labels=labels[kept], rng=np.random.default_rng(0))[0]
    (pool,) = pools
    np.testing.assert_array_equal(pool.of_trees, few.classifier_.trees.scores(X[kept]))
    assert np.ptp(pool.of_regressions) > 0
    known = few.label_distributions_[kept]
    expected = interpolator(form, known, pool).sharpened(form, known, pool.of_trees)
    np.testing.assert_allclose(few.predict_proba(X), expected(X), atol=1e-6)


def test_trees_of_a_constant_column_are_saved(rows, tmp_path):
    """It has no scale; the trees are those of the first partition."""
    X, labels, _ = rows
    X = np.hstack([np.full((len(X), 1), 0.1), X * [1, 50, 1, 1, 1]])
    model = SSDML(random_state=0).fit(in_chunks(X), labels)
    trees = model.classifier_.trees
    assert trees.standardized.scale[0] == 0
    assert np.isfinite(trees.nodes.thresholds).all()
    model.save(tmp_path)
    found = SSDML.load(tmp_path).predict_proba(X)
    np.testing.assert_array_equal(found, model.predict_proba(X))


def test_held_out_labels_are_numbered_among_all_rows(rows, fitted):
    labels, held_out = rows[1], fitted.held_out_
    np.testing.assert_array_equal(labels[held_out.rows], held_out.codes)
    suspects = fitted.suspected_labels()
    np.testing.assert_array_equal(suspects.labels, labels[suspects.rows])


def test_saved_model_predicts_the_same(rows, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = SSDML.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(rows[0]), fitted.predict_proba(rows[0]))
    np.testing.assert_array_equal(again.reference_rows_, fitted.reference_rows_)


def test_refit_in_memory_forgets_the_partitions(rows):
    X, labels, _ = rows
    model = SSDML(random_state=0).fit(in_chunks(X), labels).fit(X, labels)
    assert model.reference_rows_ is None
    np.testing.assert_array_equal(
        model.predict_proba(X), SSDML(random_state=0).fit(X, labels).predict_proba(X)
    )
