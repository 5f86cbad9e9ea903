"""Class probabilities beside the input."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score

from ssdml import SSDML
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
    np.testing.assert_array_equal(rows[:, :3], representation.classifier.roots(X))
    assert rows[:, :3].any()


def test_samples_of_other_classes_keep_more_of_the_input():
    """They are not collapsed onto the classes of the fit, from which they are far."""
    X, y = load_digits(return_X_y=True)
    trained = np.flatnonzero(y < 5)
    labels = np.full(len(trained), -1)
    for c in range(5):
        of_class = np.flatnonzero(y[trained] == c)[:5]
        labels[of_class] = c
    model, others = SSDML(random_state=0).fit(X[trained], labels), X[y >= 5]
    near = model.representation_(others)[:, :5]
    assert np.linalg.norm(near, axis=1).mean() < 0.5
    assert np.linalg.norm(model.representation_(X[trained])[:, :5], axis=1).mean() > 0.9
    clusters = KMeans(5, random_state=0).fit_predict(model.transform(others))
    assert normalized_mutual_info_score(y[y >= 5], clusters) > 0.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept(representation, rng, dtype):
    assert representation(rng.standard_normal((4, 6)).astype(dtype)).dtype == dtype


def test_rows_are_represented_one_by_one(representation, rng):
    X = rng.standard_normal((5, 6))
    alone = np.vstack([representation(x[None]) for x in X])
    np.testing.assert_allclose(representation(X), alone, atol=1e-6)
