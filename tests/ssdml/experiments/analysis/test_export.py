"""Tables for a paper: the same numbers in three formats, bold, stars, methods left out."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from ssdml.experiments.analysis.export import FORMATS, escaped, export_tables
from ssdml.experiments.analysis.statistics import holm, mean_interval
from ssdml.experiments.analysis.tables import paired_tests, worse_than_best

SCORES = {
    "best_one": [80.0, 81, 82, 83, 84],
    "close": [80.5, 80.4, 82.1, 82.8, 83.9],
    "far": [50.0, 52, 51, 50, 53],
}


@pytest.fixture
def rows(make_row):
    """Five seeds of three methods with two budgets; one cannot run with one label."""
    found = []
    for budget in (1, 5):
        for method, values in SCORES.items():
            for seed, value in enumerate(values):
                row = make_row(
                    method=method, seed=seed, labels_per_class=budget, scores={"NMI": value}
                )
                if (method, budget) == ("far", 1):
                    row |= {"scores": {}, "status": "left out", "error": "ValueError: few"}
                found.append(row)
    return found


def test_numbers_are_means_and_intervals(rows):
    lines = list(csv.DictReader(export_tables(rows, "csv", ["NMI"]).splitlines()))
    assert len(lines) == 5  # one method left out with one label
    line = next(line for line in lines if line["method"] == "close")
    estimate = mean_interval(SCORES["close"])
    found = [float(line[name]) for name in ("mean", "low", "high")]
    assert found == pytest.approx([estimate.mean, estimate.low, estimate.high], rel=1e-5)
    assert line["seeds"] == "5"


def test_bold_is_the_best_and_stars_are_significant(rows):
    few = [row for row in rows if row["labels_per_class"] == 5]
    worse = worse_than_best(few, "NMI")
    tests = paired_tests(few, "best_one", "NMI")
    expected = holm([tests["close"].p, tests["far"].p])[1]
    assert worse == {"far": pytest.approx(expected)}
    text = export_tables(few, "markdown", ["NMI"], note="the splits")
    assert "| **82.0** ±2.0 |" in text
    assert r"| 51.2\* ±1.6 |" in text
    assert text.count("**") == 2
    assert text.endswith("the splits\n")


def test_ranks_are_means_over_the_seeds(rows):
    rows = [
        row | {"scores": {n: row["scores"]["NMI"] for n in ("accuracy", "NMI") if row["scores"]}}
        for row in rows
    ]
    lines = list(csv.DictReader(export_tables(rows, "csv", ["rank"]).splitlines()))
    found = {(line["budget"][0], line["method"]): float(line["mean"]) for line in lines}
    few = {("1", "best_one"): 1.4, ("1", "close"): 1.6}
    assert found == few | {("5", "best_one"): 1.4, ("5", "close"): 1.6, ("5", "far"): 3.0}
    assert {(line["score"], line["low"], line["seeds"]) for line in lines} == {("rank", "", "5")}
    for form, best in (("markdown", "| **1.4** |"), ("latex", r"\textbf{1.4} & ")):
        text = export_tables(rows, form, ["rank", "NMI"])
        assert best in text
        assert "nan" not in text


def test_fewer_than_five_seeds_have_no_stars(rows):
    few = [row for row in rows if row["seed"] < 4]
    assert worse_than_best([row for row in few if row["labels_per_class"] == 5], "NMI") == {}
    text = export_tables(few, "latex", ["NMI"])
    assert "p-values need 5 seeds" in text
    assert "^{*}" not in text


def test_latex_has_a_column_per_budget(rows):
    text = export_tables(rows, "latex", ["NMI"], note="the splits")
    assert text.startswith("% the splits\n")
    lines = text.splitlines()
    assert (
        r" & \multicolumn{1}{c}{1 label per class} & \multicolumn{1}{c}{5 labels per class} \\"
        in lines
    )
    far = next(line for line in lines if line.startswith("far"))
    assert far == r"far & -- & 51.2$^{*}$ {\scriptsize $\pm$ 1.6} \\"
    assert any(line.startswith(r"best\_one & \textbf{82.0}") for line in lines)
    assert next(line for line in lines if "rule" in line) == r"\toprule"


def test_default_scores_are_those_that_runs_have(make_row):
    only = [make_row(seed=seed) | {"scores": {"accuracy": 80.0}} for seed in range(2)]
    scores = [line.split(",")[3] for line in export_tables(only, "csv").splitlines()[1:]]
    assert scores == ["rank", "accuracy"]


@pytest.mark.parametrize("form", FORMATS)
def test_unknown_scores_are_named(rows, form):
    with pytest.raises(ValueError, match=r"scores must be among .*NMI.*; got 'R@3'. Name others"):
        export_tables(rows, form, ["NMI", "R@3"])


def test_latex_commands_are_escaped():
    assert escaped("a_b 10% {c} \\ ^~") == (
        r"a\_b 10\% \{c\} \textbackslash{} \textasciicircum{}\textasciitilde{}"
    )


def test_seeds_of_all_methods_are_paired(rows):
    """A seed that the best one lacks does not count in its tests."""
    few = [row for row in rows if row["labels_per_class"] == 5]
    few = [row for row in few if (row["method"], row["seed"]) != ("best_one", 0)]
    assert worse_than_best(few, "NMI") == {}
    assert np.isnan(paired_tests(few, "best_one", "NMI")["far"].p)


def test_means_that_print_alike_are_bold_without_stars(make_row):
    scores = {"one": 98.14, "other": 98.06, "third": 97.9}
    rows = [
        make_row(method=method, seed=seed, scores={"R@1": value + 0.001 * seed})
        for method, value in scores.items()
        for seed in range(5)
    ]
    assert set(worse_than_best(rows, "R@1")) == {"other", "third"}
    lines = export_tables(rows, "latex", ["R@1"]).splitlines()
    shown = {line.split(" & ")[0]: line for line in lines if r"\scriptsize" in line}
    assert [name for name, line in shown.items() if r"\textbf{98.1}" in line] == ["one", "other"]
    assert [name for name, line in shown.items() if "^{*}" in line] == ["third"]


def test_the_caption_names_the_family(rows):
    text = export_tables(rows, "latex", ["NMI"])
    assert "Holm's method over the methods of the column" in text
    assert r"95\% t-interval" in text
    assert r"(p $<$ 0.05;" in text
