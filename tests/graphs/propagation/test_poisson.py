"""Poisson learning against its equation, the published iteration and the assignment problem."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from ssdml.graphs import adjacency, knn_graph, poisson_learning
from ssdml.graphs.propagation import coarsening, poisson, solvers


@pytest.fixture
def graph(rng):
    return knn_graph(rng.standard_normal((90, 4)), 7)


@pytest.fixture
def y(rng):
    y = np.full(90, -1)
    y[rng.permutation(90)[:13]] = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    y.flags.writeable = False
    return y


def sources(y):
    """B of the equation."""
    Y = (y[:, None] == np.unique(y[y >= 0])).astype(float)
    return np.where(y[:, None] >= 0, Y - Y[y >= 0].mean(axis=0), 0)


def two_paths():
    """Two components, 0-1-2 and 3-4."""
    W = np.zeros((5, 5))
    for i, j in ((0, 1), (1, 2), (3, 4)):
        W[i, j] = W[j, i] = 1.0
    return sparse.csr_array(W)


@pytest.mark.parametrize("decay", [0.5, 0.99, 0.9999])
def test_scores_solve_the_equation(graph, y, decay):
    W = adjacency(graph).toarray()
    expected = np.linalg.solve(np.diag(W.sum(axis=1)) - decay * W, sources(y))
    for given in (graph, sparse.csr_array(W)):
        found = poisson_learning(given, y, decay=decay, tol=1e-12)
        np.testing.assert_allclose(found, expected, atol=1e-10)
    np.testing.assert_allclose(
        poisson_learning(graph, y, decay=decay), expected, atol=1e-4 * np.abs(expected).max()
    )


def test_the_limit_is_the_poisson_equation(graph, y):
    """The pseudoinverse of the Laplacian, centered by the degrees."""
    W = adjacency(graph).toarray()
    degrees = W.sum(axis=1)
    expected = np.linalg.pinv(np.diag(degrees) - W) @ sources(y)
    expected -= degrees @ expected / degrees.sum()
    found = poisson_learning(graph, y, decay=1 - 1e-9, tol=1e-11)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(degrees @ found, 0, atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-7)


def test_the_published_iteration_has_the_same_limit(graph, y):
    """Algorithm 1 of Calder et al. (2020)."""
    W = adjacency(graph).toarray()
    degrees, B = W.sum(axis=1, keepdims=True), sources(y)
    U = np.zeros((90, 3))
    for _ in range(5000):
        U += (B - degrees * U + W @ U) / degrees
    np.testing.assert_allclose(poisson_learning(graph, y, decay=1 - 1e-9), U, atol=1e-5)


def test_scores_are_centered_propagated_labels(graph, y):
    """The identity of the docstring."""
    W = adjacency(graph).toarray()
    Y = (y[:, None] == np.arange(3)).astype(float)
    V = np.linalg.solve(np.diag(W.sum(axis=1)) - 0.9 * W, Y)
    shares = Y[y >= 0].mean(axis=0)
    expected = V - V.sum(axis=1, keepdims=True) * shares
    np.testing.assert_allclose(
        poisson_learning(graph, y, decay=0.9, tol=1e-12), expected, atol=1e-10
    )


@pytest.mark.parametrize("prior", [[0.2, 0.3, 0.5], [0.6, 0.1, 0.3], "uniform", "labeled"])
def test_each_class_gets_its_share_of_the_rows(rng, prior):
    graph = knn_graph(rng.standard_normal((2000, 3)), 8)
    y = np.full(2000, -1)
    y[:9] = [0, 0, 0, 0, 1, 1, 1, 2, 2]
    given = {"uniform": [1, 1, 1], "labeled": [4, 3, 2]}.get(str(prior), prior)
    found = poisson_learning(graph, y, class_prior=prior).argmax(axis=1)
    shares = np.bincount(found, minlength=3) / 2000
    np.testing.assert_allclose(shares, np.divide(given, np.sum(given)), atol=0.005)


def test_offsets_assign_rows_at_the_largest_sum(rng):
    """Against the Hungarian algorithm with a place per row."""
    scores, counts = rng.standard_normal((120, 3)) + np.array([1.0, 0.0, -1.0]), (20, 60, 40)
    moved = scores + poisson.balancing_offsets(scores, np.array(counts) / 120)
    found = moved.argmax(axis=1)
    places = np.repeat(np.arange(3), counts)
    _, taken = linear_sum_assignment(scores[:, places], maximize=True)
    assert np.abs(np.bincount(found) - counts).max() <= 1
    assert (found != places[taken]).sum() <= 2


def test_offsets_do_not_depend_on_scale_or_shift(rng):
    scores, prior = rng.standard_normal((300, 4)), np.array([0.1, 0.2, 0.3, 0.4])
    assigned = [
        (given + poisson.balancing_offsets(given, prior)).argmax(axis=1)
        for given in (scores, 1e-6 * scores, scores + 5.0)
    ]
    for other in assigned[1:]:
        assert (assigned[0] != other).sum() <= 2


def test_offsets_of_many_rows_come_from_a_sample(rng, monkeypatch):
    monkeypatch.setattr(poisson, "MAX_BALANCED", 4000)
    scores, prior = rng.standard_normal((20_000, 3)), np.array([0.5, 0.3, 0.2])
    moved = scores + poisson.balancing_offsets(scores, prior)
    shares = np.bincount(moved.argmax(axis=1)) / 20_000
    np.testing.assert_allclose(shares, prior, atol=0.03)


def test_tied_scores_have_no_offsets():
    offsets = poisson.balancing_offsets(np.ones((5, 2)), np.array([0.5, 0.5]))
    np.testing.assert_array_equal(offsets, 0)


def test_one_label_per_class_suffices_between_two_blobs(rng):
    X = np.r_[rng.standard_normal((300, 2)), rng.standard_normal((300, 2)) + np.array([5.0, 0.0])]
    y = np.full(600, -1)
    y[0], y[300] = 4, 2
    found = poisson_learning(knn_graph(X, 10), y).argmax(axis=1)
    assert (found == np.repeat([1, 0], 300)).mean() > 0.97


def test_renaming_classes_permutes_columns(graph, y):
    renamed = np.where(y == -1, -1, 7 - 2 * y)
    np.testing.assert_allclose(
        poisson_learning(graph, renamed), poisson_learning(graph, y)[:, ::-1], atol=1e-12
    )


@pytest.mark.parametrize("exponent", [-800, -300, 300, 800])
def test_scores_are_inverse_to_the_scale_of_the_weights(graph, y, exponent):
    """Sources of heavy rows vanished in single precision."""
    W = adjacency(graph)
    scores = poisson_learning(W * 2.0**exponent, y)
    np.testing.assert_array_equal(np.ldexp(scores, exponent), poisson_learning(W, y))


def test_permuting_rows_permutes_the_scores(graph, y, rng):
    W, order = adjacency(graph), rng.permutation(90)
    moved = poisson_learning(sparse.csr_array(W[order][:, order]), y[order], tol=1e-12)
    np.testing.assert_allclose(moved, poisson_learning(W, y, tol=1e-12)[order], atol=1e-9)


@pytest.mark.parametrize(("entries", "cached"), [(90, 2**22), (2**25, 1), (90, 1)])
def test_blocks_and_order_change_nothing(graph, y, monkeypatch, entries, cached):
    expected = poisson_learning(graph, y, tol=1e-12)
    monkeypatch.setattr(poisson, "BLOCK_ENTRIES", entries)
    monkeypatch.setattr(coarsening, "CACHED_ENTRIES", cached)
    monkeypatch.setattr(coarsening, "CLUSTER_ROWS", 10)  # with 100, one cluster: no new order
    for n_jobs in (1, 2):
        found = poisson_learning(graph, y, tol=1e-12, n_jobs=n_jobs)
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_single_precision_graphs_give_single_precision(rng, y):
    graph = knn_graph(rng.standard_normal((90, 4)).astype(np.float32), 7)
    for prior in (None, "uniform"):
        assert poisson_learning(graph, y, class_prior=prior).dtype == np.float32


def test_one_class_has_equal_scores(graph):
    y = np.r_[3, np.full(89, -1)]
    for prior in (None, [1.0]):
        np.testing.assert_array_equal(poisson_learning(graph, y, class_prior=prior), 0)


def test_unreached_rows_have_equal_scores_and_a_warning():
    with pytest.warns(RuntimeWarning, match="no label reaches 2 of 5 rows; their scores are equal"):
        found = poisson_learning(two_paths(), [0, -1, 1, -1, -1])
    np.testing.assert_array_equal(found[3:], 0)
    assert found[0, 0] > 0 > found[2, 0]


def test_parts_with_other_proportions_take_their_own_label():
    """The limit has no solution there."""
    found = poisson_learning(two_paths(), [0, -1, -1, 1, -1])
    np.testing.assert_array_equal(found.argmax(axis=1), [0, 0, 0, 1, 1])


def test_row_without_edges_keeps_its_label():
    found = poisson_learning(sparse.csr_array((3, 3)), [0, 1, 1])
    np.testing.assert_array_equal(found.argmax(axis=1), [0, 1, 1])


def test_stopping_early_is_told(graph, y, monkeypatch):
    defaults = solvers.conjugate_gradient.__kwdefaults__ | {"max_iter": 2}
    monkeypatch.setattr(solvers.conjugate_gradient, "__kwdefaults__", defaults)
    with pytest.warns(RuntimeWarning, match=r"stopped after 2 steps with residual .* > tol=1"):
        poisson_learning(graph, y)


def test_the_inputs_are_not_modified(graph, y):
    before = graph.distances.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        poisson_learning(graph, y, class_prior="labeled")
    np.testing.assert_array_equal(graph.distances, before)


@pytest.mark.parametrize(
    ("W", "options", "error", "message"),
    [
        (np.eye(3), {}, TypeError, "graph must be a KNNGraph or a sparse array.*got ndarray"),
        (sparse.csr_array(-np.ones((3, 3))), {}, ValueError, "at least 0; got -1"),
        (None, {"class_prior": [1, 1, 1]}, ValueError, "class_prior must hold 2 positive"),
        (None, {"class_prior": "even"}, ValueError, "class_prior must be 'labeled', 'uniform'"),
        (None, {"decay": 1.0}, ValueError, "decay must lie strictly between 0 and 1; got 1.0"),
        (None, {"tol": 0.0}, ValueError, "tol must be above 0; got 0.0"),
    ],
)
def test_bad_input_is_named(W, options, error, message):
    W = sparse.csr_array(np.ones((3, 3)) - np.eye(3)) if W is None else W
    with pytest.raises(error, match=f"poisson_learning: .*{message}"):
        poisson_learning(W, [0, -1, 1], **options)


def test_labels_are_needed(graph):
    with pytest.raises(ValueError, match=r"poisson_learning: y must contain labels.*all 90"):
        poisson_learning(graph, np.full(90, -1))
