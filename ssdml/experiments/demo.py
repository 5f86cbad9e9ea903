"""The demo: a comparison on scikit-learn's digits, its report and a figure."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from joblib import cpu_count

from ssdml.datasets.loading import load_dataset
from ssdml.experiments.analysis.tables import ScoreTable
from ssdml.experiments.compare import compare
from ssdml.experiments.report.figures import (
    MUTED,
    PAPER,
    draw_class_map,
    draw_estimates,
    new_figure,
)
from ssdml.experiments.report.report import REPORT, read_sections, write_report
from ssdml.experiments.report.sections import Section
from ssdml.experiments.report.styles import method_styles, wrap_name
from ssdml.experiments.runs.details import DETAILS
from ssdml.experiments.runs.folder import REQUESTED, RUNS, SPLITS, Progress
from ssdml.experiments.runs.job import ERRORS
from ssdml.experiments.runs.results import RESULTS
from ssdml.experiments.runs.thumbnails import THUMBNAILS
from ssdml.utils.persistence import atomic_write

METHODS = (
    *("input", "logistic", "knn", "poisson", "pca", "lda", "nca"),
    *("ssdml", "ssdml-paper"),
)
OTHER_LABELS, OTHER_SEEDS = (2, 10), 3  # of the curve over the number of labels
SMALL_METHODS = ("input", "lda", "ssdml")
SMALL_ROWS = 400
MOST_JOBS = 4
FIRST_DONE = "other numbers of labels"
PICTURE = "demo.png"
SCORES = ("NMI", "accuracy")  # in the figure


def run_demo(
    out: Path,
    *,
    labels_per_class: int,
    n_seeds: int,
    small: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> ScoreTable:
    """Compare methods on the digits, write report and figure, return the table.

    ``small`` uses 400 digits and the fastest methods, to check the installation.
    """
    digits = load_dataset("digits")
    if small:
        digits = digits.of_rows(slice(SMALL_ROWS))
    methods = SMALL_METHODS if small else METHODS
    # Processes with one thread each: the networks are too small for more.
    n_jobs = 1 if small else min(MOST_JOBS, cpu_count())
    settings: Any = {"out": out, "n_jobs": n_jobs}
    others = [] if small else [n for n in OTHER_LABELS if n != labels_per_class]
    seeds = range(min(n_seeds, OTHER_SEEDS))
    n_runs = len(methods) * (n_seeds + len(others) * len(seeds))
    told = progress and (lambda n_done, _, title: progress(n_done, n_runs, title or FIRST_DONE))
    compare(
        digits,
        methods,
        labels_per_class=[labels_per_class],
        seeds=range(n_seeds),
        resume=resume,
        progress=told if others else progress,
        **settings,
    )
    if others:
        counts = [labels_per_class, *others]
        # It counts the runs of these seeds again.
        n_before = len(methods) * (n_seeds - len(seeds))
        told = progress and (lambda n_done, _, title: progress(n_done + n_before, n_runs, title))
        compare(
            digits,
            methods,
            labels_per_class=counts,
            seeds=seeds,
            resume=True,
            progress=told,
            **settings,
        )
    (section,) = read_sections(out)
    write_report(out, [section])
    write_picture(out / PICTURE, section)
    return next(t for t in section.tables if t.labels_per_class == labels_per_class)


def remove_results(out: Path) -> None:
    """Remove the files of a comparison from a folder, and no others."""
    for name in (RUNS, REQUESTED, SPLITS, DETAILS, THUMBNAILS, ERRORS):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in (RESULTS, REPORT, PICTURE):
        (out / name).unlink(missing_ok=True)


def write_picture(path: Path, section: Section) -> Path:
    """Save the figure as PNG: the maps, then the scores of every method."""
    mosaic: Any = [[*section.explorer.maps, score] for score in SCORES]
    widths = [1.25] * len(section.explorer.maps) + [1.0]
    with new_figure(4.4 * sum(widths), 5.2) as figure:
        axes = figure.subplot_mosaic(mosaic, width_ratios=widths)
        for method, drawn in section.explorer.maps.items():
            draw_class_map(axes[method], drawn)
            is_input = method == "input"
            title = "before: the input" if is_input else f"after: {wrap_name(method)}"
            axes[method].set_title(title)
        for score in SCORES:
            _draw_score(axes[score], section.headline, score)
        with atomic_write(path) as unfinished:
            figure.savefig(unfinished, format="png", dpi=150, facecolor=PAPER)
    return path


def _draw_score(axes: Any, table: ScoreTable, score: str) -> None:
    lines = [line for line in table.lines if line.scores[score].estimate.n]
    estimates = {line.method: line.scores[score].estimate for line in lines}
    draw_estimates(axes, estimates, method_styles(list(estimates)), zero=False)
    axes.set_title(f"{score}, % (mean and 95% interval, {len(table.seeds)} seeds)", color=MUTED)
