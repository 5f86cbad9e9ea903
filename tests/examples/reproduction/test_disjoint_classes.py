"""Class-disjoint splits and their held-out cuts."""

from __future__ import annotations

import numpy as np
import pytest
from reproduction.loss_search import MIN_DRAWN, class_disjoint, held_out_classes

from ssdml.datasets import Dataset


def numbered(n_classes: int, n_each: int, rng: np.random.Generator) -> Dataset:
    """Samples that hold their own index, with shuffled classes."""
    y = rng.permutation(np.repeat(np.arange(n_classes), n_each))
    X = np.arange(len(y), dtype=np.float32)[:, None]
    return Dataset("numbered", X, y, tuple(map(str, range(n_classes))))


@pytest.mark.parametrize("n_classes", [4, 5, 31])
@pytest.mark.parametrize("seed", [0, 3])
def test_training_and_test_classes_are_disjoint_halves(rng, n_classes, seed):
    data = numbered(n_classes, 7, rng)
    split = class_disjoint(data, seed)
    learned, scored = np.unique(split.y[~split.test]), np.unique(split.y[split.test])
    assert not set(learned) & set(scored)
    assert (len(learned), len(scored)) == (n_classes // 2, n_classes - n_classes // 2)
    np.testing.assert_array_equal(data.y[split.X[:, 0].astype(int)], split.y)
    assert len(split.y) == len(data.y)


def test_classes_are_capped_to_the_same_rows(rng):
    data = numbered(MIN_DRAWN, 9, rng)
    splits = [class_disjoint(data, seed, per_class=5) for seed in (0, 1)]
    assert (np.bincount(splits[0].y) == 5).all()
    np.testing.assert_array_equal(splits[0].X, splits[1].X)


def test_the_seed_draws_among_many_classes(rng):
    few, many = numbered(MIN_DRAWN - 1, 3, rng), numbered(MIN_DRAWN, 3, rng)
    assert (class_disjoint(few, 0).test == class_disjoint(few, 1).test).all()
    assert (class_disjoint(many, 0).test != class_disjoint(many, 1).test).any()
    first = class_disjoint(many, 0)
    assert set(first.y[~first.test]) == set(range(MIN_DRAWN // 2))


def test_unlabeled_samples_are_left_out(rng):
    data = numbered(4, 6, rng)
    y = np.where(np.arange(24) < 10, -1, data.y)
    split = class_disjoint(Dataset("some", data.X, y, data.class_names), 0)
    assert set(split.X[:, 0].astype(int)) == set(range(10, 24))


@pytest.mark.parametrize(("n_classes", "n_held"), [(10, 2), (40, 7)])
def test_settings_are_chosen_on_held_out_training_classes(rng, n_classes, n_held):
    split = class_disjoint(numbered(n_classes, 4, rng), 0)
    held = set()
    for seed in range(20):
        cut = held_out_classes(split, seed)
        assert set(cut.y) == set(split.y[~split.test])
        assert not set(cut.y[cut.test]) & set(cut.y[~cut.test])
        assert len(set(cut.y[cut.test])) == n_held
        held |= set(cut.y[cut.test])
    assert held == set(split.y[~split.test])  # every class is held out once
