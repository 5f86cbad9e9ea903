"""The torch solver against the dense inverse, on the CPU and on CUDA."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ssdml.graphs import knn_graph, propagate_affinities
from ssdml.graphs.propagation import dense_torch as _torch_dense
from ssdml.graphs.propagation.affinities import symmetric_edges
from ssdml.graphs.propagation.class_masses import transition_matrix
from ssdml.graphs.propagation.dense_torch import TorchInverse
from ssdml.utils.torch_tools import free_memory
from tests.graphs.propagation.test_walks import GRAPHS, clustered_graph, random_graph


def diffusion(transition, decay):
    return (1 - decay) * np.linalg.inv(np.eye(transition.shape[0]) - decay * transition.toarray())


def entries(graph, decay, device, tol):
    """Entries of the transpose of P on the edges, and their bounds."""
    inverse = TorchInverse(transition_matrix(graph), decay, device)
    values, errors = inverse.solve(np.eye(graph.n_samples), tol=tol)
    rows, columns = symmetric_edges(graph).nonzero()
    return values[columns, rows], errors[rows]


@pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)
class TestEveryGraph:
    @pytest.mark.parametrize("decay", [0.5, 0.99])
    @pytest.mark.parametrize("tol", [1e-2, 1e-6])
    def test_errors_are_within_bounds_and_tolerance(self, rng, make, decay, tol, device):
        graph = make(rng)
        P = diffusion(transition_matrix(graph), decay)
        values, bounds = entries(graph, decay, device, tol * (1 - decay))
        errors = np.abs(values - P.T[symmetric_edges(graph).nonzero()])
        assert (errors <= bounds).all()
        assert (bounds <= tol * (1 - decay)).all()

    def test_block_size_changes_only_rounding(self, rng, make, device, monkeypatch):
        graph = make(rng)
        whole, _ = entries(graph, 0.99, device, 1e-8)
        for columns in (7, 60):
            monkeypatch.setattr(_torch_dense, "BLOCK_ENTRIES", columns * graph.n_samples)
            values, bounds = entries(graph, 0.99, device, 1e-8)
            assert (np.abs(values - whole) <= 2 * bounds).all()

    @pytest.mark.parametrize("sides", ["one", "two"])
    @pytest.mark.parametrize("pairs", ["edges", "all"])
    @pytest.mark.parametrize("n_labels", [12, None])
    def test_torch_affinities_match_dense_solver(self, rng, make, device, sides, pairs, n_labels):
        graph = make(rng)
        y = np.full(graph.n_samples, -1)
        labeled = rng.permutation(graph.n_samples)[:n_labels]
        y[labeled] = labeled % 3
        options = {"decay": 0.9, "sides": sides, "pairs": pairs, "tol": 1e-7}
        found = propagate_affinities(graph, y, solver="torch", device=device, **options)
        expected = propagate_affinities(graph, y, solver="dense", **options)
        if pairs == "edges":
            np.testing.assert_array_equal(found.indices, expected.indices)
            found, expected = found.data, expected.data
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


def test_loose_tolerance_is_not_refined(rng, device, monkeypatch):
    """One solve has the error of single precision, between 1e-10 and 1e-4."""
    graph, solves = random_graph(rng), []
    solve = torch.linalg.lu_solve
    monkeypatch.setattr(
        torch.linalg, "lu_solve", lambda *given: (solves.append(given[2].dtype), solve(*given))[1]
    )
    for tol, expected in ((1e-4, 1), (1e-10, 2)):
        solves.clear()
        entries(graph, 0.99, device, tol)
        assert solves == [torch.float32] * expected


def test_factors_are_double_if_ill_conditioned(rng, device, monkeypatch):
    """Near 1, single precision gives a useless bound."""
    graph, decay = clustered_graph(rng), 1 - 1e-8
    values, bounds = entries(graph, decay, device, 1e-9)
    assert bounds.max() <= 1e-6
    monkeypatch.setattr(_torch_dense, "SINGLE_CONDITION", np.inf)
    loose, loose_bounds = entries(graph, decay, device, 1e-9)
    assert loose_bounds.max() > 1e-2
    assert (np.abs(loose - values) <= loose_bounds + bounds).all()


def test_right_hand_sides_are_not_written(rng, device, monkeypatch):
    transition = transition_matrix(random_graph(rng))
    targets = rng.uniform(-1, 1, (120, 9))
    targets.flags.writeable = False
    monkeypatch.setattr(_torch_dense, "BLOCK_ENTRIES", 120 * 4)
    values, errors = TorchInverse(transition, 0.99, device).solve(targets, tol=1e-9)
    true_errors = np.abs(values - diffusion(transition, 0.99) @ targets).max(axis=0)
    assert (true_errors <= errors).all()
    assert (errors <= 1e-9).all()


def test_at_most_one_block_is_solved(rng, device, monkeypatch):
    widths = []
    refined = TorchInverse._refined
    monkeypatch.setattr(
        TorchInverse,
        "_refined",
        lambda self, given, tol: (widths.append(given.shape[1]), refined(self, given, tol))[1],
    )
    monkeypatch.setattr(_torch_dense, "BLOCK_ENTRIES", 120 * 50)
    entries(random_graph(rng), 0.9, device, 1e-4)
    assert widths == [50, 50, 20]


def test_too_many_rows_for_device_are_refused(rng, monkeypatch):
    graph = knn_graph(rng.random((90, 3)), 5)
    # Two arrays of 80 x 80 in single precision, and the blocks.
    free = 2 * 4 * 80**2 + 8 * 8 * 90**2
    monkeypatch.setattr(_torch_dense, "free_memory", lambda device: free)
    message = r"n must be at most 80 for solver='torch' on 'cpu', .*; got 90. Use solver='auto'"
    with pytest.raises(ValueError, match=f"propagate_affinities: {message}"):
        propagate_affinities(graph, np.full(90, -1), solver="torch", device="cpu")


def test_free_memory_of_device(device):
    before = free_memory(torch.device(device))
    held = torch.ones(2**27, dtype=torch.uint8, device=device)
    assert 2**27 < before < 2**45
    if device == "cuda":
        assert before - free_memory(torch.device(device)) >= held.numel()


@pytest.mark.parametrize("name", ["gpu", "cuda:99"])
def test_unknown_device_is_refused(rng, name):
    graph = knn_graph(rng.random((9, 3)), 2)
    message = f"device must be one that torch finds; got '{name}'.*ass 'auto' or 'cpu'"
    with pytest.raises(ValueError, match=f"propagate_affinities: {message}"):
        propagate_affinities(graph, np.full(9, -1), solver="torch", device=name)


def test_device_for_other_solver_is_refused(rng):
    graph = knn_graph(rng.random((9, 3)), 2)
    message = r"device must be 'auto' unless solver is 'torch'; got 'cpu' with 'dense'. Pass solver"
    with pytest.raises(ValueError, match=f"propagate_affinities: {message}"):
        propagate_affinities(graph, np.full(9, -1), solver="dense", device="cpu")
