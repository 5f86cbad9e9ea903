"""The ranking of rows by exact distance."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from ssdml.evaluation import retrieval as ranking
from ssdml.evaluation.retrieval import first_copies, ranked_neighbors


def ranked(rows, depth):
    rows = np.asarray(rows, dtype=np.float64)
    rows.flags.writeable = False
    queries = np.arange(len(rows))
    return np.concatenate([found for _, found in ranked_neighbors(rows, queries, depth)])


def ranked_slowly(rows, depth):
    """The twin: every sum of squared differences, sorted with the index."""
    rows = np.asarray(rows, dtype=np.float64)
    squared = np.array([np.square(rows - row).sum(axis=1) for row in rows])
    np.fill_diagonal(squared, np.inf)
    index = np.broadcast_to(np.arange(len(rows)), squared.shape)
    return np.lexsort((index, squared))[:, :depth]


def cases():
    rng = np.random.default_rng(0)
    lattice = rng.integers(0, 3, (120, 3))
    yield "random", rng.normal(size=(120, 5))
    yield "one column", rng.normal(size=(120, 1))
    yield "float32", rng.normal(size=(120, 8)).astype(np.float32)
    yield "lattice", lattice
    yield "lattice of tenths", lattice * 0.1
    yield "lattice of tiny steps far from the origin", 1e6 + lattice * 1e-9
    yield "two rows, many copies", rng.integers(0, 2, (120, 1)) * np.array([[0.3, 0.7, 0.1]])
    yield "one row, many copies", np.full((40, 3), 0.1)
    yield (
        "zeros of both signs",
        rng.integers(0, 2, (60, 2)) * rng.choice([-1.0, 1.0], (60, 2)) * 0.1,
    )
    yield "one row far away", np.vstack([rng.normal(size=(60, 2)), [[1e9, 0.0]]])


CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("depth", [1, 7, None])
def test_the_ranking_is_that_of_all_sums_of_squared_differences(name, depth):
    rows = CASES[name]
    depth = depth or len(rows) - 1
    np.testing.assert_array_equal(ranked(rows, depth), ranked_slowly(rows, depth))


def test_blocks_change_nothing(monkeypatch):
    rows = CASES["lattice of tenths"]
    whole = ranked(rows, 20)
    monkeypatch.setattr(ranking, "BLOCK_ENTRIES", 500)
    blocks = [len(queries) for queries, _ in ranked_neighbors(rows, np.arange(len(rows)), 20)]
    assert len(blocks) > 10
    np.testing.assert_array_equal(ranked(rows, 20), whole)


def test_only_the_queries_are_answered():
    rows = CASES["random"]
    [(queries, found)] = ranked_neighbors(rows, np.array([7, 3]), 4)
    np.testing.assert_array_equal(queries, [7, 3])
    np.testing.assert_array_equal(found, ranked_slowly(rows, 4)[[7, 3]])


@pytest.mark.parametrize("exponent", [-660, 660])
def test_the_scale_does_not_matter_even_where_squares_overflow_or_vanish(exponent):
    rows = CASES["random"]
    np.testing.assert_array_equal(ranked(np.ldexp(rows, exponent), 9), ranked(rows, 9))


def test_the_number_of_threads_does_not_matter():
    rows = CASES["lattice of tenths"]
    with threadpool_limits(1):
        alone = ranked(rows, 30)
    with threadpool_limits(2):
        np.testing.assert_array_equal(ranked(rows, 30), alone)


def test_many_copies_cost_no_more_than_the_depth():
    rows = np.repeat(np.eye(3), 2000, axis=0)
    [(_, found), *_] = ranked_neighbors(rows, np.array([0, 5999]), 2)
    np.testing.assert_array_equal(found, [[1, 2], [4000, 4001]])


def test_first_copies_point_at_the_first_equal_row():
    rows = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [-0.0, 1.0], [1.0, 3.0]])
    np.testing.assert_array_equal(first_copies(rows), [0, 1, 0, 1, 4])
