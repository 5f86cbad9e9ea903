"""Deflation of slow modes against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ssdml.graphs import knn_graph
from ssdml.graphs.propagation.class_masses import transition_matrix
from ssdml.graphs.propagation.deflation import (
    deflate,
    orthonormalized,
    slow_subspace,
    slowest_outside,
    walk_weights,
)
from ssdml.utils.parallel import ParallelMatrix, threads

DECAY = 0.98


@pytest.fixture
def transition(rng):
    centers = 5 * rng.standard_normal((6, 3))
    return transition_matrix(
        knn_graph(np.repeat(centers, 40, axis=0) + rng.standard_normal((240, 3)), 6)
    )


@pytest.fixture
def pool():
    with threads(2) as pool:
        yield pool


def scaled_walk(transition, weights):
    scale = np.sqrt(weights)
    return DECAY * scale[:, None] * transition.toarray() / scale


def symmetric_matrix(rng, n=60):
    part = rng.standard_normal((n, n))
    return sparse.csr_array((part + part.T) / (4 * np.sqrt(n)))


@pytest.mark.parametrize("n_modes", [1, 8, 40])
@pytest.mark.parametrize("tol", [1e-3, 1e-8])
def test_the_remainder_keeps_its_bound(rng, transition, pool, n_modes, tol):
    parts = deflate(transition, DECAY, n_modes, tol=tol, threads=pool)
    inverse = np.linalg.inv(np.eye(240) - scaled_walk(transition, parts.weights))
    error = inverse - parts.right @ parts.left.T
    outside = np.eye(240) - parts.modes @ parts.modes.T
    for _ in range(50):
        r, s = rng.standard_normal((2, 240)) * rng.random((2, 240)) ** 8
        bound = np.linalg.norm(outside @ r) * np.linalg.norm(outside @ s) / parts.gap
        bound += parts.slack * np.linalg.norm(r) * np.linalg.norm(s)
        assert abs(r @ error @ s) <= bound


def test_remainder_is_outside_modes(transition, pool):
    parts = deflate(transition, DECAY, 12, tol=1e-13, threads=pool)
    inverse = np.linalg.inv(np.eye(240) - scaled_walk(transition, parts.weights))
    error = inverse - parts.right @ parts.left.T
    np.testing.assert_allclose(parts.modes.T @ error, 0, atol=1e-9)
    np.testing.assert_allclose(error @ parts.modes, 0, atol=1e-9)


def test_weights_make_walk_a_contraction(transition):
    weights = walk_weights(transition, DECAY)
    assert (weights > 0).all()
    assert (DECAY * (transition.T @ weights) <= weights).all()
    assert np.linalg.norm(scaled_walk(transition, weights), 2) <= DECAY**0.5 + 1e-12


@pytest.mark.parametrize("count", [0, 3, 20])
def test_bound_holds_outside_modes(rng, pool, count):
    matrix = symmetric_matrix(rng)
    basis = np.linalg.qr(rng.standard_normal((60, max(count, 1))))[0][:, :count]
    outside = np.eye(60) - basis @ basis.T
    true = np.linalg.eigvalsh(outside @ matrix.toarray() @ outside)[-1]
    bound = slowest_outside(ParallelMatrix(matrix, pool), basis, pool, rng)
    assert true <= bound + 1e-12
    assert bound <= true + 0.2


def test_subspace_spans_leading_eigenvectors(rng, pool):
    vectors = np.linalg.qr(rng.standard_normal((80, 80)))[0]
    values = np.r_[0.99, 0.95, 0.9, 0.85, rng.uniform(-0.4, 0.3, 76)]
    matrix = sparse.csr_array((vectors * values) @ vectors.T)
    basis = slow_subspace(ParallelMatrix(matrix, pool), 4, pool, rng)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-12)
    kept = np.linalg.norm(basis.T @ vectors[:, :4], axis=0)
    np.testing.assert_allclose(kept, 1, atol=1e-6)


def test_directions_lost_in_rounding_are_dropped(rng, pool):
    block = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 8))
    basis = orthonormalized(block, pool)
    assert basis.shape == (50, 3)
    np.testing.assert_allclose(basis @ (basis.T @ block), block, atol=1e-9)


def test_single_precision_stays_single(transition, pool):
    parts = deflate(transition, DECAY, 8, tol=1e-5, threads=pool, dtype=np.float32)
    assert {part.dtype for part in (parts.modes, parts.right, parts.left)} == {np.dtype("f4")}
