"""Text tables: scores, published scores, tests, notes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from reproduction.published import (
    PUBLISHED,
    RECONSTRUCTED,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_5,
)
from reproduction.tables import table_lines
from scipy.stats import t as student

from ssdml.experiments import METHODS
from ssdml.experiments.methods.base import parse_method
from ssdml.experiments.methods.registry import DEEP_METHODS

SCORES = ("NMI", "R@1", "R@2", "R@4", "R@8", "accuracy")


@pytest.fixture
def rows(rng):
    def some(methods, n_seeds):
        return [
            {
                "dataset": "mnist",
                "method": method,
                "seed": seed,
                "labels_per_class": 10,
                "n_train": 600,
                "n_labeled": 100,
                "n_test": 300,
                "status": "ok",
                "seconds": {"fit": 1.0, "transform": 1.0},
                "peak_rss_mb": 1.0,
                "scores": {name: 80 + 5 * rng.random() for name in SCORES},
            }
            for seed in range(n_seeds)
            for method in methods
        ]

    return some


def test_lines_end_in_the_corrected_test(rows):
    runs = rows(["deep-lrml", "deep-ssdml"], 5)
    lines = {line.split()[0].rstrip("*"): line for line in list(table_lines(runs[::-1], {}))[2:4]}
    for score, found in zip(("NMI", "R@1"), lines["deep-lrml"].split()[-2:], strict=True):
        one, two = (
            np.array([row["scores"][score] for row in runs if row["method"] == method])
            for method in ("deep-lrml", "deep-ssdml")
        )
        spread = (two - one).std(ddof=1) * np.sqrt(1 / 5 + 300 / 600)
        p = 2 * student.sf(abs((two - one).mean()) / spread, df=4)
        assert float(found) == pytest.approx(p, abs=6e-4)
    assert lines["deep-ssdml"].count(".") == 10  # five means with their intervals, no test


@pytest.mark.parametrize(("methods", "n"), [(["deep-lrml", "deep-ssdml"], 4), (["deep-lrml"], 5)])
def test_fewer_than_five_seeds_have_no_test(rows, methods, n):
    shown = "\n".join(table_lines(rows(methods, n), TABLE_1))
    assert not re.search(r"\bp\b", shown.partition("* our reconstruction")[0])


def test_stars_mark_reconstructed_methods(rows):
    methods = ["input", *TABLE_1["mnist"], "deep-ssdml", "deep-isdml[decay=0.9;epochs=20]"]
    table, _, notes = "\n".join(table_lines(rows(methods, 2), TABLE_1)).partition("* our")
    starred = set(re.findall(r"^(initial|deep-[a-z-]+)[^ *]*\*", table, re.M))
    baselines = {f"deep-{name}" for name in ("lrml", "seraph", "isdml", "apllr", "apit")}
    assert starred == {"initial", "deep-ssdml-paper"} | baselines
    assert set(re.findall(r"\binitial\b|deep-[a-z-]+", notes)) == starred
    assert notes.count("deep-isdml") == 2  # batches and objective
    assert max(map(len, (table + notes).splitlines())) < 80


def test_published_methods_exist():
    assert RECONSTRUCTED.keys() <= METHODS.keys() | DEEP_METHODS.keys()
    for name, methods in PUBLISHED.items():
        assert {parse_method(method)[0] for method in methods} <= DEEP_METHODS.keys(), name
    assert PUBLISHED["mnist"] == TABLE_1["mnist"] | TABLE_4["mnist"]
    cub = TABLE_2["cub"] | TABLE_3["cub"]
    assert {method: PUBLISHED["cub"][method] for method in cub} == cub
    assert PUBLISHED["cub"]["deep-triplet"] == TABLE_5["cub"]["deep-triplet"]


def test_failed_lines_have_dashes(rows):
    """Failed runs have no scores; the columns follow the data set."""
    runs = rows(["deep-lrml", "deep-ssdml"], 2)
    failed = [
        row | {"dataset": "sop", "status": "failed", "scores": {}, "seconds": {}} for row in runs
    ]
    table = list(table_lines(failed, {}))
    assert table[1].split()[:5] == ["NMI", "R@1", "R@10", "R@100", "R@1000"]
    assert {tuple(line.split()[1:6]) for line in table[2:4]} == {("-",) * 5}
    half = [row for row in runs if row["method"] == "deep-ssdml"]
    half += [
        row | {"status": "failed", "scores": {}} for row in runs if row["method"] == "deep-lrml"
    ]
    (line,) = (line for line in table_lines(half, {}) if line.startswith("deep-lrml"))
    assert line.split()[1:6] == ["-"] * 5
