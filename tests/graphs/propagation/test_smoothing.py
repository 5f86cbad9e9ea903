"""Rows smoothed over a graph, and spread scores, against dense systems."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ssdml.graphs import adjacency, knn_graph, smooth_rows
from ssdml.graphs.propagation import coarsening, smoothing
from ssdml.graphs.propagation.smoothing import Diffusion
from ssdml.utils.parallel import threads

SINGLE = {"rtol": 2e-4, "atol": 2e-5}  # solved in single precision


@pytest.fixture
def X(rng):
    return rng.standard_normal((80, 5))


@pytest.fixture
def W(X):
    return adjacency(knn_graph(X, 6))


def slow_smooth(W, X, decay):
    """``(1 - γ) (I - γ D^-1 W)^-1 X`` by a dense solve."""
    dense = W.toarray()
    P = dense / dense.sum(axis=1, keepdims=True)
    return (1 - decay) * np.linalg.solve(np.eye(len(X)) - decay * P, X)


def slow_spread(W, sources, decay):
    """``(I - γ S)^-1 Y`` by a dense solve."""
    dense = W.toarray()
    roots = np.sqrt(dense.sum(axis=1))
    return np.linalg.solve(np.eye(len(dense)) - decay * dense / np.outer(roots, roots), sources)


@pytest.mark.parametrize("decay", [0.1, 0.8, 0.99])
def test_smoothed_rows_agree_with_a_dense_solve(W, X, decay):
    found = smooth_rows(W, X, decay=decay, tol=1e-6)
    np.testing.assert_allclose(found, slow_smooth(W, X, decay), **SINGLE)
    assert found.dtype == np.float32


@pytest.mark.parametrize("decay", [0.5, 0.97])
@pytest.mark.parametrize("cached", [1, 10**9])  # with and without reordered rows
@pytest.mark.parametrize("entries", [200, 10**9])  # with and without blocks of columns
def test_spread_scores_agree_with_a_dense_solve(W, rng, monkeypatch, decay, cached, entries):
    monkeypatch.setattr(coarsening, "CACHED_ENTRIES", cached)
    monkeypatch.setattr(coarsening, "CLUSTER_ROWS", 10)  # with 100, one cluster: no new order
    monkeypatch.setattr(smoothing, "BLOCK_ENTRIES", entries)
    sources = rng.random((80, 7))
    with threads(1) as pool:
        diffusion = Diffusion(W, pool)
        assert (np.diff(diffusion.order) == 1).all() == (cached > 1)
        found = diffusion.spread(sources, decay, tol=1e-6)
        in_place = sources.astype(np.float32)
        assert diffusion.spread(in_place, decay, tol=1e-6, overwrite=True) is in_place
    np.testing.assert_allclose(found, slow_spread(W, sources, decay), **SINGLE)
    np.testing.assert_array_equal(in_place, found)


def test_without_reach_scores_are_the_sources(W, rng):
    sources = rng.random((80, 3))
    with threads(1) as pool:
        found = Diffusion(W, pool).spread(sources, 0)
    np.testing.assert_array_equal(found, sources.astype(np.float32))


def test_columns_of_zeros_stay_zero(W, rng):
    sources = rng.random((80, 3))
    sources[:, 1] = 0
    with threads(1) as pool:
        found = Diffusion(W, pool).spread(sources, 0.9)
    assert (found[:, 1] == 0).all()
    assert (found[:, [0, 2]] > 0).all()


def test_constant_columns_are_kept(W):
    """Averages of a constant; rows without edges are averages of nothing but themselves."""
    parts = sparse.block_diag([W, sparse.csr_array((1, 1))]).tocsr()
    found = smooth_rows(parts, np.full((81, 2), 3.0), decay=0.7, tol=1e-6)
    np.testing.assert_allclose(found[:80], 3, rtol=1e-5)
    np.testing.assert_allclose(found[80], 0.3 * 3, rtol=1e-5)


def test_rows_far_from_the_origin_keep_their_digits(X):
    """As temperatures in Kelvin; a row without edges is scaled by 1 - γ, far or not."""
    W = sparse.block_diag([adjacency(knn_graph(X[:-1], 6)), sparse.csr_array((1, 1))]).tocsr()
    near, far = smooth_rows(W, X), smooth_rows(W, X + 1000)
    np.testing.assert_allclose(far[:-1] - 1000, near[:-1], atol=5e-4)
    np.testing.assert_allclose(far[-1], 0.1 * (X[-1] + 1000), rtol=1e-6)


def test_long_walks_average_over_the_component(X):
    """Weighted by degree, the stationary distribution."""
    W = adjacency(knn_graph(X, 20))
    degrees = W.sum(axis=1)
    found = smooth_rows(W, X, decay=0.9999, tol=1e-7)
    np.testing.assert_allclose(found, np.tile(degrees @ X / degrees.sum(), (80, 1)), atol=0.02)


def test_smoothing_is_linear(W, rng):
    X, Y = rng.standard_normal((2, 80, 3))
    one, two, sum_ = (smooth_rows(W, rows, decay=0.8, tol=1e-7) for rows in (X, Y, 2 * X + Y))
    np.testing.assert_allclose(sum_, 2 * one + two, atol=1e-4)


@pytest.mark.parametrize("exponent", [-800, -300, 300, 800])
def test_scale_of_weights_does_not_matter(W, X, exponent):
    """Roots of degrees beyond single precision gave NaN, or columns that were not smoothed."""
    scaled = smooth_rows(W * 2.0**exponent, X)
    np.testing.assert_array_equal(scaled, smooth_rows(W, X))


def test_order_of_rows_does_not_matter(W, X, rng):
    order = rng.permutation(80)
    found = smooth_rows(W[order][:, order], X[order], decay=0.9, tol=1e-6)
    np.testing.assert_allclose(found, smooth_rows(W, X, decay=0.9, tol=1e-6)[order], **SINGLE)


def test_threads_do_not_change_the_result(X):
    graph = knn_graph(X, 6)
    np.testing.assert_array_equal(smooth_rows(graph, X), smooth_rows(graph, X, n_jobs=2))


def test_graph_and_weights_give_the_same(W, X):
    np.testing.assert_array_equal(smooth_rows(knn_graph(X, 6), X), smooth_rows(W, X))


def test_rows_are_not_modified(W, X):
    X.flags.writeable = False
    before = X.copy()
    smooth_rows(W, X)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decay": 1.0}, "smooth_rows: decay must lie strictly between 0 and 1; got 1.0"),
        ({"tol": 0.0}, "smooth_rows: tol must be above 0; got 0.0"),
        ({"X": np.ones((79, 2))}, "X must have a row for each of the 80 rows of the graph; got 79"),
        ({"X": np.full((80, 2), np.nan)}, "smooth_rows: X must be finite; got nan at row 0"),
    ],
)
def test_invalid_arguments_raise(W, X, change, message):
    with pytest.raises(ValueError, match=message):
        smooth_rows(W, **({"X": X} | change))


def test_other_graphs_raise(X):
    with pytest.raises(TypeError, match=r"smooth_rows: graph must be a KNNGraph or a sparse array"):
        smooth_rows(np.eye(80), X)
