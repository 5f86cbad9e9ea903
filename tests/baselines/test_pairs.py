"""Scatters of labeled pairs, and random pairs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from ssdml.baselines.pairs import draw_pairs, draw_unknown_pairs, labeled_pairs


@pytest.fixture
def labels(rng):
    return rng.integers(-1, 4, size=40)


def pairs_one_by_one(labels):
    known = np.flatnonzero(labels >= 0)
    pairs = list(combinations(known, 2))
    return ([p for p in pairs if labels[p[0]] == labels[p[1]]],
            [p for p in pairs if labels[p[0]] != labels[p[1]]])  # fmt: skip


def test_scatter_equals_the_sum_over_pairs(rng, labels):
    X = rng.standard_normal((40, 3)) + 100
    pairs = labeled_pairs(X, labels)
    for kind, found, count in zip(pairs_one_by_one(labels), pairs[:2], pairs[2:], strict=True):
        expected = np.mean([np.outer(X[i] - X[j], X[i] - X[j]) for i, j in kind], axis=0)
        np.testing.assert_allclose(found, expected, atol=1e-8)
        assert count == len(kind)


def test_scatter_without_pairs_is_zero():
    pairs = labeled_pairs([[1.0], [2.0], [3.0]], [0, -1, -1])
    assert pairs == (0.0, 0.0, 0, 0)


@pytest.mark.parametrize("count", [2, 3, 7, 1000])
def test_scatter_of_equal_rows_is_exactly_zero(rng, count):
    """The mean of three times 0.1 is not 0.1 in floating point."""
    for _ in range(10):
        row, other = 100 * rng.standard_normal((2, 5))
        equal = labeled_pairs(np.tile(row, (2 * count, 1)), np.arange(2 * count) % 2)
        assert not equal.similar.any()
        assert not equal.dissimilar.any()
        classes = labeled_pairs(np.tile([row, other], (count, 1)), np.arange(2 * count) % 2)
        assert not classes.similar.any()
        between = np.outer(row - other, row - other)
        np.testing.assert_allclose(classes.dissimilar, between, rtol=1e-8)


def test_scatter_of_nearly_equal_rows(rng):
    X, labels = 1 + 1e-9 * rng.standard_normal((20, 3)), np.arange(20) % 4
    pairs = labeled_pairs(X, labels)
    for kind, found in zip(pairs_one_by_one(labels), pairs[:2], strict=True):
        expected = np.mean([np.outer(X[i] - X[j], X[i] - X[j]) for i, j in kind], axis=0)
        np.testing.assert_allclose(found, expected, atol=1e-3 * np.trace(expected))


def test_few_pairs_are_all_returned_once(rng, labels):
    for found, expected in zip(
        draw_pairs(labels, 10_000, rng), pairs_one_by_one(labels), strict=True
    ):
        assert sorted(map(sorted, found.tolist())) == sorted(map(sorted, expected))


def test_many_pairs_are_drawn_uniformly(rng, labels):
    for found, all_pairs in zip(draw_pairs(labels, 60, rng), pairs_one_by_one(labels), strict=True):
        assert len(found) == 60
        assert {tuple(sorted(p)) for p in found.tolist()} <= {tuple(sorted(p)) for p in all_pairs}
    drawn = np.concatenate(
        [draw_pairs(labels, 60, np.random.default_rng(i))[0] for i in range(200)]
    )
    _, counts = np.unique(np.sort(drawn, axis=1), axis=0, return_counts=True)
    n = len(pairs_one_by_one(labels)[0])
    assert len(counts) == n
    assert abs(counts - 12_000 / n).max() < 5 * np.sqrt(12_000 / n)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("count", [10_000, 50])
def test_unknown_pairs(rng, labels, both, count):
    pairs, total = draw_unknown_pairs(labels, count, rng, both=both)
    wanted = {
        (i, j)
        for i, j in combinations(range(40), 2)
        if (labels[i] < 0 and labels[j] < 0) or (not both and min(labels[i], labels[j]) < 0)
    }
    assert total == len(wanted)
    assert len(pairs) == min(count, total)
    found = {tuple(sorted(pair)) for pair in pairs.tolist()}
    assert found <= wanted
    assert count == 50 or found == wanted


@pytest.mark.parametrize("both", [False, True])
def test_row_limit_keeps_the_kinds_in_proportion(rng, both):
    """A tenth of the rows, in proportion; the number of pairs is that of all rows."""
    labels = np.where(np.arange(5000) % 5 == 0, 1, -1)
    every, total = draw_unknown_pairs(labels, 50_000, rng, both=both)
    few, n = draw_unknown_pairs(labels, 50_000, rng, both=both, n_rows=500)
    assert n == total
    assert len(few) == 50_000
    assert len(np.unique(few)) <= 500
    assert (labels[few[:, 0]] < 0).all()
    mixed = [float((labels[pairs] >= 0).any(axis=1).mean()) for pairs in (every, few)]
    assert mixed[0] == pytest.approx(mixed[1], abs=0.01)
    assert (mixed[0] == 0) == both


def test_row_limit_above_n_changes_nothing(labels):
    found = [
        draw_unknown_pairs(labels, 50, np.random.default_rng(0), n_rows=n)[0] for n in (None, 40)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(("n_rows", "n_distinct"), [(None, 990), (10_000, 900)])
def test_one_unlabeled_row_among_many_is_cheap(rng, n_rows, n_distinct):
    labels = np.zeros(300_000, int)
    labels[7] = -1
    pairs, total = draw_unknown_pairs(labels, 1000, rng, n_rows=n_rows)
    assert total == 299_999
    assert (pairs[:, 0] == 7).all()
    assert len(np.unique(pairs[:, 1])) > n_distinct
    assert draw_unknown_pairs(np.zeros(300_000, int), 1000, rng)[1] == 0
