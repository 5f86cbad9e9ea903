"""The examples run, at toy size, print what they promise, and stay short."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from sklearn.base import clone

from ssdml.experiments.printed import TABLE_2, TABLE_3, TABLE_5
from tests.deep import small_images, small_model, small_network
from tests.photographs import SMALL, WRITERS, small_protocol

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"


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
    monkeypatch.setattr("ssdml.experiments.atlas.project", lambda s: s.embedding[:, :2])
    shown = run("label_scarce.py", tmp_path / "out", 1)
    monkeypatch.delitem(METHODS, "kernel-pca")
    assert "5 labels a class: NMI, and its gain over the input" in shown
    assert re.search(r"kernel-pca +\d+\.\d +[+-]\d+\.\d", shown)
    assert (tmp_path / "out" / "report.html").is_file()
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert run("label_scarce.py", tmp_path / "out", 1) == shown
    monkeypatch.delitem(METHODS, "kernel-pca")
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before


SHORT = "quickstart label_scarce text images tabular torch_loop cluster".split()


@pytest.mark.parametrize("name", SHORT)
def test_an_example_can_be_read_at_a_glance(name):
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 40


@pytest.fixture
def small_deep(monkeypatch):
    """Small images and short fits in the place of MNIST and of its networks."""
    from ssdml.baselines import DeepSupervised, DeepUnsupervised
    from ssdml.datasets import Dataset
    from ssdml.experiments.deep_methods import OfImages

    X, y, _ = small_images(n=500)
    data = Dataset("mnist", X.reshape(500, -1), y, tuple("0123456789"), item_shape=(8, 8))
    short = {"epochs": 2, "epochs_per_partition": 1}
    paper = small_model(**short, mining="neighborhood", partition_size=100)
    models = {
        "deep-ssdml": small_model(**short),
        "deep-ssdml-paper": paper,
        "deep-rotnet": DeepUnsupervised("rotnet", small_network(), 16, **short),
        "deep-angular": DeepSupervised("angular", small_network(), 16, n_triplets=300, **short),
    }
    made = {
        name: lambda seed, n_jobs, model=model: OfImages(
            clone(model).set_params(random_state=seed), (8, 8)
        )
        for name, model in models.items()
    }
    monkeypatch.setattr("ssdml.datasets.load_dataset", lambda name: replace(data, name=name))
    monkeypatch.setattr("ssdml.experiments.deep_methods.deep_methods", lambda data, makers: made)
    monkeypatch.setattr("ssdml.experiments.run.deep_methods", lambda data, makers: made)


@pytest.mark.usefixtures("small_deep")
@pytest.mark.parametrize(
    ("number", "data", "line", "printed"),
    [
        ("4", "mnist", "deep-ssdml[angle=45]", "47.5 93.9 96.6 98.2 98.9"),
        ("1", "mnist", "deep-ssdml", "47.5 93.9 96.6 98.2 98.9"),
        ("3", "cars", "deep-rotnet", "40.7 45.7 58.1 69.5 80.4"),
        ("5", "cub", "deep-angular", "- 44.8 56.9 69.1 79.9"),
    ],
)
def test_a_table_puts_what_is_printed_beside_what_is_found(
    run, tmp_path, number, data, line, printed
):
    lines = ["input", "deep-ssdml-paper", line]
    shown = run(
        f"reproduce_table{number}.py", data, "--seeds", 2, "--out", tmp_path, "--only", *lines
    )
    table = read_table(shown)
    assert table.title == f"{data}, {10 if data == 'mnist' else 5} labels a class, 2 seeds"
    assert set(table.found) == {*lines}
    ours = "deep-ssdml" in lines
    assert table.heads == ["NMI", "R@1", "R@2", "R@4", "R@8", *["p", "NMI", "p", "R@1"] * ours]
    for method in lines:
        n_tests = 2 * (ours and method != "deep-ssdml")
        cell, p = r"[\d.]+±[\d.]+", r"[01]\.\d{3}"
        assert re.fullmatch(rf"({cell} ?){{5}}({p} ?){{{n_tests}}}", " ".join(table.found[method]))
    assert table.printed["deep-ssdml-paper"] == printed.split()
    assert ("* our reconstruction:" in shown) == (number in "35")
    assert table.starred == [line] * (number in "35")
    assert max(map(len, shown.splitlines())) <= 80


class Table(NamedTuple):
    title: str
    heads: list[str]
    found: dict[str, list[str]]  # cells by method, without its star
    printed: dict[str, list[str]]
    starred: list[str]


def read_table(shown):
    """What a script of the paper's tables prints; a long name has a line of its own."""
    title, heads, *body = shown.splitlines()
    table, method = Table(title, heads.split(), {}, {}, []), None
    for text in body:
        if text.startswith(("p: ", "* ")):
            break
        name, cells = text[:17].split(), text[17:].split()
        if name == ["printed"]:
            table.printed[method] = cells
            continue
        if text[0] != " ":
            method = text.split()[0].rstrip("*")
            table.starred.extend([method] * (text.split()[0][-1] == "*"))
        if cells and cells[0][0].isdigit():
            table.found[method] = cells
    return table


@pytest.fixture
def toy_photographs(tmp_path, monkeypatch):
    """A small network in the place of each, and short protocols; gives a file of weights."""
    from ssdml import pretrained
    from ssdml.experiments.protocols import PROTOCOLS

    for name, protocol in PROTOCOLS.items():
        monkeypatch.setitem(pretrained.TRUNKS, protocol.architecture, SMALL)
        monkeypatch.setitem(PROTOCOLS, name, small_protocol(protocol))
    torch.save(SMALL.new().state_dict(), tmp_path / "weights.pth")
    monkeypatch.setenv("SSDML_DATA", str(tmp_path))
    return tmp_path / "weights.pth"


@pytest.mark.parametrize(
    ("number", "name", "lines"),
    [
        (2, "cub", ["initial", "deep-lrml", "deep-ssdml-paper", "deep-ssdml"]),
        (2, "cars", ["initial", "deep-ssdml-paper"]),
        (2, "sop", ["initial", "deep-ssdml-paper"]),
        (2, "inshop", ["initial", "deep-ssdml-paper"]),
        (3, "cub", ["deep-exemplar", "deep-rotnet", "deep-nce", "deep-deepcluster", "deep-suml"]),
        (3, "cars", ["deep-nce"]),
        (5, "cub", ["deep-angular"]),
    ],
)
def test_tables_of_photographs_run_on_the_layout_of_each_set(
    run, tmp_path, toy_photographs, number, name, lines
):
    WRITERS[name](tmp_path)
    files = ["--weights", toy_photographs, "--out", tmp_path / "out"]
    shown = run(f"reproduce_table{number}.py", name, "--seeds", 2, *files, "--only", *lines)
    table = read_table(shown)
    assert table.title == f"{name}, 5 labels a class, 2 seeds"
    recalls = {"sop": "1 10 100 1000", "inshop": "1 10 20 30 40 50"}.get(name, "1 2 4 8")
    n_scores = 1 + len(recalls.split())
    assert table.heads[:n_scores] == ["NMI", *(f"R@{k}" for k in recalls.split())]
    printed = {2: TABLE_2, 3: TABLE_3, 5: TABLE_5}[number].get(name, {})
    assert set(table.found) == {*lines}
    for method in lines:
        assert recall_at_1(table, method) > 80, method  # colours tell the classes apart
        given = [str(value or "-") for value in printed.get(method, ())]
        assert table.printed.get(method, []) == given


def recall_at_1(table, method):
    return float(table.found[method][1].partition("±")[0])


@pytest.mark.parametrize(
    ("protocol", "name"), [("000", "inshop"), ("001", "sop"), ("002", "cub"), ("004", "cars")]
)
def test_table2_runs_by_the_protocols_of_other_papers(
    run, tmp_path, toy_photographs, protocol, name
):
    WRITERS[name](tmp_path)
    lines = ["initial", "deep-isdml", "deep-ssdml-paper", "deep-ssdml"]
    files = ["--weights", toy_photographs, "--out", tmp_path / "out", "--protocol", protocol]
    shown = run("reproduce_table2.py", name, "--seeds", 1, *files, "--only", *lines)
    table = read_table(shown)
    assert table.title == f"{name}, all labels, 1 seed"
    assert not table.printed  # those figures are of another protocol
    assert set(table.found) == {*lines}
    for method in lines:
        assert recall_at_1(table, method) > 80, method


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
    given = [*sets, "--labels-per-class", 4, 5, "--seeds", 2, "--out", tmp_path / "out"]
    shown = run("compare_baselines.py", *given)
    titles = re.findall(r"^set(\d), (\d) labels a class: (\S+)$", shown, re.M)
    assert [" ".join(title) for title in titles] == [
        *("1 4 NMI", "1 4 accuracy"),
        *("2 5 NMI", "2 5 accuracy"),
    ]
    tested = re.findall(r"^  lrml +[\d.]+ ± +[\d.]+ +ssdml +[+-][\d.]+, p = [\d.]+$", shown, re.M)
    assert len(tested) == 4
    assert len(re.findall(r"^  best of ours: ssdml\S*; not shown to be better", shown, re.M)) == 4
    assert len(re.findall(r"^mean ranks by (NMI|accuracy): \S+ \d\.\d, ", shown, re.M)) == 2
    assert "Friedman p = 0." in shown
    assert re.search(r"^  apllr\* ", shown, re.M)
    assert "  apllr, apit: the equation of M is ours" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--labels-per-class", 5, 10], "one number, or one for each of the 3 sets; got 2."),
        (["--deep", "--tuned"], "there are no settings of networks"),
    ],
)
def test_what_a_comparison_of_baselines_cannot_do_is_told(run, capsys, options, message):
    with pytest.raises(SystemExit, match="2"):
        run("compare_baselines.py", "digits", "banking77", "mnist", *options)
    assert message in " ".join(capsys.readouterr().err.split())


def test_texts_of_a_file_get_classes(run, tmp_path, rng, monkeypatch):
    topics = {"food": "bread soup apple", "sea": "wave boat sand", "sky": "cloud wind star"}
    filler = [f"word{i}" for i in range(20)]
    lines, truth = ["text,label"], []
    for i in range(120):
        name, words = list(topics.items())[i % 3]
        text = " ".join([*rng.choice(words.split(), 3), *rng.choice(filler, 2)])
        lines.append(f"{text},{name if i < 12 else ''}")
        truth.append(name)
    (tmp_path / "texts.csv").write_text("\n".join(lines))
    shown = run("text.py", tmp_path / "texts.csv", tmp_path / "found.csv")
    assert shown == "120 texts, 12 of them labelled with one of 3 classes\n"
    header, *found = (tmp_path / "found.csv").read_text().splitlines()
    assert header == "text,label"
    right = [line.split(",")[1] == name for line, name in zip(found, truth, strict=True)]
    assert np.mean(right) > 0.9

    class Topics:  # where sentence-transformers is installed
        def __init__(self, name):
            assert name == "all-MiniLM-L6-v2"

        def encode(self, texts, normalize_embeddings):
            assert normalize_embeddings
            known = [text.split()[0] in words for text in texts for words in topics.values()]
            return np.reshape(known, (-1, 3)) + 0.1 * rng.standard_normal((len(texts), 3))

    monkeypatch.setitem(
        sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=Topics)
    )
    run("text.py", tmp_path / "texts.csv", tmp_path / "found.csv")
    _, *found = (tmp_path / "found.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in found] == truth


@pytest.mark.parametrize("n_colours", [1, 3])
def test_a_folder_of_images_teaches_a_network(run, tmp_path, rng, n_colours):
    from PIL import Image

    folder = tmp_path / "photographs"
    for i in range(90):
        name = ("bright", "dark")[i % 2]
        level = {"bright": 190, "dark": 60}[name]
        pixels = np.clip(rng.normal(level, 20, (8, 8, n_colours)), 0, 255).astype(np.uint8)
        kept = folder / (name if i < 10 else "unlabelled")
        kept.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze()).save(kept / f"{i}.png")
    shown = run("images.py", folder, 2)
    assert shown.splitlines()[0] == "90 images, 10 of them labelled"
    counts = dict(re.findall(r"^  (\w+): (\d+) of the others$", shown, re.MULTILINE))
    assert counts.keys() == {"bright", "dark"}
    assert all(abs(int(count) - 40) <= 4 for count in counts.values())
    assert (tmp_path / "photographs.model").is_dir()


def test_a_table_says_what_a_metric_is_worth(run, tmp_path, rng):
    y = np.arange(150) % 3
    X = 3 * np.eye(4)[y] + rng.standard_normal((150, 4))
    lines = [",".join([*map(str, row), "abc"[c] if i < 30 else ""]) for i, (row, c) in
             enumerate(zip(X, y, strict=True))]  # fmt: skip
    (tmp_path / "table.csv").write_text("\n".join(["one,two,three,four,label", *lines]))
    shown = run("tabular.py", tmp_path / "table.csv")
    assert shown.startswith("150 rows, 30 of them labelled\n")
    scores = dict(re.findall(r"^(\S+): ([\d.]+) % of the labelled rows right$", shown, re.M))
    assert scores.keys() == {"self-training", "SSDML"}
    assert float(scores["SSDML"]) > 75


def test_a_loop_of_ones_own_learns_from_propagated_labels(run):
    scores = re.findall(r"^(\w+): NMI ([\d.]+), R@1 ([\d.]+)", run("torch_loop.py"), re.MULTILINE)
    (_, before, _), (_, after, recall) = scores
    assert [name for name, *_ in scores] == ["input", "network"]
    assert float(after) > float(before) + 10
    assert float(recall) > 95


WITHOUT = """
import runpy, sys
sys.modules["pytorch_metric_learning"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def without_pytorch_metric_learning(name: str, *arguments: object) -> subprocess.CompletedProcess:
    """An example as it runs where pytorch-metric-learning is not installed."""
    command = [sys.executable, "-c", WITHOUT, EXAMPLES / name, *arguments]
    return subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)


# A fresh interpreter that imports torch: some seconds, here and below.
def test_a_loop_of_ones_own_runs_without_pytorch_metric_learning(run):
    done = without_pytorch_metric_learning("torch_loop.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == run("torch_loop.py")


def test_losses_are_compared_without_pytorch_metric_learning(tmp_path):
    X, y, _ = small_images(n=120)
    np.savez(tmp_path / "small.npz", X=X.reshape(120, -1), y=y)
    short = ["--seeds", 2, "--n-steps", 1, "--no-any-rate", "--no-few", "--out", tmp_path / "out"]
    given = [tmp_path / "small.npz", *short, "--losses"]
    losses = ["softmax", "n-pair", "n-pair+gor", "dgcrl"]
    done = without_pytorch_metric_learning("compare_losses.py", *given, *losses)
    assert done.returncode == 0, done.stderr
    line, *table = done.stdout.splitlines()
    assert line == (
        'left out, for they need pytorch-metric-learning (pip install "ssdml[losses]"): '
        "softmax, dgcrl"
    )
    assert {"n-pair", "n-pair+gor"} <= {text.split()[0] for text in table}
    assert (tmp_path / "out" / "losses.png").is_file()


def test_where_no_loss_is_left_the_comparison_says_so(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(SystemExit, match="1"):
        run("compare_losses.py", "digits", "--losses", "triplet+da")
    assert capsys.readouterr().err == "no loss is left to compare\n"


def test_a_cluster_fits_and_embeds_an_array_in_chunks(run, monkeypatch):
    pytest.importorskip("distributed")
    from dask import distributed

    # Threads in the place of processes, each of which would import all of ssdml again.
    monkeypatch.setattr(
        distributed, "LocalCluster", partial(distributed.LocalCluster, processes=False)
    )
    shown = run("cluster.py")
    assert "2 workers, 3 chunks\n" in shown
    assert float(re.search(r"classes right: ([\d.]+) %", shown).group(1)) > 85
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as one:
        assert run("cluster.py", one.scheduler_address) == shown.replace("2 workers", "1 workers")


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
