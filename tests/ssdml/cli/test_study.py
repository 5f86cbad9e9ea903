"""The commands of comparisons: budgets, conditions, several data sets, wrong values."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("quick_maps")


def test_study_covers_budgets_and_conditions(run, data, tmp_path):
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
    assert "blobs, all labels, 20% of them wrong, 2 seeds" in result.stdout
    assert result.stderr.count("On blobs, ") == 2
    few = "blobs: only 39 labeled samples for testing, each worth 2.6 points of accuracy."
    assert result.stderr.count(few) == 1


OWN = """
from sklearn.base import BaseEstimator

class Scaled(BaseEstimator):
    def __init__(self, scale=1.0):
        self.scale = scale
    def fit(self, X, y):
        return self
    def transform(self, X):
        return self.scale * X

class Needy(Scaled):
    def __init__(self, scale):
        self.scale = scale

class Idle(BaseEstimator):
    pass
"""


def test_own_methods_and_tables_for_a_paper(run, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "own_methods_of_the_test.py").write_text(OWN)
    own = "own_methods_of_the_test:Scaled[scale=3]"
    result = run(
        "study", data, "--methods", f"input,lda,{own}", "--budgets", "1,5", "--seeds", 2,
        "--out", "out", "--map-rows", 0,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    left_out = "blobs, 1 label per class: lda is left out (ValueError: The number of samples"
    assert result.stderr.count(left_out) == 1
    assert "runs failed" not in result.stderr
    assert left_out in run("status", "out").stderr
    shown = run("table", "out", "--format", "latex", "--figures", "svg")
    assert shown.exit_code == 0, shown.output
    assert r"\toprule" in shown.stdout
    row = next(line for line in shown.stdout.splitlines() if line.startswith("lda"))
    assert row.count("--") == 4  # with one label per class
    assert "own\\_methods\\_of\\_the\\_test:Scaled" in shown.stdout
    citation = (tmp_path / "out/splits/CITATION.txt").read_text().splitlines()[0]
    assert citation.startswith("4 label-scarce splits of blobs, drawn by ssdml")
    assert f"% {citation}" in shown.stdout
    figures = sorted(path.name for path in (tmp_path / "out/figures").iterdir())
    assert figures == [f"blobs-{name}.svg" for name in (
        "NMI-difference", "NMI-labels", "R-1-difference", "R-1-labels", "accuracy-difference",
        "accuracy-labels", "ranks",
    )]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:X", "importable from .* No module named 'no_such_module'"),
        ("own_methods_of_the_test:None_", "has no attribute 'None_'"),
        ("own_methods_of_the_test:Needy", "must be made without arguments; got .*'scale'"),
        ("own_methods_of_the_test:Idle", r"must have fit\(X, y\), and transform\(X\) or predict"),
    ],
)
def test_a_wrong_method_of_ones_own_is_named(run, data, tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "own_methods_of_the_test.py").write_text(OWN)
    result = run("compare", "--dataset", data, "--methods", name, "--out", "out")
    assert result.exit_code == 1
    assert re.search(message, result.stderr), result.stderr


@pytest.mark.parametrize("option", ["--format", "--figures"])
def test_unknown_forms_of_tables_are_named(run, tmp_path, option):
    result = run("table", tmp_path, option, "docx")
    assert result.exit_code == 1
    assert f"{option} must be one of" in result.stderr


def test_several_data_sets_share_one_report(run, arrays, data, tmp_path):
    names = np.array(["ant", "bee", "cat"])[np.repeat(np.arange(3), 40)]
    other = tmp_path / "more.npz"
    np.savez(other, X=np.load(arrays[0])[::-1], y=names)
    out = tmp_path / "out"
    result = run(
        "study", data, other, "--methods", "input,pca", "--budgets", "6,12", "--draw", "balanced",
        "--seeds", 1, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "more, 12 labels in total, 1 seed" in result.stdout
    assert (out / "report.html").read_text().count("<h1>") == 2


def test_photos_are_compared_by_their_features(run, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("ssdml.experiments.labeling.features.find_spec", lambda name: None)
    words = ["--methods", "logistic", "--labels-per-class", 2, "--seeds", 1, "--map-rows", 0]
    told = run("compare", "--dataset", photos, "--out", tmp_path / "out", *words)
    assert told.exit_code == 0, told.output
    assert "principal components of 3,072 pixel values" in told.stderr
    row = json.loads((tmp_path / "out" / "results.jsonl").read_text())
    assert row["scores"]["accuracy"] == 100


def test_labels_as_they_fall_and_as_suggested_share_one_report(run, data, tmp_path):
    out = tmp_path / "out"
    result = run(
        "study", data, "--methods", "input,pca", "--budgets", "4,6", "--draw", "natural,suggested",
        "--seeds", 2, "--out", out,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "6 labels at random, 2 seeds" in result.stdout
    assert "6 labels as suggested, 2 seeds" in result.stdout
    assert "labels as suggested" in (out / "report.html").read_text()


def test_protocol_reaches_compare(run, data, tmp_path):
    words = ["compare", "--dataset", data, "--methods", "input", "--out", tmp_path / "out"]
    result = run(*words, "--protocol", "li2020")
    assert result.exit_code == 1
    assert "protocol must be 'dutta2021' unless the data are photographs" in result.stderr
    assert "got 'li2020'" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--budgets", ",", "whole numbers"),
        ("--budgets", "1,some", "whole numbers"),
        ("--draw", "even", "must be of class, balanced, natural"),
        ("--noise", "30", "must be numbers from 0 to 1"),
        ("--noise", "x", "must be numbers from 0 to 1"),
        ("--imbalance", "0.1", "must be numbers from 1 on"),
        ("--seeds", "0", "--seeds"),
    ],
)
def test_wrong_value_of_a_study_is_named(run, data, tmp_path, option, value, message):
    result = run("study", data, "--out", tmp_path / "out", option, value)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_report_needs_the_folder_only(run, data, tmp_path):
    out = tmp_path / "my out"
    run("compare", "--dataset", data, "--methods", "input,pca", "--seeds", 1, "--out", out)
    first = (out / "report.html").read_text()
    (out / "report.html").unlink()
    result = run("report", out)
    assert result.exit_code == 0, result.output
    assert (out / "report.html").read_text() == first
    assert f"ssdml table '{out}' prints" in result.stderr


def test_report_needs_results(run, tmp_path):
    result = run("report", tmp_path)
    assert result.exit_code == 1
    assert "results.jsonl" in result.stderr


def test_data_sets_of_one_name_are_refused(run, data, tmp_path):
    other = tmp_path / "other" / data.name
    other.parent.mkdir()
    other.write_bytes(data.read_bytes())
    result = run("study", data, other, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert f"{other} must have another name than {data}: both data sets are called 'blobs'" in (
        " ".join(result.stderr.split())
    )
    assert not (tmp_path / "out").exists()
