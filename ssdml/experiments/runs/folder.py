"""The folder of a comparison: one JSON file per run, from which ``results.jsonl`` is made.

A run's file is named by the hash of its configuration and replaced atomically, so neither a kill
nor a second process on the folder damages it. If two processes do the same run, one copy is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import psutil

from ssdml._version import __version__
from ssdml.datasets.splits import LabelScarceSplit
from ssdml.experiments.runs.grid import Run, safe_name, split_label
from ssdml.experiments.runs.job import Outcome, save_outcome
from ssdml.experiments.runs.results import (
    FAILED,
    LEFT_OUT,
    OK,
    RESULTS,
    RESUME,
    Row,
    budget_of,
    latest,
    parse_row,
    read_rows,
    write_rows,
)
from ssdml.utils.files import parse_json, read_regular
from ssdml.utils.persistence import atomic_write
from ssdml.utils.validation import warn

RUNS, SPLITS = "runs", "splits"
REQUESTED = "requested"  # titles of the runs of each call, for the status

Progress = Callable[[int, int, str], None]


def read_folder(out: Path) -> list[Row]:
    """Rows of the runs in a folder: of its run files, and others that ``results.jsonl`` lists.

    Raises
    ------
    FileNotFoundError
        If the folder holds no results.
    """
    files = sorted((out / RUNS).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    listed = [] if files and not (out / RESULTS).exists() else read_rows(out / RESULTS)
    rows = _by_hash(listed)
    for path in files:
        row = parse_row(read_regular(path), str(path))
        if row["config_hash"] != path.stem:
            raise ValueError(
                f"{path}: holds another run, {row['config_hash']}. Delete it and resume."
            )
        rows[path.stem] = row
    return list(rows.values())


def _by_hash(rows: list[Row]) -> dict[str, Row]:
    return {row["config_hash"]: row for row in rows}


class RunFolder:
    """The runs of a comparison on disk: what is left to do, and what this process adds."""

    def __init__(self, out: Path, runs: list[Run], progress: Progress) -> None:
        self.out, self.runs, self.progress = out, runs, progress
        for name in (RUNS, SPLITS, REQUESTED):
            (out / name).mkdir(parents=True, exist_ok=True)
        (out / RESULTS).touch()
        rows = read_folder(out)
        _refuse_other_data(out / RESULTS, rows, runs[0])
        _save_splits(out / SPLITS, runs)
        _save_titles(out / REQUESTED, runs)
        _warn_of_other_versions(out / RESULTS, rows)
        self._done = {row["config_hash"] for row in rows if row["status"] == OK}
        # Earlier failures are repeated; failures from now on, in any process, are not.
        failed = {row["config_hash"] for row in rows} - self._done
        self._failed = {name: self._version(name) for name in failed}
        self._marks: set[Path] = set()
        self._next_listing = 0.0
        self._report_progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for mark in list(self._marks):
            mark.unlink(missing_ok=True)
        self._list_results()

    def pending(self) -> Iterator[Run]:
        """Yield the runs to do and mark them; those that other processes are at come last."""
        elsewhere = []
        for run in self.runs:
            if self._is_done(run):
                continue
            mark = _read_mark(self._mark(run))
            if mark is not None and mark.is_alive:
                elsewhere.append(run)
            else:
                yield self._begun(run)
        for run in elsewhere:
            if not self._is_done(run):
                yield self._begun(run)

    def write(self, outcome: Outcome) -> None:
        """Write the files of a run."""
        run, row = outcome.run, outcome.row
        if row["status"] == OK or not self._is_done(run):  # a failure replaces no result
            save_outcome(outcome, self.out)
            with atomic_write(self._file(run.config_hash), way_out=RESUME) as unfinished:
                text = json.dumps(row, ensure_ascii=False, allow_nan=False)
                unfinished.write_text(text + "\n", encoding="utf-8")
        self._mark(run).unlink(missing_ok=True)
        self._marks.discard(self._mark(run))
        if time.monotonic() > self._next_listing:
            self._list_results()
        self._report_progress()

    def rows(self) -> list[Row]:
        """Rows of the runs asked for, whichever process did them."""
        found = _by_hash(read_folder(self.out))
        return [found[run.config_hash] for run in self.runs]

    def _file(self, config_hash: str) -> Path:
        return self.out / RUNS / f"{config_hash}.json"

    def _mark(self, run: Run) -> Path:
        return self.out / RUNS / f"{run.config_hash}.running"

    def _version(self, config_hash: str) -> tuple[int, int] | None:
        """Identify the present file of a run; None if there is none."""
        with suppress(OSError):
            stat = os.stat(self._file(config_hash))
            return stat.st_mtime_ns, stat.st_ino
        return None

    def _is_done(self, run: Run) -> bool:
        name = run.config_hash
        return name in self._done or self._version(name) not in (None, self._failed.get(name))

    def _begun(self, run: Run) -> Run:
        self._marks.add(self._mark(run))
        mark = Mark(run.title, platform.node(), os.getpid(), time.time())
        with suppress(OSError):  # a mark only informs
            self._mark(run).write_text(json.dumps(mark), encoding="utf-8")
        return run

    def _list_results(self) -> None:
        """Write ``results.jsonl``, again if other runs have ended: so the last one lists all."""
        began, listed = time.monotonic(), None
        while (rows := _by_hash(read_folder(self.out))) != listed:
            write_rows(self.out / RESULTS, rows.values())
            listed = rows
        # Of many runs the listing takes a while: spend a twentieth of the time on it.
        self._next_listing = time.monotonic() + 20 * (time.monotonic() - began)

    def _report_progress(self) -> None:
        left = [run for run in self.runs if not self._is_done(run)]
        title = left[0].title if left else ""
        self.progress(len(self.runs) - len(left), len(self.runs), title)


def refuse_other_results(out: Path, resume: bool) -> None:
    """Raise FileExistsError if a folder holds results and `resume` is False.

    Files of a call that was interrupted in its first run are removed.
    """
    if resume or not ((out / RESULTS).exists() or any((out / RUNS).glob("*.json"))):
        return
    if read_folder(out) or read_running(out):
        raise FileExistsError(
            f"{out / RESULTS} holds results already. Resume them (--resume, or resume=True), or "
            "use another folder."
        )
    for name in (REQUESTED, SPLITS):
        shutil.rmtree(out / name, ignore_errors=True)


def _refuse_other_data(results: Path, rows: list[Row], run: Run) -> None:
    """Raise ValueError if a folder holds results on other data of this name, or other features."""
    name, data = run.config["dataset"], run.config["data"]
    ended = [row for row in rows if row["dataset"] == name and row["status"] != FAILED]
    if any(row.get("data", data) != data for row in ended):
        raise ValueError(
            f"{results}: holds runs on other samples or labels called {name!r}; the data have "
            "changed, or two data sets have this name. Use another folder, or rename the data."
        )
    others = {row.get("features", run.features) for row in ended} - {run.features}
    if others:
        raise ValueError(
            f"{results}: holds runs on {name!r} with features={min(others)!r}, and their scores "
            f"are not comparable with those of features={run.features!r}. Use another folder, or "
            f"pass features={min(others)!r} (--form {min(others)})."
        )


def _warn_of_other_versions(results: Path, rows: list[Row]) -> None:
    others = {row["versions"].get("ssdml", "unknown") for row in rows} - {__version__}
    if others:
        warn(
            f"{results}: holds runs of ssdml {', '.join(sorted(others))}, and this is "
            f"{__version__}; they are kept. Use another folder to repeat them."
        )


def _save_splits(folder: Path, runs: list[Run]) -> None:
    """Write one file per split; an existing file must hold the same split."""
    for split in {run.split.digest: run.split for run in runs}.values():
        name = f"{runs[0].config['dataset']}-{split_label(split)}"
        path = folder / f"{safe_name(name)}.json"
        if not path.exists():
            with atomic_write(path, way_out=RESUME) as unfinished:
                split.save(unfinished)
        elif LabelScarceSplit.load(path).digest != split.digest:
            raise ValueError(
                f"{path}: holds another split than that of this data set; the data have changed. "
                "Use another folder."
            )


def _save_titles(folder: Path, runs: list[Run]) -> None:
    """Write the titles of the runs by hash, in a file named by its content."""
    text = json.dumps({run.config_hash: run.title for run in runs}, ensure_ascii=False)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    with atomic_write(path, way_out=RESUME) as unfinished:
        unfinished.write_text(text + "\n", encoding="utf-8")


def _read_titles(path: Path) -> dict[str, str]:
    try:
        titles = parse_json(read_regular(path))
    except ValueError as error:
        raise ValueError(f"{path}: damaged ({error}). Delete it.") from error
    if not isinstance(titles, dict) or not all(isinstance(t, str) for t in titles.values()):
        raise ValueError(f"{path}: must hold the titles of runs. Delete it.")
    return titles


class Mark(NamedTuple):
    """Note that a process has begun a run; it stays if the process is killed."""

    title: str
    host: str
    pid: int
    since: float  # seconds since the epoch

    @property
    def is_alive(self) -> bool:
        """Whether the process still exists; assumed on other hosts."""
        if self.host != platform.node():
            return True
        try:
            began = psutil.Process(self.pid).create_time()
        except (psutil.NoSuchProcess, ValueError, OverflowError):
            return False
        return bool(began <= self.since + 1)  # a later process may have the same number


def _read_mark(path: Path) -> Mark | None:
    with suppress(OSError, ValueError, TypeError):  # none, or just being written
        title, host, pid, since = parse_json(read_regular(path))
        return Mark(str(title), str(host), int(pid), float(since))
    return None


def read_running(out: Path) -> dict[str, Mark]:
    """Marks of the runs under way, by hash, oldest first."""
    marks = {path.stem: _read_mark(path) for path in (out / RUNS).glob("*.running")}
    alive = {name: mark for name, mark in marks.items() if mark is not None and mark.is_alive}
    return dict(sorted(alive.items(), key=lambda item: item[1].since))


@dataclass(frozen=True)
class Status:
    """Runs of a folder by state."""

    done: list[Row]
    left_out: list[Row]
    failed: list[Row]
    running: list[Mark]
    pending: list[str]  # titles


def read_status(out: Path) -> Status:
    """List what is done, failed, running and pending in a folder.

    Raises
    ------
    FileNotFoundError
        If the folder holds no results.
    """
    running = read_running(out)
    rows = latest(read_folder(out))  # after the marks: a run that ends in between is done
    done = {row["config_hash"] for row in rows if row["status"] in (OK, LEFT_OUT)}
    seen = {row["config_hash"] for row in rows} | running.keys()
    requested: dict[str, str] = {}
    for path in sorted((out / REQUESTED).glob("*.json")):
        requested |= _read_titles(path)
    return Status(
        done=[row for row in rows if row["status"] == OK],
        left_out=[row for row in rows if row["status"] == LEFT_OUT],
        failed=[row for row in rows if row["config_hash"] not in done | running.keys()],
        running=[mark for name, mark in running.items() if name not in done],
        pending=[title for name, title in requested.items() if name not in seen],
    )


def cite_splits(out: Path) -> str:
    """Write ``splits/CITATION.txt``: a line to cite, and the digest of each split.

    Returns
    -------
    citation : str
        The line: data sets, number of splits, version, and one SHA-256 over all.

    Raises
    ------
    FileNotFoundError
        If the folder has no splits.
    """
    files = sorted((out / SPLITS).glob("*.json"))
    if not files:
        raise FileNotFoundError(
            f"{out / SPLITS}: there are no splits; `ssdml compare` writes them."
        )
    digests = {path.name: LabelScarceSplit.load(path).digest for path in files}
    rows = read_folder(out)
    names = ", ".join(dict.fromkeys(row["dataset"] for row in rows))
    versions = ", ".join(sorted({row["versions"].get("ssdml", "unknown") for row in rows}))
    whole = hashlib.sha256("".join(sorted(digests.values())).encode()).hexdigest()
    citation = (
        f"{len(files)} label-scarce split{'s' * (len(files) > 1)} of {names}, drawn by ssdml "
        f"{versions}, SHA-256 {whole}"
    )
    lines = [citation, "", *(f"{digest}  {name}" for name, digest in digests.items())]
    with atomic_write(out / SPLITS / "CITATION.txt") as unfinished:
        unfinished.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return citation


def run_title(row: Row) -> str:
    """Method, budget and seed of a row."""
    return f"{row['method']}, {budget_of(row)}, seed {row['seed']}"
