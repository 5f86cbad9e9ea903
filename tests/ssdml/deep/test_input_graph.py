"""The projection of the input, and its graph."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml import DeepSSDML
from ssdml.deep.input_graph import (
    INPUT_EDGES,
    TRUSTED,
    device_graph,
    flat_samples,
    input_graph,
    project_input,
    propagation_accuracy,
)
from ssdml.graphs import adjacency, knn_graph
from ssdml.networks.data import as_samples


@pytest.fixture
def images(rng):
    """300 images of 6 x 6 pixels that vary along five directions."""
    directions = rng.random((5, 36))
    return (rng.random((300, 5)) @ directions).reshape(300, 6, 6).astype(np.float32)


def test_projection_keeps_distances_of_unit_rows(images):
    side, rows_of_all, _ = project_input(as_samples(images, "test"))
    flat = images.reshape(300, -1)
    rows = flat - flat.mean()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows -= rows.mean(axis=0)
    kept = side(flat)
    np.testing.assert_array_equal(rows_of_all, kept)
    assert 0.95 <= (kept**2).sum() / (rows**2).sum() <= 1
    left = rows - kept @ side.axes.T
    np.testing.assert_allclose(left @ side.axes, 0, atol=1e-5)


def test_projected_features_have_mean_square_one(rng):
    X = (100 * rng.standard_normal((500, 4)) + 7).astype(np.float32)
    rows = project_input(as_samples(X, "test"))[0](X)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-3)
    assert (rows**2).sum(axis=1).mean() == pytest.approx(1, abs=0.06)


def test_large_samples_have_no_projection():
    large = as_samples(np.zeros((3, 3, 64, 64), np.float32), "test")
    assert project_input(large) is None
    assert project_input(large, input_edges=0) is None
    with pytest.raises(
        ValueError, match=r"input_weight must be 'auto' or 0 .* got 0.5 and samples"
    ):
        project_input(large, input_weight=0.5)


def test_constant_samples_project_to_zero():
    images = np.ones((5, 4, 4), np.float32)
    assert np.abs(project_input(as_samples(images, "test"))[0](images.reshape(5, 16))).max() < 1e-6


def test_flat_samples_keep_their_order(rng):
    X = rng.random((12_000, 2)).astype(np.float32)
    np.testing.assert_array_equal(flat_samples(as_samples(X, "test")), X)


@pytest.mark.parametrize(
    ("share", "weight"), [(TRUSTED, 0), (TRUSTED + 0.01, INPUT_EDGES), (None, INPUT_EDGES)]
)
def test_auto_uses_an_accurate_input_graph(rng, monkeypatch, share, weight):
    monkeypatch.setattr("ssdml.deep.input_graph.propagation_accuracy", lambda *args: share)
    settings = DeepSSDML("mnist", n_neighbors=5)
    labels = np.where(np.arange(50) < 10, np.arange(50) % 2, -1)
    rows, first = rng.standard_normal((50, 3)), np.arange(50)
    assert input_graph(rows, first, labels, settings, "cpu", rng).weight == weight


def accuracy_of(graph, labels, rng):
    return propagation_accuracy(adjacency(graph), labels, np.arange(len(labels)), 0.99, None, rng)


class TestForetold:
    def test_separate_clusters_give_full_accuracy(self, rng):
        truth = np.repeat(np.arange(3), 40)
        graph = knn_graph(100 * truth[:, None] + rng.standard_normal((120, 3)), 5)
        labels = np.where(np.arange(120) % 10 == 0, truth, -1)
        assert accuracy_of(graph, labels, rng) == 1

    def test_random_labels_give_chance_accuracy(self, rng):
        graph = knn_graph(rng.standard_normal((600, 3)), 5)
        labels = rng.integers(4, size=600)
        assert (
            0.1
            < propagation_accuracy(
                adjacency(graph), labels, np.arange(len(labels)), 0.99, None, rng
            )
            < 0.4
        )

    def test_one_label_per_class_gives_no_accuracy(self, rng):
        graph = knn_graph(rng.standard_normal((50, 3)), 5)
        labels = np.full(50, -1)
        labels[:3] = np.arange(3)
        assert accuracy_of(graph, labels, rng) is None

    def test_labels_of_copies_do_not_predict_each_other(self, rng):
        images = rng.random((100, 4, 4)).astype(np.float32)
        rows = np.concatenate([np.arange(100), np.repeat(np.arange(20), 9)])
        labels = np.where(np.arange(280) % 100 < 20, rows % 2, -1)
        labels[100:] = rows[100:] % 2
        _, projected, first = project_input(as_samples(images[rows], "test"))
        np.testing.assert_array_equal(first, rows)
        edges = adjacency(device_graph(projected, 5, "cpu", rng, first=first))
        assert propagation_accuracy(edges, labels, first, 0.99, None, rng) < 0.8  # of random labels


def test_copies_are_no_neighbors_but_of_the_first(rng):
    rows = rng.random((40, 3))
    numbers = np.concatenate([np.arange(40), np.arange(10), np.arange(10)])
    graph = device_graph(rows[numbers], 5, "cpu", rng, first=numbers)
    alone = device_graph(rows, 5, "cpu", rng)
    np.testing.assert_array_equal(graph.indices[:40], alone.indices)
    np.testing.assert_array_equal(graph.indices[40:, 0], numbers[40:])
    np.testing.assert_array_equal(graph.rows[np.arange(60)], rows[numbers])
