"""Rows of the robust suite: what is measured, and that nothing is measured twice."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ssdml.datasets import Dataset
from ssdml.evaluation import evaluate
from tools.robust import rows
from tools.robust.cells import SCHEMES, Cell, Problem, plan, problem
from tools.robust.rows import attempt, identity, measured, pending, read_rows, scores

CELL = Cell("wine", "standardized", "balanced", 5, 1)
BOTH = ["input", "label-spreading"]


class Majority:
    """Predicts class 1 with confidence 0.75; another class of the labels in the transduction."""

    classes_ = np.array([0, 1])

    def fit(self, X, y):
        self.transduction_ = np.where(np.arange(len(X)) < 4, 0, 1)
        return self

    def predict(self, X):
        return np.ones(len(X), int)

    def predict_proba(self, X):
        return np.tile([0.25, 0.75], (len(X), 1))

    def transform(self, X):
        return -2.0 * X


def test_scores_are_those_of_a_known_model(monkeypatch, rng):
    monkeypatch.setitem(rows.METHODS, "majority", lambda seed, n_jobs: Majority())
    y = np.array([0, -1, -1, -1, -1, 1, -1])
    truth = np.array([0, 0, 0, 1, 1, 1, -1])  # the last one is of no class
    X, X_test = rng.random((7, 2)), rng.random((8, 2))
    y_test = np.array([1, 1, 1, 0, 0, 0, 0, 0])
    found = scores("majority", Problem(X, y, truth, X_test, y_test), 0)
    assert found["accuracy"] == pytest.approx(100 * 3 / 8)
    assert found["ece"] == pytest.approx(100 * (0.75 - 3 / 8))
    assert found["unlabeled"] == pytest.approx(75)  # rows 1, 2 and 4 of 1 to 4
    expected = evaluate(X_test, y_test, scores=["NMI", "R@1"])
    assert {name: found[name] for name in expected} == expected


def test_a_model_without_transduction_predicts_the_unlabeled_rows(monkeypatch):
    class Inductive(Majority):
        def fit(self, X, y):
            return self

    monkeypatch.setitem(rows.METHODS, "inductive", lambda seed, n_jobs: Inductive())
    X, y = np.eye(4), np.array([0, 1, -1, -1])
    given = Problem(X, y, np.array([0, 1, 0, 1]), X, np.array([0, 1, 0, 1]))
    assert scores("inductive", given, 0)["unlabeled"] == 50


def test_what_a_method_lacks_has_no_score(monkeypatch):
    class Bare:
        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.zeros(len(X), int)

    monkeypatch.setitem(rows.METHODS, "bare", lambda seed, n_jobs: Bare())
    y = np.array([0, 1, 0, 1])
    given = Problem(np.eye(4), y, y, np.eye(4), y)  # all rows are labeled
    assert scores("bare", given, 0).keys() == {"seconds", "accuracy"}


def test_a_row_says_what_was_measured():
    *_, row = attempt(CELL, "label-spreading")
    assert rows.cell_of(row) == CELL
    assert (row["method"], row["n"], row["d"], row["classes"]) == ("label-spreading", 118, 13, 3)
    measures = {"accuracy", "unlabeled", "NMI", "R@1", "ece", "seconds"}
    assert row.keys() - {"method", "n", "d", "classes", *Cell._fields} == measures
    assert row["accuracy"] > 80
    *_, row = attempt(CELL, "input")
    assert "accuracy" not in row


def test_a_failure_is_a_row_with_an_error(monkeypatch):
    monkeypatch.setattr(Majority, "fit", lambda self, X, y: X[-1, -1] / "one")
    monkeypatch.setitem(rows.METHODS, "majority", lambda seed, n_jobs: Majority())
    *_, row = attempt(CELL, "majority")
    assert row["error"].startswith("TypeError: ")
    assert "accuracy" not in row


def test_labels_of_one_class_give_no_row(monkeypatch):
    y = np.arange(60) % 2
    data = Dataset("two", np.eye(60, dtype=np.float32), y, ("a", "b"), np.arange(60) >= 40)
    monkeypatch.setattr("tools.robust.cells.read", lambda name: data)
    problem.cache_clear()
    assert attempt(CELL._replace(scheme="missing"), "input")[2] is None
    problem.cache_clear()


def wine_cells():
    return list(plan(["wine"], ["balanced", "missing"], [1, 2], 2, features=["unit"]))


def fill(folder, cells, methods):
    """Measure what has no row; the runs that were measured."""
    runs = pending(cells, methods, read_rows(folder))
    return list(measured(runs, folder, 1))


def test_a_second_run_measures_nothing(tmp_path):
    first = fill(tmp_path, wine_cells(), BOTH)
    assert len(first) == 8 + 2  # the input does not depend on the labels: once per seed
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["input.jsonl", "label-spreading.jsonl"]
    assert fill(tmp_path, wine_cells(), BOTH) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_lost_rows_alone_are_measured_again(tmp_path):
    fill(tmp_path, wine_cells(), BOTH)
    path = tmp_path / "label-spreading.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[5:]))
    again = fill(tmp_path, wine_cells(), BOTH)
    lost = [json.loads(line) for line in lines[3:5]]
    assert {run[:2] for run in again} == {(rows.cell_of(r), "label-spreading") for r in lost}
    kept = {identity(rows.cell_of(r), r["method"]): r for r in read_rows(tmp_path)}
    for row in lost:
        made = kept[identity(rows.cell_of(row), row["method"])]
        assert made | {"seconds": 0} == row | {"seconds": 0}


def test_failures_are_tried_again(tmp_path):
    (cell,) = plan(["wine"], ["noisy"], [2], 1)
    rows.append(tmp_path, {"method": "input", **cell._asdict(), "error": "no memory"})
    assert fill(tmp_path, [cell], ["input"]) == [(cell, "input")]
    (row,) = read_rows(tmp_path)
    assert "error" not in row
    assert fill(tmp_path, [cell], ["input"]) == []


def test_a_broken_line_is_named(tmp_path):
    fill(tmp_path, wine_cells()[:1], ["input"])
    with (tmp_path / "input.jsonl").open("a") as file:
        file.write('{"method": "inp')
    with pytest.raises(ValueError, match=r"input\.jsonl, line 2: not JSON .* Delete the line\."):
        read_rows(tmp_path)


def test_full_rows_and_variants_are_apart(tmp_path):
    (cell,) = plan(["wine"], ["balanced"], [2], 1, features=["raw"])
    variant = "label-spreading[alpha=0.9]"
    for row in ({"method": "input", **cell._asdict()}, {"method": variant, **cell._asdict()}):
        rows.append(tmp_path, row)
    assert (tmp_path / "label-spreading_alpha=0.9.jsonl").is_file()
    full = cell._replace(full=True)
    assert pending([cell, full], ["input", variant], read_rows(tmp_path)) == [
        (full, "input"),
        (full, variant),
    ]


def test_the_input_is_shared_by_all_labels_of_a_draw():
    cells = list(plan(["wine"], list(SCHEMES), [1, 5], 2))
    assert len({identity(cell, "input") for cell in cells}) == 2 * 3  # seeds and forms
    assert len({identity(cell, "ssdml") for cell in cells}) == len(cells)
