"""``python -m tools.labeling``: rows are measured once, and tables are those of the rows."""

import json

import pytest

from tools.labeling import tables
from tools.labeling.__main__ import main, read_rows
from tools.labeling.measures import STRATEGIES


def test_a_set_is_measured_once(tmp_path):
    pytest.importorskip("skactiveml")
    arguments = ["suggest", "--sets", "wine", "--seeds", "1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    rows = read_rows(tmp_path, "suggest")
    assert [row["strategy"] for row in rows] == list(STRATEGIES)
    assert all(row["accuracy"] > 80 for row in rows)
    assert main(arguments) == 0
    assert read_rows(tmp_path, "suggest") == rows


def test_gains_are_paired_by_seed():
    rows = [
        {"set": "wine", "seed": seed, "strategy": strategy, "accuracy": 80.0 + seed + more}
        for seed in (0, 1, 2)
        for strategy, more in (("random", 0), ("suggested", 2), ("typiclust", seed), ("margin", -1))
    ]
    _, line = tables.suggest(rows)
    assert line == ("wine", "3", "81.0", "**+2.0 ± 0.0**", "+1.0 ± 2.5", "**−1.0 ± 0.0**")


def test_rows_of_a_second_run_and_of_novelty_are_shown(tmp_path):
    row = {"set": "digits", "seed": 0, "expected": 90.0, "true": 92.0, "relabeled": 91.0}
    rows = [row | {"fresh": 91.5, "fit_seconds": 2.0, "relabel_seconds": 0.2}]
    _, line = tables.labeled([*rows, rows[0] | {"seed": 1, "expected": 93.0}])
    assert line == ("digits", "2", "91.5", "92.0", "−0.5", "−2.0", "91.0", "91.5", "0.10")
    found = [{"set": "caltech101", "seed": 0, "AUROC": 94.0, "F1": 60.0}]
    (tmp_path / "novelty.jsonl").write_text(json.dumps(found[0]) + "\n")
    _, line = tables.novelty(read_rows(tmp_path, "novelty"))
    assert line == ("caltech101", "clutter, new", "1", "94.0", "60.0", "", "", "")
