"""The main job in miniature: scikit-learn's digits with a few labels, compared and drawn."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from joblib import cpu_count

from ssdml.datasets import Dataset, load_dataset
from ssdml.experiments.folder import Progress
from ssdml.experiments.picture import write_picture
from ssdml.experiments.report import REPORT, read_sections, write_report
from ssdml.experiments.results import LOCK, RESULTS
from ssdml.experiments.run import compare
from ssdml.experiments.status import PLANNED
from ssdml.experiments.tables import ScoreTable

METHODS = ("input", "pca", "lda", "nca", "ssdml", "ssdml-residual", "ssdml-paper")
OTHER_LABELS, OTHER_SEEDS = (2, 10), 3  # of the curve over the number of labels
SMALL_METHODS = ("input", "lda", "ssdml")
SMALL_ROWS = 400
MOST_JOBS = 4
PICTURE = "demo.png"


def run_demo(
    out: Path,
    *,
    labels_per_class: int,
    n_seeds: int,
    small: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> ScoreTable:
    """Compare on the digits, write the report and the picture; gives the table.

    ``small`` takes 400 digits and the quickest methods, to see that everything works.
    """
    digits, methods = (_some_digits(), SMALL_METHODS) if small else (_digits(), METHODS)
    # Side by side with a thread each: the networks are too small for more than one.
    n_jobs = 1 if small else min(MOST_JOBS, cpu_count())
    settings: Any = {"out": out, "n_jobs": n_jobs, "progress": progress}
    wanted = [labels_per_class]
    compare(
        digits, methods, labels_per_class=wanted, seeds=range(n_seeds), resume=resume, **settings
    )
    if not small:
        counts, seeds = [*wanted, *OTHER_LABELS], range(min(n_seeds, OTHER_SEEDS))
        compare(digits, methods, labels_per_class=counts, seeds=seeds, resume=True, **settings)
    (section,) = read_sections(out)
    write_report(out, [section])
    write_picture(out / PICTURE, section)
    return next(t for t in section.tables if t.labels_per_class == labels_per_class)


def remove_results(out: Path) -> None:
    """Remove what a comparison wrote into a folder, and nothing else."""
    for name in ("splits", "cards", "details", "errors", "claims"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (RESULTS, PLANNED, LOCK, REPORT, PICTURE):
        (out / name).unlink(missing_ok=True)


def _digits() -> Dataset:
    return load_dataset("digits")


def _some_digits() -> Dataset:
    return _digits().of_rows(slice(SMALL_ROWS))
