"""Class masses against the dense inverse, and two-sided affinities against their product form."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.graphs import ClassMasses, KNNGraph, adjacency, class_masses, knn_graph
from tests import reference


@pytest.fixture
def graph(rng):
    return knn_graph(rng.standard_normal((80, 4)), 6)


@pytest.fixture
def y(rng):
    y = np.full(80, -1)
    y[rng.permutation(80)[:12]] = np.arange(12) % 3 * 10
    y.flags.writeable = False
    return y


@pytest.mark.parametrize("solver", ["auto", "dense", "krylov"])
def test_masses_match_dense_inverse(graph, y, solver):
    P = reference.diffusion(graph.indices, 0.99)
    expected = np.stack([P[:, y == c].sum(axis=1) for c in (0, 10, 20)], axis=1)
    masses = class_masses(graph, y, solver=solver).masses
    np.testing.assert_allclose(masses, expected, atol=1e-6 * 0.01)


def test_masses_follow_given_weights(graph, y):
    W = adjacency(graph)
    Q = W.toarray() / W.sum(axis=1)[:, None]
    P = 0.1 * np.linalg.inv(np.eye(80) - 0.9 * Q)
    expected = np.stack([P[:, y == c].sum(axis=1) for c in (0, 10, 20)], axis=1)
    np.testing.assert_allclose(class_masses(W, y, decay=0.9).masses, expected, atol=1e-7)


def test_affinities_are_the_two_sided_product(graph, y):
    masses = class_masses(graph, y, decay=0.9, tol=1e-10)
    rows = np.arange(80)
    W = masses.affinities(rows[:, None], rows[None, :])
    expected = reference.two_sided_affinities(graph.indices, y, 0.9)
    np.testing.assert_allclose(W, expected, atol=1e-10)


def test_masses_of_fully_labeled_graph_sum_to_one(graph):
    masses = class_masses(graph, np.arange(80) % 4).masses
    np.testing.assert_allclose(masses.sum(axis=1), 1, atol=1e-7)
    assert (masses >= 0).all()


def test_loose_tolerance_makes_no_mass_negative(graph, y):
    assert class_masses(graph, y, tol=10.0).masses.min() == 0


def test_unreached_rows_have_no_mass():
    graph = KNNGraph(np.array([[1], [0], [3], [2]]), np.ones((4, 1)))
    masses = class_masses(graph, [5, -1, -1, -1], decay=0.5).masses
    np.testing.assert_allclose(masses.ravel(), [2 / 3, 1 / 3, 0, 0], atol=1e-6)
    assert not masses[2:].any()


def test_renaming_classes_permutes_columns(graph, y):
    renamed = np.where(y == -1, -1, 20 - y)
    np.testing.assert_array_equal(
        class_masses(graph, renamed).masses, class_masses(graph, y).masses[:, ::-1]
    )


def test_affinities_take_any_shape_of_pairs():
    masses = ClassMasses(np.array([[0.5, 0.25], [0.0, 1.0]]))
    assert masses.affinities(0, 1) == pytest.approx(2 * 0.25 - 0.75)
    assert masses.affinities(np.array([[0, 1]]), np.array([[1, 0]])).shape == (1, 2)


@pytest.mark.parametrize(
    ("y", "options", "error", "message"),
    [
        (np.full(80, -1), {}, ValueError, "labels beside -1.*all 80 entries are -1. Label some"),
        (np.zeros(79, int), {}, ValueError, r"y must have shape \(80,\).*got shape \(79,\)"),
        (np.full(80, 0.5), {}, TypeError, "y must hold integers.*dtype float64.*encode_partial"),
        (np.full(80, "a"), {}, TypeError, "y must hold integers.*dtype <U1"),
        (np.zeros(80, int), {"decay": 1.0}, ValueError, "decay must lie strictly between 0 and 1"),
        (np.zeros(80, int), {"solver": "lu"}, ValueError, "solver must be one of 'auto'"),
    ],
)
def test_bad_input_is_named(graph, y, options, error, message):
    with pytest.raises(error, match=message):
        class_masses(graph, y, **options)


def test_a_matrix_of_rows_is_not_a_graph(rng):
    with pytest.raises(TypeError, match="class_masses: graph must be a KNNGraph or a sparse array"):
        class_masses(rng.random((4, 4)), [0, 1, -1, -1])


def test_threads_do_not_change_a_bit(rng):
    """More rows than one block."""
    n = 40_000
    steps = np.arange(1, 6) * rng.integers(1, n // 5, (n, 1))
    graph = KNNGraph((np.arange(n)[:, None] + steps) % n, np.ones((n, 5)))
    y = np.full(n, -1)
    y[:6] = np.arange(6) % 3
    one, two = (class_masses(graph, y, decay=0.9, n_jobs=n_jobs).masses for n_jobs in (1, 2))
    np.testing.assert_array_equal(one, two)
