"""The turns of the alternation: how much each triplet that was mined counts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ssdml.graphs import knn_graph
from ssdml.metric.alternation import mine
from ssdml.metric.state import State


def test_a_triplet_counts_as_its_ends_are_sure_of_their_classes(rng):
    """The product over its ends of 1 - entropy / log C: the root of the weight it is mined with."""
    centers = np.repeat(np.eye(3), 20, axis=0)
    X = centers + 0.4 * rng.standard_normal((60, 3))
    distributions = 0.6 * centers + 0.4 * rng.dirichlet(np.ones(3), 60)
    state = State(X, np.full(60, -1), knn_graph(X, 6), distributions)
    settings = SimpleNamespace(decay=0.9, propagation="two-sided", n_jobs=1, mining="propagated")
    triplets = mine(state, settings, 500, rng)
    entropies = -(distributions * np.log(distributions)).sum(axis=1)
    sureness = 1 - entropies / np.log(3)
    expected = np.prod([sureness[ends] for ends in triplets[:3]], axis=0)
    assert len(expected) > 100
    np.testing.assert_allclose(triplets.weight, expected, rtol=1e-6)
