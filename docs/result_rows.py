"""Rows of runs in ``results/``, and cells of tables from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ssdml.experiments.analysis.statistics import mean_interval, paired_difference
from ssdml.experiments.runs.results import Row, latest, read_rows

RESULTS = Path(__file__).resolve().parent / "results"
SEEDS = 5
Lines = Iterator[Sequence[str]]


def succeeded(kind: str, dataset: str) -> list[Row]:
    """Finished runs on a data set, the last one of each."""
    path = RESULTS / kind / f"{dataset}.jsonl"
    rows = latest(read_rows(path)) if path.is_file() else []
    return [row for row in rows if row["status"] == "ok"]


def interval(values: Sequence[float] | None) -> str:
    """Mean and half interval, the mean of one value, or nothing."""
    if values is None:
        return ""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    mean = mean_interval(values)
    return f"{mean.mean:.1f} ± {mean.half_width:.1f}"


def gap(scores: Mapping[str, Sequence[float]], name: str, base: str) -> str:
    """Paired difference of two losses, bold if significant, or nothing."""
    if not {name, base} <= scores.keys():
        return ""
    found = paired_difference(scores[name], scores[base])
    bold = "**" * found.excludes_zero
    return f"{bold}{found.mean:+.2f} ± {found.half_width:.2f}{bold}"
