"""Rows of a comparison made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ssdml.experiments.runs.results import Row


def make_row(**changes: Any) -> Row:
    """Make the row of a finished run; keywords replace its fields."""
    scores = {name: 50.0 for name in ("F1", "R@2", "R@4", "R@8", "MAP@R")}
    scores |= {"NMI": 60.0, "R@1": 70.0, "accuracy": 80.0}
    row = {
        "dataset": "blobs",
        "method": "input",
        "seed": 0,
        "labels_per_class": 5,
        "n_train": 80,
        "n_labeled": 15,
        "n_test": 40,
        "scores": scores | changes.pop("scores", {}),
        "seconds": {"fit": 0.5, "transform": 0.1},
        "peak_rss_mb": 100.0,
        "versions": {"ssdml": "0.1.0"},
        "status": "ok",
        "error": None,
    } | changes
    key = (row["dataset"], row["method"], row["seed"], row["labels_per_class"])
    return {"config_hash": "-".join(map(str, key))} | row


def append_row(path: Path, row: Row) -> None:
    """Append a row to a results file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
