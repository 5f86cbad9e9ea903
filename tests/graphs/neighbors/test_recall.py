"""Approximate searches and their measured recall."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.graphs import knn_graph, nearest_rows
from ssdml.graphs.neighbors import approximate as _indices, knn as _methods
from ssdml.graphs.neighbors.approximate import (
    SAMPLE,
    TARGET_RECALL,
    Sample,
    best_index,
    draw_sample,
)
from ssdml.graphs.neighbors.exact import Searcher
from ssdml.graphs.neighbors.metrics import SPACES
from ssdml.graphs.neighbors.rows import open_rows

METRICS = ["euclidean", "cosine"]
TRUE_RECALL = 0.98  # the target minus the uncertainty of 1,024 rows


def recall_by_hand(graph, exact):
    pairs = zip(graph.indices, exact.indices, strict=True)
    return np.mean([np.isin(found, true).mean() for found, true in pairs])


@pytest.fixture
def clusters(rng):
    """Overlapping clusters: 4,000 rows in 16 columns around 20 centers."""
    centers = rng.standard_normal((20, 16))
    X = centers[rng.integers(20, size=4000)] + rng.standard_normal((4000, 16))
    return X.astype(np.float32)


@pytest.fixture
def no_exact_search(monkeypatch):
    monkeypatch.setattr(_methods, "EXACT_WORK", 0)


@pytest.fixture
def one_probe(monkeypatch):
    """An index that searches one list only."""
    monkeypatch.setattr(_indices, "_efforts", lambda most: [1])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("method", ["auto", "ivf", "hnsw"])
def test_enough_is_found_and_measured_exactly(metric, method, clusters, no_exact_search):
    exact = knn_graph(clusters, 10, metric=metric, method="exact")
    graph = knn_graph(clusters, 10, metric=metric, method=method, random_state=0)
    assert recall_by_hand(graph, exact) > TRUE_RECALL
    agree = graph.indices == exact.indices
    np.testing.assert_array_equal(graph.distances[agree], exact.distances[agree])
    assert (np.diff(graph.distances, axis=1) >= 0).all()
    assert not (graph.indices == np.arange(4000)[:, None]).any()


def test_sample_recall_estimates_recall(clusters, one_probe):
    with pytest.warns(RuntimeWarning):
        graph = knn_graph(clusters, 10, method="ivf", random_state=0)
    truth = recall_by_hand(graph, knn_graph(clusters, 10, method="exact"))
    assert truth < 0.8
    assert abs(graph.recall_ - truth) < 0.03  # four standard errors of 1,024 rows


def test_exact_searches_know_their_recall(clusters):
    assert knn_graph(clusters, 3).recall_ == 1
    assert knn_graph(clusters[:100], 3, method="torch").recall_ == 1


def test_recall_counts_true_neighbors_by_distance():
    sample = Sample(np.array([0, 2]), reach=np.array([1.0, 2.0]), n_neighbors=2)
    distances = np.array([[0.5, 1.0], [9.0, 9.0], [2.0, 2.5]])
    assert sample.recall_of(distances) == 3 / 4
    # The first row's candidates hold itself, the second's three at the reach, more than count.
    candidates, away = np.array([[0, 5, 6], [7, 8, 9]]), np.array([[0.0, 0.5, 1.5], [2.0] * 3])
    assert sample.recalls_within(candidates, away, [1, 3]) == [1 / 4, 3 / 4]


def test_any_duplicate_counts_as_found(rng):
    X = rng.integers(0, 2, (3000, 4)).astype(np.float32)  # 16 rows, many times
    graph = knn_graph(X, 10, method="ivf", random_state=0)
    assert graph.recall_ == 1
    assert not graph.distances.any()


def test_low_recall_warns(clusters, one_probe):
    message = r"'ivf' found \d\d\.\d% of the true neighbors of 1024 .* method='auto' or 'exact'"
    with pytest.warns(RuntimeWarning, match=message):
        graph = knn_graph(clusters, 10, method="ivf", random_state=0)
    assert graph.recall_ < 0.95


def test_auto_falls_back_to_exact_search(clusters, no_exact_search, one_probe):
    graph = knn_graph(clusters, 10, random_state=0)
    exact = knn_graph(clusters, 10, method="exact")
    np.testing.assert_array_equal(graph.indices, exact.indices)
    assert graph.recall_ == 1


def test_auto_uses_index_for_large_data(clusters, monkeypatch):
    work = 4000**2 * (16 + _methods.RANKING_COLUMNS)
    monkeypatch.setattr(_methods, "EXACT_WORK", work)
    assert knn_graph(clusters, 10, random_state=0).recall_ == 1
    monkeypatch.setattr(_methods, "EXACT_WORK", work - 1)
    assert knn_graph(clusters, 10, random_state=0).recall_ < 1


@pytest.mark.parametrize("method", ["ivf", "hnsw"])
def test_few_rows_are_searched_exactly(method, rng):
    X = rng.standard_normal((SAMPLE, 8))
    graph = knn_graph(X, 5, method=method)
    np.testing.assert_array_equal(graph.indices, knn_graph(X, 5, method="exact").indices)
    assert graph.recall_ == 1


def tuned(X, method="ivf"):
    rows = open_rows(X, "test")
    space = SPACES["euclidean"](rows)
    searcher = Searcher(space, space.prepare(rows), 1)
    return best_index(searcher, method, draw_sample(searcher, 10, 0), 0)


def test_hard_data_need_more_effort(rng):
    easy, hard = rng.random((2000, 8)), rng.standard_normal((2000, 48))
    found = [tuned(easy), tuned(hard)]
    assert found[0].effort < found[1].effort
    assert min(each.recall for each in found) >= TARGET_RECALL


@pytest.mark.parametrize("name", ["plane", "tight_clusters"])
def test_lists_hold_coordinates_if_codes_are_coarse(name, rng):
    centers = 100 * rng.standard_normal((5, 8))
    X = {
        "plane": rng.standard_normal((20_000, 2)),
        "tight_clusters": centers[rng.integers(5, size=6000)] + rng.standard_normal((6000, 8)),
    }[name]
    found = tuned(X)
    assert found.index.widths == [1]
    assert found.recall >= TARGET_RECALL


def test_rows_short_of_candidates_are_searched_exactly(rng, one_probe):
    # The list of ten distant rows is too short for thirty neighbors.
    X = np.r_[rng.standard_normal((2990, 2)), 100 + rng.standard_normal((10, 2))]
    with pytest.warns(RuntimeWarning):
        graph = knn_graph(X, 30, method="ivf", random_state=0)
    assert np.isfinite(graph.distances).all()
    np.testing.assert_array_equal(graph.indices[-10:], knn_graph(X, 30).indices[-10:])


def test_same_seed_gives_same_graph(clusters):
    one, two = (knn_graph(clusters, 5, method="ivf", random_state=3) for _ in range(2))
    np.testing.assert_array_equal(one.indices, two.indices)


@pytest.mark.slow
@pytest.mark.parametrize("n_columns", [784, 64])
def test_enough_is_found_on_handwritten_digits(n_columns, data_dir, no_exact_search):
    from ssdml.datasets import load_dataset

    X = load_dataset("mnist", data_dir=data_dir).X[:60_000]
    if n_columns < 784:
        centered = X - X.mean(axis=0)
        X = np.ascontiguousarray(
            centered @ np.linalg.eigh(centered.T @ centered)[1][:, -n_columns:]
        )
    graph = knn_graph(X, 10, random_state=0, n_jobs=-1)
    chosen = np.random.default_rng(1).choice(len(X), 2000, replace=False)  # not the graph's sample
    true = nearest_rows(X, X[chosen], 11, n_jobs=-1)[1][:, -1:]
    assert (graph.distances[chosen] <= true).mean() > TRUE_RECALL
