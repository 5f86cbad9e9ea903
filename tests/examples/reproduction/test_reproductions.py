"""The scripts of the papers' tables and figures, on small data."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from reproduction.published import TABLE_2, TABLE_3, TABLE_5
from sklearn.base import clone

from tests.deep import N_TRIPLETS, small_images, small_model, small_network, small_published_model
from tests.photographs import SMALL, WRITERS, small_protocol


@pytest.fixture
def small_deep(monkeypatch):
    """Replace MNIST and its networks by small images and short fits."""
    from ssdml.baselines import DeepSupervised, DeepUnsupervised
    from ssdml.datasets import Dataset
    from ssdml.experiments.methods.registry import DEEP_METHODS

    monkeypatch.setattr("ssdml.deep.alternation.N_TRIPLETS", N_TRIPLETS)
    X, y, _ = small_images(n=300)
    data = Dataset("mnist", X.reshape(300, -1), y, tuple("0123456789"), item_shape=(8, 8))
    short = {"epochs": 2, "epochs_per_partition": 1}
    paper = small_published_model(**short, partition_size=100)
    models = {
        "deep-ssdml": small_model(**short),
        "deep-ssdml-paper": paper,
        "deep-rotnet": DeepUnsupervised("rotnet", small_network(), 16, **short),
        "deep-angular": DeepSupervised("angular", small_network(), 16, n_triplets=300, **short),
    }
    for name, model in models.items():
        make = lambda seed, n_jobs, model=model: clone(model).set_params(random_state=seed)  # noqa: E731
        monkeypatch.setitem(DEEP_METHODS, name, lambda *network, make=make: make)

    def load(name, data_dir=None):
        return replace(data, name=name)

    for package in ("ssdml.datasets", "ssdml.datasets.loading"):
        monkeypatch.setattr(f"{package}.load_dataset", load)


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
def test_tables_show_published_scores_beside_ours(example, tmp_path, number, data, line, printed):
    lines = ["input", "deep-ssdml-paper", line]
    shown = example(
        f"reproduce_table{number}.py", data, "--seeds", 2, "--out", tmp_path, "--only", *lines
    )
    table = read_table(shown)
    assert table.title == f"{data}, {10 if data == 'mnist' else 5} labels per class, 2 seeds"
    assert set(table.found) == {*lines}
    assert table.heads == ["NMI", "R@1", "R@2", "R@4", "R@8"]  # tests need five seeds
    for method in lines:
        assert re.fullmatch(r"([\d.]+±[\d.]+ ?){5}", " ".join(table.found[method]))
    assert table.printed["deep-ssdml-paper"] == printed.split()
    assert shown.count("* our reconstruction:") == 1
    assert {*table.starred} == {"deep-ssdml-paper", *[line] * (number in "35")}
    assert max(map(len, shown.splitlines())) <= 80


class Table(NamedTuple):
    title: str
    heads: list[str]
    found: dict[str, list[str]]  # cells by method, without its star
    printed: dict[str, list[str]]
    starred: list[str]


def read_table(shown):
    """Parse the output of a table script; a long name has its own line."""
    title, heads, *body = shown.splitlines()
    table, method = Table(title, heads.split(), {}, {}, []), None
    for text in body:
        if text.startswith(("p: ", "* ")):
            break
        name, cells = text[:17].split(), text[17:].split()
        if name == ["published"]:
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
    """Replace networks and protocols by small ones; return a file of weights."""
    from ssdml.experiments.methods.protocols import PROTOCOLS
    from ssdml.networks import fine_grained

    monkeypatch.setattr("ssdml.deep.alternation.N_TRIPLETS", N_TRIPLETS)
    for name, protocol in PROTOCOLS.items():
        monkeypatch.setitem(fine_grained.TRUNKS, protocol.architecture, SMALL)
        monkeypatch.setitem(PROTOCOLS, name, small_protocol(protocol))
    torch.save(SMALL.new().state_dict(), tmp_path / "weights.pth")
    monkeypatch.setenv("SSDML_DATA", str(tmp_path))
    return tmp_path / "weights.pth"


@pytest.mark.parametrize(
    ("number", "name", "seeds", "lines"),
    [
        (2, "cub", 2, ["initial", "deep-lrml", "deep-ssdml-paper", "deep-ssdml"]),
        (2, "cars", 1, ["initial", "deep-ssdml-paper"]),
        (2, "sop", 1, ["initial", "deep-ssdml-paper"]),
        (2, "inshop", 1, ["initial", "deep-ssdml-paper"]),
        (
            3,
            "cub",
            1,
            ["deep-exemplar", "deep-rotnet", "deep-nce", "deep-deepcluster", "deep-suml"],
        ),
        (3, "cars", 1, ["deep-nce"]),
        (5, "cub", 1, ["deep-angular"]),
    ],
)
def test_tables_run_on_every_photograph_dataset(
    example, tmp_path, toy_photographs, number, name, seeds, lines
):
    WRITERS[name](tmp_path)
    files = ["--weights", toy_photographs, "--out", tmp_path / "out"]
    shown = example(f"reproduce_table{number}.py", name, "--seeds", seeds, *files, "--only", *lines)
    table = read_table(shown)
    assert table.title == f"{name}, 5 labels per class, {seeds} seed{'s' * (seeds > 1)}"
    recalls = {"sop": "1 10 100 1000", "inshop": "1 10 20 30 40 50"}.get(name, "1 2 4 8")
    n_scores = 1 + len(recalls.split())
    assert table.heads[:n_scores] == ["NMI", *(f"R@{k}" for k in recalls.split())]
    printed = {2: TABLE_2, 3: TABLE_3, 5: TABLE_5}[number].get(name, {})
    assert set(table.found) == {*lines}
    for method in lines:
        assert recall_at_1(table, method) > 80, method  # colors tell the classes apart
        given = [str(value or "-") for value in printed.get(method, ())]
        assert table.printed.get(method, []) == given


def recall_at_1(table, method):
    return float(table.found[method][1].partition("±")[0])


@pytest.mark.parametrize(
    ("protocol", "name"),
    [("chen2021", "inshop"), ("zhu2020", "sop"), ("li2020", "cub"), ("zheng2019", "cars")],
)
def test_table2_runs_with_every_protocol(example, tmp_path, toy_photographs, protocol, name):
    WRITERS[name](tmp_path)
    lines = ["initial", "deep-isdml", "deep-ssdml-paper", "deep-ssdml"]
    files = ["--weights", toy_photographs, "--out", tmp_path / "out", "--protocol", protocol]
    shown = example("reproduce_table2.py", name, "--seeds", 1, *files, "--only", *lines)
    table = read_table(shown)
    assert table.title == f"{name}, all labels, 1 seed"
    assert not table.printed  # published scores have another protocol
    assert set(table.found) == {*lines}
    for method in lines:
        assert recall_at_1(table, method) > 80, method


def test_figure3_is_drawn(example, tmp_path, monkeypatch):
    """On scikit-learn's digits, by a method of features."""
    given = ["digits", "--method", "pca", "--queries", 4, "--neighbors", 3, "--out", tmp_path]
    shown = example("reproduce_figure3.py", *given)
    assert re.fullmatch(r"input: R@1 \d\d\.\d%\npca: R@1 \d\d\.\d%\ndrawn: .*figure3.png\n", shown)
    picture = imread(tmp_path / "figure3.png")[..., :3]
    green = (np.abs(picture - np.array([0x1A, 0x8A, 0x4A]) / 255) < 0.02).all(axis=2)
    assert green.sum() > 4000  # frames of most of the 24 neighbors


@pytest.mark.parametrize(
    "script", ["reproduce_figure2.py", "reproduce_figure3.py", "explain_published.py"]
)
def test_figures_need_images(example, script, tmp_path, capsys):
    np.savez(tmp_path / "rows.npz", X=np.random.default_rng(0).normal(size=(60, 5)), y=[0, 1] * 30)
    with pytest.raises(SystemExit, match="2"):
        example(script, tmp_path / "rows.npz")
    assert "dataset must hold images in memory; got rows" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        example(script, "minst")
    assert "Did you mean 'mnist'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("reproduce_figure2.py", ["--seeds", 0], "0 must be a whole number of at least 1"),
        ("reproduce_figure2.py", ["--published-epochs", 0], "0 must be a whole number of at"),
        ("reproduce_figure3.py", ["--method", "pca", "--neighbors", 999], "must be below 599"),
        ("reproduce_figure3.py", ["--method", "pca", "--seed", -1], "seed must be at least 0"),
        ("reproduce_table1.py", ["--tune"], "by validation: pass --keep best or both"),
    ],
)
def test_options_without_effect_or_out_of_range_are_refused(
    example, script, options, message, tmp_path, capsys
):
    with pytest.raises(SystemExit, match="2"):
        example(script, "digits", "--out", tmp_path, *options)
    assert message in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("small_deep")
def test_figure2_is_drawn(example, tmp_path, monkeypatch):
    monkeypatch.setattr("ssdml.experiments.report.figures.map_rows", lambda Z, n_jobs: Z[:, :2])
    given = ["mnist", "--seeds", 2, "--published-epochs", 3, "--out", tmp_path]
    shown = example("reproduce_figure2.py", *given)
    assert shown == f"drawn: {tmp_path / 'figure2.png'}\n"
    height, width, _ = imread(tmp_path / "figure2.png").shape
    assert (height, width) == (1020, 1800)
    histories = sorted(tmp_path.glob("deep*/history.jsonl"))
    assert len(histories) == 3
    assert all('"validation"' in file.read_text() for file in histories)
    partitions = {file.parent.name: len(file.read_text().splitlines()) for file in histories}
    assert partitions == {
        "deep-ssdml": 2,
        "deep-ssdml[orthogonal=false]": 2,
        "deep-ssdml-paper": 3,  # one epoch each
    }


def test_compare_baselines_tests_and_ranks_methods(example, tmp_path, monkeypatch):
    from ssdml.experiments import METHODS

    for name in list(METHODS):
        if name not in ("input", "lda", "lrml", "apllr"):
            monkeypatch.setitem(METHODS, name, METHODS["pca"])  # the real ones have their own tests
    X, y, _ = small_images(n=600)
    for number in (1, 2):
        np.savez(tmp_path / f"set{number}.npz", X=X.reshape(600, -1)[number::2], y=y[number::2])
    sets = [tmp_path / "set1.npz", tmp_path / "set2.npz"]
    given = [*sets, "--labels-per-class", 4, 5, "--features", "unit", "raw"]
    given += ["--seeds", 2, "--out", tmp_path / "out"]
    shown = example("compare_baselines.py", *given)
    titles = re.findall(r"^set(\d), (\d) labels per class: (\S+)$", shown, re.M)
    assert [" ".join(title) for title in titles] == [
        *("1 4 NMI", "1 4 accuracy"),
        *("2 5 NMI", "2 5 accuracy"),
    ]
    compared = re.findall(r"^  lrml\* +[\d.]+ ± +[\d.]+ +ssdml +[+-][\d.]+$", shown, re.M)
    assert len(compared) == 4
    assert len(re.findall(r"^  best of ours: ssdml\S*; tests need 5 seeds$", shown, re.M)) == 4
    assert len(re.findall(r"^mean ranks by (NMI|accuracy): \S+ \d\.\d, ", shown, re.M)) == 2
    assert "Friedman p = 0." in shown
    assert re.search(r"^  apllr\* ", shown, re.M)
    assert "  apllr, apit: the equation of M, from" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--labels-per-class", 5, 10],
            "class must have one value, or one for each of 3 data sets",
        ),
        (["--features", "unit", "raw"], "--features must have one value, or one for each of 3"),
        (["--features", "bogus"], "features must be one of"),
        (["--seeds", 0], "0 must be a whole number of at least 1"),
        (["a/digits.npz"], "datasets must have distinct names"),
    ],
)
def test_compare_baselines_rejects_invalid_options(example, capsys, options, message):
    with pytest.raises(SystemExit, match="2"):
        example("compare_baselines.py", "digits", "banking77", "mnist", *options)
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["nosuch"], "nosuch"),
        (["digits", "--only", "nosuch"], "method must be one of"),
        (["digits", "--n-jobs", -1], "-1 must be a whole number of at least 1"),
    ],
)
def test_table_scripts_reject_invalid_options(example, tmp_path, capsys, options, message):
    with pytest.raises(SystemExit, match="2"):
        example("reproduce_table1.py", *options, "--out", tmp_path / "out")
    shown = " ".join(capsys.readouterr().err.split())
    assert message in shown
    assert "Traceback" not in shown


@pytest.mark.usefixtures("small_deep")
def test_failed_runs_end_a_table_script(example, tmp_path, capsys):
    lines = ["--seeds", 1, "--only", "input", "deep-ssdml[learning_rate=1e30]"]
    with pytest.raises(SystemExit, match="1"):
        example("reproduce_table1.py", "mnist", "--out", tmp_path, *lines)
    shown = capsys.readouterr()
    assert "1 of 2 runs failed, first deep-ssdml[learning_rate=1e30]: " in shown.err
    assert str(tmp_path / "errors") in shown.err
    (line,) = (line for line in shown.out.splitlines() if line.startswith("input"))
    assert np.isfinite(float(line.split()[1].partition("±")[0]))


def test_missing_weights_are_a_usage_error(example, tmp_path, capsys):
    missing = tmp_path / "missing.pth"
    with pytest.raises(SystemExit, match="2"):
        example("reproduce_table2.py", "cub", "--weights", missing)
    assert f"{missing} must be an existing file" in capsys.readouterr().err


def test_failed_runs_end_compare_baselines(example, tmp_path, capsys, monkeypatch):
    from ssdml.experiments import METHODS

    for name in list(METHODS):
        if name not in ("input", "ssdml"):
            monkeypatch.setitem(METHODS, name, METHODS["pca"])
    X, y, _ = small_images(n=300)
    np.savez(tmp_path / "small.npz", X=X.reshape(300, -1), y=y)
    given = ["compare_baselines.py", tmp_path / "small.npz", "--seeds", 1]
    broken = lambda seed, n_jobs: METHODS["pca"](seed, n_jobs).set_params(n_components=-1)  # noqa: E731
    monkeypatch.setitem(METHODS, "lrml", broken)
    with pytest.raises(SystemExit, match="1"):
        example(*given, "--out", tmp_path / "one")
    shown = capsys.readouterr()
    assert "runs failed, first lrml: " in shown.err
    assert "best of ours: " in shown.out
    monkeypatch.setitem(METHODS, "ssdml", broken)
    with pytest.raises(SystemExit, match="1"):
        example(*given, "--out", tmp_path / "none")
    assert "2 of " in capsys.readouterr().err
