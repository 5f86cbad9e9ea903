"""Partitions cover all rows; batches balance classes and draw rows by weight."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chisquare
from torch.utils.data import DataLoader, TensorDataset

from ssdml.networks.sampling import (
    aligned_halves,
    balanced_batches,
    class_batches,
    partitions,
    whole_class_batches,
)

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


@pytest.mark.parametrize("size", [1, 7, 16, 39, 40, None])
def test_laps_are_random_orders_with_begun_rows_last(size):
    rng, order = np.random.default_rng(0), UNLABELED[:0]
    for _ in range(30):
        lap, begun = rng.permutation(UNLABELED), order[len(order) - len(order) % (size or 40) :]
        order = np.concatenate([order, *(lap[np.isin(lap, begun) == late] for late in (0, 1))])
    count = len(order) // (size or 40)
    for number, part in enumerate(parted(count, size)):
        drawn = order[number * (size or 40) :][: size or 40]
        np.testing.assert_array_equal(part, np.sort([*LABELED, *drawn]))


def test_many_partitions_copy_no_laps_again(monkeypatch):
    """The time of a lap must not grow with the laps before it: 800 of 20,000 rows took minutes."""
    sizes, concatenate = [], np.concatenate

    def spy(arrays, *args, **options):
        found = concatenate(arrays, *args, **options)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(np, "concatenate", spy)
    parted(50, None)
    assert max(sizes) <= 43


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


def test_unlabeled_rows_are_in_no_balanced_batch():
    (drawn,) = batches(["a", None, "b", None], np.ones(4), 6, 1)
    assert set(drawn) == {0, 2}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"size": 0}, ValueError, "size must be at least 1; got 0"),
        ({"count": 1.5}, TypeError, "count must be a whole number; got 1.5"),
        ({"weights": np.ones(2)}, ValueError, r"weights must have shape \(3,\), one per row"),
        ({"weights": np.array([1, -1, 1])}, ValueError, "weights must be finite and at least 0"),
        ({"weights": ["a", "b", "c"]}, TypeError, "weights must hold numbers; got list: could not"),
        (
            {"weights": [[1], [1, 2], [1]]},
            TypeError,
            "weights must hold numbers; got list: setting",
        ),
        (
            *({"weights": np.ma.masked_equal([1, 0, 2], 2)}, ValueError),
            "weights must be finite and at least 0; got nan in row 2",
        ),
        (
            *({"weights": np.zeros(3)}, ValueError),
            "classes must hold a class with a row; got 0 rows with a class and a weight above 0",
        ),
    ],
)
def test_wrong_arguments_of_balanced_batches_raise(changes, error, message):
    given = {"classes": np.array([0, 1, 1]), "weights": np.ones(3), "size": 2, "count": 2}
    with pytest.raises(error, match=f"balanced_batches: {message}"):
        balanced_batches(**given | changes, rng=0)


def test_no_weights_are_equal_weights():
    classes = np.array([0, 1, 1, 1, -1])
    drawn = [list(balanced_batches(classes, w, 3, 9, 0)) for w in (None, np.ones(5))]
    assert drawn[0] == drawn[1]


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


def test_each_half_has_ten_rows_of_thirteen_classes(rng):
    """Two draws of n = 130 rows, as Chen et al. (2021) take them."""
    classes = np.repeat(np.arange(20), 24)
    for rows in aligned_halves(classes, 5, rng):
        first, second = np.reshape(rows, (2, -1))
        assert first.shape == (130,)
        np.testing.assert_array_equal(classes[first], classes[second])
        assert len(np.unique(rows)) == 260
        assert (np.unique(classes[first], return_counts=True)[1] == 10).all()


@pytest.mark.filterwarnings("ignore:aligned_halves. n_classes must be at most 2:UserWarning")
def test_small_classes_repeat_rows_within_a_half(rng):
    classes = np.array([0, 0, 0, 1, 1, 2, -1, -1])
    for rows in aligned_halves(classes, 20, rng, n_classes=13, per_class=3):
        first, second = np.reshape(rows, (2, -1))
        assert len(first) == 2 * 3
        np.testing.assert_array_equal(classes[first], classes[second])
        assert set(first) & set(second) == set()
        assert set(classes[rows]) == {0, 1}


def test_halves_are_drawn_by_weight(rng):
    classes, weights = np.zeros(6, dtype=int), np.array([0.0, 1.0, 1.0, 1.0, 1.0, 4.0])
    drawn = np.concatenate(
        [*aligned_halves(classes, 3000, rng, n_classes=1, per_class=1, weights=weights)]
    )
    counts = np.bincount(drawn, minlength=6)
    assert counts[0] == 0
    # First with 4/8, second with the sum over the others of 1/8 * 4/7.
    assert counts[5] / 3000 == pytest.approx(0.5 + 0.5 * 4 / 7, abs=0.03)


def test_class_batches_hold_rows_of_some_classes(rng):
    classes = np.append(np.repeat(np.arange(20), [12] * 19 + [3]), [-1] * 5)
    for rows in class_batches(classes, 50, rng, n_classes=4, per_class=6):
        found, counts = np.unique(classes[rows], return_counts=True)
        assert len(found) == 4
        assert (counts == 6).all()
        assert found.min() >= 0
        assert len(np.unique(rows)) == (21 if 19 in found else 24)


def test_class_batches_are_drawn_by_weight(rng):
    weights = np.array([0.0, 1.0, 1.0, 2.0])
    drawn = class_batches(np.zeros(4, int), 4000, rng, n_classes=1, per_class=1, weights=weights)
    counts = np.bincount(np.concatenate([*drawn]), minlength=4)
    assert counts[0] == 0
    assert chisquare(counts[1:], 4000 * weights[1:] / 4).pvalue > 1e-3


def test_whole_classes_fill_a_batch(rng):
    classes = np.append(np.repeat(np.arange(40), rng.integers(2, 9, 40)), [-1] * 9)
    sizes = np.bincount(classes[classes >= 0])
    for rows in whole_class_batches(classes, 50, rng, size=30):
        found, places = np.unique(classes[rows], return_index=True)
        assert len(np.unique(rows)) == len(rows) == 30
        assert found.min() >= 0
        whole = [c for c in found[np.argsort(places)] if (classes[rows] == c).sum() == sizes[c]]
        assert len(whole) >= len(found) - 1  # the last may be cut


MAKERS = {
    "balanced": lambda classes, rng: balanced_batches(classes, None, 12, 4, rng),
    "classes": lambda classes, rng: class_batches(classes, 4, rng, n_classes=3, per_class=4),
    "whole classes": lambda classes, rng: whole_class_batches(classes, 4, rng, size=12),
    "halves": lambda classes, rng: aligned_halves(classes, 4, rng, n_classes=3, per_class=2),
}


@pytest.mark.parametrize("name", MAKERS)
def test_batches_are_drawn_anew_in_every_epoch(name):
    classes = np.repeat(np.arange(6), 8)
    one, other = (MAKERS[name](classes, np.random.default_rng(0)) for _ in range(2))
    epochs = [np.array([*one]) for _ in range(3)]
    assert len(one) == 4
    assert {epoch.shape for epoch in epochs} == {(4, 12)}
    assert not np.array_equal(epochs[0], epochs[1])
    for epoch in epochs:
        np.testing.assert_array_equal(epoch, [*other])
    assert len(one.rows) == 48
    np.testing.assert_array_equal([*one.rows], np.concatenate([*other]))


@pytest.mark.parametrize("name", MAKERS)
def test_a_data_loader_takes_batches_and_rows(name):
    classes = torch.arange(6).repeat_interleave(8)
    batches = MAKERS[name](classes, np.random.default_rng(0))
    data = TensorDataset(torch.arange(48), classes)
    by_batch = DataLoader(data, batch_sampler=batches)
    by_row = DataLoader(data, sampler=batches.rows, batch_size=batches.size)
    for loader in (by_batch, by_row):
        assert len(loader) == 4
        for _ in range(2):
            served = [*loader]
            assert len(served) == 4
            for rows, labels in served:
                assert torch.equal(classes[rows], labels)
                assert len(labels) == 12


@pytest.mark.parametrize("name", MAKERS)
def test_batches_are_lists_of_int_that_other_processes_load(name):
    batches = MAKERS[name](NUMBERS, 0)
    copy = pickle.loads(pickle.dumps(batches))
    served = [*batches]
    assert {type(row) for batch in served for row in batch} == {int}
    assert [*copy] == served


TOO_FEW = {
    "class_batches": lambda rng: class_batches(np.array([0, 1, 1, -1]), 1, rng, n_classes=3),
    "aligned_halves": lambda rng: aligned_halves(np.array([0, 1, 1, 2, 2]), 1, rng, n_classes=3),
}


@pytest.mark.parametrize("name", TOO_FEW)
def test_too_few_classes_warn(name, rng):
    message = f"{name}: n_classes must be at most 2, .*; got 3. Draws all .*; pass n_classes=2"
    with pytest.warns(UserWarning, match=message):
        (rows,) = TOO_FEW[name](rng)
    assert len(rows) == TOO_FEW_ROWS[name]


def test_batches_of_one_class_warn(rng):
    message = "whole_class_batches: classes must hold two classes, .*; got one"
    with pytest.warns(UserWarning, match=message):
        whole_class_batches([4, 4, 4, -1], 1, rng, size=3)


TOO_FEW_ROWS = {"class_batches": 20, "aligned_halves": 40}


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda *a: aligned_halves(*a, per_class=0), "aligned_halves: per_class must be at least"),
        (lambda *a: aligned_halves(*a, n_classes=0), "aligned_halves: n_classes must be at least"),
        (aligned_halves, "classes must hold a class with two rows; got 2 rows with a class"),
        (lambda *a: class_batches(*a, n_classes=0), "class_batches: n_classes must be at least 1"),
        (lambda *a: whole_class_batches(*a, size=3), "size must be at most 2, .*; got 3"),
    ],
)
def test_impossible_batches_raise(draw, message, rng):
    with pytest.raises(ValueError, match=message):
        draw(np.array([0, 1, -1, -1]), 1, rng)


def test_batches_of_no_class_raise(rng):
    with pytest.raises(ValueError, match="class_batches: classes must hold a class with a row"):
        class_batches(np.array([-1, -1]), 1, rng)


NUMBERS = np.array([2, 0, 2, 1, 0, 1, 2, -1] * 3)
NAMES = np.array(["a", "b", "c", None], dtype=object)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(
    "classes",
    [
        NAMES[NUMBERS],
        NUMBERS.tolist(),
        torch.tensor(NUMBERS),
        np.where(NUMBERS < 0, np.nan, NUMBERS),
        pd.Series(NUMBERS, index=np.arange(24)[::-1]),
        pd.Series(NAMES[NUMBERS], dtype="category"),
    ],
    ids=["names", "list", "tensor", "NaN", "series", "categories"],
)
def test_batches_take_labels_of_any_kind(name, classes):
    expected = [*MAKERS[name](NUMBERS, np.random.default_rng(0))]
    np.testing.assert_array_equal([*MAKERS[name](classes, 0)], expected)


@pytest.mark.parametrize("scales", [(1.0, 1e-20), (1e308, 1e-308), (1e308, 1e308)])
def test_weights_count_within_their_class_alone(scales):
    """Confidences of a class may be far smaller than those of the others."""
    classes, weights = np.repeat([0, 1], [1000, 2]), np.append(np.ones(1000), [0.25, 0.75])
    by_class = np.repeat(scales, [1000, 2])
    drawn = np.concatenate([*balanced_batches(classes, by_class * weights, 100, 40, 0)])
    plain = np.concatenate([*balanced_batches(classes, weights, 100, 40, 0)])
    np.testing.assert_array_equal(drawn, plain)
    assert chisquare(np.bincount(drawn)[1000:], [500, 1500]).pvalue > 0.001
    one, two = (
        list(class_batches(classes, 20, 0, n_classes=2, per_class=1, weights=given))
        for given in (weights, by_class * weights)
    )
    assert one == two


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "balanced"])
def test_batches_name_wrong_labels_and_numbers(name):
    who = {"classes": class_batches, "whole classes": whole_class_batches}.get(name, aligned_halves)
    whose = rf"^{who.__name__}: "
    with pytest.raises(ValueError, match=whose + r"classes must have one dimension, .*\(24, 1\)"):
        MAKERS[name](NUMBERS[:, None], 0)
    with pytest.raises(ValueError, match=whose + "count must be at least 1; got 0"):
        who(NUMBERS, 0, 0)
    with pytest.raises(TypeError, match=whose + "count must be a whole number; got 2.5"):
        who(NUMBERS, 2.5, 0)


@pytest.mark.parametrize("draw", [class_batches, aligned_halves])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"weights must have shape \(24,\), one per row; got shape \(3,\)"),
        (np.full(24, np.nan), "weights must be finite and at least 0; got nan"),
        (-np.ones(24), r"weights must be finite and at least 0; got -1\.0 in row \d+\. Pass 0"),
    ],
)
def test_batches_name_wrong_weights(draw, weights, message):
    with pytest.raises(ValueError, match=f"^{draw.__name__}: {message}"):
        draw(NUMBERS, 1, 0, weights=weights)


def test_errors_about_labels_name_the_argument():
    for classes in (TensorDataset(torch.arange(3)), ["a", 1], ["a", ["b"]], np.array([b"\xff"])):
        with pytest.raises(
            (TypeError, ValueError), match=r"^class_batches: classes must "
        ) as raised:
            class_batches(classes, 1, 0)
        assert "y" not in str(raised.value).split()


def test_size_of_a_batch_is_a_whole_number():
    with pytest.raises(TypeError, match=r"size must be a whole number; got 6\.0"):
        whole_class_batches(NUMBERS, 1, 0, size=6.0)
