"""Search of loss settings, paired scores, tables and published differences."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from reproduction.loss_embedding import LossEmbedding
from reproduction.loss_search import (
    ANY_RATE,
    RATE,
    RATES,
    Choice,
    Comparison,
    Half,
    Trial,
    compare_losses,
)
from reproduction.loss_tables import gains, loss_table, sensitivity, summary_lines
from reproduction.losses import LOSSES
from reproduction.published_losses import DGCRL, DML_DA, PUBLISHED, published_differences

from ssdml.datasets import Dataset
from ssdml.experiments.runs.results import RESULTS

TRIED = ["n-pair", "n-pair+gor"]


@pytest.fixture(scope="module")
def classes() -> Dataset:
    """Eight classes of 12 rows."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(8), 12)
    X = (rng.normal(size=(96, 8)) + 1.5 * np.eye(8)[y]).astype(np.float32)
    return Dataset("eight", X, y, tuple("abcdefgh"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("claims")


@pytest.fixture(scope="module")  # some seconds: 35 short runs
def found(classes, folder) -> Comparison:
    return compare_losses(classes, folder, losses=TRIED, seeds=[0, 1], n_steps=2)


def test_terms_are_searched_on_the_chosen_base(found):
    (half,) = found.halves
    base = half.best("n-pair").choice
    assert (base.weight, base.learning_rate) == (0, RATE)
    assert len(half.trials["n-pair"]) == 2 * len(LOSSES["n-pair"].values)
    bases = [base, half.best("n-pair", [1e-4]).choice]
    tried = [trial.choice for trial in half.trials["n-pair+gor"]]
    weights = LOSSES["n-pair+gor"].values
    assert tried == [of._replace(weight=weight) for of in bases for weight in weights]


def test_scored_runs_use_the_chosen_settings(classes, tmp_path, monkeypatch):
    fitted = []

    def keep(self, X, y):
        fitted.append((self.loss, self.propagated, self.base, self.learning_rate, self.weight))
        return self

    monkeypatch.setattr(LossEmbedding, "fit", keep)
    monkeypatch.setattr(LossEmbedding, "transform", lambda self, X: X)
    again = compare_losses(classes, tmp_path, losses=TRIED, seeds=[0], n_steps=2)
    chosen = {name: again.halves[0].best(name).choice for name in TRIED}
    best = {name: again.halves[0].best(name, RATES).choice for name in TRIED}
    scored, few = fitted[-8:-4], fitted[-4:]
    assert scored[::2] == [(name, False, *chosen[name]) for name in TRIED]
    assert scored[1::2] == [(name, False, *best[name]) for name in TRIED]
    assert few == [(name, kind, *chosen[name]) for name in TRIED for kind in (False, True)]


def test_runs_have_all_labels_then_five_per_class(found):
    assert {row["n_labeled"] for row in found.scored} == {48}
    assert {row["n_labeled"] for row in found.few} == {20}
    assert {row["n_test"] for row in found.scored + found.few} == {48}
    methods = Counter(row["method"] for row in found.scored)
    names = ["input", *TRIED, *(name + ANY_RATE for name in TRIED)]
    assert methods == Counter(dict.fromkeys(names, 2))


def test_unknown_losses_are_named_before_anything_runs(classes, tmp_path):
    message = "loss must be one of 'triplet', .*; got 'n-pairs'. Did you mean 'n-pair'?"
    with pytest.raises(ValueError, match=message):
        compare_losses(classes, tmp_path / "none", losses=["n-pair", "n-pairs"])
    assert not (tmp_path / "none").exists()


def test_a_term_brings_its_base(classes, tmp_path):
    found = compare_losses(
        classes, tmp_path, losses=["n-pair+gor"], seeds=[0], n_steps=1, any_rate=False, few=False
    )
    assert {row["method"] for row in found.scored} == {"input", *TRIED}


def test_finished_runs_are_not_repeated(found, classes, folder, monkeypatch):
    files = [folder / part / RESULTS for part in ("held-out", "scored", "few")]
    before = [file.read_bytes() for file in files]
    monkeypatch.setattr(LossEmbedding, "fit", None)
    again = compare_losses(classes, folder, losses=TRIED, seeds=[0, 1], n_steps=2)
    assert [file.read_bytes() for file in files] == before
    assert again.scored == found.scored


def test_a_failed_run_stops_the_search(classes, tmp_path, monkeypatch):
    monkeypatch.setattr(LossEmbedding, "fit", None)
    with pytest.raises(RuntimeError, match=r"eight, held out 0, n-pair \[1, 0.001, 0\]: TypeError"):
        compare_losses(classes, tmp_path, losses=TRIED, seeds=[0], n_steps=2)


def test_ties_are_broken_by_the_second_score():
    trials = [
        Trial(Choice(base, RATE), [{"R@1": 90.0, "MAP@R": value}, {"R@1": 80.0, "MAP@R": 40.0}])
        for base, value in ((1.0, 30.0), (2.0, 50.0), (3.0, 40.0))
    ]
    assert Half(None, (0,), {"triplet": trials}).best("triplet").choice.base == 2.0


def test_sensitivity_is_paired_with_the_base(found):
    curves = sensitivity(found, "n-pair")
    half = found.halves[0]
    base = [cut["R@1"] for cut in half.best("n-pair").scores]
    assert list(curves) == ["gor"]
    for trial in half.trials["n-pair+gor"][: len(LOSSES["n-pair+gor"].values)]:
        mean = np.mean([cut["R@1"] for cut in trial.scores]) - np.mean(base)
        assert curves["gor"][trial.choice.weight].mean == pytest.approx(mean)


def made_of(gained: dict[str, list[float]]) -> Comparison:
    """Rows with given gains of each loss over its base, per seed."""
    rows = []
    for seed in range(3):
        rows.append({"method": "triplet", "seed": seed, "scores": {"R@1": 50.0 + seed}})
        for name, values in gained.items():
            scores = {"R@1": 50.0 + seed + values[seed]}
            rows.append({"method": name, "seed": seed, "scores": scores})
    return Comparison([], rows, [])


def test_the_summary_counts_significant_differences():
    up, down, neither = [1.0, 1.1, 0.9], [-2.0, -2.1, -1.9], [1.0, -1.0, 0.0]
    found = {
        "one": made_of({"triplet+da": up, "triplet+gor": down}),
        "two": made_of({"triplet+da": neither, "triplet+gor": down}),
    }
    _, da, gor = summary_lines(found)
    assert da.split()[:4] == ["triplet+da", "1", "0", "1"]
    assert gor.split()[:4] == ["triplet+gor", "0", "2", "0"]
    assert "cars +20.0" in da  # 62.51 - 42.54


def test_a_loss_table_holds_means_gains_and_settings(found):
    title, _, *lines = loss_table("eight", found)
    assert title.startswith("eight, 2 seeds, all of the same half: R@1")
    cells = {line.split()[0]: line for line in lines}
    assert set(cells) == {"input", *TRIED, *(f"{name}," for name in TRIED)}
    means = [row["scores"]["R@1"] for row in found.scored if row["method"] == "n-pair"]
    assert f" {np.mean(means):.1f} ± " in cells["n-pair"]
    assert "/".join(f"{v:g}" for v in found.halves[0].best("n-pair").choice) in cells["n-pair"]
    scores = {"n-pair": means, "n-pair+gor": [value + 1 for value in means]}
    assert gains(scores)["n-pair+gor"].mean == pytest.approx(1)


def test_published_tables_are_complete():
    for table in PUBLISHED:
        for dataset, lines in table.lines.items():
            assert all(len(scores) <= len(table.columns[dataset]) for scores in lines.values())
            assert all(0 < value < 100 for scores in lines.values() for value in scores)
    found = {
        (dataset, name): gain
        for name, loss in LOSSES.items()
        if loss.term
        for dataset, gain in published_differences(name, loss.base)
    }
    assert len(found) == 12 + 9 + 1
    assert min(found.values()) > 0  # the claim: each term helps everywhere
    assert found["cub", "dgcrl"] == pytest.approx(67.9 - 66.7)
    assert DGCRL.lines["cub"]["softmax"][0] == 66.7


def test_published_contrastive_scores_are_those_of_table_1():
    cars, cub = (DML_DA.lines[name]["contrastive"] for name in ("cars", "cub"))
    assert cars[:4] == (59.09, 67.95, 78.05, 85.78)
    assert cub[-3:] == (95.17, 97.70, 98.99)
    found = {
        of: round(gain, 2) for of, gain in published_differences("contrastive+da", "contrastive")
    }
    assert found == {"cars": 9.67, "cub": 3.63, "sop": 2.36}


def test_published_proxy_losses_share_a_dimension():
    def printed(other, score):
        found = published_differences("proxy-gml", other, score)
        return {dataset: round(value, 1) for dataset, value in found}

    assert printed("soft-triple", "R@1") == {"cub": 1.2, "cars": 1.0, "sop": -0.3}  # 66.6 - 65.4
    assert printed("proxy-nca", "R@1") == {"cub": 10.2, "cars": 5.7, "sop": 2.5}
    assert printed("proxy-nca", "R@10") == printed("softmax", "R@1") == {}  # not printed


def test_published_differences_are_shown_for_proxy_losses():
    names = ("softmax", "soft-triple", "proxy-gml", "dgcrl")
    rows = [
        {"method": name, "seed": seed, "scores": {"R@1": 50.0 + seed + number}}
        for number, name in enumerate(names)
        for seed in range(3)
    ]
    trial = Trial(Choice(1.0, RATE), [{"R@1": 50.0, "MAP@R": 40.0}])
    half = Half(None, (0, 1, 2), {name: [trial] for name in names})
    title, _, *lines = loss_table("some", Comparison([half], rows, []))
    assert title.startswith("some, 3 seeds, all of the same half: R@1 on unseen")
    told = dict(re.findall(r"^  (\S+ - \S+) .* published: (.*)$", "\n".join(lines), re.MULTILINE))
    assert told == {
        "proxy-gml - soft-triple": "cub +1.2, cars +1.0, sop -0.3",
        "dgcrl - softmax": "cub +1.2",
    }
    halves = [half._replace(seeds=seeds) for seeds in ((0, 1), (2,))]
    title, *_ = loss_table("some", Comparison(halves, rows, []))
    assert title.startswith("some, 3 seeds: R@1 on")
    title, _, *lines = loss_table("some", Comparison([half], rows[::3], []))
    assert title.startswith("some, 1 seed: R@1 on")
    assert re.search(r"^  dgcrl - softmax +\+3\.00 +published", lines[-2])  # without an interval
