"""One-sided affinities of 9,100 digits, against the dense inverse of the papers.

``extra_info`` has the accuracy: the percentage of neighbors on the same side of the median of their
row as with the inverse.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ssdml.graphs import knn_graph, propagate_affinities
from ssdml.graphs.propagation.class_masses import transition_matrix

N_ROWS, DECAY = 9100, 0.99


@pytest.fixture(scope="module")
def graph(mnist):
    rows = np.random.default_rng(0).permutation(np.flatnonzero(~mnist.test))[:N_ROWS]
    return knn_graph(mnist.X[rows], 10, n_jobs=-1)


@pytest.fixture(scope="module")
def exact(graph):
    return inverse(graph)


def inverse(graph):
    Q = transition_matrix(graph).toarray()
    return (1 - DECAY) * np.linalg.inv(np.eye(len(Q)) - DECAY * Q)


def is_in_upper_half(affinities):
    ranks = np.argsort(np.argsort(-affinities, axis=1, kind="stable"), axis=1)
    return ranks < affinities.shape[1] // 2


def measure(benchmark, graph, exact, options):
    y, rows = np.full(N_ROWS, -1), np.arange(N_ROWS)[:, None]
    W = benchmark.pedantic(propagate_affinities, (graph, y), options, rounds=3, warmup_rounds=1)
    near = np.asarray(W[np.repeat(rows, 10), graph.indices.ravel()])
    truth = exact[rows, graph.indices] + exact[graph.indices, rows]
    agree = is_in_upper_half(near.reshape(N_ROWS, 10)) == is_in_upper_half(truth)
    benchmark.extra_info["right half"] = round(100 * agree.mean(), 2)


@pytest.mark.benchmark(group="affinities on the edges of 9,100 digits, decay 0.99")
class TestOnEdges:
    def test_dense_inverse(self, benchmark, graph):
        benchmark.pedantic(inverse, (graph,), rounds=1)

    @pytest.mark.parametrize("tol", [0.5, 0.1, 0.01])
    def test_walk(self, benchmark, graph, exact, tol):
        options = {"decay": DECAY, "solver": "walk", "tol": tol, "n_jobs": -1}
        measure(benchmark, graph, exact, options)

    def test_torch_on_cuda(self, benchmark, graph, exact):
        if not torch.cuda.is_available():
            pytest.skip("torch finds no CUDA device")
        measure(benchmark, graph, exact, {"decay": DECAY, "solver": "torch", "device": "cuda"})
