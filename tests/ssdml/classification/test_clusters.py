"""Class means that unlabeled rows have moved: constrained k-means."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from ssdml.classification import clusters
from ssdml.classification.clusters import Clusters, moved_means
from ssdml.graphs.propagation import class_prior


@pytest.fixture
def rows(rng):
    """Three overlapping clusters of 60 rows."""
    truth = np.arange(180) % 3
    return rng.standard_normal((180, 4)) + 2 * np.eye(3, 4)[truth], truth


def slow_means(rows, labeled, codes, n_classes):
    """As the docstring has it, a row at a time."""
    means = [rows[labeled[codes == code]].mean(axis=0) for code in range(n_classes)]
    for _ in range(clusters.STEPS):
        members = [list(labeled[codes == code]) for code in range(n_classes)]
        for row in sorted(set(range(len(rows))) - set(labeled)):
            gaps = [np.linalg.norm(rows[row] - mean) for mean in means]
            members[int(np.argmin(gaps))].append(row)
        means = [rows[group].mean(axis=0) for group in members]
    return np.array(means)


@pytest.mark.parametrize("counts", [(1, 1, 1), (5, 2, 9)])
def test_means_are_those_of_a_slow_twin(rows, counts):
    X, truth = rows
    labeled = np.concatenate([np.flatnonzero(truth == c)[:n] for c, n in enumerate(counts)])
    codes = truth[labeled]
    found = moved_means(X, labeled, codes, 3)
    np.testing.assert_allclose(found, slow_means(X, labeled, codes, 3), atol=1e-12)


def test_many_steps_end_where_k_means_does(rows, monkeypatch):
    """Labels that k-means would give anyway do not move its solution."""
    X, truth = rows
    monkeypatch.setattr(clusters, "STEPS", 100)
    start = np.array([X[truth == code].mean(axis=0) for code in range(3)])
    model = KMeans(3, init=start, n_init=1, tol=0).fit(X)
    central = np.concatenate([[int(np.argmin(model.transform(X)[:, code]))] for code in range(3)])
    found = moved_means(X, central, model.labels_[central], 3)
    np.testing.assert_allclose(found, model.cluster_centers_, atol=1e-8)


def test_logits_differ_from_squared_distances_by_a_constant_of_the_row(rows, rng):
    X, _ = rows
    means = rng.standard_normal((3, 4))
    squares = ((X[:, None] - means) ** 2).sum(axis=2)
    rest = Clusters(X, means).logits(slice(None)) + squares / 2
    np.testing.assert_allclose(rest, np.broadcast_to(rest[:, :1], rest.shape), atol=1e-12)


def test_order_and_place_of_rows_do_not_matter(rows, rng):
    X, truth = rows
    labeled = np.arange(9)
    order, turn = rng.permutation(180), np.linalg.qr(rng.standard_normal((4, 4)))[0]
    places = np.argsort(order)[labeled]
    plain = moved_means(X, labeled, truth[labeled], 3)
    moved = moved_means(X[order] @ turn + 1, places, truth[labeled], 3)
    np.testing.assert_allclose(moved, plain @ turn + 1, atol=1e-12)


def test_labeled_rows_keep_their_classes(rows):
    """A label that contradicts the clusters stays with its class, and pulls its mean."""
    X, truth = rows
    labeled, codes = np.arange(4), np.array([0, 1, 2, 1])
    assert truth[3] == 0
    found = moved_means(X, labeled, codes, 3)
    without = moved_means(np.delete(X, 3, axis=0), labeled[:3], codes[:3], 3)
    assert np.linalg.norm(found[1] - X[3]) < np.linalg.norm(without[1] - X[3])


def test_many_rows_are_sampled(rows, monkeypatch):
    X, truth = rows
    everything = moved_means(X, np.arange(30), truth[:30], 3)
    monkeypatch.setattr(class_prior, "ROWS", 100)
    sampled = moved_means(X, np.arange(30), truth[:30], 3)
    assert 0 < np.abs(sampled - everything).max() < 0.5


def test_all_rows_labeled(rows):
    X, truth = rows
    means = moved_means(X, np.arange(180), truth, 3)
    expected = [X[truth == code].mean(axis=0) for code in range(3)]
    np.testing.assert_allclose(means, expected, atol=1e-12)
