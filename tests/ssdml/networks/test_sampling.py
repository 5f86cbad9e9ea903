"""Partitions cover all rows; batches balance classes and draw rows by weight."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from ssdml.networks.sampling import aligned_halves, balanced_batches, partitions

LABELED = np.array([3, 17, 40])
UNLABELED = np.setdiff1d(np.arange(43), LABELED)  # 40 rows


def parted(count, size, *, labeled=LABELED, unlabeled=UNLABELED, seed=0):
    return partitions(labeled, unlabeled, count, size, np.random.default_rng(seed))


def batches(classes, weights, size, count, seed=0):
    rng = np.random.default_rng(seed)
    return list(balanced_batches(np.asarray(classes), np.asarray(weights), size, count, rng))


@pytest.mark.parametrize(("count", "size"), [(1, 7), (4, 10), (8, 10), (5, 40), (3, 16), (9, 1)])
def test_partitions_are_sorted_and_hold_labeled_rows(count, size):
    parts = parted(count, size)
    assert len(parts) == count
    for part in parts:
        np.testing.assert_array_equal(part, np.unique(part))
        assert set(LABELED) < set(part) <= set(LABELED) | set(UNLABELED)
        assert len(part) == size + 3


@pytest.mark.parametrize("size", [1, 4, 10, 16, 40])
def test_partitions_are_disjoint_within_a_lap(size):
    rest = [set(part) - set(LABELED) for part in parted(-(-40 // size), size)]
    whole = rest[: 40 // size]
    assert all(len(part) == size for part in whole)
    assert len(set().union(*whole)) == sum(map(len, whole))
    assert set().union(*rest) == set(UNLABELED)


def test_second_lap_reshuffles_all_rows():
    rest = [set(part) - set(LABELED) for part in parted(8, 10)]
    turns = np.bincount([row for part in rest for row in part], minlength=43)
    np.testing.assert_array_equal(turns[UNLABELED], 2)
    assert rest[:4] != rest[4:]


@pytest.mark.parametrize("size", [7, 16, 39])
def test_partitions_across_laps_repeat_no_row(size):
    rest = [set(part) - set(LABELED) for part in parted(20, size)]
    assert {len(part) for part in rest} == {size}
    turns = np.bincount([row for part in rest for row in part], minlength=43)[UNLABELED]
    assert turns.max() - turns.min() <= 1


@pytest.mark.parametrize("size", [None, 40, 1000])
def test_partition_of_all_holds_all(size):
    for part in parted(3, size):
        np.testing.assert_array_equal(part, np.arange(43))


def test_partitions_without_labeled_or_without_unlabeled_rows():
    none = np.array([], np.intp)
    for part in parted(3, 5, unlabeled=none):
        np.testing.assert_array_equal(part, LABELED)
    rest = parted(4, 10, labeled=none)
    np.testing.assert_array_equal(np.sort(np.concatenate(rest)), UNLABELED)


def test_partitions_depend_on_the_seed():
    one, again, other = (np.concatenate(parted(4, 10, seed=seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def slow_batches(classes, weights, size, count, rng):
    """The same draws, one row after another: the place of a number among the sums of weights."""
    of_class = {c: [i for i in range(len(classes)) if classes[i] == c] for c in set(classes)}
    of_class = {c: [i for i in rows if weights[i] > 0] for c, rows in sorted(of_class.items())}
    of_class = [rows for rows in of_class.values() if rows]
    for _ in range(count):
        turns, numbers = rng.permutation(len(of_class)), rng.random(size)
        batch = []
        for i in range(size):
            rows = of_class[turns[i % len(turns)]]
            left = numbers[i] * sum(weights[row] for row in rows)
            for row in rows:
                left -= weights[row]
                if left < 0:
                    break
            batch.append(row)
        yield batch


def test_batches_agree_with_the_slow_twin(rng):
    classes = rng.integers(0, 5, 60)
    weights = rng.random(60) * (rng.random(60) < 0.6)
    fast = batches(classes, weights, 17, 30)
    slow = slow_batches(classes.tolist(), weights.tolist(), 17, 30, np.random.default_rng(0))
    np.testing.assert_array_equal(fast, list(slow))


@pytest.mark.parametrize("size", [1, 3, 4, 6, 30])
def test_batches_balance_classes_up_to_one(rng, size):
    classes = np.repeat([0, 1, 5, 9], [50, 10, 3, 1])
    drawn = batches(classes, rng.random(64) + 0.01, size, 200)
    counts = [[(classes[batch] == c).sum() for c in (0, 1, 5, 9)] for batch in drawn]
    assert {len(batch) for batch in drawn} == {size}
    assert (np.ptp(counts, axis=1) == (size % 4 > 0)).all()
    totals = np.sum(counts, axis=0)
    assert np.ptp(totals) == 0 if size % 4 == 0 else chisquare(totals).pvalue > 1e-3


def test_rows_are_drawn_by_weight():
    classes, weights = np.array([0, 1, 0, 0, 1, 0]), np.array([1.0, 5.0, 2.0, 0.0, 5.0, 7.0])
    counts = np.bincount(np.concatenate(batches(classes, weights, 40, 250)), minlength=6)
    assert counts[3] == 0
    for rows, shares in (([0, 2, 5], [0.1, 0.2, 0.7]), ([1, 4], [0.5, 0.5])):
        assert counts[rows].sum() == 5000
        assert chisquare(counts[rows], 5000 * np.array(shares)).pvalue > 1e-3


def test_no_row_of_weight_zero_is_ever_drawn(rng):
    """Nor one between rows of tiny and of huge weight."""
    classes = rng.integers(0, 3, 300)
    weights = np.where(rng.random(300) < 0.5, 0.0, 10.0 ** rng.integers(-12, 12, 300))
    drawn = np.concatenate(batches(classes, weights, 64, 100))
    assert (weights[drawn] > 0).all()


def test_batches_hold_the_given_classes(rng):
    """Draws stay within their class whatever the sums of weights round to."""
    classes = np.repeat(np.arange(30), 4)
    weights = 10.0 ** rng.integers(-15, 15, 120)
    for batch in batches(classes, weights, 30, 50):
        np.testing.assert_array_equal(np.sort(classes[batch]), np.arange(30))


@pytest.mark.parametrize("size", [1, 5])
def test_the_only_row_with_weight_fills_the_batch(size):
    weights = np.zeros(9)
    weights[4] = 1e-9
    for batch in batches(np.arange(9) % 3, weights, size, 3):
        np.testing.assert_array_equal(batch, np.full(size, 4))


def test_one_class_is_drawn_by_weight():
    counts = np.bincount(np.concatenate(batches(np.zeros(3, int), [1.0, 3.0, 4.0], 50, 100)))
    assert chisquare(counts, 5000 * np.array([1, 3, 4]) / 8).pvalue > 1e-3


def test_more_classes_than_a_batch_holds_take_turns():
    drawn = batches(np.arange(20), np.ones(20), 6, 300)
    assert all(len(set(batch)) == 6 for batch in drawn)
    assert chisquare(np.bincount(np.concatenate(drawn))).pvalue > 1e-3


def test_batches_ignore_class_names_and_weight_units(rng):
    classes, weights = rng.integers(0, 4, 50), rng.random(50)
    expected = batches(classes, weights, 12, 20)
    np.testing.assert_array_equal(batches(7 * classes + 2, weights, 12, 20), expected)
    np.testing.assert_array_equal(batches(classes, 1024 * weights, 12, 20), expected)


def test_class_weight_does_not_change_balance(rng):
    classes, weights = rng.integers(0, 4, 50), rng.random(50) + 0.1
    heavy = np.where(classes == 2, 1000 * weights, weights)
    one, other = batches(classes, weights, 12, 20), batches(classes, heavy, 12, 20)
    np.testing.assert_array_equal(classes[np.array(one)], classes[np.array(other)])


def test_batches_depend_on_the_seed(rng):
    classes = rng.integers(0, 4, 50)
    one, again, other = (batches(classes, np.ones(50), 12, 5, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_zero_batches():
    assert batches([0, 1], [1.0, 1.0], 4, 0) == []


def test_halves_align_in_class_without_shared_rows(rng):
    classes = np.repeat(np.arange(20), 12)
    for rows in aligned_halves(classes, 5, rng):
        first, second = rows.reshape(2, -1)
        assert first.shape == (65,)
        np.testing.assert_array_equal(classes[first], classes[second])
        assert len(np.unique(rows)) == 130
        assert (np.unique(classes[rows], return_counts=True)[1] == 10).all()


def test_small_classes_repeat_rows_within_a_half(rng):
    classes = np.array([0, 0, 0, 1, 1, 2, -1, -1])
    for rows in aligned_halves(classes, 20, rng, n_classes=13, per_class=6):
        first, second = rows.reshape(2, -1)
        assert len(first) == 2 * 3
        np.testing.assert_array_equal(classes[first], classes[second])
        assert set(first) & set(second) == set()
        assert set(classes[rows]) == {0, 1}


def test_halves_are_drawn_by_weight(rng):
    classes, weights = np.zeros(6, dtype=int), np.array([0.0, 1.0, 1.0, 1.0, 1.0, 4.0])
    drawn = np.concatenate(
        [*aligned_halves(classes, 3000, rng, n_classes=1, per_class=2, weights=weights)]
    )
    counts = np.bincount(drawn, minlength=6)
    assert counts[0] == 0
    # First with 4/8, second with the sum over the others of 1/8 * 4/7.
    assert counts[5] / 3000 == pytest.approx(0.5 + 0.5 * 4 / 7, abs=0.03)


@pytest.mark.parametrize(
    ("classes", "per_class", "message"),
    [
        ([0, 0], 3, "aligned_halves: per_class must be even and at least 2; got 3"),
        (
            [0, 1, -1, -1],
            2,
            "classes must hold one class with two rows; got 2 classes with one row",
        ),
    ],
)
def test_rejects_impossible_halves(classes, per_class, message, rng):
    with pytest.raises(ValueError, match=message):
        next(aligned_halves(np.array(classes), 1, rng, per_class=per_class))


def test_rejects_halves_without_classes(rng):
    with pytest.raises(ValueError, match="aligned_halves: n_classes must be at least 1; got 0"):
        next(aligned_halves(np.array([0, 0]), 1, rng, n_classes=0))
