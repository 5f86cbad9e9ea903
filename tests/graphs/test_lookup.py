"""Lookups of the three kinds of affinities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ssdml.graphs import ClassMasses
from ssdml.graphs.triplets import EdgeLookup, affinity_lookup


@pytest.fixture
def masses(rng):
    return ClassMasses(rng.dirichlet(np.ones(4), size=30) * rng.random((30, 1)))


def test_all_kinds_give_the_same_values(masses, rng):
    full = masses.affinities(np.arange(30)[:, None], np.arange(30)[None, :])
    i, j = rng.integers(30, size=(2, 200))
    for kind in (masses, full, sparse.csr_array(full), sparse.coo_array(full)):
        np.testing.assert_allclose(affinity_lookup(kind, 30, "here").values(i, j), full[i, j])


def test_pairs_off_the_edges_are_unknown():
    W = sparse.csr_array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]])
    values = EdgeLookup(W).values(np.array([0, 0, 2, 2]), np.array([1, 2, 0, 2]))
    np.testing.assert_array_equal(values, [0.5, 0, 0, 0])


def test_rows_are_drawn_by_confidence(masses):
    lookup = affinity_lookup(masses, 30, "here")
    leans = lookup.distributions.argmax(axis=1)
    anchor = np.full(20_000, np.flatnonzero(leans == 2)[0])
    drawn = lookup.draw_similar(anchor, np.random.default_rng(0))
    expected = np.where(leans == 2, lookup.confidences, 0)
    expected /= expected.sum()
    np.testing.assert_allclose(np.bincount(drawn, minlength=30) / 20_000, expected, atol=0.02)


def test_other_classes_are_drawn_by_mass():
    F = np.array([[0.7, 0.2, 0.1, 0.0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    lookup = affinity_lookup(ClassMasses(F), 4, "here")
    drawn = lookup.draw_dissimilar(np.zeros(9_000, np.int64), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn) / 9_000, [0, 2 / 3, 1 / 3], atol=0.02)


def test_confidence_of_even_and_pure_masses():
    F = np.array([[0.25, 0.25, 0.25, 0.25], [0.1, 0.1, 0.0, 0.0], [0.0, 0.3, 0.0, 0.0], [0] * 4])
    confidences = affinity_lookup(ClassMasses(F), 4, "here").confidences
    np.testing.assert_allclose(confidences, [0, 0.25, 1, 0], atol=1e-15)
