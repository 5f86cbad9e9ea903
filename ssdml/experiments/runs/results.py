"""The rows of a comparison on disk: ``results.jsonl``, one finished run a line.

A line is written whole or not at all, so what stands there can be trusted after a kill, a full
disk or Ctrl-C. Many processes may append: each takes the file's lock, ``results.lock``.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, NotRequired, TypedDict

from filelock import FileLock

from ssdml.datasets.budgets import Budget
from ssdml.utils.persistence import cannot_write

RESULTS = "results.jsonl"
LOCK = "results.lock"
RESUME = "The runs before it are kept: make room, then go on with --resume."
FIELDS = ("dataset", "method", "seed", "labels_per_class", "config_hash", "status", "n_train")
COSTS_AND_SCORES = ("n_labeled", "n_test", "scores", "seconds", "peak_rss_mb", "versions", "error")


class Row(TypedDict):
    """One run. ``scores`` and ``seconds`` are empty and ``error`` says why where it failed.

    ``budget`` is there where `labels_per_class` does not say all of which labels were given.
    """

    dataset: str
    method: str
    seed: int
    labels_per_class: int
    n_train: int
    n_labeled: int
    n_test: int
    scores: dict[str, float]
    seconds: dict[str, float]
    peak_rss_mb: float
    config_hash: str
    versions: dict[str, str]
    status: str
    error: str | None
    budget: NotRequired[dict[str, Any]]


def budget_of(row: Row) -> Budget:
    """What the labeled rows of a run were drawn by."""
    return Budget(**row["budget"]) if "budget" in row else Budget(row["labels_per_class"])


def read_rows(path: Path) -> list[Row]:
    """Rows of a results file, in the order of writing; a last line cut short is left out.

    Raises
    ------
    FileNotFoundError
        Where there is no such file.
    ValueError
        Where a line before the last is not a run; it names the line.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file; `ssdml compare` writes it.")
    *lines, rest = path.read_bytes().split(b"\n")
    if rest:
        warnings.warn(
            f"{path}: the last line was cut short (killed while writing?); that run is dropped "
            "and can be run again with --resume.",
            stacklevel=2,
        )
    return [_parse(line, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]


class ResultsLog:
    """A results file as it grows, whoever writes into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._reading = Lock()  # rows are looked for in several threads

    def news(self) -> list[Row]:
        """Rows that were not there at the last call."""
        with self._reading, self.path.open("rb") as file:
            file.seek(self._offset)
            read = file.read()
            whole = read[: read.rfind(b"\n") + 1]
            where = f"{self.path}, after byte {self._offset}"
            self._offset += len(whole)
        return [_parse(line, where) for line in whole.split(b"\n") if line.strip()]


def drop_cut_line(path: Path) -> None:
    """Shorten the file to its last whole line, so that the next row starts on a line of its own."""
    with lock_of(path):
        drop_rest(path)


def lock_of(path: Path) -> FileLock:
    """What a process holds while it writes into a file that others write into."""
    return FileLock(path.with_suffix(".lock"))


def append_row(path: Path, row: Row) -> None:
    """Append a row and wait until the disk has it; on failure the file is as it was before.

    What another process left of a row when it was killed goes first.

    Raises
    ------
    OSError
        Where the disk is full or the folder is gone; it names the file and the way out.
    """
    line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    try:
        with lock_of(path):
            drop_rest(path)
            _append_whole(path, line)
    except OSError as error:
        raise cannot_write(path, error, RESUME) from error


def latest(rows: Iterable[Row]) -> list[Row]:
    """The last row of each dataset, method, budget and seed: what a retry replaced goes.

    Examples
    --------
    >>> run = {"dataset": "digits", "method": "pca", "labels_per_class": 5, "seed": 0}
    >>> [row["status"] for row in latest([run | {"status": "failed"}, run | {"status": "ok"}])]
    ['ok']
    """
    kept = {(row["dataset"], row["method"], budget_of(row), row["seed"]): row for row in rows}
    return list(kept.values())


def told_failures(rows: Sequence[Row]) -> str:
    """How many runs failed, and why the first of them; empty where none did.

    Examples
    --------
    >>> ended = {"method": "pca", "status": "ok"}
    >>> told_failures([ended, {"method": "lda", "status": "failed", "error": "E: too few"}])
    '1 of 2 runs failed, the first lda: E: too few'
    >>> told_failures([ended])
    ''
    """
    failed = [row for row in rows if row["status"] != "ok"]
    if not failed:
        return ""
    why = " ".join(str(failed[0]["error"]).split())
    return f"{len(failed)} of {len(rows)} runs failed, the first {failed[0]['method']}: {why}"


def _parse(line: bytes, where: str) -> Row:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON ({error}). Delete that line and resume.") from error
    missing = [
        name
        for name in (*FIELDS, *COSTS_AND_SCORES)
        if not isinstance(row, dict) or name not in row
    ]
    if missing:
        raise ValueError(
            f"{where}: not a run, it has no {missing[0]!r}. Delete that line and resume; or, if "
            "another version of ssdml wrote the file, name another folder."
        )
    parsed: Row = row
    try:
        budget_of(parsed)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: a budget that this version does not know ({error}). Name another folder."
        ) from error
    return parsed


def drop_rest(path: Path) -> None:
    """Remove what follows the last whole line, where the caller has the lock."""
    if not path.exists():
        return
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        if size == 0 or file.read() == b"\n":
            return
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
    os.truncate(path, whole)


def _append_whole(path: Path, line: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(file).st_size
        try:
            _write_all(file, line)
            os.fsync(file)
        except OSError:
            with suppress(OSError):  # what cannot be undone is dropped when the file is read
                os.ftruncate(file, size)
            raise
    finally:
        os.close(file)


def _write_all(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]
