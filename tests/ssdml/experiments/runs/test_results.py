"""Rows and the file that lists them."""

from __future__ import annotations

import json

import pytest

from ssdml.experiments.runs.results import latest, read_rows, write_rows


def test_rows_survive_a_round_trip(tmp_path, make_row):
    path = tmp_path / "results.jsonl"
    rows = [make_row(seed=seed, dataset="Zürich 数字\n") for seed in range(3)]
    write_rows(path, rows)
    assert read_rows(path) == rows
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3


@pytest.mark.parametrize("kept", [1, 40, -2, -1])
def test_incomplete_last_line_is_skipped_with_warning(tmp_path, make_row, kept):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(make_row(seed=0)) + "\n" + json.dumps(make_row(seed=1))[:kept])
    with pytest.warns(UserWarning, match=r"results\.jsonl: the last line is incomplete"):
        assert [row["seed"] for row in read_rows(path)] == [0]


def test_scores_must_be_finite(tmp_path, make_row):
    path = tmp_path / "results.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_rows(path, [make_row(peak_rss_mb=float("nan"))])
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("oops", "not JSON"), ("[1, 2]", "no 'dataset'"), ('{"dataset": "d"}', "no 'method'")],
)
def test_malformed_line_is_named(tmp_path, make_row, line, complaint):
    path = tmp_path / "results.jsonl"
    path.write_text(f"{json.dumps(make_row())}\n{line}\n")
    with pytest.raises(ValueError, match=rf"results\.jsonl, line 2: .*{complaint}.*Delete it and"):
        read_rows(path)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"config_hash": "../../secret"}, "its config_hash must be a name"),
        ({"config_hash": ".."}, "its config_hash must be a name"),
        ({"scores": []}, "a wrong 'scores'"),
        ({"scores": {"NMI": "high"}}, "scores must be finite numbers"),
        ({"seconds": {"fit": float("inf")}}, "seconds must be finite numbers"),
        ({"seed": "0"}, "a wrong 'seed'"),
        ({"versions": None}, "a wrong 'versions'"),
        ({"error": 3}, "a wrong 'error'"),
    ],
)
def test_row_of_other_kinds_is_named(tmp_path, make_row, changes, complaint):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(make_row() | changes) + "\n")
    with pytest.raises(ValueError, match=rf"results\.jsonl, line 1: .*{complaint}.*Delete it and"):
        read_rows(path)


def test_deep_json_is_named(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("[" * 10**5 + "\n")
    with pytest.raises(ValueError, match=r"results\.jsonl, line 1: not JSON .*nested too deeply"):
        read_rows(path)


@pytest.mark.parametrize("budget", [[], 3, {"n_labels": [1]}])
def test_budget_of_another_kind_is_named(tmp_path, make_row, budget):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(make_row(budget=budget)) + "\n")
    with pytest.raises(ValueError, match=r"line 1: this version does not know its budget"):
        read_rows(path)


def test_unknown_budget_is_named(tmp_path, make_row):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(make_row(budget={"n_labels": 3, "shape": "odd"})) + "\n")
    with pytest.raises(ValueError, match=r"line 1: this version does not know its budget .*'shape"):
        read_rows(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.jsonl: there is no such file"):
        read_rows(tmp_path / "results.jsonl")


def test_retry_replaces_its_failed_run_only(make_row):
    failed = make_row(method="nca", status="failed")
    again, other = make_row(method="nca"), make_row(method="nca", seed=1)
    assert latest([failed, other, again]) == [again, other]
