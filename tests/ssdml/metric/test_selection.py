"""Class probabilities, metric and input side by side, or the input alone."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA

from ssdml.classification.learning import HeldOut
from ssdml.metric import selection
from ssdml.metric.selection import (
    balanced_weight,
    combined_components,
    combined_on_span,
    fall_back,
    fewer_columns,
    input_alone,
    nearest_mean_correct,
    nearest_neighbor_correct,
    significantly_lower,
    spread,
    squared_distances,
)
from ssdml.metric.state import Learned


def test_squared_distances_agree_with_brute_force(rng):
    X = rng.standard_normal((15, 4)) + 1e4
    queries = np.array([7, 0, 3])
    squares = np.vstack(list(squared_distances(X, queries)))
    expected = ((X[queries, None] - X[None]) ** 2).sum(axis=2)
    expected[np.arange(3), queries] = np.inf
    np.testing.assert_allclose(squares, expected, rtol=1e-9)


def test_duplicates_have_distance_zero(rng):
    X = np.repeat(rng.standard_normal((4, 3)), 2, axis=0)
    squares = np.vstack(list(squared_distances(X, np.arange(8))))
    assert squares.min() >= 0
    np.testing.assert_allclose(squares[np.arange(8), np.arange(8) ^ 1], 0, atol=1e-14)


def test_block_size_does_not_matter(rng, monkeypatch):
    X, classes = rng.standard_normal((60, 3)), np.arange(60) % 3
    at_once = nearest_neighbor_correct(X, classes, np.arange(50))
    monkeypatch.setattr(selection, "BLOCK_ENTRIES", 60 * 7)
    assert [len(block) for block in squared_distances(X, np.arange(50))] == [7] * 7 + [1]
    np.testing.assert_array_equal(nearest_neighbor_correct(X, classes, np.arange(50)), at_once)


# Class probabilities, metric and input side by side


def test_parts_have_the_spread_of_the_input(rng):
    roots, X = np.sqrt(rng.dirichlet(np.ones(3), 200)), 5 * rng.standard_normal((200, 4))
    metric = 0.1 * rng.standard_normal((2, 4))
    spreads = (spread(roots), spread(X @ metric.T), spread(X))
    components = combined_components(metric, 0.7, 3, spreads)
    Z = np.hstack([roots, X]) @ components.T
    parts = np.split(Z, [3, 5], axis=1)
    for part, weight in zip(parts, (1, 1, 0.7), strict=True):
        assert spread(part) == pytest.approx(weight * spread(X))
    np.testing.assert_allclose(parts[2], 0.7 * X)


def test_parts_without_spread_are_kept_as_they_are():
    components = combined_components(np.eye(1, 2), 0.5, 1, (0.0, 0.0, 3.0))
    np.testing.assert_array_equal(components[:2], [[1, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize(("confidence", "weight"), [(1.0, 0.8), (0.9, 0.9), (0.7, 1.1), (0.1, 1.2)])
def test_weight_grows_with_the_errors_to_expect_within_bounds(confidence, weight):
    assert balanced_weight(confidence, 1.0) == weight


def test_weight_grows_where_held_out_labels_confirm_little_within_bounds():
    weights = [balanced_weight(0.9, explained) for explained in (1, 0.2, 0.1, 0.04, 0.02, 0)]
    assert weights == [0.9, 0.9, 1.8, 4.5, 9.0, 9.0]


def test_fewer_columns_keep_the_distances(rng):
    blocks, X = rng.standard_normal((9, 4)), rng.standard_normal((300, 4))
    fewer = fewer_columns(blocks, 4, lambda: np.cov(X, rowvar=False))
    assert fewer.shape == (4, 4)
    np.testing.assert_allclose(fewer.T @ fewer, blocks.T @ blocks, atol=1e-10)
    assert fewer_columns(blocks, 9, lambda: pytest.fail("not needed")) is blocks


@pytest.mark.parametrize("most", [3, 12, 20, 40])
def test_few_rows_keep_their_distances_and_no_new_row_gains(rng, most):
    X, roots = rng.standard_normal((10, 40)), rng.random((10, 3))
    metric = rng.standard_normal((2, 10)) @ X  # as L, in the span of the rows
    rows, spreads = np.hstack([roots, X]), (1.0, 5.0, 6.0)
    full = combined_components(metric, 0.8, 3, spreads)
    short = combined_on_span(metric, 0.8, spreads, roots, X, most)
    assert short.shape == (most, 43)
    if most >= len(rows):
        np.testing.assert_allclose(pdist(rows @ short.T), pdist(rows @ full.T))
    unseen = rng.standard_normal((30, 43))
    kept, before = pdist(unseen @ short.T), pdist(unseen @ full.T)
    assert (kept <= before * (1 + 1e-12)).all()
    if most == 40:  # but for three directions of the input, in which no row varies
        gone = np.linalg.matrix_rank(full.T @ full - short.T @ short, tol=1e-9)
        assert gone == 3
        np.testing.assert_allclose(kept, before, rtol=0.2)


def test_input_of_few_rows_is_reduced_to_principal_components_and_other_directions(rng):
    X = rng.standard_normal((10, 40)) * np.linspace(1, 9, 40)
    for count in (4, 20):
        components = input_alone(X, np.ones((10, 1)), count).components
        np.testing.assert_allclose(components @ components.T, np.eye(count), atol=1e-10)
        exact = PCA(min(count, 9)).fit_transform(X)
        np.testing.assert_allclose(pdist(X @ components.T), pdist(exact), rtol=1e-6)


# The fallback


@pytest.fixture
def two_metrics(rng):
    """One that keeps the classes of 100 rows, one that loses them."""
    codes = np.arange(100) % 2
    X = np.column_stack([4.0 * codes, np.zeros(100)]) + rng.standard_normal((100, 2))
    right, wrong = (Learned(np.eye(2)[[i]], 1.0, np.eye(2)[codes]) for i in (0, 1))
    return X, HeldOut(np.arange(100), codes, np.empty((100, 0))), right, wrong


def test_worse_metrics_fall_back(two_metrics):
    X, held_out, right, wrong = two_metrics
    assert fall_back(right, wrong, held_out, X.__getitem__) is right
    alone = fall_back(wrong, right, held_out, X.__getitem__)
    np.testing.assert_array_equal(alone.components, right.components)
    assert alone.input_weight == np.inf
    assert re.fullmatch(
        r"the learned metric is worse: \d+\.\d% .*guard=False\.", alone.fallback_reason
    )


def test_fallback_judges_by_held_out_probabilities(two_metrics):
    X, held_out, right, _ = two_metrics
    components = np.diag([10.0, 10.0, 0.1, 0.1])
    learned = right._replace(components=components, represented=np.hstack([np.eye(100, 2), X]))
    helpful = held_out._replace(distributions=np.eye(2)[held_out.codes])
    harmful = held_out._replace(distributions=np.eye(2)[np.arange(100) // 2 % 2])
    assert fall_back(learned, right, helpful, X.__getitem__) is learned
    assert fall_back(learned, right, harmful, X.__getitem__).represented is None


def test_classes_of_one_label_are_not_judged(two_metrics):
    X, _, right, wrong = two_metrics
    few = HeldOut(np.array([0, 1]), np.array([0, 1]), np.empty((2, 0)))
    assert fall_back(wrong, right, few, X.__getitem__) is wrong


# Significance


@pytest.mark.parametrize(("lost", "lower"), [(0, False), (3, False), (4, True), (50, True)])
def test_significance_takes_two_standard_errors(lost, lower):
    """Of 100 rows: the gap's mean is p, its standard error sqrt(p (1 - p) / 100)."""
    correct, reference = np.ones(100, bool), np.ones(100, bool)
    correct[:lost] = False
    p = lost / 100
    assert (p > 2 * np.sqrt(p * (1 - p) / 100)) == lower
    assert significantly_lower(correct, reference) == lower


@pytest.mark.parametrize(("lost", "lower"), [(0, False), (1, True)])
def test_one_standard_error_takes_one_row(lost, lower):
    correct = np.arange(100) >= lost
    assert significantly_lower(correct, np.ones(100, bool), errors=1) == lower
    assert not significantly_lower(correct, np.ones(100, bool), errors=1.1)


def test_significance_is_paired(rng):
    reference = rng.random(1000) < 0.5
    correct = reference.copy()
    correct[np.flatnonzero(reference)[:20]] = False
    assert significantly_lower(correct, reference)  # 2% less, always on the same rows
    assert not significantly_lower(rng.permutation(correct), reference)
    assert not significantly_lower(reference, correct)


def slow_nearest_mean(X, classes):
    hits = []
    for i, c in enumerate(classes):
        others = np.arange(len(X)) != i
        if not (classes[others] == c).any():
            continue
        means = {k: X[others & (classes == k)].mean(axis=0) for k in np.unique(classes[others])}
        hits.append(min(means, key=lambda k: ((X[i] - means[k]) ** 2).sum()) == c)
    return np.array(hits)


@pytest.mark.parametrize("seed", range(5))
def test_nearest_means_agree_with_slow_leave_one_out(seed):
    rng = np.random.default_rng(seed)
    classes = np.concatenate([rng.choice([3, 7, 8, 20], 40), [99]])  # 99 is alone
    X = rng.standard_normal((41, 3)) + 0.3 * classes[:, None]
    agrees = nearest_mean_correct(X, classes)
    expected = slow_nearest_mean(X, classes)
    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(agrees, expected)


def test_row_is_left_out_of_its_mean():
    X = np.array([[0.0], [10.0], [4.0], [4.1]])
    # With itself in the mean, row 0 would be 5 from its own class and 4.05 from the other.
    np.testing.assert_array_equal(nearest_mean_correct(X, [0, 0, 1, 1]), [False, False, True, True])
    far = np.array([[0.0], [6.0], [5.0], [5.1]])
    # In the mean, row 0 would be 3 from its own class, left out it is 6 from it.
    np.testing.assert_array_equal(nearest_mean_correct(far, [0, 0, 1, 1])[0], False)


def test_singleton_classes_are_omitted():
    assert nearest_mean_correct(np.eye(3), [4, 5, 6]).shape == (0,)
