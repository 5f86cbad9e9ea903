"""Tables: means, paired differences, ranks and costs."""

from __future__ import annotations

import numpy as np
import pytest

from ssdml.experiments.analysis.statistics import mean_interval, paired_difference
from ssdml.experiments.analysis.tables import headline_table, score_table, score_tables


def rows_of(make_row, nmi: dict[str, list[float | None]], **changes):
    """One row per method and seed; None means a failed run."""
    return [
        make_row(
            method=method,
            seed=seed,
            scores={"NMI": value, "R@1": value, "accuracy": value},
            **changes,
        )
        if value is not None
        else make_row(method=method, seed=seed, status="failed", seconds={}, **changes)
        | {"scores": {}}
        for method, values in nmi.items()
        for seed, value in enumerate(values)
    ]


def line_of(table, method):
    return next(line for line in table.lines if line.method == method)


def test_cells_hold_mean_and_difference_from_input(make_row):
    nmi = {"input": [60.0, 70.0, 62.0], "ssdml": [65.0, 76.0, 66.0]}
    table = score_table(rows_of(make_row, nmi))
    cell = line_of(table, "ssdml").scores["NMI"]
    assert cell.estimate == mean_interval(nmi["ssdml"])
    assert cell.difference == paired_difference(nmi["ssdml"], nmi["input"])
    assert cell.is_best
    assert not line_of(table, "input").scores["NMI"].is_best


def test_pairs_match_by_seed(make_row, rng):
    rows = rows_of(make_row, {"input": [60.0, 70.0, 80.0], "ssdml": [61.0, 71.0, 81.0]})
    shuffled = [rows[i] for i in rng.permutation(len(rows))]
    cell = line_of(score_table(shuffled), "ssdml").scores["NMI"]
    assert cell.difference == (1.0, 1.0, 1.0, 3)


def test_lines_are_sorted_by_rank_failures_last(make_row):
    nmi = {"broken": [None, None], "nca": [1.0, 2.0], "ssdml": [5.0, 6.0], "pca": [3.0, None]}
    table = score_table(rows_of(make_row, nmi))
    assert [line.method for line in table.lines] == ["ssdml", "nca", "pca", "broken"]
    assert line_of(table, "ssdml").rank == 1
    assert line_of(table, "pca").rank == pytest.approx((2 + 3.5) / 2)  # ties with broken once
    broken = line_of(table, "broken")
    assert (broken.n_ok, broken.n_runs) == (0, 2)
    assert np.isnan(broken.fit.mean)


def test_references_stand_first_in_their_order(make_row):
    names = "ssdml poisson lda tabpfn knn[grid=null] logistic-tuned input".split()
    nmi = {name: [90.0 - i] for i, name in enumerate(names)}
    nmi |= {"knn": [None]}
    table = score_table(rows_of(make_row, nmi))
    assert [line.method for line in table.lines] == [
        *("input", "logistic-tuned", "knn[grid=null]", "poisson", "tabpfn", "ssdml", "lda", "knn"),
    ]


def test_ranks_are_by_accuracy(make_row):
    rows = rows_of(make_row, {"input": [1.0, 2.0], "ssdml": [5.0, 6.0], "broken": [None, None]})
    accuracy = {"logistic": (5.5, 5.5), "poisson": (0.0, 9.0)}
    for name, values in accuracy.items():
        for seed, value in enumerate(values):
            rows.append(make_row(method=name, seed=seed) | {"scores": {"accuracy": value}})
    table = score_table(rows)
    ranks = {line.method: line.rank for line in table.lines}
    # accuracies 1 5 - 5.5 0, then 2 6 - 5.5 9
    assert ranks == {"input": 3.5, "ssdml": 2.0, "broken": 5.0, "logistic": 2.0, "poisson": 2.5}
    assert [line.method for line in table.ranked][:2] == ["ssdml", "input"]
    logistic = line_of(table, "logistic")
    assert (logistic.is_embedding, line_of(table, "input").is_embedding) == (False, True)
    assert np.isnan(logistic.scores["NMI"].estimate.mean)
    assert not logistic.scores["NMI"].is_best


def test_recall_ranks_where_no_accuracy_is_known(make_row):
    rows = rows_of(make_row, {"input": [1.0], "ssdml": [5.0]})
    for row in rows:
        del row["scores"]["accuracy"]
    assert [(line.method, line.rank) for line in score_table(rows).lines] == [
        ("input", 2.0),
        ("ssdml", 1.0),
    ]


def test_means_that_print_alike_are_all_best(make_row):
    table = score_table(rows_of(make_row, {"input": [98.06], "pca": [98.14], "nca": [98.04]}))
    bold = [line.method for line in table.lines if line.scores["R@1"].is_best]
    assert bold == ["input", "pca"]


def test_tied_methods_are_both_best(make_row):
    table = score_table(rows_of(make_row, {"input": [5.0], "pca": [5.0], "nca": [4.0]}))
    assert [line_of(table, m).scores["NMI"].is_best for m in ("input", "pca", "nca")] == [
        True, True, False,
    ]  # fmt: skip


def test_the_first_method_replaces_a_missing_input(make_row):
    table = score_table(rows_of(make_row, {"pca": [5.0], "nca": [4.0]}))
    assert table.reference == "pca"
    assert line_of(table, "nca").scores["NMI"].difference.mean == -1


def test_one_table_per_dataset_and_budget(make_row):
    rows = [
        make_row(dataset=name, labels_per_class=labels) for name in ("z", "a") for labels in (10, 2)
    ]
    tables = score_tables(rows)
    found = [(table.dataset, table.labels_per_class) for table in tables]
    assert found == [("z", 2), ("z", 10), ("a", 2), ("a", 10)]


def test_headline_has_most_seeds_then_middle_budget(make_row):
    def tables(**seeds_by_labels):
        return score_tables(
            [
                make_row(labels_per_class=int(labels[1:]), seed=seed)
                for labels, n in seeds_by_labels.items()
                for seed in range(n)
            ]
        )

    assert headline_table(tables(_1=2, _5=2, _10=2)).labels_per_class == 5
    assert headline_table(tables(_1=1, _5=2, _10=1)).labels_per_class == 5
    assert headline_table(tables(_1=3, _5=2)).labels_per_class == 1


def test_costs_average_successful_runs(make_row):
    rows = rows_of(make_row, {"input": [1.0, 2.0, None]})
    rows[0]["seconds"] = {"fit": 1.0, "transform": 3.0}
    rows[0]["peak_rss_mb"] = 300.0
    line = score_table(rows).lines[0]
    assert (line.fit.mean, line.transform.mean, line.memory.mean) == (0.75, 1.55, 200.0)
