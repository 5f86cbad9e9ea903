"""Times of the graphs beside the libraries they stand on; run with ``--benchmark-only``.

Compare within a group: what knn_graph adds to the bare search, what one propagation costs beside
scikit-learn's LabelSpreading.
"""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.graphs import class_masses, knn_graph, mine_triplets, propagate_labels


@pytest.fixture(scope="module")
def data():
    """10,000 rows in 64 columns: 10 classes of several clusters each, 10 labels per class."""
    rng = np.random.default_rng(0)
    truth = rng.integers(10, size=10_000)
    centers = 0.5 * rng.standard_normal((10, 5, 64))
    X = centers[truth, rng.integers(5, size=truth.size)] + rng.standard_normal((truth.size, 64))
    y = np.full(truth.size, -1)
    for c in range(10):
        y[np.flatnonzero(truth == c)[:10]] = c
    return X.astype(np.float32), y


@pytest.fixture(scope="module")
def graph(data):
    return knn_graph(data[0], 10)


@pytest.mark.benchmark(group="10 neighbors of 10,000 x 64, one thread")
class TestNeighbors:
    def test_knn_graph(self, benchmark, data):
        benchmark(knn_graph, data[0], 10, method="exact", n_jobs=1)

    def test_bare_faiss(self, benchmark, data):
        import faiss

        before = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            benchmark(faiss.knn, data[0], data[0], 11)
        finally:
            faiss.omp_set_num_threads(before)


@pytest.mark.benchmark(group="10 neighbors of 50,000 x 64, one thread, a run each")
class TestManyRows:
    @pytest.mark.parametrize("method", ["exact", "ivf", "hnsw"])
    def test_knn_graph(self, benchmark, method):
        rng = np.random.default_rng(0)
        centers = rng.standard_normal((100, 64))
        X = centers[rng.integers(100, size=50_000)] + rng.standard_normal((50_000, 64))
        settings = {"method": method, "n_jobs": 1, "random_state": 0}
        graph = benchmark.pedantic(knn_graph, (X.astype(np.float32), 10), settings)
        assert graph.recall_ > 0.98


@pytest.mark.benchmark(group="1,000 new rows for a graph of 9,000 x 64")
class TestExtension:
    def test_extend(self, benchmark, data):
        graph = knn_graph(data[0][:9000], 10)
        benchmark(graph.extend, data[0][9000:])

    def test_knn_graph_of_all(self, benchmark, data):
        benchmark(knn_graph, data[0], 10)


@pytest.mark.benchmark(group="labels over 10,000 x 64, from rows to distributions")
class TestLabels:
    def test_propagate_labels(self, benchmark, data):
        X, y = data
        benchmark(lambda: propagate_labels(knn_graph(X, 10), y))

    def test_label_spreading(self, benchmark, data):
        from sklearn.semi_supervised import LabelSpreading

        X, y = data
        spreading = LabelSpreading(kernel="knn", n_neighbors=10, alpha=0.99, max_iter=1000)
        benchmark(spreading.fit, X, y)


@pytest.mark.benchmark(group="on a graph of 10,000 rows")
class TestOnTheGraph:
    def test_propagate_labels(self, benchmark, data, graph):
        benchmark(propagate_labels, graph, data[1])

    def test_class_masses(self, benchmark, data, graph):
        benchmark(class_masses, graph, data[1])

    @pytest.mark.parametrize("strategy", ["neighborhood", "propagated"])
    def test_mine_triplets(self, benchmark, data, graph, strategy):
        masses = class_masses(graph, data[1])
        benchmark(mine_triplets, graph, masses, strategy=strategy, random_state=0)
