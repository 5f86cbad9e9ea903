"""Each solver against dense algebra, and its error bounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ssdml.graphs import adjacency, knn_graph
from ssdml.graphs.laplacian import symmetric_normalized
from ssdml.graphs.propagation import solvers
from ssdml.graphs.propagation.class_masses import transition_matrix
from ssdml.graphs.propagation.coarsening import CoarseCorrection
from ssdml.graphs.propagation.solvers import (
    SOLVERS,
    certified,
    conjugate_gradient,
    iterate_fixed_point,
    stabilized_biconjugate_gradient,
)
from ssdml.utils.parallel import SERIAL, ParallelMatrix


@pytest.fixture
def transition(rng):
    Q = rng.random((40, 40)) * (rng.random((40, 40)) < 0.2)
    np.fill_diagonal(Q, 0.1)
    return sparse.csr_array(Q / Q.sum(axis=1, keepdims=True))


@pytest.fixture
def similarity(rng):
    W = rng.random((40, 40)) * (rng.random((40, 40)) < 0.2)
    W = W + W.T + np.eye(40)
    roots = np.sqrt(W.sum(axis=1))
    return sparse.csr_array(W / roots[:, None] / roots[None, :])


@pytest.mark.parametrize("name", SOLVERS)
class TestPropagators:
    @pytest.mark.parametrize("decay", [0.01, 0.5, 0.99, 0.9999])
    def test_agree_with_the_inverse(self, transition, name, decay):
        P = (1 - decay) * np.linalg.inv(np.eye(40) - decay * transition.toarray())
        propagate = SOLVERS[name](transition, decay, tol=1e-10)
        np.testing.assert_allclose(propagate(np.eye(40)), P, atol=1e-10)

    def test_solvers_keep_constants(self, transition, name):
        propagate = SOLVERS[name](transition, 0.99, tol=1e-9)
        np.testing.assert_allclose(propagate(np.ones((40, 1))), 1, atol=1e-9)

    @pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
    def test_entries_are_within_tolerance(self, transition, name, tol):
        exact = SOLVERS["dense"](transition, 0.99, tol=0)(np.eye(40))
        assert np.abs(SOLVERS[name](transition, 0.99, tol=tol)(np.eye(40)) - exact).max() <= tol

    @pytest.mark.parametrize("tol", [1e-1, 1e-6])
    def test_certified_errors_hold(self, transition, name, tol, rng):
        targets = rng.uniform(-1, 1, (40, 5))
        P = 0.01 * np.linalg.inv(np.eye(40) - 0.99 * transition.toarray())
        make = SOLVERS[name](transition, 0.99, tol=tol)
        values, errors = certified(make, transition, 0.99)(targets)
        assert (np.abs(values - P @ targets).max(axis=0) <= errors).all()
        assert (errors <= 1.01 * tol).all()

    def test_solvers_do_not_write_right_hand_sides(self, transition, name):
        right_hand_sides = np.eye(40)
        right_hand_sides.flags.writeable = False
        SOLVERS[name](transition, 0.9, tol=1e-6)(right_hand_sides)

    def test_column_of_zeros_gives_zeros(self, transition, name):
        solved = SOLVERS[name](transition, 0.9, tol=1e-6)(np.eye(40)[:, :2] * [1, 0])
        assert solved[:, 0].any()
        assert not solved[:, 1].any()


def test_fixed_point_finishes_krylov_solver(transition, monkeypatch):
    defaults = stabilized_biconjugate_gradient.__kwdefaults__ | {"max_iter": 2}
    monkeypatch.setattr(stabilized_biconjugate_gradient, "__kwdefaults__", defaults)
    P = 0.1 * np.linalg.inv(np.eye(40) - 0.9 * transition.toarray())
    propagate = solvers.krylov_propagator(transition, 0.9, tol=1e-8)
    np.testing.assert_allclose(propagate(np.eye(40)), P, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_of_columns_give_same_result(transition, monkeypatch, dtype):
    monkeypatch.setattr(solvers, "COLUMNS", 7)
    exact = SOLVERS["dense"](transition, 0.99, tol=0)(np.eye(40))
    found = SOLVERS["krylov"](transition, 0.99, tol=1e-5)(np.eye(40, 38, dtype=dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, exact[:, :38], atol=1.1e-5)


def test_breakdown_of_recurrence_is_survived():
    # A swap of two rows: the first step of BiCGSTAB for a unit vector breaks down
    # because its shadow is orthogonal to the image.
    swap = sparse.csr_array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    P = 0.001 * np.linalg.inv(np.eye(3) - 0.999 * swap.toarray())
    propagate = solvers.krylov_propagator(swap, 0.999, tol=1e-9)
    np.testing.assert_allclose(propagate(np.eye(3)), P, atol=1e-9)


@pytest.mark.parametrize("seed", [337, 350, 364])
def test_orthogonal_shadow_restarts(seed):
    """On rows of whole numbers, residuals of unit vectors were NaN or grew to 1e23."""
    rows = np.random.default_rng(seed).standard_normal((40, 2)).round()
    transition = transition_matrix(knn_graph(rows, 7))
    B = 1e-4 * np.eye(40)
    result = stabilized_biconjugate_gradient(transition, 0.9999, B, tol=1e-10)
    assert result.converged
    expected = np.linalg.solve(np.eye(40) - 0.9999 * transition.toarray(), B)
    np.testing.assert_allclose(result.values, expected, atol=1e-6)


def test_conjugate_gradient_matches_dense_algebra(similarity, rng):
    B = rng.standard_normal((40, 3))
    result = conjugate_gradient(ParallelMatrix(similarity, SERIAL), 0.99, B, tol=1e-12)
    expected = np.linalg.solve(np.eye(40) - 0.99 * similarity.toarray(), B)
    assert result.converged
    np.testing.assert_allclose(result.values, expected, atol=1e-9)


def test_conjugate_gradient_reports_true_residual(similarity, rng):
    B = rng.standard_normal((40, 2)) * [1, 1e6]
    result = conjugate_gradient(ParallelMatrix(similarity, SERIAL), 0.99, B, tol=1e-12, max_iter=5)
    residual = B - (result.values - 0.99 * similarity @ result.values)
    relative = np.linalg.norm(residual, axis=0) / np.linalg.norm(B, axis=0)
    assert not result.converged
    assert result.n_iter == 5
    np.testing.assert_allclose(result.residual, relative.max(), rtol=1e-6)


def test_conjugate_gradient_columns_are_independent(similarity, rng):
    B = rng.standard_normal((40, 2)) * [1e-8, 1]
    both = conjugate_gradient(ParallelMatrix(similarity, SERIAL), 0.9, B, tol=1e-10).values
    alone = conjugate_gradient(ParallelMatrix(similarity, SERIAL), 0.9, B[:, :1], tol=1e-10).values
    np.testing.assert_allclose(both[:, 0], alone[:, 0], rtol=1e-8)


@pytest.mark.parametrize("decay", [0.5, 0.99, 0.9999])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_conjugate_gradient_reaches_tolerance_in_either_precision(rng, dtype, decay):
    """On small systems the recurrence claims a smaller residual than the true one."""
    for n in range(2, 40):
        W = rng.random((n, n)) * (rng.random((n, n)) < 3 / n)
        W = W + W.T
        roots = np.sqrt(np.maximum(W.sum(axis=1), 1e-300))
        dense = W / roots[:, None] / roots
        similarity = ParallelMatrix(sparse.csr_array(dense), SERIAL)
        B = rng.standard_normal((n, 3)).astype(dtype)
        coarse = CoarseCorrection(sparse.csr_array(dense), decay, roots)
        for preconditioner in (None, coarse):
            result = conjugate_gradient(similarity, decay, B, tol=1e-10, coarse=preconditioner)
            assert result.converged
            residual = B - (result.values - decay * dense @ result.values)
            norms = np.linalg.norm(residual, axis=0) / np.linalg.norm(B.astype(float), axis=0)
            assert norms.max() <= 1.001e-10


def test_conjugate_gradient_stops_without_progress(similarity, rng):
    """Single precision cannot tell a decay of 1 - 1e-8 from 1: it must stop, not diverge."""
    B = rng.standard_normal((40, 3)).astype(np.float32)
    coarse = CoarseCorrection(similarity, 1 - 1e-8, np.ones(40))
    for preconditioner in (None, coarse):
        single, double = (
            conjugate_gradient(
                ParallelMatrix(similarity, SERIAL), 1 - 1e-8, block, tol=1e-6, coarse=preconditioner
            )
            for block in (B, B.astype(np.float64))
        )
        assert double.converged
        assert single.converged or single.n_iter < 200
        assert np.isfinite(single.values).all()


def test_single_precision_takes_few_extra_steps(rng):
    X = np.repeat(4 * rng.standard_normal((20, 5)), 50, axis=0) + rng.standard_normal((1000, 5))
    weights = adjacency(knn_graph(X, 8))
    similarity = symmetric_normalized(weights)
    coarse = CoarseCorrection(similarity, 0.99, np.sqrt(weights.sum(axis=1)))
    B = np.eye(1000)[:, ::50]
    double, single = (
        conjugate_gradient(
            ParallelMatrix(similarity, SERIAL), 0.99, B.astype(dtype), tol=1e-6, coarse=coarse
        )
        for dtype in (np.float64, np.float32)
    )
    assert single.values.dtype == np.float64
    assert single.n_iter <= 1.15 * double.n_iter
    np.testing.assert_allclose(single.values, double.values, atol=1e-4)


def test_biconjugate_gradients_report_the_true_residual(transition, rng):
    B = rng.standard_normal((40, 2))
    result = stabilized_biconjugate_gradient(transition, 0.99, B, tol=1e-13, max_iter=4)
    residual = B - (result.values - 0.99 * transition @ result.values)
    assert not result.converged
    assert result.residual == np.abs(residual).max()


def test_finished_column_does_not_move(transition):
    # The column of ones is solved in one step; the others take many.
    B = np.c_[np.ones(40), np.eye(40)]
    result = stabilized_biconjugate_gradient(transition, 0.9999, B, tol=1e-12)
    alone = stabilized_biconjugate_gradient(transition, 0.9999, B[:, :1], tol=1e-12)
    assert result.n_iter > alone.n_iter
    np.testing.assert_array_equal(result.values[:, 0], alone.values[:, 0])


def test_fixed_point_stops_at_rounding_error(transition):
    B = np.ones((40, 1))
    assert not iterate_fixed_point(transition, 0.5, B, np.zeros_like(B), tol=-1.0).converged


def test_fixed_point_stops_without_progress(transition):
    B = np.ones((40, 1))
    result = iterate_fixed_point(transition, 0.5, B, np.zeros_like(B), tol=0.0)
    np.testing.assert_allclose(result.values, 2.0, rtol=1e-14)
