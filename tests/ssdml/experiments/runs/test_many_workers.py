"""Many processes on one folder, and processes that are killed: no row is lost, none is doubled."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures.process import BrokenProcessPool

import pytest

from ssdml.cli.app import app
from ssdml.experiments import METHODS, compare
from ssdml.experiments.runs.folder import PLANNED, ResultsFolder, read_status
from ssdml.experiments.runs.job import attempt
from ssdml.experiments.runs.locks import Claims, read_claims
from ssdml.experiments.runs.plan import plan_runs
from ssdml.experiments.runs.results import RESULTS, ResultsLog, append_row, read_rows
from tests.toy_study import RUNS_A_SEED, started, started_anew

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
    """How many runs of its study failed, once it has ended."""
    process.join(timeout=240)
    return process.exitcode


def without_times(rows):
    """The rows, in the order of their hashes, but for what differs from one time to the next."""
    kept = [{k: v for k, v in row.items() if k not in ("seconds", "peak_rss_mb")} for row in rows]
    return sorted(kept, key=lambda row: row["config_hash"])


def test_several_processes_share_a_folder_and_each_returns_all(tmp_path, start):
    processes = [start(3) for _ in range(3)]
    assert [n_failed(process) for process in processes] == [0] * 3
    hashes = [row["config_hash"] for row in read_rows(tmp_path / "out" / RESULTS)]
    assert len(hashes) == len(set(hashes)) == 12
    assert len((tmp_path / "fits").read_text().split()) == 6  # each once, whoever did it
    assert not list((tmp_path / "out" / "claims").glob("*.json"))


def disturbed(tmp_path, start, n_kills, n_seeds):
    """Two processes on a study; one is killed, again and again, and another begun in its place."""
    draw = random.Random(n_kills)
    results = tmp_path / "out" / RESULTS
    processes = [start(n_seeds), start(n_seeds)]
    for _ in range(n_kills):
        size = results.stat().st_size if results.exists() else 0
        while draw.random() < 0.99 and not (results.exists() and results.stat().st_size > size):
            time.sleep(0.005)  # most often until a row is written, else sooner
        time.sleep(draw.random() * 0.1)
        i = draw.randrange(2)
        assert processes[i].is_alive(), "the study was too short for so many kills"
        processes[i].kill()
        processes[i].join()
        processes[i] = start(n_seeds)
    assert [n_failed(process) for process in processes] == [0, 0]
    calm = started(tmp_path / "calm", n_seeds)
    assert n_failed(calm) == 0
    found = read_rows(results)
    assert len(found) == RUNS_A_SEED * n_seeds
    assert max(Counter(row["config_hash"] for row in found).values()) == 1
    assert without_times(found) == without_times(read_rows(tmp_path / "calm" / RESULTS))


def test_three_kills_leave_the_results_of_an_undisturbed_study(tmp_path, start):
    disturbed(tmp_path, start, n_kills=3, n_seeds=6)


@pytest.mark.slow
def test_fifty_kills_leave_the_results_of_an_undisturbed_study(tmp_path, start):
    disturbed(tmp_path, start, n_kills=50, n_seeds=75)


@pytest.mark.slow  # each worker imports all of ssdml
def test_the_run_of_a_killed_worker_is_done_again(tmp_path):
    assert started_anew(tmp_path / "out", 1, n_jobs=2, deadly="once").wait(240) == 0
    assert len(read_rows(tmp_path / "out" / RESULTS)) == 6


@pytest.mark.slow  # ten workers die, and others start
def test_a_run_that_kills_every_worker_has_failed_and_the_others_go_on(tmp_path):
    assert started_anew(tmp_path / "out", 1, n_jobs=2, deadly="always").wait(290) == 2
    failed = [row for row in read_rows(tmp_path / "out" / RESULTS) if row["status"] != "ok"]
    assert {row["method"] for row in failed} == {"deadly"}
    assert all("was killed 5 times. Perhaps it needs more memory" in r["error"] for r in failed)


def test_what_was_under_way_with_a_worker_that_died_is_done_again_and_then_alone(
    blobs, tmp_path, monkeypatch
):
    """Of six runs one ends each worker: it fails in the end, and the others are done once each."""
    alone = []

    def parallel(dataset, runs, n_jobs, cluster):
        some = list(runs)
        alone.append(len(some) == 1)
        for run in some:
            if (run.method, run.split.seed) == ("pca", 1):
                raise BrokenProcessPool
            yield attempt(dataset, run)

    monkeypatch.setattr("ssdml.experiments.runs.execution._parallel", parallel)
    rows = compare(blobs, ["input", "pca"], out=tmp_path, seeds=range(3), n_jobs=2)
    failed = [row for row in rows if row["status"] != "ok"]
    assert [(row["method"], row["seed"]) for row in failed] == [("pca", 1)]
    assert "WorkerKilled: the process that ran it was killed 5 times" in failed[0]["error"]
    assert len(read_rows(tmp_path / RESULTS)) == 6
    assert sum(alone) >= 3


APPENDING = """
import json, sys
from pathlib import Path
from ssdml.experiments.results import append_row
row = json.loads(sys.argv[2])
for seed in range(100):
    append_row(Path(sys.argv[1]), row | {"seed": seed, "error": "x" * 5000})
"""


def test_rows_of_many_writers_are_whole_lines(tmp_path, make_row):
    path = tmp_path / RESULTS
    writers = [
        subprocess.Popen([sys.executable, "-c", APPENDING, path, json.dumps(make_row(method=name))])
        for name in "abcd"
    ]
    assert [writer.wait(timeout=60) for writer in writers] == [0] * 4
    found = Counter((row["method"], row["seed"]) for row in read_rows(path))
    assert found == Counter({(name, seed): 1 for name in "abcd" for seed in range(100)})


def test_what_a_killed_writer_left_goes_with_the_next_row(tmp_path, make_row):
    path = tmp_path / RESULTS
    append_row(path, make_row(seed=0))
    log = ResultsLog(path)
    assert len(log.news()) == 1
    with path.open("a") as file:
        file.write('{"dataset": "blo')
    assert log.news() == []
    append_row(path, make_row(seed=1))
    assert [row["seed"] for row in log.news()] == [1]
    assert [row["seed"] for row in read_rows(path)] == [0, 1]


@pytest.fixture
def runs(blobs):
    return plan_runs(blobs, {"input": METHODS["input"], "pca": METHODS["pca"]}, [2], [0])


def test_a_run_is_begun_once_and_free_again_afterwards(tmp_path, runs):
    with Claims(tmp_path) as mine, Claims(tmp_path) as others:
        assert mine.take(runs[0])
        assert not others.take(runs[0])
        assert others.take(runs[1])
        assert [claim.title for claim in read_claims(tmp_path)] == [run.title for run in runs]
        mine.release(runs[0].config_hash)
        assert others.take(runs[0])
    assert read_claims(tmp_path) == []


def test_what_another_process_has_done_meanwhile_is_not_done_again(tmp_path, blobs, runs):
    with Claims(tmp_path / "claims") as claims:
        folder = ResultsFolder(tmp_path, runs, claims, lambda *news: None)
        append_row(tmp_path / RESULTS, attempt(blobs, runs[0]).row)
        assert not folder.take(runs[0])
        assert folder.left() == runs[1:]
        assert folder.take(runs[1])


def test_what_fails_elsewhere_meanwhile_is_not_tried_again_but_what_failed_before_is(
    tmp_path, blobs, runs
):
    rows = [attempt(blobs, run).row | {"status": "failed"} for run in runs]
    append_row_to = tmp_path / RESULTS
    append_row(append_row_to, rows[0])
    with Claims(tmp_path / "claims") as claims:
        folder = ResultsFolder(tmp_path, runs, claims, lambda *news: None)
        append_row(append_row_to, rows[1])
        assert folder.left() == runs[:1]


def test_a_disk_that_refuses_a_claim_ends_the_comparison_with_its_error(
    tmp_path, blobs, monkeypatch
):
    def refuse(self, run):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Claims, "take", refuse)
    with pytest.raises(OSError, match="No space left"):
        compare(blobs, ["input", "pca"], out=tmp_path, seeds=[0, 1], n_jobs=2)


def test_runs_of_another_version_are_kept_with_a_warning(tmp_path, blobs):
    compare(blobs, ["input"], out=tmp_path, seeds=[0])
    path = tmp_path / RESULTS
    row = json.loads(path.read_text())
    row["versions"]["ssdml"] = "0.0.1"
    path.write_text(json.dumps(row) + "\n")
    with pytest.warns(UserWarning, match=r"holds runs of ssdml 0\.0\.1, and this is .* are kept"):
        compare(blobs, ["input"], out=tmp_path, seeds=[0], resume=True)
    assert len(read_rows(path)) == 1


def test_no_seed_no_method_and_no_label_are_refused(tmp_path, blobs):
    for name, given in (("seeds", {"seeds": []}), ("labels", {"labels_per_class": []})):
        with pytest.raises(ValueError, match=f"compare: {name} must name at least one; got none"):
            compare(blobs, ["input"], out=tmp_path / "out", **given)
    with pytest.raises(ValueError, match="compare: methods must name at least one"):
        compare(blobs, [], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_status_tells_what_is_done_runs_failed_and_waits(
    tmp_path, blobs, broken_method, capsys
):
    compare(blobs, ["input", broken_method], out=tmp_path, seeds=[0])
    more = plan_runs(blobs, {"pca": METHODS["pca"], "lda": METHODS["lda"]}, [5], [0])
    with Claims(tmp_path / "claims") as claims:
        ResultsFolder(tmp_path, more, claims, lambda *news: None)
        claims.take(more[0])
        found = read_status(tmp_path)
        with pytest.raises(SystemExit):
            app(["status", str(tmp_path)])
    assert found.n_planned == 4
    assert [row["method"] for row in found.done] == ["input"]
    assert [row["error"] for row in found.failed] == ["RuntimeError: no <metric> & no luck"]
    assert [(claim.title, claim.pid) for claim in found.running] == [(more[0].title, os.getpid())]
    assert found.waiting == [more[1].title]
    shown = capsys.readouterr().out
    assert "RuntimeError: no <metric> & no luck" in shown
    assert "pca, 5 labels a class, seed 0" in shown
    assert f"process {os.getpid()}" in shown


def test_a_process_that_was_killed_runs_nothing(tmp_path, start):
    process = start(3, 60.0)
    while not (tmp_path / "out" / "claims").is_dir() or not any(
        "slow" in claim.title for claim in read_status(tmp_path / "out").running
    ):
        assert process.is_alive()
        time.sleep(0.05)
    process.kill()
    process.join()
    found = read_status(tmp_path / "out")
    assert (found.running, len(found.done), len(found.waiting)) == ([], 1, 11)


def test_a_folder_without_results_has_no_status(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"results\.jsonl: there is no such file"):
        read_status(tmp_path)


def test_results_without_a_plan_have_a_status(tmp_path, make_row):
    append_row(tmp_path / RESULTS, make_row())
    assert not (tmp_path / PLANNED).exists()
    assert read_status(tmp_path).n_planned == 1
