"""The examples run, at toy size, print what they promise, and stay short."""

from __future__ import annotations

import re
import runpy
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from ssdml.experiments.printed import TABLE_2
from tests.deep import small_images, small_model
from tests.photographs import SMALL, WRITERS

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run an example with arguments; gives what it prints."""

    def run(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_quickstart_learns_more_than_the_input_tells(run):
    shown = run("quickstart.py")
    assert "1198 digits to learn from, 50 of them labelled" in shown
    scores = {
        name: float(nmi) for name, nmi in re.findall(r"^(\w+): NMI ([\d.]+)", shown, re.MULTILINE)
    }
    assert scores["SSDML"] > scores["input"] + 5
    assert float(re.search(r"classes right: ([\d.]+) %", shown).group(1)) > 80


def test_label_scarce_compares_and_goes_on_where_it_was_stopped(run, tmp_path, monkeypatch):
    from ssdml.experiments.run import METHODS

    # The real ones take seconds and have tests of their own.
    monkeypatch.setitem(METHODS, "ssdml", METHODS["pca"])
    monkeypatch.setattr("ssdml.experiments.sections.project", lambda s: s.embedding[:, :2])
    shown = run("label_scarce.py", tmp_path / "out", 1)
    monkeypatch.delitem(METHODS, "kernel-pca")
    assert "5 labels a class: NMI, and its gain over the input" in shown
    assert re.search(r"kernel-pca +\d+\.\d +[+-]\d+\.\d", shown)
    assert (tmp_path / "out" / "report.html").is_file()
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert run("label_scarce.py", tmp_path / "out", 1) == shown
    monkeypatch.delitem(METHODS, "kernel-pca")
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize("name", ["quickstart.py", "label_scarce.py"])
def test_an_example_can_be_read_at_a_glance(name):
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) < 40


@pytest.fixture
def small_deep(monkeypatch):
    """Small images and short fits in the place of MNIST and of its networks."""
    from ssdml.datasets import Dataset
    from ssdml.experiments.deep_methods import OfImages

    X, y, _ = small_images(n=500)
    data = Dataset("mnist", X.reshape(500, -1), y, tuple("0123456789"), item_shape=(8, 8))
    short = {"epochs": 2, "epochs_per_partition": 1}
    kinds = {
        "deep-ssdml": {},
        "deep-ssdml-paper": {"mining": "neighborhood", "partition_size": 100},
    }
    made = {
        name: lambda seed, n_jobs, more=more: OfImages(
            small_model(**short, **more, random_state=seed), (8, 8)
        )
        for name, more in kinds.items()
    }
    monkeypatch.setattr("ssdml.datasets.load_dataset", lambda name: data)
    monkeypatch.setattr("ssdml.experiments.deep_methods.deep_methods", lambda data, makers: made)
    monkeypatch.setattr("ssdml.experiments.run.deep_methods", lambda data, makers: made)


@pytest.mark.usefixtures("small_deep")
@pytest.mark.parametrize(
    ("name", "line"), [("table4", "deep-ssdml[angle=45]"), ("table1", "deep-ssdml")]
)
def test_a_table_puts_what_is_printed_beside_what_is_found(run, tmp_path, name, line):
    lines = ["input", "deep-ssdml-paper", line]
    shown = run(f"reproduce_{name}.py", "mnist", "--seeds", 2, "--out", tmp_path, "--only", *lines)
    title, _, *body = shown.splitlines()
    assert title == "mnist, 10 labels a class, 2 seeds"
    numbers = {text.split()[0]: text for text in body}
    assert set(numbers) == {*lines, "printed"}
    for method in lines:
        assert re.fullmatch(r"\S+ +([\d.]+ ± +[\d.]+ *){5}", numbers[method])
    below = body[body.index(numbers["deep-ssdml-paper"]) + 1]
    assert below.split() == ["printed", "47.5", "93.9", "96.6", "98.2", "98.9"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("cub", ["initial", "deep-lrml", "deep-ssdml-paper", "deep-ssdml"]),
        ("cars", ["initial", "deep-ssdml-paper"]),
        ("sop", ["initial", "deep-ssdml-paper"]),
        ("inshop", ["initial", "deep-ssdml-paper"]),
    ],
)
def test_table2_runs_on_the_layout_of_each_set_of_photographs(
    run, tmp_path, monkeypatch, name, lines
):
    from ssdml import pretrained
    from ssdml.experiments.photographs import photograph_methods
    from ssdml.experiments.protocols import SEED_003

    learning = SEED_003.learning | {"n_neighbors": 4, "epochs": 1}
    small = replace(SEED_003, image_size=40, n_components=8, learning=learning)
    torch.save(SMALL.new().state_dict(), tmp_path / "googlenet.pth")
    monkeypatch.setitem(pretrained.TRUNKS, "googlenet", SMALL)
    monkeypatch.setattr(
        "ssdml.experiments.run.photograph_methods", partial(photograph_methods, protocol=small)
    )
    monkeypatch.setenv("SSDML_DATA", str(tmp_path))
    WRITERS[name](tmp_path)
    files = ["--weights", tmp_path / "googlenet.pth", "--out", tmp_path / "out"]
    shown = run("reproduce_table2.py", name, "--seeds", 2, *files, "--only", *lines)
    title, scores, *body = shown.splitlines()
    assert title == f"{name}, 5 labels a class, 2 seeds"
    recalls = {"sop": "1 10 100 1000", "inshop": "1 10 20 30 40 50"}.get(name, "1 2 4 8")
    assert scores.split() == ["NMI", *(f"R@{k}" for k in recalls.split())]
    numbers = {text.split()[0]: text.split()[1:] for text in body}
    assert numbers.keys() == {*lines, *(["printed"] if name in TABLE_2 else [])}
    for method in lines:
        assert float(numbers[method][3]) > 80, method  # R@1: colours tell the classes apart
    if name in TABLE_2:
        below = body[[text.split()[0] for text in body].index("initial") + 1]
        assert below.split()[1:] == [str(value) for value in TABLE_2[name]["initial"]]


@pytest.mark.usefixtures("small_deep")
def test_figure2_is_drawn(run, tmp_path, monkeypatch):
    monkeypatch.setattr("ssdml.experiments.maps.project", lambda s: s.embedding[:, :2])
    shown = run("reproduce_figure2.py", "mnist", "--seeds", 2, "--out", tmp_path)
    assert shown == f"drawn: {tmp_path / 'figure2.png'}\n"
    height, width, _ = imread(tmp_path / "figure2.png").shape
    assert (height, width) == (1020, 1800)
    histories = sorted(tmp_path.glob("deep*/history.jsonl"))
    assert len(histories) == 3
    assert all('"validation"' in file.read_text() for file in histories)


def test_baselines_are_tested_against_ours_and_ranked(run, tmp_path, monkeypatch):
    from ssdml.experiments.run import METHODS

    for name in list(METHODS):
        if name not in ("input", "lda", "lrml", "apllr"):
            monkeypatch.setitem(METHODS, name, METHODS["pca"])  # the real ones have their tests
    X, y, _ = small_images(n=600)
    for number in (1, 2):
        np.savez(tmp_path / f"set{number}.npz", X=X.reshape(600, -1)[number::2], y=y[number::2])
    sets = [tmp_path / "set1.npz", tmp_path / "set2.npz"]
    shown = run("compare_baselines.py", *sets, "--seeds", 2, "--out", tmp_path / "out")
    tested = re.findall(r"^  lrml +[\d.]+ ± +[\d.]+ +ssdml +[+-][\d.]+, p = [\d.]+$", shown, re.M)
    assert len(tested) == 4
    assert len(re.findall(r"^mean ranks by (NMI|accuracy): \S+ \d\.\d, ", shown, re.M)) == 2
    assert "Friedman p = 0." in shown


def test_losses_are_compared_with_their_bases_and_drawn(run, tmp_path):
    X, y, _ = small_images(n=240)
    np.savez(tmp_path / "small.npz", X=X.reshape(240, -1), y=y)
    losses = ["softmax", "proxy-gml", "dgcrl"]
    given = ["--losses", *losses, "--seeds", 2, "--n-steps", 2, "--out", tmp_path / "out"]
    shown = run("compare_losses.py", tmp_path / "small.npz", *given)
    number, difference = r"[\d.]+ ± [\d.]+", r"[+-][\d.]+ ± [\d.]+"
    for line in (
        rf"  dgcrl +{number} +({difference}[* ] +){{3}}\S+",
        rf"  proxy-gml - softmax +{difference}\*?",
        r"dgcrl +\d +\d +\d  cub \+1.2",
    ):
        assert re.search(f"^{line}$", shown, re.MULTILINE), line
    assert shown.endswith(f"drawn: {tmp_path / 'out' / 'losses.png'}\n")
    assert imread(tmp_path / "out" / "losses.png").shape[2] == 4
