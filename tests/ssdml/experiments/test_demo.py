"""The demo: the files it writes and removes."""

from __future__ import annotations

import shutil
import struct

import pytest

from ssdml.experiments import demo
from ssdml.experiments.demo import remove_results, run_demo
from ssdml.experiments.runs.results import read_rows


def first_columns(embedding, n_jobs):
    """Stands in for t-SNE."""
    return embedding[:, :2]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A small demo of two fast methods."""
    out = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SMALL_METHODS", ("input", "lda"))
        patch.setattr("ssdml.experiments.report.figures.map_rows", first_columns)
        table = run_demo(out, labels_per_class=2, n_seeds=2, small=True)
    return out, table


def test_demo_writes_results_report_and_figure(done):
    out, table = done
    assert len(read_rows(out / "results.jsonl")) == 4
    assert (table.dataset, table.labels_per_class, len(table.seeds)) == ("digits", 2, 2)
    assert "<h1>digits" in (out / "report.html").read_text(encoding="utf-8")
    header = (out / "demo.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", header[16:])
    assert width > 2 * height > 1000  # two maps and the scores, sharp enough for a page


def test_other_budgets_use_fewer_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "METHODS", ("input",))
    monkeypatch.setattr(demo, "MOST_JOBS", 1)
    monkeypatch.setattr("ssdml.experiments.report.figures.map_rows", first_columns)
    told = []
    table = run_demo(
        tmp_path,
        labels_per_class=5,
        n_seeds=4,
        progress=lambda n_done, n_runs, title: told.append((n_done, n_runs)),
    )
    rows = read_rows(tmp_path / "results.jsonl")
    assert {n_runs for _, n_runs in told} == {len(rows)}
    assert told[-1] == (len(rows), len(rows))
    assert told == sorted(told)
    assert (table.labels_per_class, table.seeds) == (5, [0, 1, 2, 3])
    seeds = {(row["labels_per_class"], row["seed"]) for row in rows}
    assert seeds == {(n, s) for n in (2, 5, 10) for s in range(3)} | {(5, 3)}


def test_remove_keeps_files_of_others(done, tmp_path):
    out = shutil.copytree(done[0], tmp_path / "demo")
    (out / "notes.txt").write_text("mine")
    remove_results(out)
    assert [path.name for path in out.iterdir()] == ["notes.txt"]
    remove_results(out / "nowhere")
