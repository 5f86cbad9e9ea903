"""The measurements of ``make gpu``: a dry run at toy size, and what is said without a card."""

from __future__ import annotations

import json

import pytest
import torch

from tools.gpu.__main__ import ROOT, main
from tools.gpu.rows import Rows


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# Some seconds: torchrun starts torch again.
@pytest.mark.long
def test_a_dry_run_measures_everything_on_the_cpu(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ssdml.deep.alternation.N_TRIPLETS", 500)
    arguments = ["--toy", "--device", "cpu", "--out", str(tmp_path)]
    assert main(arguments) == 0, capsys.readouterr().out
    checks, cifar = read(tmp_path / "checks.jsonl"), read(tmp_path / "cifar10.jsonl")
    assert {row["status"] for row in checks + cifar} == {"ok"}
    by_name = {row["name"]: row for row in checks}
    assert by_name["affinities"]["bound"] <= 1e-4
    assert by_name["neighbors, 500"]["rows_unlike_brute_force"] == 0
    for kind in ("default", "deterministic"):
        assert by_name["resume, mnist"][kind]["resumed_same_bits"]
    assert by_name["one rank"]["same_bits"]
    assert len(by_name["mnist, parts"]["parts"]["metric"]) == 2
    assert cifar[0]["settings"]["partition_size"] == 4
    before = (tmp_path / "checks.jsonl").read_text()
    assert main(["checks", *arguments]) == 0
    assert (tmp_path / "checks.jsonl").read_text() == before


@pytest.mark.parametrize("part", ["checks", "cifar10"])
def test_published_rows_name_their_card_once(part):
    rows = read(ROOT / "docs" / "results" / "gpu" / f"{part}.jsonl")
    assert all(row["status"] == "ok" and row["card"] != "cpu" for row in rows)
    assert all(row["peak_mb"] >= 0 and row["seconds"] >= 0 for row in rows)
    runs = [(row["name"], row["card"]) for row in rows]
    assert len(set(runs)) == len(runs)


def test_without_a_card_it_says_what_to_do(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["--out", str(tmp_path / "rows")]) == 2
    told = capsys.readouterr().err
    assert "finds none" in told
    assert "python -m tools.gpu --toy --device cpu" in told
    assert main(["--device", "cpu"]) == 2
    assert "Add --toy for a dry run" in capsys.readouterr().err
    assert not (tmp_path / "rows").exists()


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["everything"])
    assert "PART must be one of checks, cifar10; got everything." in capsys.readouterr().err


def test_failed_measurements_are_rows_and_repeated(tmp_path, capsys):
    rows = Rows(tmp_path / "rows.jsonl", "cpu", 60)

    def lost():
        raise RuntimeError("CUDA error: unspecified launch failure")

    assert rows.measure("step", lost) is None
    assert rows.failed == ["step"]
    assert rows.measure("step", lambda: {"ms": 2.0})["ms"] == 2.0
    first, second = read(tmp_path / "rows.jsonl")
    assert (first["status"], second["status"]) == ("failed", "ok")
    assert "unspecified launch failure" in first["error"]
    assert "lost" in first["trace"]


def test_measurements_stop_when_time_is_up(tmp_path, capsys):
    rows = Rows(tmp_path / "rows.jsonl", "cpu", 1.2, grace=0.0)

    def endless():
        while True:
            pass

    assert rows.measure("endless", endless) is None
    assert rows.measure("next", dict) is None
    (row,) = read(tmp_path / "rows.jsonl")
    assert row["error"].startswith("TimeoutError")
    assert rows.skipped == ["next"]
