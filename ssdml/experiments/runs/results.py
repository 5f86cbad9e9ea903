"""Rows of a comparison, one per run, and the file ``results.jsonl`` that lists them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from ssdml.datasets.budgets import Budget
from ssdml.utils.files import parse_json, read_regular
from ssdml.utils.persistence import atomic_write
from ssdml.utils.validation import warn

RESULTS = "results.jsonl"
RESUME = "Finished runs are kept: free some space and repeat the command with --resume."
OK, FAILED, LEFT_OUT = "ok", "failed", "left out"  # the status of a run


class Row(TypedDict):
    """One run; unless it is "ok", ``scores`` and ``seconds`` are empty and ``error`` says why.

    "left out" means that the method cannot learn from these labels.

    ``budget`` is present unless ``labels_per_class`` describes the labels completely. ``predicted``
    is present if the accuracy is that of the method's own ``predict``; otherwise, and in rows of
    early versions, it is that of the nearest class mean. Scores of an embedding are missing for a
    method without one. ``data`` is the fingerprint of samples and labels, and ``features`` names
    their preprocessing; both are missing in rows of early versions.
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
    predicted: NotRequired[bool]
    data: NotRequired[str]
    features: NotRequired[str]


KINDS: dict[str, Any] = {
    **dict.fromkeys(("dataset", "method", "config_hash", "status"), str),
    **dict.fromkeys(("seed", "labels_per_class", "n_train", "n_labeled", "n_test"), int),
    **dict.fromkeys(("scores", "seconds", "versions"), dict),
    "peak_rss_mb": int | float,
    "error": str | None,
}
FILE_NAME = re.compile(r"(?!\.+$)[^/\\:\0]+")


def budget_of(row: Row) -> Budget:
    """Budget that drew the labels of a run."""
    return Budget(**row["budget"]) if "budget" in row else Budget(row["labels_per_class"])


def methods_of(rows: Iterable[Row]) -> list[str]:
    """Names of the methods, in the order of their first runs."""
    return list(dict.fromkeys(row["method"] for row in rows))


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a results file; an incomplete last line is skipped with a warning.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If another line is not a run; the error names the line.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file; `ssdml compare` writes it.")
    *lines, rest = read_regular(path).split(b"\n")
    if rest:
        warn(
            f"{path}: the last line is incomplete, and its run is skipped; repeat the comparison "
            "with --resume to do it again."
        )
    return [parse_row(line, f"{path}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Replace a results file; on failure the old one stays."""
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
    with atomic_write(path, way_out=RESUME) as unfinished:
        unfinished.write_text("".join(lines), encoding="utf-8")


def _is_number(value: Any) -> bool:
    """Whether a number can be a float; early versions wrote NaN for scores."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)


def parse_row(text: str | bytes, where: str) -> Row:
    """Read and check a row from JSON; errors name ``where`` it is."""
    try:
        row: Any = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON ({error}). Delete it and resume.") from error
    for name, kinds in KINDS.items():
        if not isinstance(row, dict) or name not in row or not isinstance(row[name], kinds):
            has = "a wrong" if isinstance(row, dict) and name in row else "no"
            raise ValueError(
                f"{where}: not a run, it has {has} {name!r}. Delete it and resume; if another "
                "version of ssdml wrote it, use another folder."
            )
    for name in ("scores", "seconds"):
        if not all(_is_number(number) for number in row[name].values()):
            raise ValueError(f"{where}: {name} must be finite numbers. Delete it and resume.")
    if not FILE_NAME.fullmatch(row["config_hash"]):
        raise ValueError(f"{where}: its config_hash must be a name. Delete it and resume.")
    if not all(map(math.isfinite, row["seconds"].values())):
        raise ValueError(f"{where}: seconds must be finite numbers. Delete it and resume.")
    parsed: Row = row
    undefined = [name for name, score in parsed["scores"].items() if not math.isfinite(score)]
    if undefined:  # of an early version
        reason = f"ValueError: scores must be finite; got NaN for {', '.join(undefined)}"
        parsed |= {"status": FAILED, "scores": {}, "error": reason}
    try:
        budget_of(parsed)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{where}: this version does not know its budget ({error}). Use another folder."
        ) from error
    return parsed


def latest(rows: Iterable[Row]) -> list[Row]:
    """Keep the last row per dataset, method, budget and seed.

    Examples
    --------
    >>> run = {"dataset": "digits", "method": "pca", "labels_per_class": 5, "seed": 0}
    >>> [row["status"] for row in latest([run | {"status": "failed"}, run | {"status": "ok"}])]
    ['ok']
    """
    kept = {(row["dataset"], row["method"], budget_of(row), row["seed"]): row for row in rows}
    return list(kept.values())


def summarize_failures(rows: Sequence[Row]) -> str:
    """Number of failed runs and the first error; empty if none failed.

    Examples
    --------
    >>> ended = {"method": "pca", "status": "ok"}
    >>> summarize_failures([ended, {"method": "lda", "status": "failed", "error": "E: too few"}])
    '1 of 2 runs failed, first lda: E: too few'
    >>> summarize_failures([ended])
    ''
    """
    failed = [row for row in rows if row["status"] not in (OK, LEFT_OUT)]
    if not failed:
        return ""
    error = " ".join(str(failed[0]["error"]).split())
    return f"{len(failed)} of {len(rows)} runs failed, first {failed[0]['method']}: {error}"


def summarize_left_out(rows: Sequence[Row]) -> list[str]:
    """One line per data set, method and budget that the method cannot run at.

    Examples
    --------
    >>> run = {"dataset": "digits", "method": "lda", "labels_per_class": 1, "seed": 0}
    >>> summarize_left_out([run | {"status": "left out", "error": "ValueError: too few"}])
    ['digits, 1 label per class: lda is left out (ValueError: too few)']
    """
    reasons: dict[str, str] = {}
    for row in rows:
        if row["status"] == LEFT_OUT:
            place = f"{row['dataset']}, {budget_of(row)}: {row['method']} is left out"
            reasons.setdefault(place, " ".join(str(row["error"]).split()))
    return [f"{place} ({reason})" for place, reason in reasons.items()]
