"""Studies of rows with known answers: budgets, tests, ranks, recommendations."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

from ssdml.datasets.budgets import Budget
from ssdml.experiments.analysis.statistics import RankTest, corrected_t_test, holm, mean_interval
from ssdml.experiments.analysis.study import (
    Ranking,
    make_study,
    matching_budget,
    most_runs,
    rank_groups,
    rank_over_datasets,
    study_scores,
)
from ssdml.experiments.analysis.tables import (
    LEVEL,
    conditions,
    headline_table,
    score_tables,
    worse_than_best,
)
from ssdml.experiments.report import write_report
from ssdml.experiments.report.figures import as_svg, draw_critical_difference, new_figure
from ssdml.experiments.report.report import read_sections
from ssdml.experiments.report.styles import method_styles
from ssdml.experiments.runs.results import RESULTS, budget_of
from tests.rows import append_row


@pytest.fixture
def rows_of(make_row):
    """Rows from accuracies per seed, by method and number of labels (None: all)."""

    def make(accuracies, condition=None, **changes):
        rows = []
        for method, curve in accuracies.items():
            for labels, values in curve.items():
                budget = Budget(labels, **(condition or {}))
                more = {} if budget.is_plain else {"budget": budget.to_dict()}
                for seed, value in enumerate(values):
                    row = make_row(
                        method=method,
                        seed=seed,
                        labels_per_class=labels or 50,
                        scores={"accuracy": value},
                        config_hash=f"{method}-{budget}-{seed}",
                        **more,
                        **changes,
                    )
                    rows.append(row)
        return rows

    return make


NOT_COUNTED = " The means are over what ran in every combination, so these do not count:"
CURVES = {
    "input": {1: [50.0, 52, 51], 5: [60.0, 62, 61], None: [70.0, 71, 72]},
    "ssdml": {1: [80.0, 83, 81], 5: [89.5, 89.9, 90.6], None: [90.0, 90, 91]},
    "lda": {1: [55.0, 58, 53], 5: [70.0, 74, 72], None: [95.0, 95.5, 96]},
}


def test_matching_budget_is_the_first_stable_match():
    differences = np.array([[-0.5, -0.4], [-3.0, -3.2], [-0.6, -0.8], [0.2, 0.3]])
    assert matching_budget(differences, test_share=0.0) == (2, 3)
    assert matching_budget(differences[:2], test_share=0.0) == (None, None)
    assert matching_budget(differences + 100, test_share=0.0) == (0, 0)


def test_a_failed_seed_never_matches():
    assert matching_budget(np.array([[0.0, np.nan]]), test_share=0.0) == (None, None)


def test_one_seed_never_matches_significantly():
    assert matching_budget(np.array([[-5.0], [0.0]]), test_share=0.0) == (1, None)


def test_methods_are_matched_with_itself_and_the_best(rows_of):
    study = make_study(rows_of(CURVES))
    assert study.target == "lda"
    lines = {line.method: line for line in study.matches}
    assert lines["ssdml"].own[0] == Budget(5)  # 0.5, 0.1 and 0.4 below itself
    assert lines["ssdml"].best == (None, None)
    assert lines["lda"].own == (None, None)
    assert lines["lda"].full == mean_interval([95, 95.5, 96])
    assert [line.method for line in study.matches] == ["lda", "ssdml", "input"]


def test_matching_needs_runs_with_all_labels(rows_of):
    few = {m: {n: v for n, v in curve.items() if n} for m, curve in CURVES.items()}
    study = make_study(rows_of(few))
    assert study.matches == []
    assert study.reference == "ssdml"


def test_tests_against_the_best_use_holm(rows_of):
    study = make_study(rows_of(CURVES))
    assert study.reference == "ssdml"
    assert [line.method for line in study.tests] == ["lda", "input"]
    assert np.isnan([test.p for line in study.tests for test in line.tests]).all()  # three seeds
    curves = {m: {n: [*v, v[0], v[1]] for n, v in curve.items()} for m, curve in CURVES.items()}
    study = make_study(rows_of(curves))
    share = 40 / 80
    for column, labels in enumerate((1, 5)):  # a family per number of labels
        tests = [
            corrected_t_test(
                np.subtract(curves[method][labels], curves["ssdml"][labels]), test_share=share
            )
            for method in ("lda", "input")
        ]
        found = [line.tests[column] for line in study.tests]
        np.testing.assert_allclose([test.p for test in found], holm([test.p for test in tests]))
        assert [test.mean for test in found] == pytest.approx([test.mean for test in tests])


def test_the_study_marks_what_the_table_stars(rows_of):
    """With the best method in common, both have the same tests, whatever else is shown."""
    rng = np.random.default_rng(3)
    level = {"input": 70.0, "logistic": 85.0, "poisson": 88.0, "ssdml": 90.0}
    curves = {
        name: {n: (mean + n + 1.2 * rng.standard_normal(5)).tolist() for n in (2, 5)}
        for name, mean in level.items()
    }
    rows = rows_of(curves)
    study = make_study(rows)
    assert study.reference == "ssdml"
    marks = 0
    for column, budget in enumerate(study.tested):
        starred = worse_than_best([r for r in rows if budget_of(r) == budget], "accuracy")
        marked = {
            line.method: line.tests[column].p
            for line in study.tests
            if line.tests[column].p < LEVEL and line.tests[column].mean < 0
        }
        assert marked == starred
        marks += len(marked)
    assert 0 < marks < 6


def test_differences_use_all_seeds_of_a_budget(rows_of):
    """Seeds 3 and 4 ran with one number of labels only: its differences are those of its table."""
    curves = {
        "input": {1: [50.0, 52, 51], 5: [60.0, 62, 61, 64, 66]},
        "ssdml": {1: [80.0, 83, 81], 5: [89.5, 89.9, 90.6, 88.0, 87.0]},
        "lda": {1: [55.0, 58, 53], 5: [70.0, 74, 72, 75, 71]},
    }
    study = make_study(rows_of(curves))
    assert study.scores.seeds == [0, 1, 2]
    assert study.tested == [Budget(1), Budget(5)]
    (line,) = (line for line in study.tests if line.method == "lda")
    expected = np.mean(curves["lda"][5]) - np.mean(curves["ssdml"][5])
    assert line.tests[1].mean == pytest.approx(expected)
    assert line.tests[1].p < LEVEL
    assert np.isnan(line.tests[0].p)
    assert "these do not count: seed 3, seed 4." in study.recommendation


def test_ranks_are_those_of_the_table(rows_of):
    rows = rows_of(CURVES | {"pca": {1: [81.0, 50, 60], 5: [95.0, 61, 71], None: [72.0, 73, 74]}})
    ranking = make_study(rows).ranking
    table = headline_table(score_tables(rows))
    shown = {line.method: line.rank for line in table.lines}
    assert dict(zip(ranking.methods, ranking.test.ranks, strict=True)) == shown
    assert ranking.by == "accuracy with 5 labels per class, over 3 seeds"


def test_holm_matches_the_definition(rng):
    p = rng.random(8) ** 3
    order = np.argsort(p)
    expected = np.empty(8)
    expected[order] = [min(1, max((8 - j) * p[order[j]] for j in range(i + 1))) for i in range(8)]
    np.testing.assert_allclose(holm(p), expected)
    with_gap = holm([*p, np.nan])
    np.testing.assert_allclose(with_gap[:8], expected)
    assert np.isnan(with_gap[8])


def test_corrected_interval_agrees_with_corrected_test(rng):
    differences = rng.standard_normal(6) + 0.8
    for share in (0.0, 0.5):
        p = corrected_t_test(differences, test_share=share).p
        at_p = mean_interval(differences, test_share=share, level=1 - p)
        assert min(abs(at_p.low), abs(at_p.high)) == pytest.approx(0, abs=1e-9)
    plain = mean_interval(differences, test_share=0.0)
    assert plain == pytest.approx(mean_interval(differences))


def test_ranks_use_seeds_as_blocks(rows_of):
    ranking = make_study(rows_of(CURVES)).ranking
    assert (ranking.methods, ranking.n_blocks) == (["ssdml", "lda", "input"], 3)
    q = stats.studentized_range.ppf(0.95, 3, np.inf) / np.sqrt(2)
    assert ranking.test.critical_difference == pytest.approx(q * np.sqrt(3 * 4 / (6 * 3)))
    np.testing.assert_array_equal(ranking.test.ranks, [1, 2, 3])


def test_a_failed_method_is_not_ranked(rows_of, make_row):
    rows = rows_of(CURVES | {"pca": CURVES["input"], "nca": CURVES["lda"]})
    broken = [row for row in rows if row["method"] == "nca" and row["labels_per_class"] == 5]
    broken[0]["scores"], broken[0]["status"] = {}, "failed"
    study = make_study(rows)
    assert study.ranking.excluded == ["nca"]
    assert "nca" not in study.ranking.methods
    assert "nca" not in study.recommendation


def test_two_methods_or_one_seed_are_not_ranked(rows_of):
    assert make_study(rows_of({m: CURVES[m] for m in ("input", "lda")})).ranking is None
    one = {m: {n: v[:1] for n, v in curve.items()} for m, curve in CURVES.items()}
    assert make_study(rows_of(one)).ranking is None


def test_identical_methods_have_no_p_value(rows_of):
    same = {name: CURVES["input"] for name in ("a", "b", "c")}
    ranking = make_study(rows_of(same)).ranking
    assert np.isnan(ranking.test.p)
    assert ranking.groups == [(0, 2)]


def test_ranking_over_datasets_needs_three(rows_of):
    studies = [make_study(rows_of(CURVES, dataset=name)) for name in "abcd"]
    assert rank_over_datasets(studies[:2]) is None
    ranking = rank_over_datasets(studies)
    assert (ranking.n_blocks, ranking.methods[0]) == (4, "ssdml")


def test_groups_are_maximal_runs_within_the_difference(rng):
    ranks = np.sort(rng.uniform(1, 8, 8))
    groups = rank_groups(ranks, 1.5)
    pairs = {(i, j) for a, b in groups for i in range(a, b + 1) for j in range(i + 1, b + 1)}
    close = {(i, j) for i in range(8) for j in range(i + 1, 8) if ranks[j] - ranks[i] <= 1.5}
    assert pairs == close
    assert len(groups) == len(set(groups))


def test_recommendation_names_best_lead_and_interval(rows_of):
    study = make_study(rows_of(CURVES))
    averages = {m: np.mean([CURVES[m][1], CURVES[m][5]], axis=0) for m in ("ssdml", "lda")}
    gain = mean_interval(averages["ssdml"] - averages["lda"], test_share=0.5)
    assert study.recommendation == (
        f"On blobs, use ssdml: mean accuracy {averages['ssdml'].mean():.1f}% over 1 to 5 "
        f"labels per class, {gain.mean:.1f} points above lda, the next best (95% interval "
        f"+{gain.low:.1f} to +{gain.high:.1f}, 3 seeds)."
    )


def test_recommendation_names_methods_that_may_tie(rows_of):
    close = {1: [79.0, 84.0, 81.2], 5: [89.9, 90.2, 89.7]}
    study = make_study(rows_of(CURVES | {"near": close}))
    assert study.recommendation.startswith("On blobs, no clear winner: ")
    assert "but near may be as good." in study.recommendation or (
        "but ssdml may be as good." in study.recommendation
    )


def test_a_method_left_out_at_a_budget_is_excluded(rows_of):
    rows = rows_of(CURVES | {"nca": CURVES["input"]})
    for row in rows:
        if row["method"] == "nca" and row["labels_per_class"] == 1:
            row |= {"scores": {}, "status": "left out", "error": "ValueError: too few"}
    excluded = f"{NOT_COUNTED} nca."
    study, whole = make_study(rows), make_study(rows_of(CURVES))
    assert study.recommendation == whole.recommendation + excluded
    assert "nca" not in study.scores.methods


def test_methods_are_compared_on_common_runs(rows_of):
    later = {"ssdml": {5: [1.0] * 4}, "lda": {5: [99.0] * 4, 9: [99.0] * 4, None: [99.0] * 4}}
    more = [row for row in rows_of(later) if row["seed"] == 3 or row["labels_per_class"] == 9]
    assert study_scores([*rows_of(CURVES), *more]).seeds == [0, 1, 2]
    expected, ragged = make_study(rows_of(CURVES)), make_study([*rows_of(CURVES), *more])
    excluded = f"{NOT_COUNTED} 9 labels per class, seed 3."
    assert ragged.recommendation == expected.recommendation + excluded
    assert repr(ragged.matches) == repr(expected.matches)  # NaN


def test_a_method_with_one_run_is_excluded(rows_of):
    rows = rows_of(CURVES | {"nca": {1: [99.0]}})
    excluded = f"{NOT_COUNTED} nca."
    assert make_study(rows).recommendation == (
        make_study(rows_of(CURVES)).recommendation + excluded
    )


def test_a_budget_with_one_seed_is_excluded(rows_of):
    rows = rows_of({name: curve | {9: [99.0]} for name, curve in CURVES.items()})
    scores = study_scores(rows)
    assert (scores.budgets, scores.seeds) == ([Budget(1), Budget(5)], [0, 1, 2])
    assert scores.excluded == ["9 labels per class"]


def test_kept_runs_are_complete_and_maximal(rng):
    for _ in range(30):
        ran = rng.random((3, 3, 3)) < 0.8
        kept = most_runs(ran)
        assert ran[np.ix_(*kept)].all()
        common = ran.all(axis=0)
        whole = common.any(axis=1), common[common.any(axis=1)].all(axis=0)
        assert np.prod([len(axis) for axis in kept]) >= 3 * whole[0].sum() * whole[1].sum()
    everything = most_runs(np.ones((2, 3, 4), dtype=bool))
    assert [len(axis) for axis in everything] == [2, 3, 4]


def test_one_common_budget_is_no_study(rows_of):
    assert make_study(rows_of({"input": {1: [1.0]}, "lda": {9: [3.0]}})) is None
    few = [row for row in rows_of(CURVES) if row["labels_per_class"] < 9]
    assert make_study([row for row in few if row["seed"] == (row["labels_per_class"] == 5)]) is None
    with_all = [row for row in rows_of(CURVES) if row["seed"] == (row["labels_per_class"] == 5)]
    assert study_scores(with_all).budgets == [Budget(1)]


def test_no_recommendation_if_every_method_failed(rows_of):
    rows = rows_of(CURVES)
    for row in rows:
        if (row["method"], row["seed"]) in {("input", 0), ("ssdml", 1), ("lda", 2)}:
            row["scores"] = {"NMI": 1.0}
    assert make_study(rows).recommendation == (
        "On blobs, no method finished every run over 1 to 5 labels per class, so none is "
        "recommended."
    )
    assert make_study(rows).tests == []


def test_recommendation_for_a_single_method(rows_of):
    study = make_study(rows_of({"input": CURVES["input"]}))
    assert study.recommendation.startswith(
        "On blobs, input is the only method: mean accuracy 56.0%"
    )


def test_recommendation_warns_about_one_seed(rows_of):
    one = {m: {n: v[:1] for n, v in curve.items()} for m, curve in CURVES.items()}
    assert (
        "One seed gives no interval; run at least five." in make_study(rows_of(one)).recommendation
    )


def test_classes_without_labels_use_recall(rows_of):
    rows = rows_of(CURVES)
    for row in rows:
        row["scores"].pop("accuracy")
    assert study_scores(rows).score == "R@1"


def test_one_budget_is_no_study(rows_of):
    assert make_study(rows_of({"input": {5: [1.0, 2.0]}})) is None


def test_conditions_are_separate_and_share_full_runs(rows_of):
    plain, noisy = rows_of(CURVES), rows_of(CURVES, {"noise": 0.2})
    natural = [row for row in rows_of(CURVES, {"draw": "natural"}) if row["labels_per_class"] < 9]
    groups = conditions([*noisy, *natural, *plain])
    assert [len(group) for group in groups] == [27, 27, 27]
    assert {row["config_hash"] for row in groups[2]} == {row["config_hash"] for row in noisy}
    full = [
        {row["config_hash"] for row in g if "-all labels" in row["config_hash"]} for g in groups
    ]
    assert full[0] == full[1] != full[2]


@pytest.fixture
def folder(tmp_path, rows_of):
    for row in [*rows_of(CURVES), *rows_of(CURVES, {"noise": 0.2})]:
        append_row(tmp_path / RESULTS, row)
    return tmp_path


def test_the_report_shows_the_study(folder):
    sections = read_sections(folder)
    source = write_report(folder, sections).read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", re.sub(r"<style.*?</style>|<[^>]*>", " ", source, flags=re.DOTALL))
    for section in sections:
        assert re.sub(r"\s+", " ", section.study.recommendation) in text
    for words in (
        "Sufficient labels", "Difference from ssdml per number of labels",
        "Which methods differ", "critical difference 1.9", "20% of them wrong",
        "Label noise and imbalance", "wrong labels, %",
    ):  # fmt: skip
        assert words in text
    assert "nan" not in text.lower()


def test_the_report_ranks_over_three_datasets(tmp_path, rows_of):
    for name in "abc":
        for row in rows_of(CURVES, dataset=name):
            append_row(tmp_path / RESULTS, row | {"config_hash": name + row["config_hash"]})
    assert "Over the 3 data sets" in write_report(tmp_path).read_text(encoding="utf-8")


def test_the_diagram_shows_ranks_and_groups():
    methods, ranks = ["ssdml", "nca", "pca", "input"], [1.2, 2.0, 3.1, 3.7]
    ranking = Ranking(methods, RankTest(np.array(ranks), 0.01, 1.0), 5, "accuracy over 5 seeds", [])
    with new_figure(6, 3) as figure:
        axes = figure.subplots()
        draw_critical_difference(axes, ranking, method_styles(methods))
        marks = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "None"]
        bars = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 4]
        svg = as_svg(figure, "ranks")
    assert marks == ranks
    np.testing.assert_allclose(bars, [[1.16, 2.04], [3.06, 3.74]])
    assert all(f"{name} {rank}" in svg for name, rank in zip(methods, ranks, strict=True))
    assert "critical difference 1.0" in svg
    assert "mean rank by accuracy over 5 seeds" in svg
