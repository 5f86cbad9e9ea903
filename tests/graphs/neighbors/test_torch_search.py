"""Neighbors by torch against the exact search."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ssdml.graphs import knn_graph
from ssdml.graphs.neighbors import exact as _torch_search
from ssdml.utils.torch_tools import find_device


def assert_exact(X, device, *, ties=False, **arguments):
    graph = knn_graph(X, 6, method="torch", device=device, **arguments)
    expected = knn_graph(X, 6, method="exact", **arguments)
    np.testing.assert_allclose(graph.distances, expected.distances, rtol=1e-15, atol=1e-15)
    if not ties:
        np.testing.assert_array_equal(graph.indices, expected.indices)
    assert graph.recall_ == 1


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_torch_matches_exact_search(device, metric, dtype, rng, monkeypatch):
    four_blocks = _torch_search.QUERY_BLOCK * 300
    monkeypatch.setattr(_torch_search, "TORCH_ENTRIES", four_blocks)
    X = rng.standard_normal((1100, 7)).astype(dtype)
    assert_exact(X, device, metric=metric, n_jobs=2)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_tied_neighbors_are_nearest(device, metric, rng):
    assert_exact(rng.integers(0, 3, (300, 4)), device, ties=True, metric=metric)
    assert_exact(np.ones((200, 3)), device, ties=True, metric=metric)


def test_scores_without_digits_are_not_trusted(device, rng):
    X = rng.standard_normal((600, 64))
    X[:300] += 1e3
    assert_exact(X, device)


def test_matmul_precision_is_full_and_restored(device, rng):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert_exact(rng.standard_normal((500, 16)), device)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_auto_uses_cuda_if_available():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert find_device("auto", "knn_graph") == expected


@pytest.mark.parametrize("name", ["gpu", "cuda:99"])
def test_unknown_device_is_refused(name):
    message = f"knn_graph: device must be one that torch finds; got '{name}'.*ass 'auto' or 'cpu'"
    with pytest.raises(ValueError, match=message):
        knn_graph(np.ones((3, 2)), 1, method="torch", device=name)


def test_device_without_torch_is_refused():
    with pytest.raises(ValueError, match=r"device must be 'auto' unless method is 'torch'; got 'c"):
        knn_graph(np.ones((3, 2)), 1, device="cpu")
