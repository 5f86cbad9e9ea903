"""Leave-one-out agrees with propagation without the label."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_blobs

from ssdml.graphs import adjacency, knn_graph, propagate_labels
from ssdml.model_selection.leave_one_out import leave_one_out, rows_to_leave_out


def clusters(n_labels, *, seed=0, n=150):
    X, y = make_blobs(n, 3, centers=4, cluster_std=3.0, random_state=seed)
    labels = np.full(n, -1)
    known = np.random.default_rng(seed).permutation(n)[:n_labels]
    labels[known] = 10 * y[known] + 3  # classes need not be 0, 1, ...
    X.flags.writeable = labels.flags.writeable = False
    return X, labels


def slow_leave_one_out(graph, labels, rows, decay, tol):
    """One propagation per row, without its label."""
    shares = np.unique(labels[labels != -1], return_counts=True)[1]
    distributions = []
    for row in rows:
        others = labels.copy()
        others[row] = -1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on rows that no label reaches
            found = propagate_labels(graph, others, decay=decay, tol=tol, class_prior=shares)
        distributions.append(found[row])
    return np.array(distributions)


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("n_labels", [12, 40])
def test_agrees_with_propagation_without_the_label(decay, n_labels):
    X, labels = clusters(n_labels)
    graph, rows = knn_graph(X, 6), rows_to_leave_out(labels)
    found = leave_one_out(graph, labels, rows, decay=decay, tol=1e-9)
    slow = slow_leave_one_out(graph, labels, rows, decay, tol=1e-9)
    np.testing.assert_allclose(found, slow, atol=1e-5)
    assert (found.argmax(axis=1) != labels[rows] // 10).any()  # some are wrong


def test_subset_of_rows_agrees_with_all_rows():
    X, labels = clusters(40)
    graph, rows = knn_graph(X, 6), rows_to_leave_out(labels)
    every = leave_one_out(graph, labels, rows, decay=0.9, tol=1e-9)
    some = leave_one_out(graph, labels, rows[::3], decay=0.9, tol=1e-9)
    np.testing.assert_allclose(some, every[::3], atol=1e-8)


def test_weighted_edges_and_float32():
    X, labels = clusters(20)
    graph, rows = knn_graph(X.astype(np.float32), 6), rows_to_leave_out(labels)
    found = leave_one_out(graph, labels, rows, decay=0.9)
    by_weights = leave_one_out(adjacency(graph), labels, rows, decay=0.9)
    np.testing.assert_allclose(found, by_weights, atol=1e-4)  # the solver's tolerance


def test_unreached_row_gets_the_class_prior():
    X = np.array([[0.0], [1.0], [2.0], [50.0], [51.0], [52.0], [50.5]])
    labels = np.array([0, 1, 0, 1, -1, -1, -1])
    graph = knn_graph(X, 1)
    found = leave_one_out(graph, labels, np.array([0, 3]), decay=0.9)
    np.testing.assert_allclose(found[1], [0.5, 0.5])
    slow = slow_leave_one_out(graph, labels, [0, 3], 0.9, tol=1e-6)
    np.testing.assert_allclose(found, slow, atol=1e-6)


def test_prior_counts_the_label_left_out():
    """Two weakly joined cliques: with a decay near 1 the prior decides, and it is uniform."""
    n = 10
    block = np.ones((n, n)) - np.eye(n)
    weights = np.kron(np.eye(2), block)
    weights[0, n] = weights[n, 0] = 0.1
    labels = np.full(2 * n, -1)
    labels[[1, 2, 11, 12]] = 0, 0, 1, 1
    found = leave_one_out(
        sparse.csr_array(weights), labels, rows_to_leave_out(labels), decay=0.9999
    )
    np.testing.assert_array_equal(found.argmax(axis=1), [0, 0, 1, 1])


def test_single_labels_are_not_left_out():
    labels = np.array([5, 5, -1, 7, 9, 9, 9])
    np.testing.assert_array_equal(rows_to_leave_out(labels), [0, 1, 4, 5, 6])
    assert len(rows_to_leave_out(np.array([0, 1, -1]))) == 0
    assert len(rows_to_leave_out(np.array([-1, -1]))) == 0


def test_labels_are_not_modified():
    X, labels = clusters(20)  # read-only
    before = labels.copy()
    leave_one_out(knn_graph(X, 6), labels, rows_to_leave_out(labels), decay=0.9)
    np.testing.assert_array_equal(labels, before)


@pytest.mark.parametrize("row", [0, 3], ids=["alone in its class", "unlabeled"])
def test_invalid_rows_raise(row):
    labels = np.array([0, 1, 1, -1])
    graph = knn_graph(np.arange(4.0)[:, None], 2)
    with pytest.raises(ValueError, match=rf"got row {row}\. Use rows_to_leave_out"):
        leave_one_out(graph, labels, np.array([row]), decay=0.9)
