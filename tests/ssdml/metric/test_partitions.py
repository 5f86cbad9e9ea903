"""Partitions of a dask array: their rows and their summaries."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from ssdml import SSDML
from ssdml.classification.forms import forms_with_graphs
from ssdml.metric import out_of_core
from ssdml.metric.alternation import learn_classes
from ssdml.metric.out_of_core import (
    REFERENCE_ROWS,
    Labeled,
    Task,
    apportion,
    chunk_groups,
    shares,
    smallest_partition,
    summarize,
)
from ssdml.utils.labels import in_precision
from ssdml.utils.scatter import class_scatter, pool_moments, pooled_scatter

# Rows and shares


@pytest.fixture
def chunks(rng):
    """Chunk sizes, some zero."""
    return [int(size) for size in rng.integers(0, 60_000, 50)] + [0, 3]


def test_partitions_cover_all_chunks_in_order(chunks):
    groups = chunk_groups(chunks, 8)
    assert list(chain.from_iterable(groups)) == list(range(len(chunks)))
    assert all(sum(chunks[chunk] for chunk in group) for group in groups)


@pytest.mark.parametrize("n_features", [1, 10_000])
@pytest.mark.parametrize("largest", [1, 500, 30_000, 200_000])
def test_partition_sizes_are_bounded(rng, n_features, largest):
    """At least half the limit; at most half more, or one chunk more."""
    most = min(50_000, 2**27 // n_features)
    for _ in range(30):
        sizes = [*rng.integers(0, largest + 1, rng.integers(1, 400)).tolist(), largest]
        groups = chunk_groups(sizes, n_features)
        rows = np.array([sum(sizes[chunk] for chunk in group) for group in groups])
        assert len(rows) == 1 or (2 * rows >= most).all()
        assert (rows <= max(1.5 * most, most + largest)).all()


def test_equal_chunks_merge_up_to_the_limit():
    assert [len(group) for group in chunk_groups([10_000] * 14, 8)] == [5, 5, 4]
    assert [len(group) for group in chunk_groups([10_000] * 12, 8)] == [5, 7]
    assert [len(group) for group in chunk_groups([90_000, 90_000, 3], 8)] == [1, 2]


def test_apportionment_is_proportional_and_exact(rng):
    for total in (0, 1, 7, 50_000):
        sizes = rng.integers(0, 1000, 20)
        parts = apportion(total, sizes)
        assert sum(parts) == total
        np.testing.assert_allclose(parts, total * sizes / sizes.sum(), atol=1)
    assert apportion(0, [0, 0]) == [0, 0]


def test_shares_sum_to_those_in_memory(rng, chunks):
    n = sum(chunks)
    labels = np.where(rng.random(n) < 0.01, 1, -1)
    parts = [share for _, share in shares(chunks, 8, labels)]
    assert sum(share.n_triplets for share in parts) == out_of_core.N_TRIPLETS
    assert sum(share.n_references for share in parts) == REFERENCE_ROWS
    assert [share.stop for share in parts[:-1]] == [share.start for share in parts[1:]]
    assert (parts[0].start, parts[-1].stop) == (0, n)
    for share in parts:
        assert sum(share.sizes) == share.stop - share.start


def test_smallest_partition_includes_labeled_rows(rng):
    labels = np.where(rng.random(150_000) < 0.001, 1, -1)
    sizes = [50_000, 60_000, 40_000]
    rows = np.split(np.arange(150_000), np.cumsum(sizes)[:-1])
    expected = [len(np.union1d(own, np.flatnonzero(labels != -1))) for own in rows]
    assert smallest_partition(sizes, 8, labels) == min(expected)


# Summaries


@pytest.fixture
def problem(monkeypatch, rng):
    """Three partitions of 200 rows in blocks of 100; ten rows are labeled."""
    monkeypatch.setattr(out_of_core, "PARTITION_ROWS", 200)
    truth = rng.integers(0, 3, 600)
    X = rng.standard_normal((600, 4)) + 3 * np.eye(3, 4)[truth]
    numbers = np.sort(rng.choice(600, 10, replace=False))
    labels = np.full(600, -1)
    labels[numbers] = truth[numbers]
    labeled = Labeled(numbers, labels[numbers], X[numbers])
    for array in (X, *labeled):
        array.flags.writeable = False
    task = Task(SSDML(), 8, 7)
    return X, labels, labeled, task, shares([100] * 6, 4, labels)


def summarized(problem, number):
    X, _, labeled, task, parts = problem
    chunks, share = parts[number]
    return summarize([X[100 * c : 100 * c + 100] for c in chunks], labeled, share, task)


def test_summaries_are_reproducible(problem):
    (one, summary), (two, again) = summarized(problem, 1), summarized(problem, 1)
    for first, second in zip((*one, *summary[:4]), (*two, *again[:4]), strict=True):
        np.testing.assert_array_equal(first, second)
    for first, second in zip(summary.triplets, again.triplets, strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(summary.references, again.references)
    assert summary.history == again.history


def test_classes_come_from_all_labeled_rows(problem):
    X, labels, *_ = problem
    own = np.arange(200, 400)
    rows = np.r_[own, np.setdiff1d(np.flatnonzero(labels != -1), own)]
    forms = forms_with_graphs(X[rows], 8, labels=labels[rows], rng=np.random.default_rng(0))
    classes, distributions = learn_classes(forms, labels[rows], n_jobs=None)
    _, summary = summarized(problem, 1)
    expected = in_precision(distributions[:200], X.dtype)
    np.testing.assert_array_equal(summary.distributions, expected)
    held_out, expected = summary.held_out, classes.evidence.held_out
    np.testing.assert_array_equal(np.flatnonzero(labels != -1)[held_out.rows], rows[expected.rows])
    np.testing.assert_array_equal(held_out.distributions, expected.distributions)


def test_numbers_are_those_of_the_chosen_rows(problem):
    X, labels, *_ = problem
    for number in range(3):
        _, summary = summarized(problem, number)
        np.testing.assert_array_equal(summary.X, X[summary.numbers])
        references = summary.numbers[summary.references]
        assert (references // 200 == number).all()
        assert len(np.unique(references)) == 200
        anchors = summary.numbers[summary.triplets.anchor]
        strangers = anchors[anchors // 200 != number]
        assert (labels[strangers] != -1).all()


def test_moments_count_each_row_once(problem):
    """Although every partition receives all labeled rows."""
    X = problem[0]
    moments, summaries = zip(*(summarized(problem, number) for number in range(3)), strict=True)
    classes = np.concatenate([s.distributions for s in summaries]).argmax(axis=1)
    pooled = pooled_scatter(pool_moments(moments))
    for one, two in zip(pooled, class_scatter(X, classes), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-12)


def test_partition_with_one_class_mines_nothing(problem):
    X, _, labeled, task, parts = problem
    single = labeled._replace(labels=np.full(10, 2))
    chunks, share = parts[0]
    _, summary = summarize([X[100 * c : 100 * c + 100] for c in chunks], single, share, task)
    assert summary.history[0]["n_triplets"] == 0
    assert summary.distributions.shape == (200, 1)
