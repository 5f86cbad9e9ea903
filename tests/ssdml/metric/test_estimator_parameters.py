"""Parameters of SSDML: effect, flow to the kernels, and invariances of the metric."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone

from ssdml import SSDML
from ssdml.graphs.propagation.class_masses import ClassMasses
from ssdml.metric import alternation, estimator
from ssdml.metric.selection import balanced_weight
from ssdml.utils.linalg import random_orthonormal

# The metric


@pytest.mark.parametrize("input_weight", [1.2, 0.0])
def test_distances_agree_with_the_quadratic_form(blobs, input_weight):
    X, _, labels = blobs
    model = SSDML(input_weight=input_weight, guard=False, random_state=0).fit(X, labels)
    pairs = np.stack([X[:30], X[30:60]], axis=1)
    assert (model.representation_ is None) == (input_weight == 0)
    rows = X if model.representation_ is None else model.representation_(X)
    gaps = rows[:30] - rows[30:60]
    squares = np.einsum("ni,ij,nj->n", gaps, model.get_mahalanobis_matrix(), gaps)
    Z = model.transform(X)
    np.testing.assert_allclose(model.pair_distance(pairs) ** 2, squares, rtol=1e-10)
    np.testing.assert_allclose(
        model.pair_distance(pairs), np.linalg.norm(Z[:30] - Z[30:60], axis=1)
    )


def test_classes_and_input_are_added_to_the_metric(blobs):
    """M is a multiple of I on the classes, and A + weight² I on the input, A of rank C - 1."""
    X, _, labels = blobs
    model = SSDML(input_weight=0.5, guard=False, random_state=0).fit(X, labels)
    assert model.input_weight_ == 0.5
    M = model.get_mahalanobis_matrix()
    np.testing.assert_allclose(M[:3, :3], M[0, 0] * np.eye(3), atol=1e-12)
    np.testing.assert_array_equal(M[:3, 3:], 0)
    eigenvalues = np.linalg.eigvalsh(M[3:, 3:])
    np.testing.assert_allclose(eigenvalues[:3], 0.25, rtol=1e-6)
    assert eigenvalues[3] > 0.3


def test_auto_weight_follows_the_expected_errors(blobs):
    X, _, labels = blobs
    model = SSDML(max_rounds=1, random_state=0).fit(X, labels)
    free = labels == -1
    explained = model.held_out_.explained
    assert explained > 0.2
    expected = balanced_weight(model.transduction_confidence_[free].mean(), explained)
    # confidences are sharpened to the mean of the pool's
    assert model.input_weight_ == pytest.approx(expected, rel=0.02)


def test_zero_weight_leaves_the_metric_alone(blobs):
    X, _, labels = blobs
    model = SSDML(input_weight=0, guard=False, random_state=0).fit(X, labels)
    assert model.input_weight_ == 0
    assert model.components_.shape == (2, 5)  # classes - 1
    assert model.classifier_ is not None


def test_number_of_columns(blobs, rng):
    """Classes, metric and input; at most 64, or as many as features."""
    X, _, labels = blobs
    model = SSDML(guard=False, random_state=0)
    assert model.fit(X, labels).transform(X).shape == (120, 3 + 2 + 5)
    assert clone(model).set_params(n_components=3).fit(X, labels).transform(X).shape == (120, 3)
    wide = np.hstack([X, rng.standard_normal((120, 65))])
    assert clone(model).fit(wide, labels).transform(wide).shape == (120, 70)
    assert clone(model).fit(wide[:, :62], labels).transform(wide[:, :62]).shape == (120, 64)


def test_fewer_columns_are_principal_components(blobs):
    """Three columns have the variance of the first principal components of the embedding."""
    X, _, labels = blobs
    full = SSDML(guard=False, random_state=0).fit(X, labels).transform(X)
    few = SSDML(3, guard=False, random_state=0).fit(X, labels).transform(X)
    variances = np.linalg.eigvalsh(np.cov(full, rowvar=False))[::-1]
    np.testing.assert_allclose(np.trace(np.cov(few, rowvar=False)), variances[:3].sum(), rtol=1e-6)


# Invariances


def distances(X, labels):
    """Squared distances of the embedding of a fit, relative to their mean."""
    model = SSDML(random_state=0).fit(X, labels)
    squares = pdist(model.transform(X), "sqeuclidean")
    return squares / squares.mean(), model.predict_proba(X)


@pytest.fixture
def wide(rng):
    """150 rows of three clusters in 120 columns, which principal components replace."""
    truth = np.arange(150) % 3
    X = rng.standard_normal((150, 120)) + 6 * np.eye(3, 120)[truth]
    return X, np.where(np.arange(150) < 30, truth, -1)


@pytest.mark.parametrize("change", ["translation", "rotation", "scale", "order"])
def test_changes_that_do_not_matter(wide, rng, change):
    """Neighbors and solvers work in single precision; wide rows have a direction from 0."""
    X, labels = wide
    X = X[:, :90] if change == "translation" else X
    order = rng.permutation(len(X)) if change == "order" else np.arange(len(X))
    moved = {
        "translation": lambda: X + 64.0,
        "rotation": lambda: X @ random_orthonormal(120, 120, rng),
        "scale": lambda: 1024 * X,
        "order": lambda: X,
    }[change]()
    plain, expected = distances(X, labels)
    squares, found = distances(moved[order], labels[order])
    np.testing.assert_allclose(found, expected[order], atol=5e-3)
    plain = squareform(plain)[np.ix_(order, order)]
    np.testing.assert_allclose(squareform(squares), plain, atol=0.02)


def test_units_of_a_table_do_not_matter(rng):
    """Where a few correlated columns hold the variance, each is scaled by itself."""
    truth = np.arange(120) % 2
    X = 2 * truth[:, None] + rng.standard_normal((120, 1)) + 0.5 * rng.standard_normal((120, 4))
    X, labels = X * [1, 100, 1, 1], np.where(np.arange(120) < 20, truth, -1)
    one, other = (SSDML(random_state=0).fit(rows, labels) for rows in (X, X * [1, 10, 1, 1]))
    np.testing.assert_allclose(one.label_distributions_, other.label_distributions_, atol=1e-2)


def test_row_order_does_not_matter_to_the_paper(blobs, rng):
    """Only the start is random, and it does not depend on the rows."""
    X, _, labels = blobs
    order = rng.permutation(len(X))
    plain = SSDML.paper(random_state=0).fit(X, labels)
    shuffled = SSDML.paper(random_state=0).fit(X[order], labels[order])
    np.testing.assert_allclose(shuffled.components_, plain.components_, atol=1e-8)


# Every parameter reaches the kernel


@pytest.mark.parametrize(
    ("params", "target", "argument", "expected"),
    [
        ({"n_neighbors": 7}, "ssdml.classification.forms.graph_of_distinct", 1, 7),
        ({"n_jobs": 2}, "ssdml.classification.forms.graph_of_distinct", "n_jobs", 2),
        ({"n_jobs": 2}, "ssdml.metric.alternation.graph_of_distinct", "n_jobs", 2),
        ({"n_neighbors": 7}, "ssdml.metric.alternation.graph_of_distinct", 1, 7),
        (
            {"n_neighbors": 7, "propagation": "one-sided", "mining": "neighborhood"},
            "ssdml.metric.estimator.knn_graph",
            1,
            7,
        ),
        (
            {"decay": 0.7, "propagation": "one-sided", "mining": "neighborhood"},
            "ssdml.metric.estimator.propagate_labels",
            "decay",
            0.7,
        ),
        (
            {"decay": 0.7, "propagation": "one-sided", "mining": "neighborhood"},
            "ssdml.metric.alternation.propagate_affinities",
            "decay",
            0.7,
        ),
        (
            {"mining": "neighborhood"},
            "ssdml.metric.alternation.found_triplets",
            "strategy",
            "neighborhood",
        ),
        ({"angle": 25.0}, "ssdml.metric.alternation.angular_objective", "angle", 25.0),
        ({"input_weight": 0.3}, "ssdml.metric.alternation.combined_components", 1, 0.3),
        ({"n_components": 3}, "ssdml.metric.selection.best_factor", 2, 3),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_parameter_reaches_the_kernel(blobs, monkeypatch, params, target, argument, expected):
    module, name = target.rsplit(".", 1)
    kernel, calls = getattr(import_module(module), name), []

    def spy(*args, **kwargs):
        calls.append(args[argument] if isinstance(argument, int) else kwargs[argument])
        return kernel(*args, **kwargs)

    monkeypatch.setattr(target, spy)
    SSDML(**params, guard=False, random_state=0).fit(*blobs[::2])
    assert calls
    assert all(value == expected for value in calls)


@pytest.mark.parametrize(("propagation", "factored"), [("two-sided", True), ("one-sided", False)])
def test_propagation_chooses_the_affinities(blobs, monkeypatch, propagation, factored):
    mine, seen = alternation.found_triplets, []
    monkeypatch.setattr(
        alternation, "found_triplets", lambda *a, **k: seen.append(a[1]) or mine(*a, **k)
    )
    SSDML(propagation=propagation, mining="neighborhood", guard=False, random_state=0).fit(
        *blobs[::2]
    )
    assert all(isinstance(affinities, ClassMasses) is factored for affinities in seen)


@pytest.mark.parametrize("max_rounds", [1, 3])
def test_max_rounds_sets_the_rounds(blobs, max_rounds):
    model = SSDML(max_rounds=max_rounds, random_state=0).fit(*blobs[::2])
    assert len(model.history_) == max_rounds


def test_seed_determines_the_result(blobs):
    X, _, labels = blobs
    one, same, other = (SSDML(random_state=s).fit(X, labels).transform(X) for s in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_verbose_enables_the_bar(blobs, monkeypatch):
    seen = []
    stages = estimator.Stages
    monkeypatch.setattr(
        estimator, "Stages", lambda *a, **k: seen.append(k["verbose"]) or stages(*a, **k)
    )
    SSDML(verbose=1, random_state=0).fit(*blobs[::2])
    assert seen == [1]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"propagation": "three-sided"}, "'propagation' parameter of SSDML must be a str among"),
        ({"mining": "hard"}, "'mining' parameter of SSDML must be a str among"),
        ({"decay": 1.0}, r"'decay' parameter of SSDML must be a float in the range \(0.0, 1.0\)"),
        ({"n_neighbors": 0}, "'n_neighbors' parameter of SSDML must be an int in the range"),
        ({"n_jobs": 0}, "'n_jobs' parameter of SSDML must be an int in the range.* Got 0"),
        ({"angle": 90.0}, r"'angle' parameter of SSDML must be a float in the range \(0.0, 90.0\)"),
        ({"input_weight": -1.0}, "'input_weight' parameter of SSDML must be"),
        ({"n_components": 0}, "'n_components' parameter of SSDML must be"),
        ({"max_rounds": 0}, "'max_rounds' parameter of SSDML must be"),
        ({"guard": "yes"}, "'guard' parameter of SSDML must be"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_parameter_out_of_range_raises(blobs, params, message):
    with pytest.raises(ValueError, match=message):
        SSDML(**params).fit(*blobs[::2])
