"""Time of the scores of 10,000 embeddings."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.evaluation import evaluate, few_label_accuracy


def classes(n, d, n_classes):
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    centers = rng.normal(size=(n_classes, d))
    return (centers[y] + rng.normal(size=(n, d))).astype(np.float32), y


@pytest.mark.parametrize(
    ("n", "d", "n_classes"), [(10_000, 784, 10), (10_000, 64, 10), (3_000, 384, 77)]
)
def test_all_scores(benchmark, n, d, n_classes):
    Z, y = classes(n, d, n_classes)
    scores = benchmark.pedantic(evaluate, args=(Z, y), rounds=1)
    assert scores["R@8"] >= scores["R@1"] > 90


def test_collapsed_embedding(benchmark):
    _, y = classes(10_000, 1, 10)
    scores = benchmark.pedantic(evaluate, args=(np.ones((10_000, 64)), y), rounds=1)
    assert scores["NMI"] == pytest.approx(0.0, abs=1e-6)


def test_nearest_means(benchmark):
    Z, y = classes(60_000, 64, 100)
    assert benchmark(few_label_accuracy, Z[:500], y[:500], Z, y) > 50
