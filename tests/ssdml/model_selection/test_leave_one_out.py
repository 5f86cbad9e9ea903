"""What the others say of a row is what a propagation without its label says."""

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


def hidden_one_at_a_time(graph, labels, rows, decay, tol):
    """The slow twin: a propagation for each row, without its label."""
    shares = np.unique(labels[labels != -1], return_counts=True)[1]
    said = []
    for row in rows:
        others = labels.copy()
        others[row] = -1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rows that no label reaches
            found = propagate_labels(graph, others, decay=decay, tol=tol, class_prior=shares)
        said.append(found[row])
    return np.array(said)


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("n_labels", [12, 40])
def test_it_is_a_propagation_without_the_label(decay, n_labels):
    X, labels = clusters(n_labels)
    graph, rows = knn_graph(X, 6), rows_to_leave_out(labels)
    said = leave_one_out(graph, labels, rows, decay=decay, tol=1e-9)
    slow = hidden_one_at_a_time(graph, labels, rows, decay, tol=1e-9)
    np.testing.assert_allclose(said, slow, atol=1e-5)
    assert (said.argmax(axis=1) != labels[rows] // 10).any()  # the others are not always right


def test_of_some_rows_it_is_the_same_as_of_all():
    X, labels = clusters(40)
    graph, rows = knn_graph(X, 6), rows_to_leave_out(labels)
    every = leave_one_out(graph, labels, rows, decay=0.9, tol=1e-9)
    some = leave_one_out(graph, labels, rows[::3], decay=0.9, tol=1e-9)
    np.testing.assert_allclose(some, every[::3], atol=1e-8)


def test_weighted_edges_and_single_precision_do_as_well():
    X, labels = clusters(20)
    graph, rows = knn_graph(X.astype(np.float32), 6), rows_to_leave_out(labels)
    said = leave_one_out(graph, labels, rows, decay=0.9)
    by_weights = leave_one_out(adjacency(graph), labels, rows, decay=0.9)
    np.testing.assert_allclose(said, by_weights, atol=1e-4)  # the solver's tolerance


def test_a_row_that_the_others_do_not_reach_gets_the_shares_of_the_classes():
    X = np.array([[0.0], [1.0], [2.0], [50.0], [51.0], [52.0], [50.5]])
    labels = np.array([0, 1, 0, 1, -1, -1, -1])
    graph = knn_graph(X, 1)
    said = leave_one_out(graph, labels, np.array([0, 3]), decay=0.9)
    np.testing.assert_allclose(said[1], [0.5, 0.5])
    slow = hidden_one_at_a_time(graph, labels, [0, 3], 0.9, tol=1e-6)
    np.testing.assert_allclose(said, slow, atol=1e-6)


def test_a_class_is_not_punished_for_the_label_that_is_hidden():
    """Two cliques, all but joined: with a decay near 1 the prior decides, and it is even."""
    n = 10
    block = np.ones((n, n)) - np.eye(n)
    weights = np.kron(np.eye(2), block)
    weights[0, n] = weights[n, 0] = 0.1
    labels = np.full(2 * n, -1)
    labels[[1, 2, 11, 12]] = 0, 0, 1, 1
    said = leave_one_out(sparse.csr_array(weights), labels, rows_to_leave_out(labels), decay=0.9999)
    np.testing.assert_array_equal(said.argmax(axis=1), [0, 0, 1, 1])


def test_rows_alone_in_their_class_are_not_judged():
    labels = np.array([5, 5, -1, 7, 9, 9, 9])
    np.testing.assert_array_equal(rows_to_leave_out(labels), [0, 1, 4, 5, 6])
    assert len(rows_to_leave_out(np.array([0, 1, -1]))) == 0
    assert len(rows_to_leave_out(np.array([-1, -1]))) == 0


def test_labels_are_not_written_to():
    X, labels = clusters(20)  # read-only
    before = labels.copy()
    leave_one_out(knn_graph(X, 6), labels, rows_to_leave_out(labels), decay=0.9)
    np.testing.assert_array_equal(labels, before)


@pytest.mark.parametrize("row", [0, 3], ids=["alone in its class", "unlabeled"])
def test_a_row_that_cannot_be_left_out_is_refused(row):
    labels = np.array([0, 1, 1, -1])
    graph = knn_graph(np.arange(4.0)[:, None], 2)
    with pytest.raises(ValueError, match=rf"got row {row}\. Take those of rows_to_leave_out"):
        leave_one_out(graph, labels, np.array([row]), decay=0.9)
