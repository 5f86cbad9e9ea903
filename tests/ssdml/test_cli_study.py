"""The commands that study: budgets and conditions, several data sets, wrong values."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ssdml.cli import app


@pytest.fixture
def run():
    """Calls the command line in this process."""
    runner = CliRunner()
    return lambda *arguments: runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def arrays(tmp_path) -> tuple[Path, Path]:
    """X.npy and y.npy: three classes that are easy to tell apart, six labels a class."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 40)
    X = (rng.normal(size=(120, 5)) + 4 * np.eye(5)[y]).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", np.where(np.arange(120) % 40 < 6, y, -1))
    return tmp_path / "X.npy", tmp_path / "y.npy"


@pytest.fixture
def data(arrays, tmp_path) -> Path:
    """The same as one .npz file, all labels known."""
    path = tmp_path / "blobs.npz"
    np.savez(path, X=np.load(arrays[0]), y=np.repeat(np.arange(3), 40))
    return path


def test_a_study_goes_over_budgets_and_conditions_and_says_what_to_take(run, data, tmp_path):
    out = tmp_path / "out"
    result = run(
        "study", data, "--methods", "input,pca,lda", "--budgets", "2,5,all", "--noise", "0,0.2",
        "--seeds", 2, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    assert len(rows) == 3 * 3 * 2 * 2
    full = [row["n_labeled"] for row in rows if row.get("budget", {}).get("n_labels", 0) is None]
    assert full == [81] * 12
    assert "blobs, all labels, 20 % of them wrong, 2 seeds" in result.stdout
    assert result.stderr.count("Take ") == 2


def test_a_study_of_several_data_sets_is_one_report(run, arrays, data, tmp_path):
    names = np.array(["ant", "bee", "cat"])[np.repeat(np.arange(3), 40)]
    other = tmp_path / "more.npz"
    np.savez(other, X=np.load(arrays[0])[::-1], y=names)
    out = tmp_path / "out"
    result = run(
        "study", data, other, "--methods", "input,pca", "--budgets", "6,12", "--draw", "balanced",
        "--seeds", 1, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "more, 12 labels in all, 1 seed" in result.stdout
    assert (out / "report.html").read_text().count("<h1>") == 2


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--budgets", "", "whole numbers"),
        ("--budgets", "1,some", "whole numbers"),
        ("--draw", "even", "must be one of class, balanced, natural"),
        ("--noise", "30", "must be numbers from 0 to 1"),
        ("--noise", "x", "must be numbers from 0 to 1"),
        ("--imbalance", "0.1", "must be numbers from 1 on"),
        ("--seeds", "0", "--seeds"),
    ],
)
def test_a_wrong_value_of_a_study_is_named(run, data, tmp_path, option, value, message):
    result = run("study", data, "--out", tmp_path / "out", option, value)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()
