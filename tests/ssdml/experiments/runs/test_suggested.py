"""Labels as they are suggested, as a way to draw them."""

import numpy as np
import pytest

from ssdml import suggest_labels
from ssdml.datasets import Budget, Dataset, label_scarce_split
from ssdml.experiments.runs.grid import make_runs
from ssdml.experiments.runs.suggested import suggested_rows, suggested_splits


@pytest.fixture
def blobs(rng):
    """120 rows of four separated classes; every tenth has no label."""
    y = np.arange(120) % 4
    X = (rng.standard_normal((120, 5)) + 6 * np.eye(4, 5)[y]).astype(np.float32)
    return Dataset("blobs", X, np.where(np.arange(120) % 10 == 9, -1, y), tuple("abcd"))


def test_rows_are_chosen_in_batches_without_unread_labels(blobs):
    rows = suggested_rows(blobs.X, blobs.y, 14, seed=0)
    assert len(set(rows.tolist())) == 14
    assert (blobs.y[rows] != -1).all()
    first = suggest_labels(blobs.X, 4)
    known = first[blobs.y[first] != -1]
    np.testing.assert_array_equal(rows[: len(known)], known)
    assert set(blobs.y[rows[:8]]) == {0, 1, 2, 3}
    other = blobs.y.copy()
    unread = np.setdiff1d(np.flatnonzero(blobs.y >= 0), rows)
    other[unread] = (other[unread] + 1) % 4
    np.testing.assert_array_equal(suggested_rows(blobs.X, other, 14, seed=0), rows)


def test_budgets_are_nested_and_held_out_rows_stay(blobs):
    budgets = [Budget(6, "suggested"), Budget(12, "suggested", noise=0.25), Budget(3)]
    found = suggested_splits(blobs, budgets, seed=1)
    assert list(found) == budgets[:2]
    small, large = found.values()
    assert set(small.labeled) < set(large.labeled)
    assert (len(small.labeled), len(large.labeled), len(large.wrong)) == (6, 12, 3)
    plain = label_scarce_split(blobs, 3, seed=1)
    np.testing.assert_array_equal(small.test, plain.test)
    np.testing.assert_array_equal(small.train, plain.train)
    assert set(small.labeled) <= set(small.train)


def test_runs_take_suggested_labels(blobs):
    budgets = [Budget(8, "natural"), Budget(8, "suggested")]
    runs = make_runs(blobs, {"none": lambda seed, n_jobs: None}, budgets, [0])
    assert [str(run.split.drawn_by) for run in runs] == [
        "8 labels at random",
        "8 labels as suggested",
    ]
    assert runs[0].config_hash != runs[1].config_hash
    with pytest.raises(ValueError, match=r"got 'suggested'. Pass such budgets to compare"):
        label_scarce_split(blobs, budgets[1], seed=0)
