"""Suggested samples to label: one per region, and none that is labeled."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_info, threadpool_limits

from ssdml import SSDML, suggest_labels


@pytest.fixture(scope="module")
def blobs():
    centers = 20 * np.eye(6)
    X, y = make_blobs(240, centers=centers, random_state=0)
    labels = np.where((y < 4) & (np.arange(240) < 60), y, -1)  # blobs 4 and 5 have no label
    return X, y, labels, SSDML(random_state=0).fit(X, labels)


def test_the_first_samples_are_one_per_cluster(blobs):
    X, y, *_ = blobs
    assert sorted(y[suggest_labels(X, 6)]) == [0, 1, 2, 3, 4, 5]


def test_clusters_without_labels_come_first(blobs):
    _, y, _, model = blobs
    assert {4, 5} <= set(y[suggest_labels(model, 4)])


def test_suggestions_are_distinct_and_unlabeled(blobs):
    _, _, labels, model = blobs
    rows = suggest_labels(model, 30)
    assert len(np.unique(rows)) == 30
    assert (labels[rows] == -1).all()
    every = suggest_labels(model, int((labels == -1).sum()))
    np.testing.assert_array_equal(np.sort(every), np.flatnonzero(labels == -1))


def test_equal_samples_are_suggested_as_well():
    X = np.repeat(np.eye(3), 4, axis=0)  # fewer clusters than samples asked for
    np.testing.assert_array_equal(np.sort(suggest_labels(X, 12)), np.arange(12))


def test_clusters_are_found_by_one_thread(blobs, monkeypatch):
    """Three would sum the samples of a cluster in any order."""
    seen, fit = set(), KMeans.fit

    def spy(*args, **kwargs):
        seen.update(library["num_threads"] for library in threadpool_info())
        return fit(*args, **kwargs)

    monkeypatch.setattr(KMeans, "fit", spy)
    with threadpool_limits(3):
        suggest_labels(blobs[0], 6)
    assert seen == {1}


def test_the_same_model_gets_the_same_suggestions(blobs, tmp_path):
    *_, model = blobs
    first = suggest_labels(model, 5)
    np.testing.assert_array_equal(suggest_labels(model, 5, n_jobs=2), first)
    model.save(tmp_path)
    np.testing.assert_array_equal(suggest_labels(SSDML.load(tmp_path), 5), first)


def test_suggestions_are_typical_of_their_blob(blobs):
    X, y, *_ = blobs
    rows = suggest_labels(X, 6)
    means = np.array([X[y == c].mean(axis=0) for c in range(6)])
    offsets = np.linalg.norm(X - means[y], axis=1)
    assert (offsets[rows] < np.median(offsets)).all()


def test_bad_counts_and_models_are_refused(blobs):
    X, y, labels, model = blobs
    with pytest.raises(
        ValueError, match="n must be at most the number of unlabeled samples, 240; got"
    ):
        suggest_labels(X, 241)
    with pytest.raises(ValueError, match=r"samples, 0; got 1\. All are labeled: add samples"):
        suggest_labels(SSDML(random_state=0).fit(X, y), 1)
    with pytest.raises(ValueError, match="n must be at least 1; got 0"):
        suggest_labels(model, 0)
    with pytest.raises(ValueError, match="model must be an SSDML with a classifier_"):
        suggest_labels(SSDML.paper(random_state=0).fit(X, np.where(labels < 0, y, labels)), 2)


def test_samples_without_structure_are_named(blobs, rng):
    X = blobs[0]
    for equal in (X[:1], np.ones((10, 3))):
        with pytest.raises(ValueError, match=r"model must hold at least 2 different .* Check how"):
            suggest_labels(equal, 1)
    for scale, way in ((1e200, "down"), (1e-200, "up")):
        with pytest.raises(ValueError, match=f"model must have a .*variance.* Scale model {way}"):
            suggest_labels(X * scale, 1)
    with pytest.warns(UserWarning, match=r"model must have columns of .*; 1 of 3 \(0\) hold 99%"):
        suggest_labels(rng.standard_normal((60, 3)) * [1e6, 1, 1], 1)
    with pytest.warns(UserWarning, match="model must not have a row far from all others; row 240"):
        suggest_labels(np.vstack([X, 1e9 * X[:1]]), 1)


def test_a_pipeline_is_refused_with_a_way_out(blobs):
    with pytest.raises(
        TypeError, match=r"got Pipeline\. Pass the SSDML in it, such as model\[-1\]"
    ):
        suggest_labels(make_pipeline(SSDML()), 3)


class TestCopies:
    """Copies of samples neither draw suggestions nor repeat them."""

    @pytest.fixture
    def copied(self):
        """Digits, and the row numbers of those below 5 ten times."""
        X, y = load_digits(return_X_y=True)
        X, y = X[:400] / 16, y[:400]
        rows = np.concatenate([np.arange(400), np.repeat(np.flatnonzero(y < 5), 9)])
        return X, y, rows

    def test_samples_are_those_without_copies(self, copied):
        X, _, rows = copied
        np.testing.assert_array_equal(suggest_labels(X[rows], 30), suggest_labels(X, 30))

    @pytest.mark.parametrize("is_loaded", [False, True])
    def test_model_suggests_no_copy_of_a_labeled_sample(self, copied, tmp_path, is_loaded):
        X, y, rows = copied
        labels = np.full(len(rows), -1)
        labeled = np.append(np.arange(30), len(rows) - 9)  # of a class that is copied: its copies
        labels[labeled] = y[rows[labeled]]
        model = SSDML(random_state=0).fit(X[rows], labels)
        if is_loaded:
            model.save(tmp_path / "model")
            model = SSDML.load(tmp_path / "model")
        chosen = rows[suggest_labels(model, 40)]
        assert len(set(chosen)) == 40
        assert not np.isin(chosen, rows[labeled]).any()
        assert (y[chosen] >= 5).mean() > 0.3

    def test_copies_come_last(self):
        X = np.array([[0.0], [5.0], [0.0], [9.0], [5.0]])
        chosen = suggest_labels(X, 5)
        assert set(chosen[:3]) == {0, 1, 3}
        assert chosen[3:].tolist() == [2, 4]
