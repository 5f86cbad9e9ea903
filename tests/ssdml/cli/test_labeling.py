"""``ssdml next``: samples to label next."""

import csv

import numpy as np
import pytest


def test_next_lists_unlabeled_samples(run, arrays, tmp_path):
    model, out = tmp_path / "model", tmp_path / "next.csv"
    assert run("fit", *arrays, "--out", model, "--random-state", 0).exit_code == 0
    result = run("next", model, arrays[0], "-n", 6, "--out", out)
    assert result.exit_code == 0, result.stderr
    with out.open() as file:
        lines = list(csv.DictReader(file))
    rows = [int(line["row"]) for line in lines]
    assert len(set(rows)) == 6
    assert (np.load(arrays[1])[rows] == -1).all()
    assert {line["guess"] for line in lines} <= {"0", "1", "2"}
    assert all(0 <= float(line["novelty"]) <= 1 for line in lines)
    assert run("next", model, arrays[0], "-n", 6).stdout == out.read_text()
    refused = run("next", model, arrays[0], "--out", out)
    assert "exists already; --force replaces it" in refused.stderr


def test_next_names_the_lines_of_a_table(run, arrays, tmp_path):
    X, y = map(np.load, arrays)
    table = tmp_path / "t.csv"
    cells = [[*row, "" if label < 0 else f"class {label}"] for row, label in zip(X, y, strict=True)]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["a", "b", "c", "d", "e", "label"], *cells])
    assert run("fit", table, "--out", tmp_path / "model").exit_code == 0
    shown = run("next", tmp_path / "model", table, "-n", 3).stdout.splitlines()
    assert shown[0] == '"place","row","guess","confidence","novelty"'
    for line in csv.DictReader(shown):
        assert line["place"] == f"line {int(line['row']) + 2}"


def test_next_needs_the_samples_of_the_fit(run, arrays, tmp_path):
    model, other = tmp_path / "model", tmp_path / "other.npy"
    assert run("fit", *arrays, "--out", model).exit_code == 0
    np.save(other, np.load(arrays[0])[:50])
    result = run("next", model, other)
    assert result.exit_code == 1
    assert "must hold the 120 samples of the fit; got 50" in result.stderr


def test_next_refuses_rows_in_another_order(run, arrays, tmp_path):
    X, y = map(np.load, arrays)
    model, table = tmp_path / "model", tmp_path / "t.csv"

    def write(rows):
        cells = [[*X[row], ["", "x", "y", "z"][y[row] + 1]] for row in rows]
        with table.open("w", newline="") as file:
            csv.writer(file).writerows([["a", "b", "c", "d", "e", "label"], *cells])

    write(range(120))
    assert run("fit", table, "--out", model).exit_code == 0
    assert run("next", model, table).exit_code == 0
    write([*range(100), *range(119, 99, -1)])
    result = run("next", model, table)
    assert result.exit_code == 1
    assert "in 20 of 120 rows, first in line 102. Pass the file" in result.stderr
    np.save(tmp_path / "rows.npy", X[::-1])
    assert "in 120 of 120 rows, first in row 0" in run("next", model, tmp_path / "rows.npy").stderr


def test_next_needs_unlabeled_samples(run, data, tmp_path):
    assert run("fit", data, "--out", tmp_path / "model").exit_code == 0
    told = run("next", tmp_path / "model", data)
    assert "must have unlabeled samples; all 120 had a label" in told.stderr


@pytest.mark.parametrize("chosen", [(), ("--label", "topic")])
def test_next_leaves_out_labels_that_came_after_the_fit(run, arrays, tmp_path, chosen):
    X, y = map(np.load, arrays)
    names = [["", "x", "y", "z"][label + 1] for label in y]
    model, table = tmp_path / "model", tmp_path / "t.csv"

    def write():
        cells = [[*row, name] for row, name in zip(X, names, strict=True)]
        with table.open("w", newline="") as file:
            csv.writer(file).writerows([["a", "b", "c", "d", "e", "topic"], *cells])

    def suggested():
        result = run("next", model, table, "-n", 4, *chosen)
        assert result.exit_code == 0, result.stderr
        return [int(line["row"]) for line in csv.DictReader(result.stdout.splitlines())], result

    write()
    assert run("fit", table, "--label", "topic", "--out", model).exit_code == 0
    first, result = suggested()
    assert "after the fit" not in result.stderr
    for row in first[:3]:
        names[row] = "x"
    write()
    second, result = suggested()
    assert len(second) == 4
    assert not {*first[:3]} & {*second}
    assert "3 labels in" in result.stderr
    assert "after the fit" in result.stderr
    too_many = run("next", model, table, "-n", 1000, "--label", "topic")
    assert "at most the number of unlabeled samples" in too_many.stderr


def test_next_of_a_network_names_the_way_out(run, monkeypatch, tmp_path):
    monkeypatch.setattr(
        "ssdml.utils.persistence.saved_config", lambda folder: {"class": "DeepSSDML"}
    )
    result = run("next", tmp_path / "model", tmp_path / "x.csv")
    assert result.exit_code == 1
    assert "holds a network" in result.stderr
    assert "`ssdml label` suggests" in result.stderr
