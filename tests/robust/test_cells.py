"""The cells of the robust suite: which rows are labeled, cut, and seen by the forms."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tests.robust.conftest import SIZES
from tools.robust.cells import SCHEMES, WRONG, Cell, cut, draw, plan, problem
from tools.robust.sets import BUDGETS, FORMS, SOURCES, published_rows, read

pytestmark = pytest.mark.filterwarnings("ignore:label_scarce_split")  # of small classes

SEEDS = range(3)
N_TRAIN = [
    size - sum(i % 3 == 0 for i in range(start, start + size))  # per class
    for start, size in zip(np.cumsum((0, *SIZES)), SIZES, strict=False)
]


def labels_per_class(split, y):
    return np.bincount(y[split.labeled], minlength=len(SIZES))


@pytest.mark.parametrize("n", BUDGETS)
@pytest.mark.parametrize("seed", SEEDS)
class TestSchemes:
    def test_balanced_labels_ignore_the_sizes_of_classes(self, skewed, n, seed):
        split = SCHEMES["balanced"](skewed, n, seed)
        assert labels_per_class(split, skewed.y).tolist() == np.minimum(n, N_TRAIN).tolist()
        assert not len(split.wrong)

    def test_random_labels_have_the_same_total(self, skewed, n, seed):
        split = SCHEMES["random"](skewed, n, seed)
        assert len(split.labeled) == min(n * len(SIZES), sum(N_TRAIN))
        assert (skewed.y[split.labeled] >= 0).all()
        assert np.array_equal(split.given_labels(skewed.y), skewed.y[split.labeled])

    def test_a_fifth_of_noisy_labels_is_wrong(self, skewed, n, seed):
        split, plain = (SCHEMES[name](skewed, n, seed) for name in ("noisy", "balanced"))
        assert np.array_equal(split.labeled, plain.labeled)
        wrong = split.given_labels(skewed.y) != skewed.y[split.labeled]
        assert wrong.sum() == round(WRONG * len(split.labeled))
        assert set(split.given_labels(skewed.y)) <= set(range(len(SIZES)))

    def test_a_quarter_of_the_classes_is_missing(self, skewed, n, seed):
        found = labels_per_class(SCHEMES["missing"](skewed, n, seed), skewed.y)
        gone = found == 0
        assert gone.sum() == len(SIZES) // 4
        assert found[~gone].tolist() == np.minimum(n, N_TRAIN)[~gone].tolist()
        first = labels_per_class(SCHEMES["missing"](skewed, 1, seed), skewed.y)
        assert np.array_equal(gone, first == 0)

    def test_no_scheme_moves_a_row_to_the_test(self, skewed, n, seed):
        for scheme in SCHEMES.values():
            split = scheme(skewed, n, seed)
            assert np.array_equal(split.test, np.flatnonzero(skewed.test))
            assert np.array_equal(split.train, np.flatnonzero(~skewed.test))
            assert set(split.labeled) <= set(split.train)


@pytest.mark.parametrize("scheme", ["balanced", "random", "missing"])
def test_fewer_labels_are_a_subset_of_more(skewed, scheme):
    drawn = [set(SCHEMES[scheme](skewed, n, 0).labeled) for n in BUDGETS]
    assert all(few <= many for few, many in pairwise(drawn))


def test_random_labels_follow_the_sizes_of_classes(skewed):
    total = sum(labels_per_class(SCHEMES["random"](skewed, 5, s), skewed.y) for s in range(200))
    expected = 200 * 5 * len(SIZES) * np.array(N_TRAIN) / sum(N_TRAIN)
    assert np.abs(total - expected).max() < 5 * np.sqrt(expected.max())  # five deviations


def test_one_of_three_classes_is_missing(skewed):
    few = replace(skewed.of_rows(skewed.y < 3), class_names=skewed.class_names[:3])
    split = SCHEMES["missing"](few, 5, 0)
    assert len(np.unique(few.y[split.labeled])) == 2


class TestCut:
    def test_rows_are_taken_from_their_own_side(self, skewed):
        marked = replace(skewed, X=np.arange(len(skewed.y), dtype=np.float32)[:, None])
        part = cut(marked, 0, 50, 30)
        rows = part.X[:, 0].astype(int)
        assert (~part.test).sum() == 50
        assert part.test.sum() == 30
        assert len(set(rows)) == 80
        assert np.array_equal(part.test, skewed.test[rows])
        assert np.array_equal(part.y, skewed.y[rows])

    def test_a_small_set_keeps_all_rows(self, skewed):
        part = cut(skewed, 0, 1000, 1000)
        assert np.array_equal(np.sort(part.X, axis=0), np.sort(skewed.X, axis=0))

    def test_a_third_is_held_out_without_standard_test_rows(self, skewed):
        part = cut(replace(skewed, test=None), 1, 1000, 1000)
        held = np.bincount(part.y[part.test], minlength=len(SIZES))
        assert held.tolist() == [round(size / 3) for size in SIZES]
        assert not np.array_equal(part.X, cut(replace(skewed, test=None), 2, 1000, 1000).X)

    def test_every_budget_and_scheme_gets_the_same_rows(self, skewed, as_wine, monkeypatch):
        as_wine(skewed)
        monkeypatch.setattr("tools.robust.cells.MOST_TRAIN", 100)
        cells = [Cell("wine", "raw", scheme, n, 4) for scheme in SCHEMES for n in (1, 10)]
        first, *others = (draw(cell) for cell in cells)
        for dataset, split in others:
            assert np.array_equal(dataset.X, first[0].X)
            assert np.array_equal(split.test, first[1].test)

    def test_full_cells_are_not_cut(self, skewed, as_wine, monkeypatch):
        as_wine(skewed)
        monkeypatch.setattr("tools.robust.cells.MOST_TRAIN", 100)
        assert len(problem(Cell("wine", "raw", "balanced", 1, 0)).X) == 100
        whole = problem(Cell("wine", "raw", "balanced", 1, 0, full=True))
        assert len(whole.X) == (~skewed.test).sum()


class TestForms:
    @pytest.mark.parametrize("form", FORMS)
    def test_test_rows_do_not_leak_into_training_rows(self, skewed, as_wine, form):
        cell = Cell("wine", form, "balanced", 5, 0)
        as_wine(skewed)
        before = problem(cell)
        shifted = np.where(skewed.test[:, None], 1000 - 7 * skewed.X, skewed.X)
        as_wine(replace(skewed, X=shifted))
        after = problem(cell)
        assert np.array_equal(before.X, after.X)
        assert np.array_equal(before.y, after.y)
        assert not np.array_equal(before.X_test, after.X_test)

    def test_standardized_training_rows_have_unit_variance(self, skewed, as_wine):
        as_wine(skewed)
        given = problem(Cell("wine", "standardized", "balanced", 5, 0))
        train = skewed.X[~skewed.test].astype(float)
        varies = train.std(axis=0) > 0
        assert given.X.mean(axis=0) == pytest.approx(0, abs=1e-5)
        assert given.X.std(axis=0)[varies] == pytest.approx(1, abs=1e-5)
        expected = (skewed.X[skewed.test] - train.mean(axis=0))[:, varies] / train.std(axis=0)[
            varies
        ]
        assert given.X_test[:, varies] == pytest.approx(expected, rel=1e-4, abs=1e-4)

    def test_unit_rows_have_length_one(self, skewed, as_wine):
        as_wine(skewed)
        given = problem(Cell("wine", "unit", "balanced", 5, 0))
        for X in (given.X, given.X_test):
            assert np.linalg.norm(X, axis=1) == pytest.approx(1, abs=1e-5)

    def test_raw_rows_are_those_of_the_set(self, skewed, as_wine):
        as_wine(skewed)
        given = problem(Cell("wine", "raw", "noisy", 5, 0))
        assert np.array_equal(given.X_test, skewed.X[skewed.test])
        assert np.array_equal(given.truth, skewed.y[~skewed.test])
        assert (given.y >= 0).sum() == np.minimum(5, N_TRAIN).sum()


class TestPlan:
    def test_other_schemes_take_the_first_form(self):
        cells = list(plan(["digits"], list(SCHEMES), BUDGETS, 2))
        assert len(set(cells)) == len(cells)
        counts = Counter((cell.scheme, cell.features) for cell in cells)
        balanced = {("balanced", form): 10 for form in SOURCES["digits"].features}
        assert counts == balanced | {(s, "raw"): 10 for s in SCHEMES if s != "balanced"}

    def test_named_features_are_given_with_all_schemes(self):
        cells = list(
            plan(["digits", "banking77"], ["balanced", "noisy"], [5], 1, features=["unit"])
        )
        assert cells == [Cell("digits", "unit", s, 5, 0) for s in ("balanced", "noisy")]

    def test_the_published_split_has_one_draw(self):
        cells = list(plan(["banking77_published"], list(SCHEMES), BUDGETS, 5))
        assert {(cell.scheme, cell.labels, cell.seed) for cell in cells} == {
            ("balanced", 5, 0),
            ("balanced", 10, 0),
        }

    def test_a_seed_is_finished_before_the_next(self):
        seeds = [cell.seed for cell in plan(["digits", "wine"], ["random"], BUDGETS, 3)]
        assert seeds == sorted(seeds)

    def test_at_least_twelve_sets_take_all_budgets(self):
        assert sum(source.budgets == BUDGETS for source in SOURCES.values()) >= 12


@pytest.mark.parametrize("n", [5, 10])
def test_published_rows_are_those_of_the_split(data_dir, n):
    data = read("banking77_published")
    rows = published_rows(n)
    assert np.bincount(data.y[rows]).tolist() == [n] * 77
    with np.load(data_dir / f"intents/banking77/train_{n}.npz") as few:
        given = {(name, *row[:4]) for name, row in zip(few["y"], few["X"].tolist(), strict=True)}
    names = np.array(data.class_names)[data.y[rows]]
    assert {
        (name, *row[:4]) for name, row in zip(names, data.X[rows].tolist(), strict=True)
    } == given
    assert draw(Cell("banking77_published", "raw", "balanced", n, 0))[1].labeled.tolist() == list(
        rows
    )


def test_one_class_of_atis_has_three_quarters(data_dir):
    data = read("atis")
    sizes = np.bincount(data.y[~data.test])
    assert len(sizes) == 17
    assert 0.7 < sizes.max() / sizes.sum() < 0.78
    assert sizes.min() >= 5
    assert np.isin(data.y[data.test], np.flatnonzero(sizes)).all()


def test_questions_of_other_intents_have_no_class(data_dir):
    data = read("banking77_oos")
    assert len(data.class_names) == 50
    assert (data.y == -1).sum() > 2000
    assert (data.y[data.test] >= 0).all()
