"""The examples run on small data, print what they promise, and stay short."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import sys
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread
from metric_parts import METHODS, SCORES
from reproduction.losses import ABLATION, LOSSES

from tests.deep import small_images

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def test_quickstart_beats_the_input(example):
    shown = example("quickstart.py")
    assert "1198 training samples, 50 labeled" in shown
    scores = {
        name: float(nmi) for name, nmi in re.findall(r"^(\w+): NMI ([\d.]+)", shown, re.MULTILINE)
    }
    assert scores["SSDML"] > scores["input"] + 5
    assert float(re.search(r"accuracy: ([\d.]+)%", shown).group(1)) > 80


def test_label_scarce_compares_and_resumes(example, tmp_path, monkeypatch):
    from ssdml.experiments import METHODS

    # The real method takes seconds and has its own tests.
    monkeypatch.setitem(METHODS, "ssdml", METHODS["pca"])
    monkeypatch.setattr("ssdml.experiments.report.figures.map_rows", lambda Z, n_jobs: Z[:, :2])
    monkeypatch.setitem(METHODS, "kernel-pca", None)  # the example's own, removed in the end
    shown = example("label_scarce.py", tmp_path / "out", 1)
    assert "5 labels per class: NMI, gain over the input" in shown
    assert re.search(r"kernel-pca +\d+\.\d +[+-]\d+\.\d", shown)
    assert (tmp_path / "out" / "report.html").is_file()
    before = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert example("label_scarce.py", tmp_path / "out", 1) == shown
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == before


SHORT = "quickstart label_scarce text images tabular torch_loop cluster".split()


@pytest.mark.parametrize("name", SHORT)
def test_an_example_fits_on_one_screen(name):
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 40


WITH_ARGUMENTS = sorted(
    path.stem for path in EXAMPLES.glob("*.py") if "ArgumentParser(" in path.read_text("utf-8")
) + [f"reproduce_table{number}" for number in range(1, 6)]


@pytest.mark.parametrize("name", [name for name in WITH_ARGUMENTS if name != "command_line"])
def test_examples_have_help_and_reject_unknown_options(name, example, capsys):
    if name == "cluster":
        pytest.importorskip("distributed")
    with pytest.raises(SystemExit, match="0"):
        example(f"{name}.py", "--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"usage: {name}.py [-h]")
    assert f"python examples/{name}.py" in shown
    with pytest.raises(SystemExit, match="2"):
        example(f"{name}.py", "--nothing")
    assert capsys.readouterr().err.startswith(f"usage: {name}.py [-h]")


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (EXAMPLES / "reproduction").glob("*.py"))
)
def test_doctests_of_the_reproduction_pass(name):
    assert doctest.testmod(importlib.import_module(f"reproduction.{name}")).failed == 0


@pytest.mark.parametrize("name", ["text", "images", "tabular", "scale"])
def test_missing_arguments_are_a_usage_error(name, example, capsys):
    with pytest.raises(SystemExit, match="2"):
        example(f"{name}.py")
    assert "error: the following arguments are required" in capsys.readouterr().err


@pytest.mark.parametrize("call", ["tabular.py no.csv", "text.py no.csv found.csv", "images.py no"])
def test_missing_files_are_a_usage_error(call, example, capsys):
    with pytest.raises(SystemExit, match="2"):
        example(*call.split())
    assert "nor an existing path" in capsys.readouterr().err


@pytest.mark.parametrize("call", ["images.py . 0", "scale.py 1000 some", "label_scarce.py out 0"])
def test_invalid_numbers_are_a_usage_error(call, example, capsys):
    with pytest.raises(SystemExit, match="2"):
        example(*call.split())
    assert "must be a whole number of at least 1" in capsys.readouterr().err


def test_text_example_labels_a_csv_file(example, tmp_path, rng, monkeypatch):
    topics = {"food": "bread soup apple", "sea": "wave boat sand", "sky": "cloud wind star"}
    filler = [f"word{i}" for i in range(20)]
    lines, truth = ["text,label"], []
    for i in range(120):
        name, words = list(topics.items())[i % 3]
        text = " ".join([*rng.choice(words.split(), 3), *rng.choice(filler, 2)])
        lines.append(f"{text},{name if i < 12 else ''}")
        truth.append(name)
    (tmp_path / "texts.csv").write_text("\n".join(lines))
    shown = example("text.py", tmp_path / "texts.csv", tmp_path / "found.csv")
    assert shown == "120 texts, 12 labeled, 3 classes\n"
    header, *found = (tmp_path / "found.csv").read_text().splitlines()
    assert header == "text,label"
    right = [line.split(",")[1] == name for line, name in zip(found, truth, strict=True)]
    assert np.mean(right) > 0.9

    class Topics:  # stands for sentence-transformers
        def __init__(self, name):
            assert name == "all-MiniLM-L6-v2"

        def encode(self, texts, normalize_embeddings):
            assert normalize_embeddings
            known = [text.split()[0] in words for text in texts for words in topics.values()]
            return np.reshape(known, (-1, 3)) + 0.1 * rng.standard_normal((len(texts), 3))

    monkeypatch.setitem(
        sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=Topics)
    )
    example("text.py", tmp_path / "texts.csv", tmp_path / "found.csv")
    _, *found = (tmp_path / "found.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in found] == truth


@pytest.mark.parametrize(("n_colors", "sizes"), [(1, (8, 8)), (3, (40, 48))])
def test_images_example_trains_on_a_folder(example, tmp_path, rng, n_colors, sizes):
    from PIL import Image

    folder = tmp_path / "photographs"
    for i in range(90):
        name = ("bright", "dark")[i % 2]
        level = {"bright": 190, "dark": 60}[name]
        pixels = np.clip(rng.normal(level, 20, (sizes[i % 2], sizes[0], n_colors)), 0, 255).astype(
            np.uint8
        )
        kept = folder / (name if i < 10 else "unlabeled")
        kept.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze()).save(kept / f"{i}.png")
    shown = example("images.py", folder, 2)
    counts = dict(re.findall(r"^(\w+) +(\d+)$", shown, re.MULTILINE))
    assert counts.keys() == {"bright", "dark"}
    assert all(abs(int(count) - 40) <= 4 for count in counts.values())
    assert (tmp_path / "photographs.model").is_dir()
    written = pd.read_csv(tmp_path / "photographs.csv", index_col="image")
    assert written["is_new_label"].sum() == 80
    assert written["label"].value_counts()["dark"] == int(counts["dark"]) + 5


def test_tabular_example_compares_accuracies(example, tmp_path, rng):
    y = np.arange(150) % 3
    X = 3 * np.eye(4)[y] + rng.standard_normal((150, 4))
    lines = [",".join([*map(str, row), "abc"[c] if i < 30 else ""]) for i, (row, c) in
             enumerate(zip(X, y, strict=True))]  # fmt: skip
    (tmp_path / "table.csv").write_text("\n".join(["one,two,three,four,label", *lines]))
    shown = example("tabular.py", tmp_path / "table.csv")
    assert shown.startswith("150 samples, 30 labeled\n")
    scores = dict(re.findall(r"^(\S+): accuracy ([\d.]+)%$", shown, re.M))
    assert scores.keys() == {"self-training", "SSDML"}
    assert float(scores["SSDML"]) > 75


def test_torch_loop_learns_from_propagated_labels(example):
    scores = re.findall(
        r"^(\w+): NMI ([\d.]+), R@1 ([\d.]+)", example("torch_loop.py"), re.MULTILINE
    )
    (_, before, _), (_, after, recall) = scores
    assert [name for name, *_ in scores] == ["input", "network"]
    assert float(after) > float(before) + 10
    assert float(recall) > 95


def test_torch_loop_runs_without_pytorch_metric_learning(example, monkeypatch):
    """Two steps; `tests/contracts/test_losses.py` imports our losses without it."""
    from ssdml.networks import sampling

    batches = sampling.balanced_batches
    two = lambda *given, **options: islice(batches(*given, **options), 2)  # noqa: E731
    monkeypatch.setattr(sampling, "balanced_batches", two)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    shown = example("torch_loop.py")
    assert re.findall(r"^(\w+): NMI ", shown, re.MULTILINE) == ["input", "network"]


def test_compare_losses_runs_without_pytorch_metric_learning(example, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    X, y, _ = small_images(n=120)
    np.savez(tmp_path / "small.npz", X=X.reshape(120, -1), y=y)
    short = ["--seeds", 2, "--n-steps", 1, "--no-any-rate", "--no-few", "--out", tmp_path / "out"]
    given = [tmp_path / "small.npz", *short, "--losses"]
    losses = ["softmax", "n-pair", "n-pair+gor", "dgcrl"]
    line, *table = example("compare_losses.py", *given, *losses).splitlines()
    assert line == (
        'skipped, need pytorch-metric-learning (pip install "ssdml[losses]"): softmax, dgcrl'
    )
    assert {"n-pair", "n-pair+gor"} <= {text.split()[0] for text in table}
    assert (tmp_path / "out" / "losses.png").is_file()


def test_compare_losses_needs_at_least_one_loss(example, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(SystemExit, match="1"):
        example("compare_losses.py", "digits", "--losses", "triplet+da")
    assert capsys.readouterr().err == "no loss left to compare\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--losses", "triplets"], "invalid choice: 'triplets' .*triplet.*contrastive.*dgcrl"),
        (["--score", "R@3"], "invalid choice: 'R@3' .*NMI.*R@1"),
    ],
)
def test_compare_losses_names_what_it_knows(given, message, example, capsys):
    with pytest.raises(SystemExit, match="2"):
        example("compare_losses.py", "digits", *given)
    assert re.search(message, capsys.readouterr().err, re.DOTALL)


def test_compare_losses_loads_all_data_first(example, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        example("compare_losses.py", "digits", "digit", "--out", tmp_path / "out")
    assert re.search("'digit' is neither .* Did you mean 'digits'", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_a_failed_run_ends_the_comparison_of_losses_in_one_line(
    example, tmp_path, monkeypatch, capsys
):
    from reproduction.loss_embedding import LossEmbedding

    monkeypatch.setattr(LossEmbedding, "fit", None)
    with pytest.raises(SystemExit, match="1"):
        example("compare_losses.py", "digits", "--losses", "dgcrl", "--out", tmp_path)
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("digits, held out 0, ")
    assert told[-1].endswith(f"The traceback is in {tmp_path / 'digits' / 'held-out' / 'errors'}.")
    assert list((tmp_path / "digits" / "held-out" / "errors").iterdir())


def test_compare_losses_ablates_proxy_gml(example, tmp_path):
    X, y, _ = small_images(n=240)
    np.savez(tmp_path / "small.npz", X=X.reshape(240, -1), y=y)
    given = ["--ablation", "--seeds", 2, "--n-steps", 1, "--out", tmp_path / "out"]
    shown = example("compare_losses.py", tmp_path / "small.npz", *given)
    assert re.findall(r"^  (proxy-gml-\d) ", shown, re.MULTILINE) == [*ABLATION]


@pytest.mark.parametrize("columns", [(), ("--columns", 3)])
def test_metric_parts_scores_every_part(example, tmp_path, columns):
    X, y, _ = small_images(n=240)
    np.savez(tmp_path / "small.npz", X=X.reshape(240, -1), y=y)
    given = [tmp_path / "small.npz", "--seeds", 1, "--epochs", 1, "--out", tmp_path / "out"]
    shown = example("metric_parts.py", *given, *columns)
    number = r" ([\d.]+)"
    scored = re.findall(rf"^  (\S+) +{f'{number} '.join(SCORES)}{number}$", shown, re.MULTILINE)
    assert [method for method, *_ in scored] == [*METHODS]
    assert all(0 < float(score) <= 100 for _, *scores in scored for score in scores)
    assert example("metric_parts.py", *given, *columns) == shown  # from the rows of the first run


def test_metric_parts_trains_networks_on_images(example, tmp_path):
    X, y, _ = small_images(n=240)
    images = np.zeros((240, 28, 28, 1), np.uint8)
    images[:, 10:18, 10:18, 0] = 255 * X
    np.savez(tmp_path / "small.npz", X=images, y=y)
    given = [tmp_path / "small.npz", "--network", "--seeds", 1, "--epochs", 1]
    methods = ["--methods", "input", "deep-ssdml", "--out", tmp_path / "out"]
    shown = example("metric_parts.py", *given, *methods)
    assert "  deep-ssdml " in shown
    rows = [*map(json.loads, (tmp_path / "out" / "small-network.jsonl").read_text().splitlines())]
    assert rows[0]["scores"] != rows[1]["scores"]
    assert example("metric_parts.py", *given, *methods) == shown


def test_cluster_example_fits_a_chunked_array(example, monkeypatch):
    pytest.importorskip("distributed")
    from dask import distributed

    # Threads instead of processes, which would import everything again.
    monkeypatch.setattr(
        distributed, "LocalCluster", partial(distributed.LocalCluster, processes=False)
    )
    shown = example("cluster.py")
    assert "2 workers, 3 chunks\n" in shown
    assert float(re.search(r"accuracy: ([\d.]+)%", shown).group(1)) > 85
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as one:
        assert example("cluster.py", one.scheduler_address) == shown.replace(
            "2 workers", "1 workers"
        )


def test_compare_losses_prints_and_draws_differences(example, tmp_path, monkeypatch):
    X, y, _ = small_images(n=240)
    np.savez(tmp_path / "small.npz", X=X.reshape(240, -1), y=y)
    losses = ["softmax", "proxy-gml", "dgcrl"]
    for name in losses:  # one value to search
        monkeypatch.setitem(LOSSES, name, LOSSES[name]._replace(values=LOSSES[name].values[-1:]))
    given = ["--losses", *losses, "--seeds", 2, "--n-steps", 2, "--out", tmp_path / "out"]
    shown = example("compare_losses.py", tmp_path / "small.npz", *given)
    number, difference = r"[\d.]+ ± [\d.]+", r"[+-][\d.]+ ± [\d.]+"
    for line in (
        rf"  dgcrl +{number} +({difference}[* ] +){{3}}\S+",
        rf"  proxy-gml - softmax +{difference}\*?",
        r"dgcrl +\d +\d +\d  cub \+1.2",
    ):
        assert re.search(f"^{line}$", shown, re.MULTILINE), line
    assert shown.endswith(f"drawn: {tmp_path / 'out' / 'losses.png'}\n")
    assert imread(tmp_path / "out" / "losses.png").shape[2] == 4
