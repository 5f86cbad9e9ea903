"""Class probabilities beside the input."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.classification.forms import Form, principal_form
from ssdml.classification.new_rows import interpolator
from ssdml.graphs import knn_graph
from ssdml.metric.features import ClassRepresentation


@pytest.fixture
def representation(rng):
    """Of 40 rows in 6 columns with three classes."""
    X = rng.standard_normal((40, 6))
    linear = principal_form(X)
    form = Form(linear, linear(X), knn_graph(linear(X), 5))
    return ClassRepresentation(interpolator(form, rng.dirichlet(np.ones(3), 40)))


def test_roots_of_probabilities_precede_the_input(representation, rng):
    X = rng.standard_normal((7, 6))
    X.flags.writeable = False
    rows = representation(X)
    np.testing.assert_array_equal(rows[:, 3:], X)
    np.testing.assert_allclose(rows[:, :3] ** 2, representation.classifier(X), atol=1e-6)
    np.testing.assert_allclose((rows[:, :3] ** 2).sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(representation, rng, dtype):
    assert representation(rng.standard_normal((4, 6)).astype(dtype)).dtype == dtype


def test_rows_are_represented_one_by_one(representation, rng):
    X = rng.standard_normal((5, 6))
    alone = np.vstack([representation(x[None]) for x in X])
    np.testing.assert_allclose(representation(X), alone, atol=1e-6)
