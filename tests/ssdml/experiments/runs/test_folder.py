"""Several processes on one folder, and processes that are killed: no run is lost or doubled."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from dataclasses import replace

import pytest

from ssdml.cli.app import app
from ssdml.experiments import METHODS, compare
from ssdml.experiments.runs.folder import Mark, RunFolder, read_folder, read_status
from ssdml.experiments.runs.grid import make_runs
from ssdml.experiments.runs.job import run_one
from ssdml.experiments.runs.results import RESULTS, read_rows, write_rows
from tests.toy_study import RUNS_PER_SEED, started

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills processes as POSIX does")


@pytest.fixture
def start(tmp_path):
    """Starts the toy study in a process of its own."""
    begun = []

    def begin(*given, **settings):
        begun.append(started(tmp_path / "out", *given, **settings))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.join()


def n_failed(process):
    """Number of failed runs of its study, once it has ended."""
    process.join(timeout=240)
    return process.exitcode


def without_times(rows):
    """The rows ordered by hash, without what differs between repetitions."""
    kept = [{k: v for k, v in row.items() if k not in ("seconds", "peak_rss_mb")} for row in rows]
    return sorted(kept, key=lambda row: row["config_hash"])


def test_processes_share_the_runs_of_a_folder(tmp_path, start):
    processes = [start(3) for _ in range(3)]
    assert [n_failed(process) for process in processes] == [0] * 3
    hashes = [row["config_hash"] for row in read_rows(tmp_path / "out" / RESULTS)]
    assert len(hashes) == len(set(hashes)) == 12
    assert 6 <= len((tmp_path / "fits").read_text().split()) < 18
    assert not list((tmp_path / "out" / "runs").glob("*.running"))


def disturbed(tmp_path, start, n_kills, n_seeds):
    """Two processes on a study; one is killed and replaced, again and again."""
    draw = random.Random(n_kills)
    out = tmp_path / "out"

    def n_done():
        return len(list((out / "runs").glob("*.json")))

    processes = [start(n_seeds), start(n_seeds)]
    for _ in range(n_kills):
        before = n_done()
        while draw.random() < 0.99 and n_done() == before:
            time.sleep(0.005)  # most often until a run ends, else sooner
        time.sleep(draw.random() * 0.1)
        i = draw.randrange(2)
        assert processes[i].is_alive(), "the study was too short for so many kills"
        processes[i].kill()
        processes[i].join()
        processes[i] = start(n_seeds)
    assert [n_failed(process) for process in processes] == [0, 0]
    calm = started(tmp_path / "calm", n_seeds)
    assert n_failed(calm) == 0
    found = read_rows(out / RESULTS)
    assert len(found) == n_done() == RUNS_PER_SEED * n_seeds
    assert max(Counter(row["config_hash"] for row in found).values()) == 1
    assert without_times(found) == without_times(read_rows(tmp_path / "calm" / RESULTS))


def test_three_kills_do_not_change_the_results(tmp_path, start):
    disturbed(tmp_path, start, n_kills=3, n_seeds=6)


@pytest.mark.slow
def test_fifty_kills_do_not_change_the_results(tmp_path, start):
    disturbed(tmp_path, start, n_kills=50, n_seeds=75)


@pytest.fixture
def runs(blobs):
    return make_runs(blobs, {"input": METHODS["input"], "pca": METHODS["pca"]}, [2], [0])


@pytest.fixture
def open_folder(tmp_path, runs):
    return lambda: RunFolder(tmp_path, runs, lambda *news: None)


def test_runs_of_other_processes_come_last(open_folder, runs):
    with open_folder() as mine, open_folder() as other:
        assert next(mine.pending()) is runs[0]
        assert list(other.pending()) == runs[::-1]


@pytest.mark.parametrize("pid", [os.getpid(), 2**22 + 1], ids=["own", "none"])
def test_mark_of_a_dead_process_is_ignored(open_folder, runs, tmp_path, pid):
    mark = Mark(runs[0].title, os.uname().nodename, pid, since=1.0)  # before this process began
    with open_folder() as folder:
        (tmp_path / "runs" / f"{runs[0].config_hash}.running").write_text(json.dumps(mark))
        assert read_status(tmp_path).running == []
        assert list(folder.pending()) == runs


def test_runs_finished_elsewhere_are_not_repeated(blobs, open_folder, runs):
    with open_folder() as mine, open_folder() as other:
        other.write(run_one(blobs, runs[0]))
        assert list(mine.pending()) == runs[1:]


def test_failures_from_before_only_are_retried(blobs, open_folder, runs):
    failures = [run_one(blobs, run) for run in runs]
    for failure in failures:
        failure.row["status"] = "failed"
    with open_folder() as earlier:
        earlier.write(failures[0])
    with open_folder() as mine, open_folder() as other:
        other.write(failures[1])
        assert list(mine.pending()) == runs[:1]


def test_failure_does_not_replace_a_result(blobs, open_folder, runs):
    done, failure = run_one(blobs, runs[0]), run_one(blobs, runs[0])
    failure.row["status"] = "failed"
    with open_folder() as mine, open_folder() as other:
        other.write(done)
        mine.write(failure)
    assert [row["status"] for row in read_folder(mine.out)] == ["ok"]


def test_results_list_the_runs_of_all_processes(blobs, open_folder, runs):
    with open_folder() as mine, open_folder() as other:
        other.write(run_one(blobs, runs[0]))
        mine.write(run_one(blobs, runs[1]))
    assert read_rows(mine.out / RESULTS) == mine.rows()


def test_rows_without_run_files_count_as_done(blobs, tmp_path, broken_method, monkeypatch):
    """A results.jsonl of an earlier version, or one that was copied into the folder."""
    compare(blobs, ["input", broken_method], out=tmp_path / "old", seeds=[0])
    rows = read_rows(tmp_path / "old" / RESULTS)
    out = tmp_path / "new"
    out.mkdir()
    write_rows(out / RESULTS, rows)
    assert read_folder(out) == rows
    broken = type(METHODS[broken_method](0, None))
    monkeypatch.setattr(broken, "fit", lambda self, X, y: self)
    monkeypatch.setattr(broken, "transform", lambda self, X: X, raising=False)
    found = compare(blobs, ["input", broken_method], out=out, seeds=[0], resume=True)
    assert found[0] == rows[0]
    assert found[1]["status"] == "ok"
    assert read_rows(out / RESULTS) == found
    assert len(list((out / "runs").iterdir())) == 1


def test_malformed_run_file_is_named(blobs, tmp_path):
    (row,) = compare(blobs, ["input"], out=tmp_path, seeds=[0])
    (tmp_path / "runs" / f"{row['config_hash']}.json").write_text("oops")
    with pytest.raises(ValueError, match=rf"{row['config_hash']}\.json: not JSON .*Delete it and"):
        compare(blobs, ["input"], out=tmp_path, seeds=[0], resume=True)


def test_runs_of_another_version_give_a_warning(tmp_path, blobs):
    (row,) = compare(blobs, ["input"], out=tmp_path, seeds=[0])
    path = tmp_path / "runs" / f"{row['config_hash']}.json"
    row["versions"]["ssdml"] = "0.0.1"
    path.write_text(json.dumps(row))
    with pytest.warns(UserWarning, match=r"holds runs of ssdml 0\.0\.1, and this is .* are kept"):
        assert compare(blobs, ["input"], out=tmp_path, seeds=[0], resume=True) == [row]


def test_status_lists_runs_by_state(tmp_path, blobs, broken_method, capsys):
    compare(blobs, ["input", broken_method], out=tmp_path, seeds=[0])
    more = make_runs(blobs, {"pca": METHODS["pca"], "lda": METHODS["lda"]}, [5], [0])
    with RunFolder(tmp_path, more, lambda *news: None) as folder:
        next(folder.pending())
        found = read_status(tmp_path)
        with pytest.raises(SystemExit):
            app(["status", str(tmp_path)])
    assert [row["method"] for row in found.done] == ["input"]
    assert [row["error"] for row in found.failed] == ["RuntimeError: no <metric> & no luck"]
    assert [(mark.title, mark.pid) for mark in found.running] == [(more[0].title, os.getpid())]
    assert found.pending == [more[1].title]
    shown = capsys.readouterr()
    for words in (
        "RuntimeError: no <metric> & no luck",
        "pca, 5 labels per class, seed 0",
        f"process {os.getpid()}",
    ):
        assert words in shown.out
    assert "--resume to run pending jobs and retry failed ones" in shown.err


def test_killed_process_resumes_without_repeating_runs(tmp_path, start):
    def slow(titles):
        return [title for title in titles if "slow" in title]

    out, pause = tmp_path / "out", 0.3
    process = start(2, pause)
    while not (out / "runs").is_dir() or len(list((out / "runs").glob("*.json"))) < 3:
        assert process.is_alive()
        time.sleep(0.01)
    while not slow(mark.title for mark in read_status(out).running):
        assert process.is_alive()
        time.sleep(0.01)
    process.kill()
    process.join()
    n_fits = len((tmp_path / "fits").read_text().split())
    found = read_status(out)
    assert found.running == []
    assert len(slow(row["method"] for row in found.done)) == n_fits
    assert len(found.done) + len(found.pending) == RUNS_PER_SEED * 2
    with (out / RESULTS).open("a") as file:
        file.write('{"dataset": "to')  # as an earlier version left it when it was killed
    assert n_failed(start(2, pause)) == 0
    assert len((tmp_path / "fits").read_text().split()) == 4
    rows = read_rows(out / RESULTS)
    assert rows[: len(found.done)] == found.done
    assert [row["status"] for row in rows] == ["ok"] * RUNS_PER_SEED * 2


def test_status_needs_results(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.jsonl: there is no such file"):
        read_status(tmp_path)


def test_results_alone_have_a_status(tmp_path, make_row):
    write_rows(tmp_path / RESULTS, [make_row()])
    found = read_status(tmp_path)
    assert (len(found.done), found.pending) == (1, [])


def test_failed_run_that_fails_again_replaces_its_row(blobs, tmp_path):
    class Broken:
        def fit(self, X, y):
            raise RuntimeError(reasons[-1])

    reasons = ["first"]
    for reason in ("first", "second", "third"):
        reasons.append(reason)
        compare(
            blobs, {"broken": lambda seed, n_jobs: Broken()}, out=tmp_path, seeds=[0], resume=True
        )
        (row,) = read_rows(tmp_path / RESULTS)
        assert row["error"] == f"RuntimeError: {reason}"
        (trace,) = (tmp_path / "errors").iterdir()
        assert reason in trace.read_text()


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": 3}', b"\xff", b"[" * 10**5])
def test_damaged_list_of_runs_is_named(tmp_path, make_row, content):
    write_rows(tmp_path / RESULTS, [make_row()])
    (tmp_path / "requested").mkdir()
    (tmp_path / "requested" / "x.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.json: (damaged|must hold the titles).* Delete it"):
        read_status(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"[" * 10**5, b"[1]", b'["a", "b", "c", "d"]', b"\xff"])
def test_damaged_mark_is_ignored(tmp_path, make_row, content):
    write_rows(tmp_path / RESULTS, [make_row()])
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x.running").write_bytes(content)
    assert read_status(tmp_path).running == []


def test_file_of_another_run_is_named(blobs, tmp_path):
    compare(blobs, ["input"], out=tmp_path, seeds=[0, 1])
    one, other = sorted((tmp_path / "runs").glob("*.json"))
    one.write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match=rf"{one.name}: holds another run, {other.stem}\. Delete"):
        read_folder(tmp_path)


def test_names_that_are_not_utf_8_are_refused_before_the_first_run(blobs, tmp_path):
    name = os.fsdecode(b"caf\xe9")
    with pytest.raises(ValueError, match=r"Dataset: name must be text in UTF-8; got 'caf\\udce9'"):
        replace(blobs, name=name)
    with pytest.raises(ValueError, match=r"Dataset: class_names must be text in UTF-8; got 'caf"):
        replace(blobs, class_names=(name, *blobs.class_names[1:]))
    with pytest.raises(ValueError, match=r"compare: names of methods must be text in UTF-8; got"):
        compare(blobs, {name: METHODS["input"]}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
