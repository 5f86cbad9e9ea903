"""Propagation against closed forms, worked examples and the iteration."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from scipy import sparse

from ssdml.graphs import KNNGraph, adjacency, knn_graph, propagate_affinities, propagate_labels
from ssdml.graphs.propagation import affinities, labels as spreading, solvers
from tests import reference

SIDES = {"one": reference.one_sided_affinities, "two": reference.two_sided_affinities}


@pytest.fixture
def graph(rng):
    return knn_graph(rng.standard_normal((90, 4)), 7)


@pytest.fixture
def y(rng):
    y = np.full(90, -1)
    y[rng.permutation(90)[:13]] = np.arange(13) % 3
    y.flags.writeable = False
    return y


def as_array(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def two_paths():
    """Two components, 0-1-2 and 3-4."""
    W = np.zeros((5, 5))
    for i, j in ((0, 1), (1, 2), (3, 4)):
        W[i, j] = W[j, i] = 1.0
    return sparse.csr_array(W)


class TestPropagateLabels:
    @pytest.mark.parametrize("decay", [0.2, 0.9, 0.99])
    def test_agrees_with_the_closed_form(self, graph, y, decay):
        W = adjacency(graph)
        expected = reference.propagated_labels(W.toarray(), y, decay)
        for given in (graph, W):
            result = propagate_labels(given, y, decay=decay, tol=1e-12)
            np.testing.assert_allclose(result, expected, atol=1e-10)

    def test_default_tolerance_is_close_to_closed_form(self, graph, y):
        expected = reference.propagated_labels(adjacency(graph).toarray(), y, 0.99)
        np.testing.assert_allclose(propagate_labels(graph, y), expected, atol=1e-5)

    def test_cosine_graph_uses_cosine_weights(self, rng, y):
        graph = knn_graph(np.abs(rng.standard_normal((90, 4))), 7, metric="cosine")
        expected = propagate_labels(adjacency(graph, weights="cosine"), y)
        np.testing.assert_array_equal(propagate_labels(graph, y), expected)

    def test_the_masses_of_classes_follow_the_prior(self, graph, y):
        # Rows of sum 1 have other class masses; columns are scaled.
        prior = np.array([0.7, 0.2, 0.1])
        expected = reference.propagated_labels(adjacency(graph).toarray(), y, 0.9, prior)
        result = propagate_labels(graph, y, decay=0.9, class_prior=prior, tol=1e-12)
        np.testing.assert_allclose(result, expected, atol=1e-10)

    def test_prior_corrects_unequal_numbers_of_labels(self, rng):
        X = np.r_[
            rng.standard_normal((300, 2)), rng.standard_normal((300, 2)) + np.array([3.2, 0.0])
        ]
        truth = np.repeat([0, 1], 300)
        y = np.full(600, -1)
        y[:40], y[300:303] = 0, 1
        result = propagate_labels(knn_graph(X, 10), y, class_prior=[0.5, 0.5])
        assert (result.argmax(axis=1) == truth).mean() > 0.9

    def test_rows_lie_on_the_simplex(self, graph, y):
        result = propagate_labels(graph, y)
        assert (result >= 0).all()
        np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-12)

    def test_renaming_classes_permutes_columns(self, graph, y):
        renamed = np.where(y == -1, -1, 7 - 2 * y)
        np.testing.assert_allclose(
            propagate_labels(graph, renamed), propagate_labels(graph, y)[:, ::-1], rtol=1e-12
        )

    def test_permuting_rows_permutes_the_result(self, graph, y, rng):
        W, order = adjacency(graph), rng.permutation(90)
        moved = propagate_labels(sparse.csr_array(W[order][:, order]), y[order], tol=1e-12)
        np.testing.assert_allclose(moved, propagate_labels(W, y, tol=1e-12)[order], atol=1e-9)

    def test_one_labeled_class_is_everywhere(self, graph):
        y = np.r_[3, np.full(89, -1)]
        np.testing.assert_array_equal(propagate_labels(graph, y), np.ones((90, 1)))

    def test_labeled_rows_can_be_outvoted(self):
        # Row 0 of class 1 among 29 rows of class 0: its label is not clamped.
        W = sparse.csr_array(np.ones((30, 30)) - np.eye(30))
        y = np.r_[1, np.zeros(29, int)]
        result = propagate_labels(W, y, decay=0.99)
        assert result[0].argmax() == 0

    def test_unreached_rows_get_prior_and_warning(self):
        with pytest.warns(RuntimeWarning, match="no label reaches 2 of 5 rows; they get") as caught:
            result = propagate_labels(two_paths(), [0, -1, 1, -1, -1], class_prior=[0.75, 0.25])
        assert len(caught) == 1
        np.testing.assert_array_equal(result[3:], [[0.75, 0.25]] * 2)

    def test_row_without_edges_keeps_its_label(self):
        W = sparse.csr_array((3, 3))
        result = propagate_labels(W, [0, 1, 1])
        np.testing.assert_array_equal(result, [[1, 0], [0, 1], [0, 1]])

    def test_outlier_takes_label_of_its_neighbors(self, rng):
        X = np.r_[rng.standard_normal((50, 2)), rng.standard_normal((50, 2)) + 100, [[200, 200]]]
        y = np.full(101, -1)
        y[0], y[50] = 0, 1
        result = propagate_labels(knn_graph(X, 5), y)
        assert result[100, 1] > 0.999

    def test_stopping_early_is_told(self, graph, y, monkeypatch):
        defaults = solvers.conjugate_gradient.__kwdefaults__ | {"max_iter": 2}
        monkeypatch.setattr(solvers.conjugate_gradient, "__kwdefaults__", defaults)
        with pytest.warns(RuntimeWarning, match=r"stopped after 2 steps with residual .* > tol=1"):
            propagate_labels(graph, y)

    @pytest.mark.parametrize(
        ("W", "options", "error", "message"),
        [
            (
                np.eye(3),
                {},
                TypeError,
                "graph must be a KNNGraph or .*got ndarray. Build a graph by",
            ),
            (sparse.csr_array((2, 3)), {}, ValueError, r"square; got shape \(2, 3\)"),
            (sparse.csr_array(-np.ones((3, 3))), {}, ValueError, "at least 0; got -1"),
            (sparse.csr_array(np.full((3, 3), np.nan)), {}, ValueError, "graph must be finite"),
            (sparse.csr_array(np.triu(np.ones((3, 3)))), {}, ValueError, "symmetric; .* by 1 from"),
            (None, {"class_prior": [0.5, 0.6]}, ValueError, "class_prior must sum to 1; got .*1.1"),
            (None, {"class_prior": [1, 1, 1]}, ValueError, "class_prior must hold 2 positive"),
            (None, {"class_prior": [1, -1]}, ValueError, "class_prior must hold 2 positive"),
            (None, {"decay": 0.0}, ValueError, "decay must lie strictly between 0 and 1; got 0.0"),
            (None, {"tol": 0.0}, ValueError, "tol must be above 0; got 0.0"),
        ],
    )
    def test_bad_input_is_named(self, W, options, error, message):
        W = sparse.csr_array(np.ones((3, 3)) - np.eye(3)) if W is None else W
        with pytest.raises(error, match=f"propagate_labels: .*{message}"):
            propagate_labels(W, [0, -1, 1], **options)

    def test_labels_are_needed(self, graph):
        with pytest.raises(ValueError, match=r"y must contain labels.*all 90 entries are -1"):
            propagate_labels(graph, np.full(90, -1))

    def test_warm_start_saves_steps(self, graph, y):
        first, solution = propagate_labels(graph, y, tol=1e-10, return_solution=True)
        again, resumed = propagate_labels(
            graph, y, tol=1e-10, start=solution.values, return_solution=True
        )
        assert resumed.n_iter < solution.n_iter / 2
        assert resumed.residual <= 1e-10
        np.testing.assert_allclose(again, first, atol=1e-9)

    def test_start_of_other_shape_is_refused(self, graph, y):
        with pytest.raises(ValueError, match=r"start must have shape \(90, 3\), .*; got \(90, 2\)"):
            propagate_labels(graph, y, start=np.zeros((90, 2)))

    def test_blocks_of_classes_and_threads_change_nothing(self, graph, y, monkeypatch):
        expected = propagate_labels(graph, y)
        np.testing.assert_array_equal(propagate_labels(graph, y, n_jobs=2), expected)
        monkeypatch.setattr(spreading, "BLOCK_ENTRIES", 90)
        np.testing.assert_allclose(propagate_labels(graph, y), expected, atol=1e-6)

    @pytest.mark.parametrize("tol", [1e-4, 1e-6])
    def test_proportions_hold_far_from_labels(self, tol):
        """On a path scores fall by e every 7 rows, far below the residual."""
        W = sparse.csr_array(sparse.diags_array([np.ones(599)] * 2, offsets=[-1, 1]))
        y = np.full(600, -1)
        y[[0, 30]] = 0, 1
        expected = reference.propagated_labels(W.toarray(), y, 0.99)
        result = propagate_labels(W, y, tol=tol)
        # The class masses of far rows differ: the first row has their ratio.
        scaled = result * (expected[0] / result[0])
        scaled /= scaled.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(scaled[:60], expected[:60], atol=0.1)
        assert (result[60:].argmax(axis=1) == 1).all()  # the nearer of the two

    @pytest.mark.parametrize("decay", [0.1, 0.5, 0.9])
    def test_labels_reach_rows_beyond_the_last_step(self, decay):
        """The solver stops before; such rows got the class prior, and a warning of no path."""
        path = sparse.diags_array([np.ones(39), np.ones(39)], offsets=[-1, 1], format="csr")
        y = [0, *[-1] * 38, 1]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            classes = propagate_labels(path, y, decay=decay, tol=1e-2).argmax(axis=1)
        assert classes.tolist() == [0] * 20 + [1] * 20

    def test_float32_in_float32_out(self, rng, y):
        X = rng.standard_normal((90, 4))
        double, single = (propagate_labels(knn_graph(X.astype(d), 7), y) for d in ("f8", "f4"))
        assert (double.dtype, single.dtype) == (np.float64, np.float32)
        np.testing.assert_allclose(single, double, atol=1e-5)


class TestPropagateAffinities:
    def test_two_mutual_neighbors(self):
        graph = KNNGraph(np.array([[1], [0]]), np.ones((2, 1)))
        P = propagate_affinities(graph, [-1, -1], decay=0.5, pairs="all")
        np.testing.assert_allclose(P, [[2 / 3, 1 / 3], [1 / 3, 2 / 3]], atol=1e-15)

    def test_four_nodes_and_two_labels(self):
        graph = KNNGraph(np.array([[2], [3], [0], [1]]), np.ones((4, 1)))
        W = propagate_affinities(graph, [0, 1, -1, -1], decay=0.5, pairs="all")
        expected = [[4, -4, 2, -1], [-4, 4, -1, 2], [2, -1, 4, 0], [-1, 2, 0, 4]]
        np.testing.assert_allclose(W, np.array(expected) / 6, atol=1e-15)

    def test_iterated_update_matches_closed_form(self, graph, y):
        Q, W0 = reference.transition(graph.indices), reference.initial_affinities(y, 1.0)
        W = W0
        for _ in range(400):
            W = 0.9 * Q @ W + 0.1 * W0
        result = propagate_affinities(graph, y, decay=0.9, pairs="all")
        np.testing.assert_allclose(result, (W + W.T) / 2, atol=1e-14)

    @pytest.mark.parametrize("sides", SIDES)
    @pytest.mark.parametrize("decay", [0.5, 0.99])
    def test_every_solver_matches_slow_twin(self, graph, y, sides, decay, monkeypatch):
        monkeypatch.setattr(
            "ssdml.graphs.propagation.affinities.BLOCK_ENTRIES", 90 * 7
        )  # several blocks
        monkeypatch.setattr("ssdml.graphs.propagation.affinities.CLASS_ENTRIES", 90 * 2)
        expected = SIDES[sides](graph.indices, y, decay)
        edges = np.zeros((90, 90), bool)
        np.put_along_axis(edges, graph.indices, True, axis=1)
        edges |= edges.T
        for solver in ("auto", "dense", "krylov", "torch"):
            options = {"decay": decay, "sides": sides, "solver": solver, "tol": 1e-9}
            full = propagate_affinities(graph, y, pairs="all", **options)
            np.testing.assert_allclose(full, expected, atol=1e-9 * (1 - decay))
            sparse_part = propagate_affinities(graph, y, pairs="edges", **options)
            assert sparse_part.nnz == edges.sum()
            np.testing.assert_allclose(
                sparse_part.toarray(), np.where(edges, expected, 0), atol=1e-9 * (1 - decay)
            )

    @pytest.mark.parametrize("sides", SIDES)
    @pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-4])
    def test_errors_stay_within_the_tolerance(self, graph, y, sides, tol):
        expected = SIDES[sides](graph.indices, y, 0.99)
        W = propagate_affinities(graph, y, sides=sides, pairs="all", solver="krylov", tol=tol)
        assert np.abs(W - expected).max() <= tol * 0.01

    def test_unlabeled_pairs_on_one_side_are_plain_diffusion(self, graph, y):
        W = propagate_affinities(graph, y, decay=0.9, pairs="all")
        P = reference.diffusion(graph.indices, 0.9)
        u = np.ix_(y == -1, y == -1)
        np.testing.assert_allclose(W[u], ((P + P.T) / 2)[u], atol=1e-14)

    def test_without_labels_only_one_side_works(self, graph):
        y = np.full(90, -1)
        P = reference.diffusion(graph.indices, 0.9)
        W = propagate_affinities(graph, y, decay=0.9, pairs="all")
        np.testing.assert_allclose(W, (P + P.T) / 2, atol=1e-14)
        with pytest.raises(
            ValueError, match=r"all 90 entries are -1. Label some rows, or use 'one'"
        ):
            propagate_affinities(graph, y, sides="two")

    @pytest.mark.parametrize("solver", ["dense", "krylov", "walk", "torch"])
    def test_every_solver_works_without_labels(self, graph, solver):
        P = reference.diffusion(graph.indices, 0.99)
        W = propagate_affinities(graph, np.full(90, -1), solver=solver, tol=1e-3).toarray()
        np.testing.assert_allclose(W[W != 0], ((P + P.T) / 2)[W != 0], atol=1e-5)

    def test_two_sides_reach_unlabeled_pairs(self, rng):
        X = np.r_[rng.standard_normal((40, 2)), rng.standard_normal((40, 2)) + 5]
        y = np.full(80, -1)
        y[[0, 1, 40, 41]] = [0, 0, 1, 1]
        W = propagate_affinities(knn_graph(X, 8), y, sides="two", pairs="all")
        assert (W[2:40, 42:] <= 0).all()
        assert (W[2:40, 2:40] > 0).all()

    def test_every_row_labeled(self, graph):
        y = np.arange(90) % 4
        expected = reference.one_sided_affinities(graph.indices, y, 0.9)
        W = propagate_affinities(graph, y, decay=0.9, pairs="all", solver="krylov", tol=1e-8)
        np.testing.assert_allclose(W, expected, atol=1e-9)

    @pytest.mark.parametrize("sides", SIDES)
    def test_edges_are_symmetric_and_store_zeros_too(self, sides):
        # Rows 2 and 3 are unreached: on two sides their affinity is exactly 0, and stored.
        graph = KNNGraph(np.array([[1], [0], [3], [2]]), np.ones((4, 1)))
        W = propagate_affinities(graph, [0, -1, -1, -1], sides=sides)
        assert W.nnz == 4
        np.testing.assert_array_equal(W.toarray(), W.toarray().T)

    def test_dense_solver_is_refused_for_many_rows(self, graph, y, monkeypatch):
        monkeypatch.setattr(affinities, "MAX_DENSE_ROWS", 89)
        for options in ({"solver": "dense"}, {"pairs": "all"}):
            with pytest.raises(ValueError, match=r"n must be at most 89 .*; got 90. Use pairs="):
                propagate_affinities(graph, y, **options)
        propagate_affinities(graph, y, solver="krylov")

    @pytest.mark.parametrize(
        ("limits", "options", "expected"),
        [
            ({}, {}, "dense"),
            ({"AUTO_DENSE_ROWS": 89, "DENSE_PACE": 1e-6}, {}, "walk"),
            ({"AUTO_DENSE_ROWS": 89}, {"tol": 1e-5}, "dense"),
            ({"AUTO_DENSE_ROWS": 89, "TIGHT_DENSE_ROWS": 89}, {"tol": 1e-5}, "krylov"),
            ({"AUTO_DENSE_ROWS": 89}, {"pairs": "all"}, "dense"),
            # Slower walks are given up.
            ({"AUTO_DENSE_ROWS": 89, "DENSE_PACE": 1e9}, {}, "dense"),
            ({"AUTO_DENSE_ROWS": 89, "TIGHT_DENSE_ROWS": 89, "KRYLOV_STEPS": 0}, {}, "krylov"),
        ],
    )
    def test_auto_chooses_solver(self, graph, y, monkeypatch, limits, options, expected):
        for name, value in limits.items():
            monkeypatch.setattr(affinities, name, value)
        chosen = propagate_affinities(graph, y, **options)
        named = propagate_affinities(graph, y, solver=expected, **options)
        others = {"dense", "walk", "krylov"} - {expected}
        if options.get("pairs") == "all":
            others -= {"walk"}
        np.testing.assert_array_equal(as_array(chosen), as_array(named))
        for other in others:
            rest = as_array(propagate_affinities(graph, y, solver=other, **options))
            assert (as_array(chosen) != rest).any()

    @pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-4])
    @pytest.mark.parametrize(
        ("sides", "pairs", "solver"),
        [
            *product(SIDES, ["edges", "all"], ["dense", "krylov", "torch"]),
            ("one", "edges", "walk"),
        ],
    )
    def test_bounds_hold_and_keep_the_tolerance(self, graph, y, tol, sides, pairs, solver):
        expected = SIDES[sides](graph.indices, y, 0.99)
        W, bounds = propagate_affinities(
            graph, y, sides=sides, pairs=pairs, solver=solver, tol=tol, return_bound=True
        )
        stored = np.ones((90, 90), bool) if pairs == "all" else as_array(W) != 0
        errors = np.abs(as_array(W) - expected)[stored]
        assert (errors <= as_array(bounds)[stored]).all()
        assert as_array(bounds).max() <= tol * 0.01

    def test_walks_are_for_one_side_on_edges(self, graph, y):
        for options in ({"sides": "two"}, {"pairs": "all"}):
            with pytest.raises(ValueError, match=r"solver='walk' must come with .*; got"):
                propagate_affinities(graph, y, solver="walk", **options)

    def test_threads_do_not_change_a_bit(self, graph, y):
        one, two = (propagate_affinities(graph, y, solver="walk", n_jobs=n) for n in (1, 2))
        np.testing.assert_array_equal(one.data, two.data)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"sides": "both"}, "sides must be one of 'one', 'two'; got 'both'"),
            ({"pairs": "edge"}, r"pairs must be one of 'edges', 'all'; .*Did you mean 'edges'\?"),
            ({"solver": "push"}, "solver must be one of .*'walk'.*; got 'push'"),
            ({"decay": 1.5}, "decay must lie strictly between 0 and 1; got 1.5"),
            ({"tol": -1.0}, "tol must be above 0; got -1.0"),
        ],
    )
    def test_bad_options_are_named(self, graph, y, options, message):
        with pytest.raises(ValueError, match=f"propagate_affinities: {message}"):
            propagate_affinities(graph, y, **options)

    def test_rows_are_not_a_graph(self, rng, y):
        with pytest.raises(TypeError, match=r"must be a KNNGraph; got ndarray. Build it with knn_"):
            propagate_affinities(rng.random((90, 3)), y)
