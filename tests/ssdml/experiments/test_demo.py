"""The demo: what it leaves behind, and what it takes away on demand."""

from __future__ import annotations

import struct

import pytest

from ssdml.experiments import demo
from ssdml.experiments.demo import remove_results, run_demo
from ssdml.experiments.runs.results import read_rows


@pytest.fixture
def done(tmp_path, monkeypatch):
    """A small demo of two methods that learn at once."""
    monkeypatch.setattr(demo, "SMALL_METHODS", ("input", "lda"))
    table = run_demo(tmp_path / "demo", labels_per_class=2, n_seeds=2, small=True)
    return tmp_path / "demo", table


def test_it_leaves_results_a_report_and_a_picture(done):
    out, table = done
    assert len(read_rows(out / "results.jsonl")) == 4
    assert (table.dataset, table.labels_per_class, len(table.seeds)) == ("digits", 2, 2)
    assert "<h1>digits" in (out / "report.html").read_text(encoding="utf-8")
    header = (out / "demo.png").read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", header[16:])
    assert width > 2 * height > 1000  # two maps and the scores, sharp enough for a page


def test_other_numbers_of_labels_are_run_too_with_fewer_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "METHODS", ("input",))
    monkeypatch.setattr(demo, "MOST_JOBS", 1)
    table = run_demo(tmp_path, labels_per_class=5, n_seeds=4)
    rows = read_rows(tmp_path / "results.jsonl")
    assert (table.labels_per_class, table.seeds) == (5, [0, 1, 2, 3])
    seeds = {(row["labels_per_class"], row["seed"]) for row in rows}
    assert seeds == {(n, s) for n in (2, 5, 10) for s in range(3)} | {(5, 3)}


def test_removing_leaves_the_files_of_others_alone(done):
    out, _ = done
    (out / "notes.txt").write_text("mine")
    remove_results(out)
    assert [path.name for path in out.iterdir()] == ["notes.txt"]
    remove_results(out / "nowhere")
