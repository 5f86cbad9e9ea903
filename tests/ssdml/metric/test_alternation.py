"""Mining in the alternation."""

from __future__ import annotations

import numpy as np

from ssdml import SSDML
from ssdml.graphs import knn_graph
from ssdml.metric.alternation import mine
from ssdml.metric.state import State


def test_triplet_weights_are_products_of_confidences(rng):
    """The product over its ends of 1 - entropy / log C, the root of the mined weight."""
    centers = np.repeat(np.eye(3), 20, axis=0)
    X = centers + 0.4 * rng.standard_normal((60, 3))
    distributions = 0.6 * centers + 0.4 * rng.dirichlet(np.ones(3), 60)
    state = State(X, np.full(60, -1), knn_graph(X, 6), distributions)
    triplets = mine(state, SSDML(decay=0.9, n_jobs=1), 500, rng)
    entropies = -(distributions * np.log(distributions)).sum(axis=1)
    confidences = 1 - entropies / np.log(3)
    expected = np.prod([confidences[ends] for ends in triplets[:3]], axis=0)
    assert len(expected) > 100
    np.testing.assert_allclose(triplets.weight, expected, rtol=1e-6)
