"""Selection of the input weight, and its criteria."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.metric import selection
from ssdml.metric.selection import (
    GAIN,
    choose_input_weight,
    nearest_mean_correct,
    significantly_lower,
    squared_distances,
)

FLAT = np.zeros((40, 1))


@pytest.fixture
def pairs():
    """20 distant pairs of neighbors on a line: rows 2i and 2i + 1."""
    places = 10.0 * np.repeat(np.arange(20), 2) + np.tile([0.0, 1.0], 20)
    return places[:, None]


def slow_agreement(learned, inputs, classes, queries, weight):
    hits = []
    for i in queries:
        squares = [
            np.inf
            if j == i
            else ((learned[i] - learned[j]) ** 2).sum()
            + weight**2 * ((inputs[i] - inputs[j]) ** 2).sum()
            for j in range(len(inputs))
        ]
        hits.append(classes[int(np.argmin(squares))] == classes[i])
    return np.array(hits)


def slow_choice(learned, inputs, classes, queries, weights):
    """The smallest weight that beats the input, else the best, else the largest."""

    def beats(one, two, errors):
        gaps = [float(a) - float(b) for a, b in zip(one, two, strict=True)]
        mean = sum(gaps) / len(gaps)
        deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
        return mean > errors * deviation / len(gaps) ** 0.5

    zeros = np.zeros_like(learned)
    by_input = slow_agreement(zeros, inputs, classes, queries, 1.0)
    trials = {w: slow_agreement(learned, inputs, classes, queries, w) for w in weights}
    winners = [w for w in weights if beats(trials[w], by_input, GAIN)]
    chosen = min(winners) if winners else max(weights, key=lambda w: (trials[w].mean(), w))
    return chosen, trials[chosen].mean(), by_input.mean(), beats(by_input, trials[chosen], 2)


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


@pytest.mark.parametrize("seed", range(12))
def test_choice_agrees_with_a_slow_implementation(seed):
    rng = np.random.default_rng(seed)
    classes = rng.integers(3, size=60)
    help_of_learned, help_of_input = rng.random(2) * 2
    learned = help_of_learned * np.eye(3)[classes] + 0.4 * rng.standard_normal((60, 3))
    inputs = help_of_input * np.eye(3)[classes] + 0.4 * rng.standard_normal((60, 3))
    queries = rng.permutation(60)[:40]
    weights = (0.3, 0.7, 1.0, 2.0)
    choice = choose_input_weight(learned, inputs, classes, queries, weights=weights)
    assert tuple(choice) == pytest.approx(slow_choice(learned, inputs, classes, queries, weights))


def test_block_size_does_not_matter(rng, monkeypatch):
    classes = np.arange(60) % 3
    learned, inputs = rng.standard_normal((2, 60, 3)) + np.eye(3)[classes]
    at_once = choose_input_weight(learned, inputs, classes, np.arange(50))
    monkeypatch.setattr(selection, "BLOCK_ENTRIES", 60 * 7)
    assert [len(block) for block in squared_distances(inputs, np.arange(50))] == [7] * 7 + [1]
    assert choose_input_weight(learned, inputs, classes, np.arange(50)) == at_once


def test_clear_win_takes_the_smallest_weight(pairs):
    classes = np.repeat(np.arange(20), 2)  # the learned rows' pairs
    inputs = np.roll(pairs, 1, axis=0)  # pairs across classes
    choice = choose_input_weight(100 * pairs, inputs, classes, np.arange(40))
    assert choice == (0.7, 1.0, 0.0, False)


def test_smallest_winning_weight_beats_larger_ones(rng):
    classes = np.arange(400) % 2
    learned = 2.0 * classes[:, None] + rng.standard_normal((400, 1))
    inputs = [1.5, 0.0] * classes[:, None] + [1.0, 3.0] * rng.standard_normal((400, 2))
    choice = choose_input_weight(learned, inputs, classes, np.arange(400))
    by_all = [
        choose_input_weight(learned, inputs, classes, np.arange(400), weights=[w]).agreement
        for w in (0.7, 1.0, 1.4)
    ]
    assert choice.agreement > choice.input_agreement
    assert max(by_all) > by_all[0]
    assert (choice.weight, choice.agreement) == (0.7, by_all[0])


def test_without_a_win_highest_agreement_is_taken(pairs):
    """The input has the pairs; the learned rows break the first ones, which a weight repairs."""
    classes = np.repeat(np.arange(20), 2)
    learned = np.zeros((40, 1))
    learned[[0, 2]] = 10.0  # learned neighbors of different classes
    inputs = pairs / 10
    rates = [
        choose_input_weight(learned, inputs, classes, np.arange(40), weights=[w]).agreement
        for w in (0.7, 5.0, 200.0)
    ]
    assert rates[0] == rates[1] < rates[2] == 1
    choice = choose_input_weight(learned, inputs, classes, np.arange(40), weights=(0.7, 5.0, 200.0))
    assert choice == (200.0, 1.0, 1.0, False)


def test_ties_take_the_largest_weight(pairs):
    classes = np.repeat(np.arange(20), 2)
    choice = choose_input_weight(FLAT, pairs, classes, np.arange(40))
    assert choice == (1.4, 1.0, 1.0, False)


def test_equal_losers_take_the_largest_weight(pairs):
    classes = np.repeat(np.arange(20), 2)
    learned = 1e3 * np.roll(pairs, 1, axis=0)
    choice = choose_input_weight(learned, pairs, classes, np.arange(40), weights=(0.1, 0.2))
    assert choice == (0.2, 0.0, 1.0, True)


def test_lost_neighbors_are_reported_as_worse(pairs):
    classes = np.repeat(np.arange(20), 2)
    learned = 1e3 * np.roll(pairs, 1, axis=0)
    choice = choose_input_weight(learned, pairs, classes, np.arange(40))
    assert choice == (1.4, 0.0, 1.0, True)


def test_all_rows_are_candidate_neighbors(pairs):
    classes = np.repeat(np.arange(20), 2)
    choice = choose_input_weight(pairs, pairs, classes, np.arange(0, 40, 2))
    assert choice.agreement == choice.input_agreement == 1
    shuffled = np.where(np.arange(40) % 2, -1, classes)  # the partners of the queries differ
    assert choose_input_weight(pairs, pairs, shuffled, np.arange(0, 40, 2)).agreement == 0


def test_zero_weight_drops_the_input(rng):
    learned, inputs = rng.standard_normal((2, 30, 3))
    classes, queries = np.arange(30) % 2, np.arange(30)
    choice = choose_input_weight(learned, inputs, classes, queries, weights=[0.0])
    expected = slow_agreement(learned, inputs, classes, queries, 0.0).mean()
    assert choice[:2] == (0.0, expected)


def test_common_scale_does_not_matter(rng):
    classes = np.arange(50) % 5
    learned, inputs = rng.standard_normal((2, 50, 3)) + 2 * np.eye(5)[classes, :3]
    one, two = (
        choose_input_weight(s * learned, s * inputs, classes, np.arange(50)) for s in (1, 1e3)
    )
    assert one == two


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
    assert significantly_lower(correct, reference)  # 2 % less, always on the same rows
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
