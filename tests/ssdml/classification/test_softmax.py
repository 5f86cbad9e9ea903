"""Softmax regressions against scikit-learn and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ssdml.classification import softmax as module
from ssdml.classification.softmax import SoftmaxRegression, softmax
from ssdml.utils.linalg import random_orthonormal


@pytest.fixture
def problem(rng):
    """60 rows of four columns and three overlapping classes."""
    codes = np.arange(60) % 3
    return rng.standard_normal((60, 4)) + 1.5 * np.eye(3, 4)[codes], codes


@pytest.fixture
def converged(monkeypatch):
    """Steps until the tolerance stops them."""
    monkeypatch.setattr(module, "MAX_STEPS", 1000)


def probabilities(X, targets, ridge):
    regression = SoftmaxRegression(X, targets.shape[1], ridge)
    W, b = regression.weights(regression.fit(targets, tol=1e-9))
    return softmax(X @ W + b)


def loss(X, targets, ridge, W, b):
    """Penalized cross-entropy as the docstring has it."""
    logits = X @ W + b
    return (
        -(targets * (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))).sum()
        + ridge / 2 * (W**2).sum()
    )


@pytest.mark.usefixtures("converged")
@pytest.mark.parametrize("ridge", [0.002, 0.1, 5.0])
def test_hard_labels_agree_with_scikit_learn(problem, ridge):
    X, codes = problem
    expected = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000).fit(X, codes)
    found = probabilities(X, np.eye(3)[codes], ridge)
    np.testing.assert_allclose(found, expected.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("ridge", [0.002, 0.1])
def test_few_steps_come_near_the_optimum(problem, ridge):
    X, codes = problem
    targets = np.eye(3)[codes]
    best = LogisticRegression(C=1 / ridge, tol=1e-10, max_iter=10_000).fit(X, codes)
    regression = SoftmaxRegression(X, 3, ridge)
    reached = loss(X, targets, ridge, *regression.weights(regression.fit(targets, tol=1e-4)))
    assert reached < 1.01 * loss(X, targets, ridge, best.coef_.T, best.intercept_)


@pytest.mark.usefixtures("converged")
def test_finite_differences_vanish_at_the_optimum_of_soft_targets(problem, rng):
    X, _ = problem
    targets, ridge, h = rng.dirichlet(np.ones(3), 60), 0.3, 1e-4
    regression = SoftmaxRegression(X, 3, ridge)
    W, b = regression.weights(regression.fit(targets, tol=1e-9))
    for _ in range(20):
        dW, db = rng.standard_normal(W.shape), rng.standard_normal(b.shape)
        up, down = (loss(X, targets, ridge, W + s * dW, b + s * db) for s in (h, -h))
        assert abs(up - down) / (2 * h) < 0.02
        curvature = (up + down - 2 * loss(X, targets, ridge, W, b)) / h**2
        assert curvature > 0.3


@pytest.mark.usefixtures("converged")
def test_subset_is_fitted_like_its_rows_alone(problem):
    X, codes = problem
    inside, targets = np.arange(0, 60, 2), np.eye(3)[codes]
    regression = SoftmaxRegression(X, 3, 0.1)
    W, b = regression.weights(regression.fit(targets[inside], inside, tol=1e-9))
    expected = probabilities(X[inside], targets[inside], 0.1)
    np.testing.assert_allclose(softmax(X[inside] @ W + b), expected, atol=2e-3)


def test_logits_are_those_of_the_weights(problem):
    X, codes = problem
    regression = SoftmaxRegression(X, 3, 0.1)
    coefficients = regression.fit(np.eye(3)[codes], tol=1e-4)
    W, b = regression.weights(coefficients)
    rows = np.array([4, 7, 50])
    np.testing.assert_allclose(
        regression.logits(coefficients, rows), X[rows] @ W + b, rtol=1e-4, atol=1e-4
    )


def test_rotation_does_not_matter(problem, rng):
    X, codes = problem
    turned = X @ random_orthonormal(4, 4, rng)
    one, two = (probabilities(rows, np.eye(3)[codes], 0.1) for rows in (X, turned))
    np.testing.assert_allclose(one, two, atol=1e-3)


def test_order_of_rows_and_of_classes_does_not_matter(problem, rng):
    X, codes = problem
    order, names = rng.permutation(60), np.array([2, 0, 1])
    plain = probabilities(X, np.eye(3)[codes], 0.1)
    other = probabilities(X[order], np.eye(3)[codes][:, names][order], 0.1)
    np.testing.assert_allclose(other, plain[order][:, names], atol=1e-3)


@pytest.mark.parametrize(
    ("X", "codes"),
    [
        (np.zeros((6, 3)), np.arange(6) % 2),
        (np.ones((6, 1)), np.arange(6) % 2),
        (np.repeat(np.eye(2), 3, axis=0), np.arange(6) % 2),  # duplicates that disagree
        (np.eye(6), np.arange(6)),  # a label per class
        (np.eye(6, 2), np.arange(6)),  # more classes than columns
        (np.eye(2, 9), np.arange(2)),  # more columns than rows
        (1e6 * np.eye(4), np.arange(4)),
        (np.eye(4), np.zeros(4, int)),  # a single class
    ],
    ids="zeros constant duplicates single few-columns few-rows large one-class".split(),
)
@pytest.mark.parametrize("ridge", [0.002, 0.1])
def test_degenerate_rows_give_finite_probabilities(X, codes, ridge):
    targets = np.eye(codes.max() + 1)[codes]
    found = probabilities(X, targets, ridge)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    # rows that say nothing of the classes leave the shares of these
    if (X == X[0]).all():
        np.testing.assert_allclose(found, np.tile(targets.mean(axis=0), (len(X), 1)), atol=0.01)


def test_softmax_of_large_logits_is_finite():
    np.testing.assert_array_equal(
        softmax(np.array([[1e4, 0.0], [-1e4, -1e4]])), [[1, 0], [0.5] * 2]
    )


def test_coefficients_are_those_of_the_weights(problem):
    X, codes = problem
    regression = SoftmaxRegression(X, 3, 0.1)
    coefficients = regression.fit(np.eye(3)[codes], tol=1e-4)
    W, b = regression.weights(coefficients)
    np.testing.assert_allclose(regression.coefficients(W, b), coefficients, atol=1e-9)


@pytest.mark.usefixtures("converged")
def test_start_does_not_change_the_optimum(problem, rng):
    X, codes = problem
    targets, regression = np.eye(3)[codes], SoftmaxRegression(X, 3, 0.1)
    cold = regression.weights(regression.fit(targets, tol=1e-9))
    start = regression.coefficients(rng.standard_normal((4, 3)), np.zeros(3))
    warm = regression.weights(regression.fit(targets, start=start, tol=1e-9))
    np.testing.assert_allclose(
        softmax(X @ warm[0] + warm[1]), softmax(X @ cold[0] + cold[1]), atol=2e-3
    )
