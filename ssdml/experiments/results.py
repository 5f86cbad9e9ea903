"""The rows of a comparison on disk: ``results.jsonl``, one finished run a line.

A line is written whole or not at all, so what stands there can be trusted after a kill, a full
disk or Ctrl-C.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from ssdml.budgets import Budget
from ssdml.files import cannot_write

RESULTS = "results.jsonl"
RESUME = "The runs before it are kept: make room, then go on with --resume."
FIELDS = ("dataset", "method", "seed", "labels_per_class", "config_hash", "status")


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
    """What the labelled rows of a run were drawn by."""
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


def drop_cut_line(path: Path) -> None:
    """Shorten the file to its last whole line, so that the next row starts on a line of its own."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def append_row(path: Path, row: Row) -> None:
    """Append a row and wait until the disk has it; on failure the file is as it was before.

    Raises
    ------
    OSError
        Where the disk is full or the folder is gone; it names the file and the way out.
    """
    line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    try:
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


def _parse(line: bytes, where: str) -> Row:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON ({error}). Delete that line and resume.") from error
    missing = [name for name in FIELDS if not isinstance(row, dict) or name not in row]
    if missing:
        raise ValueError(
            f"{where}: not a run, it has no {missing[0]!r}. Delete that line and resume."
        )
    parsed: Row = row
    return parsed


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
