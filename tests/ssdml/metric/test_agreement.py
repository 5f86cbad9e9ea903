"""How much of the input to keep, and the yardsticks that decide it."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.metric import selection as agreement
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
    """20 pairs of neighbors on a line, far from each other; a pair is rows 2i and 2i + 1."""
    places = 10.0 * np.repeat(np.arange(20), 2) + np.tile([0.0, 1.0], 20)
    return places[:, None]


def slow_agreement(learned, inputs, classes, judged, weight):
    hits = []
    for i in judged:
        squares = [
            np.inf
            if j == i
            else ((learned[i] - learned[j]) ** 2).sum()
            + weight**2 * ((inputs[i] - inputs[j]) ** 2).sum()
            for j in range(len(inputs))
        ]
        hits.append(classes[int(np.argmin(squares))] == classes[i])
    return np.array(hits)


def slow_choice(learned, inputs, classes, judged, weights):
    """The rule in words: the least weight that beats the input, else the best, else the largest."""

    def beats(one, two, errors):
        gaps = [float(a) - float(b) for a, b in zip(one, two, strict=True)]
        mean = sum(gaps) / len(gaps)
        deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
        return mean > errors * deviation / len(gaps) ** 0.5

    zeros = np.zeros_like(learned)
    by_input = slow_agreement(zeros, inputs, classes, judged, 1.0)
    trials = {w: slow_agreement(learned, inputs, classes, judged, w) for w in weights}
    winners = [w for w in weights if beats(trials[w], by_input, GAIN)]
    chosen = min(winners) if winners else max(weights, key=lambda w: (trials[w].mean(), w))
    return chosen, trials[chosen].mean(), by_input.mean(), beats(by_input, trials[chosen], 2)


def test_squared_distances_are_those_of_every_pair(rng):
    X = rng.standard_normal((15, 4)) + 1e4
    judged = np.array([7, 0, 3])
    squares = np.vstack(list(squared_distances(X, judged)))
    expected = ((X[judged, None] - X[None]) ** 2).sum(axis=2)
    expected[np.arange(3), judged] = np.inf
    np.testing.assert_allclose(squares, expected, rtol=1e-9)


def test_duplicates_are_at_distance_zero_not_below(rng):
    X = np.repeat(rng.standard_normal((4, 3)), 2, axis=0)
    squares = np.vstack(list(squared_distances(X, np.arange(8))))
    assert squares.min() >= 0
    np.testing.assert_allclose(squares[np.arange(8), np.arange(8) ^ 1], 0, atol=1e-14)


@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_that_of_a_slow_twin(seed):
    rng = np.random.default_rng(seed)
    classes = rng.integers(3, size=60)
    help_of_learned, help_of_input = rng.random(2) * 2
    learned = help_of_learned * np.eye(3)[classes] + 0.4 * rng.standard_normal((60, 3))
    inputs = help_of_input * np.eye(3)[classes] + 0.4 * rng.standard_normal((60, 3))
    judged = rng.permutation(60)[:40]
    weights = (0.3, 0.7, 1.0, 2.0)
    choice = choose_input_weight(learned, inputs, classes, judged, weights=weights)
    assert tuple(choice) == pytest.approx(slow_choice(learned, inputs, classes, judged, weights))


def test_the_size_of_the_blocks_changes_nothing(rng, monkeypatch):
    classes = np.arange(60) % 3
    learned, inputs = rng.standard_normal((2, 60, 3)) + np.eye(3)[classes]
    at_once = choose_input_weight(learned, inputs, classes, np.arange(50))
    monkeypatch.setattr(agreement, "BLOCK_ENTRIES", 60 * 7)
    assert [len(block) for block in squared_distances(inputs, np.arange(50))] == [7] * 7 + [1]
    assert choose_input_weight(learned, inputs, classes, np.arange(50)) == at_once


def test_a_clear_win_is_taken_at_the_least_weight(pairs):
    classes = np.repeat(np.arange(20), 2)  # the learned rows' pairs
    inputs = np.roll(pairs, 1, axis=0)  # pairs across classes
    choice = choose_input_weight(100 * pairs, inputs, classes, np.arange(40))
    assert choice == (0.7, 1.0, 0.0, False)


def test_the_least_weight_that_wins_is_taken_even_if_a_larger_wins_by_more(rng):
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


def test_without_a_win_the_weight_with_which_most_rows_agree_is_taken(pairs):
    """The input knows the pairs, the learned rows pull the first pairs apart; a weight heals."""
    classes = np.repeat(np.arange(20), 2)
    learned = np.zeros((40, 1))
    learned[[0, 2]] = 10.0  # beside each other by what is learned: 0 and 2, in two classes
    inputs = pairs / 10
    rates = [
        choose_input_weight(learned, inputs, classes, np.arange(40), weights=[w]).agreement
        for w in (0.7, 5.0, 200.0)
    ]
    assert rates[0] == rates[1] < rates[2] == 1
    choice = choose_input_weight(learned, inputs, classes, np.arange(40), weights=(0.7, 5.0, 200.0))
    assert choice == (200.0, 1.0, 1.0, False)


def test_of_equal_weights_the_largest_is_taken(pairs):
    classes = np.repeat(np.arange(20), 2)
    choice = choose_input_weight(FLAT, pairs, classes, np.arange(40))
    assert choice == (1.4, 1.0, 1.0, False)


def test_of_weights_that_lose_alike_the_largest_is_taken(pairs):
    classes = np.repeat(np.arange(20), 2)
    learned = 1e3 * np.roll(pairs, 1, axis=0)
    choice = choose_input_weight(learned, pairs, classes, np.arange(40), weights=(0.1, 0.2))
    assert choice == (0.2, 0.0, 1.0, True)


def test_a_metric_that_loses_the_neighbors_is_said_to_be_worse(pairs):
    classes = np.repeat(np.arange(20), 2)
    learned = 1e3 * np.roll(pairs, 1, axis=0)
    choice = choose_input_weight(learned, pairs, classes, np.arange(40))
    assert choice == (1.4, 0.0, 1.0, True)


def test_rows_that_are_not_judged_are_neighbors_all_the_same(pairs):
    classes = np.repeat(np.arange(20), 2)
    choice = choose_input_weight(pairs, pairs, classes, np.arange(0, 40, 2))
    assert choice.agreement == choice.input_agreement == 1
    shuffled = np.where(np.arange(40) % 2, -1, classes)  # the judged rows' partners differ
    assert choose_input_weight(pairs, pairs, shuffled, np.arange(0, 40, 2)).agreement == 0


def test_a_weight_of_zero_drops_the_input(rng):
    learned, inputs = rng.standard_normal((2, 30, 3))
    classes, judged = np.arange(30) % 2, np.arange(30)
    choice = choose_input_weight(learned, inputs, classes, judged, weights=[0.0])
    expected = slow_agreement(learned, inputs, classes, judged, 0.0).mean()
    assert choice[:2] == (0.0, expected)


def test_a_common_scale_of_both_spaces_changes_nothing(rng):
    classes = np.arange(50) % 5
    learned, inputs = rng.standard_normal((2, 50, 3)) + 2 * np.eye(5)[classes, :3]
    one, two = (
        choose_input_weight(s * learned, s * inputs, classes, np.arange(50)) for s in (1, 1e3)
    )
    assert one == two


@pytest.mark.parametrize(("lost", "short"), [(0, False), (3, False), (4, True), (50, True)])
def test_falling_short_takes_more_than_two_standard_errors(lost, short):
    """Of 100 rows: the gap's mean is p, its standard error sqrt(p (1 - p) / 100)."""
    agree, reference = np.ones(100, bool), np.ones(100, bool)
    agree[:lost] = False
    p = lost / 100
    assert (p > 2 * np.sqrt(p * (1 - p) / 100)) == short
    assert significantly_lower(agree, reference) == short


@pytest.mark.parametrize(("lost", "short"), [(0, False), (1, True)])
def test_falling_short_by_one_error_takes_one_row(lost, short):
    agree = np.arange(100) >= lost
    assert significantly_lower(agree, np.ones(100, bool), errors=1) == short
    assert not significantly_lower(agree, np.ones(100, bool), errors=1.1)


def test_falling_short_pairs_the_rows(rng):
    reference = rng.random(1000) < 0.5
    agree = reference.copy()
    agree[np.flatnonzero(reference)[:20]] = False
    assert significantly_lower(agree, reference)  # 2 % less, always on the same rows
    assert not significantly_lower(rng.permutation(agree), reference)
    assert not significantly_lower(reference, agree)


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
def test_nearest_means_are_those_of_a_slow_leave_one_out(seed):
    rng = np.random.default_rng(seed)
    classes = np.concatenate([rng.choice([3, 7, 8, 20], 40), [99]])  # 99 is alone
    X = rng.standard_normal((41, 3)) + 0.3 * classes[:, None]
    agrees = nearest_mean_correct(X, classes)
    expected = slow_nearest_mean(X, classes)
    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(agrees, expected)


def test_a_row_does_not_vote_for_itself():
    X = np.array([[0.0], [10.0], [4.0], [4.1]])
    # With itself in the mean, row 0 would be 5 from its own class and 4.05 from the other.
    np.testing.assert_array_equal(nearest_mean_correct(X, [0, 0, 1, 1]), [False, False, True, True])
    far = np.array([[0.0], [6.0], [5.0], [5.1]])
    # In the mean, row 0 would be 3 from its own class, left out it is 6 from it.
    np.testing.assert_array_equal(nearest_mean_correct(far, [0, 0, 1, 1])[0], False)


def test_classes_of_one_row_each_leave_nothing_to_judge():
    assert nearest_mean_correct(np.eye(3), [4, 5, 6]).shape == (0,)
