"""``python -m tools.robust``: a small run on wine, its tables, and what is said when it fails."""

from __future__ import annotations

import re

import pytest

from ssdml.experiments import METHODS
from tools.robust import tables
from tools.robust.__main__ import DEFAULT, main
from tools.robust.rows import attempt, cell_of, read_rows

WINE = ("--sets", "wine", "--features", "standardized", "--labels", "2", "--seeds", "2")


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_wine_is_measured_once_and_shown(tmp_path, capsys):
    arguments = [*WINE, "--schemes", "balanced", "noisy", "--out", str(tmp_path)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    rows = read_rows(tmp_path)
    assert len(rows) == 2 + 2 * 2 * (len(DEFAULT) - 1)
    head, *lines = tables.cells(rows, DEFAULT)
    assert len(lines) == 2
    for line in (head, *lines):
        assert any(all(part in told for part in line) for told in shown.splitlines())
    before = files(tmp_path)
    assert main(arguments) == 0
    assert capsys.readouterr().out == shown
    assert files(tmp_path) == before


def test_processes_measure_the_same(tmp_path):
    arguments = [*WINE, "--schemes", "noisy", "--methods", "label-spreading"]
    assert main([*arguments, "--jobs", "2", "--out", str(tmp_path)]) == 0
    rows = read_rows(tmp_path)
    assert len(rows) == 2
    for row in rows:
        again = attempt(cell_of(row), row["method"])[2]
        assert again | {"seconds": 0} == row | {"seconds": 0}


def test_tables_alone_measure_nothing(tmp_path, capsys):
    out = tmp_path / "none"
    assert main([*WINE, "--out", str(out), "--tables"]) == 0
    assert capsys.readouterr().out == ""
    assert not out.exists()


def test_missing_data_are_left_out_and_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SSDML_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    out = tmp_path / "rows"
    asked = ("--sets", "caltech101", "wine", "--features", "raw", "--labels", "1", "--seeds", "1")
    assert main([*asked, "--methods", "input", "--out", str(out)]) == 0
    assert "caltech101 is left out: caltech101/X.npy is in none of" in capsys.readouterr().err
    assert [row["set"] for row in read_rows(out)] == ["wine"]


def test_a_method_that_raises_fails_the_run(tmp_path, capsys, monkeypatch):
    def broken(random_state, n_jobs):
        raise RuntimeError("no such day")

    monkeypatch.setitem(METHODS, "broken", broken)
    arguments = [*WINE, "--schemes", "balanced", "--methods", "broken", "--out", str(tmp_path)]
    assert main(arguments) == 1
    assert "RuntimeError: no such day" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--methods", "ssdlm", "method must be one of .* Did you mean 'ssdml'"),
        ("--methods", "ssdml[decay=2]", "decay.* must be a float in the range"),
        ("--sets", "wines", "invalid choice: 'wines'"),
        ("--seeds", "0", "--seeds must be at least 1; got 0"),
        ("--labels", "3", "invalid choice: 3"),
    ],
)
def test_wrong_arguments_are_named(option, value, message, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([option, value, "--out", str(tmp_path)])
    assert re.search(message, " ".join(capsys.readouterr().err.split()))
