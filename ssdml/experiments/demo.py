"""The main job in miniature: scikit-learn's digits with a few labels, compared and drawn."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ssdml.datasets import Dataset, load_dataset
from ssdml.experiments.picture import write_picture
from ssdml.experiments.report import REPORT, read_sections, write_report
from ssdml.experiments.results import RESULTS
from ssdml.experiments.run import Progress, compare
from ssdml.experiments.tables import ScoreTable

METHODS = ("input", "pca", "lda", "nca", "ssdml", "ssdml-residual")
SMALL_METHODS = ("input", "lda", "ssdml")
SMALL_ROWS = 400
PICTURE = "demo.png"


def run_demo(
    out: Path,
    *,
    labels_per_class: Sequence[int],
    n_seeds: int,
    small: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> list[ScoreTable]:
    """Compare on the digits, write the report and the picture; gives the tables.

    ``small`` takes 400 digits and the quickest methods, to see that everything works.
    """
    compare(
        _some_digits() if small else load_dataset("digits"),
        SMALL_METHODS if small else METHODS,
        out=out,
        labels_per_class=labels_per_class,
        seeds=range(n_seeds),
        resume=resume,
        progress=progress,
    )
    sections = read_sections(out)
    write_report(out, sections)
    write_picture(out / PICTURE, sections[0])
    return sections[0].tables


def remove_results(out: Path) -> None:
    """Remove what a comparison wrote into a folder, and nothing else."""
    for name in ("splits", "details", "errors"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (RESULTS, REPORT, PICTURE):
        (out / name).unlink(missing_ok=True)


def _some_digits() -> Dataset:
    digits = load_dataset("digits")
    return replace(digits, X=digits.X[:SMALL_ROWS], y=digits.y[:SMALL_ROWS])
