"""Lines about the baselines: the best of ours, open comparisons, published scores."""

from __future__ import annotations

import numpy as np
import pytest
from reproduction.tables import baseline_lines, best_of, rank_lines

FOUND = {  # by method, seed after seed
    "ssdml": (80.0, 82.0, 81.0, 81.0, 81.0),
    "ssdml-paper": (90.0, 91.0, 92.0, 91.0, 91.0),
    "lrml": (70.0, 71.5, 72.0, 71.0, 71.0),
    "lda": (89.0, 93.0, 91.0, 91.0, 91.0),
    "nca": (95.0, 96.1, 97.0, 96.0, 96.0),
}


def runs(found=FOUND, score="NMI", name="digits"):
    return [
        {
            "dataset": name,
            "method": method,
            "seed": seed,
            "labels_per_class": 10,
            "n_train": 600,
            "n_test": 100,
            "scores": {} if value is None else {score: value},
        }
        for method, values in found.items()
        for seed, value in enumerate(values)
    ]


def test_the_best_method_and_open_comparisons_are_named():
    title, *lines, verdict = baseline_lines(
        runs(), "NMI", ["ssdml", "ssdml-paper"], ["lrml", "lda", "nca"]
    )
    assert title == "digits, 10 labels per class: NMI"
    assert [line.split()[0].rstrip("*") for line in lines] == list(FOUND)
    assert lines[1].split() == ["ssdml-paper", "91.0", "±", "0.9"]
    assert verdict.startswith(
        "  best of ours: ssdml-paper; not significantly better than: lda (p = 1"
    )
    verdict = " ".join(verdict.split())
    assert "nca (ahead, p = 0.0" in verdict
    assert "lrml" not in verdict
    *_, verdict = baseline_lines(runs(), "NMI", ["ssdml-paper"], ["lrml"])
    assert verdict.endswith("not significantly better than: none")


def test_published_scores_are_shown_beside():
    found = {"deep-ssdml": (90.0, 91.0), "deep-lrml": (80.0, 80.5), "deep-nce": (70.0, 72.0)}
    rows = runs(found, "R@1", "mnist")
    _, ours, lrml, nce, _ = baseline_lines(rows, "R@1", ["deep-ssdml"], ["deep-lrml", "deep-nce"])
    assert lrml.endswith("  published 88.7")
    assert lrml.split()[0] == "deep-lrml*"
    assert not any("published" in line for line in (ours, nce))


def test_classifiers_are_left_out_of_other_scores():
    classifier, names = runs({"logistic": (93.0, 94.0)}, "accuracy"), ["lrml", "logistic"]
    lines = list(baseline_lines(runs() + classifier, "NMI", ["ssdml"], names))
    assert not any("logistic" in line for line in lines)
    rows = runs(score="accuracy") + classifier
    lines = list(baseline_lines(rows, "accuracy", ["ssdml"], names))
    assert any(line.startswith("  logistic  ") for line in lines)


def test_failed_methods_are_never_best():
    rows = runs({"ssdml": (None, None), "ssdml-paper": (1.0, 2.0)})
    assert best_of(rows, ["ssdml", "ssdml-paper"], "NMI") == "ssdml-paper"
    with pytest.raises(
        ValueError, match="one of ssdml must have finished a run with NMI; none has"
    ):
        best_of(rows, ["ssdml"], "NMI")


def test_failed_methods_are_named_and_not_ranked():
    one, other = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 4.0}, {"a": 1.0, "b": 3.0, "c": 2.0}
    without, means, _ = rank_lines([one, other | {"d": np.nan}], "NMI")
    assert without == "  without d, which have no NMI on some data set"
    assert means == "mean ranks by NMI: b 1.0, c 2.0, a 3.0"
    (alone,) = rank_lines([one, {"a": 1.0, "b": np.nan, "c": 2.0, "d": np.nan}], "NMI")
    assert alone == "  without b, d, which have no NMI on some data set"


def test_ranks_are_listed_from_the_best():
    means, test = rank_lines(
        [{"a": 1.0, "b": 3.0, "c": 2.0}, {"a": 1.0, "b": 3.0, "c": 2.0}], "NMI"
    )
    assert means == "mean ranks by NMI: b 1.0, c 2.0, a 3.0"
    assert test == "  Friedman p = 0.135, critical difference 2.3"
