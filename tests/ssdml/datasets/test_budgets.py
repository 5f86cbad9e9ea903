"""Label budgets: number of labels, draw, noise and imbalance."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ssdml.datasets import Dataset, load_dataset
from ssdml.datasets.budgets import Budget, mislabel, thin_classes
from ssdml.datasets.splits import LabelScarceSplit, label_scarce_split


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def sizes(dataset, rows):
    return np.bincount(dataset.y[rows], minlength=len(dataset.class_names))


def test_plain_budget_counts_labels_per_class(digits):
    plain = label_scarce_split(digits, 5, seed=0)
    assert label_scarce_split(digits, Budget(5), seed=0).digest == plain.digest


def test_budget_of_all_labels(digits):
    split = label_scarce_split(digits, Budget(None), seed=0)
    np.testing.assert_array_equal(split.labeled, split.train)
    np.testing.assert_array_equal(split.partial_labels(digits.y), digits.y[split.train])


@pytest.mark.parametrize("n", [7, 10, 34, 101])
def test_balanced_labels_differ_by_at_most_one(digits, n):
    counts = sizes(digits, label_scarce_split(digits, Budget(n, "balanced"), seed=2).labeled)
    assert counts.sum() == n
    assert np.ptp(counts) <= 1


def test_balanced_labels_continue_with_larger_classes():
    y = np.repeat([0, 1], [3, 30])
    toy = Dataset("toy", np.zeros((33, 1), np.float32), y, ("a", "b"))
    counts = sizes(toy, label_scarce_split(toy, Budget(10, "balanced"), seed=0).labeled)
    np.testing.assert_array_equal(counts, [2, 8])  # a third of each is held out


def test_natural_labels_follow_class_sizes():
    y = np.repeat([0, 1], [3000, 6000])
    toy = Dataset("toy", np.zeros((9000, 1), np.float32), y, ("a", "b"))
    counts = sizes(toy, label_scarce_split(toy, Budget(1000, "natural"), seed=0).labeled)
    # A standard deviation is sqrt(1000 * 2 / 9), about 15.
    assert abs(counts[0] - 1000 / 3) < 60


@pytest.mark.parametrize("draw", ["class", "balanced", "natural"])
def test_labels_are_nested_and_test_rows_fixed(digits, draw):
    budgets = [Budget(n, draw, imbalance=5) for n in (1, 5, 20)] + [Budget(None, imbalance=5)]
    splits = [label_scarce_split(digits, budget, seed=3) for budget in budgets]
    for small, large in pairwise(splits):
        assert set(small.labeled) < set(large.labeled)
        np.testing.assert_array_equal(small.test, large.test)
        np.testing.assert_array_equal(small.train, large.train)


@pytest.mark.parametrize("noise", [0.1, 0.25, 1.0])
def test_noise_is_a_share_of_wrong_labels(digits, noise):
    split = label_scarce_split(digits, Budget(8, noise=noise), seed=1)
    given = split.given_labels(digits.y)
    assert (given != digits.y[split.labeled]).sum() == round(noise * 80)
    np.testing.assert_array_equal(split.labeled[given != digits.y[split.labeled]], split.wrong)
    np.testing.assert_array_equal(
        split.partial_labels(digits.y)[np.searchsorted(split.train, split.labeled)], given
    )
    clean = label_scarce_split(digits, 8, seed=1)
    np.testing.assert_array_equal(split.labeled, clean.labeled)


def test_more_noise_keeps_earlier_wrong_labels(digits):
    few, many = (
        dict(zip(split.wrong, split.wrong_labels, strict=True))
        for split in (label_scarce_split(digits, Budget(9, noise=s), seed=1) for s in (0.1, 0.4))
    )
    assert few.items() < many.items()


def test_wrong_labels_are_uniform(rng):
    y = np.repeat([0, 3, 7], 4000)
    _, labels = mislabel(y, np.arange(4000), 1.0, rng)
    assert set(labels) == set()  # one class has no other among the labeled
    rows, labels = mislabel(y, np.arange(12000), 1.0, rng)
    shares = [np.mean(labels[y[rows] == 0] == other) for other in (3, 7)]
    np.testing.assert_allclose(shares, 0.5, atol=0.04)  # five standard deviations


def test_imbalance_thins_classes_geometrically(digits):
    split = label_scarce_split(digits, Budget(1, imbalance=10), seed=0)
    counts = np.sort(sizes(digits, split.train))[::-1]
    largest = sizes(digits, label_scarce_split(digits, 1, seed=0).train).max()
    np.testing.assert_allclose(counts, largest * 10 ** (-np.arange(10) / 9), atol=4)
    np.testing.assert_array_equal(split.test, label_scarce_split(digits, 1, seed=0).test)


def test_seed_determines_small_classes():
    classes = [np.arange(50)] * 6
    orders = {
        tuple(map(len, thin_classes(classes, 9, np.random.default_rng(seed)))) for seed in range(9)
    }
    assert len(orders) > 5
    assert len({tuple(sorted(order)) for order in orders}) == 1


def test_split_with_budget_round_trips(digits, tmp_path):
    split = label_scarce_split(digits, Budget(40, "natural", 0.2, 3.0), seed=1)
    split.save(tmp_path / "split.json")
    loaded = LabelScarceSplit.load(tmp_path / "split.json")
    assert (loaded.budget, loaded.digest) == (split.budget, split.digest)
    np.testing.assert_array_equal(loaded.given_labels(digits.y), split.given_labels(digits.y))


def test_every_budget_field_changes_the_digest(digits):
    budgets = [Budget(50, "balanced"), Budget(50, "natural"), Budget(5, noise=0.1), Budget(None)]
    budgets += [Budget(5), Budget(5, imbalance=2), Budget(5, noise=0.001)]
    digests = {label_scarce_split(digits, budget, seed=0).digest for budget in budgets}
    assert len(digests) == len(budgets)


def test_more_labels_than_rows_warn(digits):
    with pytest.warns(UserWarning, match=r"should have 5000 training rows .*; got 1198\. All"):
        split = label_scarce_split(digits, Budget(5000, "natural"), seed=0)
    np.testing.assert_array_equal(split.labeled, split.train)


def test_numbers_of_numpy_are_those_of_python(digits, tmp_path):
    given = Budget(np.int64(50), np.str_("natural"), np.float32(0.5), np.float64(2))
    assert given == Budget(50, "natural", 0.5, 2.0)
    label_scarce_split(digits, given, seed=0).save(tmp_path / "split.json")
    assert LabelScarceSplit.load(tmp_path / "split.json").budget == given


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_labels": 0}, "n_labels must be a positive integer, or None for all; got 0"),
        ({"n_labels": 2.5}, "n_labels must be a positive integer"),
        ({"draw": "blanced"}, "draw must be one of .*Did you mean 'balanced'"),
        ({"noise": 20}, r"noise must be a share from 0 to 1; got 20\. Pass 0\.2"),
        ({"imbalance": 0.1}, "imbalance must be at least 1, .*; got 0.1"),
    ],
)
def test_invalid_budget_raises(changes, message):
    with pytest.raises(ValueError, match=f"Budget: {message}"):
        Budget(**{"n_labels": 5} | changes)
