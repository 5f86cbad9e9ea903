"""The commands that compare methods: ``ssdml compare | study | status | report``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ssdml.cli import options, samples
from ssdml.cli.options import (
    COMPARED,
    DataDir,
    Encoding,
    FeatureColumns,
    Form,
    IdColumn,
    IgnoredColumns,
    Jobs,
    LabelColumn,
    MapRows,
    Methods,
    NoLabel,
    OnCluster,
    Out,
    ResultsDir,
    Resume,
    Seeds,
    TextColumn,
    TextModel,
    in_one_line,
    in_shell,
    next_steps,
    put,
    say,
)

if TYPE_CHECKING:
    from ssdml.datasets.base import Dataset
    from ssdml.experiments.runs.folder import Progress
    from ssdml.experiments.runs.results import Row

ENOUGH_SEEDS = 5  # for a paired test
FEW_TESTS = 50  # test samples: one is two points of accuracy


def compare(
    dataset: Annotated[
        str, typer.Option(help="Name (see `ssdml datasets`) or path of your own data.")
    ],
    out: Out,
    methods: Methods = None,
    labels_per_class: Annotated[str, typer.Option(help="Numbers, separated by commas.")] = "5",
    seeds: Seeds = 5,
    form: Form = "auto",
    deep: Annotated[
        bool, typer.Option("--deep", help="Add methods that train networks on images: deep-ssdml.")
    ] = False,
    weights: Annotated[
        Path | None,
        typer.Option(help="Initial weights of networks, for sets of photographs such as cub."),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="PAPER",
            show_default="dutta2021",
            help="Paper of the networks and settings, for sets of photographs such as cub: "
            "chen2021, zhu2020, li2020, dutta2021 or zheng2019; or dutta2021-lite, with "
            "EfficientNet-Lite0.",
        ),
    ] = None,
    data_dir: DataDir = None,
    label: LabelColumn = None,
    text: TextColumn = None,
    id_column: IdColumn = None,
    features: FeatureColumns = None,
    ignore: IgnoredColumns = None,
    no_label: NoLabel = None,
    text_model: TextModel = None,
    encoding: Encoding = None,
    resume: Resume = False,
    map_rows: MapRows = 1500,
    n_jobs: Jobs = 1,
    cluster: OnCluster = None,
) -> None:
    """Compare methods on the same few labels, over seeds, and write a report."""
    chosen = {} if protocol is None else {"protocol": protocol}
    choice = samples.chosen(label, text, id_column, features, ignore, texts=text_model is not None)
    in_files = deep or weights is not None or protocol is not None
    _run(
        [samples.load(dataset, choice, data_dir, text_model, no_label, encoding, in_files)],
        methods,
        out,
        {"deep": deep, "weights": weights, **chosen},
        labels_per_class=options.numbers(labels_per_class, "--labels-per-class"),
        seeds=range(seeds),
        features=form,
        resume=resume,
        map_rows=map_rows,
        n_jobs=n_jobs,
        cluster=cluster,
    )


def study(
    data: Annotated[
        list[str], typer.Argument(metavar="DATA...", help="Names, or paths of your own data.")
    ],
    out: Out,
    methods: Methods = None,
    budgets: Annotated[
        str, typer.Option(help="Numbers of labels, separated by commas; all: label every sample.")
    ] = "1,2,5,10,20,50,all",
    draw: Annotated[
        str,
        typer.Option(
            help="How labels are drawn, separated by commas: class (--budgets are per class); or, "
            "with budgets in total, balanced, natural (at random), suggested (by suggest_labels)."
        ),
    ] = "class",
    noise: Annotated[str, typer.Option(help="Shares of wrong labels, like 0,0.1,0.3.")] = "0",
    imbalance: Annotated[
        str, typer.Option(help="Ratios of the largest to the smallest training class, like 1,10.")
    ] = "1",
    seeds: Seeds = 5,
    form: Form = "auto",
    data_dir: DataDir = None,
    label: LabelColumn = None,
    text: TextColumn = None,
    id_column: IdColumn = None,
    features: FeatureColumns = None,
    ignore: IgnoredColumns = None,
    no_label: NoLabel = None,
    text_model: TextModel = None,
    encoding: Encoding = None,
    resume: Resume = False,
    map_rows: MapRows = 1500,
    n_jobs: Jobs = 1,
    cluster: OnCluster = None,
) -> None:
    """Find out how many labels are enough, and which method to use."""
    choice = samples.chosen(label, text, id_column, features, ignore, texts=text_model is not None)
    loaded = [samples.load(name, choice, data_dir, text_model, no_label, encoding) for name in data]
    first: dict[str, str] = {}
    for path, dataset in zip(data, loaded, strict=True):
        if dataset.name in first:
            raise ValueError(
                f"{path} must have another name than {first[dataset.name]}: both data sets are "
                f"called {dataset.name!r}. Rename one."
            )
        first[dataset.name] = path
    _run(
        loaded,
        methods,
        out,
        {"deep": False},
        labels_per_class=options.budgets(budgets, draw, noise, imbalance),
        seeds=range(seeds),
        features=form,
        resume=resume,
        map_rows=map_rows,
        n_jobs=n_jobs,
        cluster=cluster,
    )


def status(folder: ResultsDir) -> None:
    """Show which runs of a folder are done, running, pending or failed, and why."""
    from ssdml.cli.terminal import print_columns
    from ssdml.experiments.analysis.formats import duration
    from ssdml.experiments.runs.folder import read_status, run_title
    from ssdml.experiments.runs.results import summarize_left_out

    found = read_status(folder)
    counts = {
        "done": len(found.done),
        "left out": len(found.left_out),
        "running": len(found.running),
        "failed": len(found.failed),
        "pending": len(found.pending),
    }
    print_columns(
        ("runs", str(sum(counts.values()))), [(name, str(n)) for name, n in counts.items()]
    )
    for line in summarize_left_out(found.left_out):
        say(line)
    if found.running:
        now = time.time()
        lines = [
            (mark.title, f"{mark.host}, process {mark.pid}", duration(now - mark.since))
            for mark in found.running
        ]
        print_columns(("running", "where", "for"), lines)
    if found.failed:
        reasons = [(run_title(row), in_one_line(row["error"])) for row in found.failed]
        print_columns(("failed", f"why (tracebacks: {folder / 'errors'})"), reasons)
    if found.pending or found.failed:
        next_steps("repeat the command with --resume to run pending jobs and retry failed ones")
    else:
        next_steps(f"ssdml report {in_shell(folder)} writes the report")


def report(folder: ResultsDir) -> None:
    """Write the report of the finished runs, from the folder alone."""
    from ssdml.cli.terminal import spinner
    from ssdml.experiments.report.report import write_report

    with spinner("drawing"):
        written = write_report(folder)
    say(f"The report: {written}")
    next_steps("open it in a browser", _to_tables(folder))


def table(
    folder: ResultsDir,
    form: Annotated[
        str, typer.Option("--format", metavar="latex|csv|markdown", help="Format of the tables.")
    ] = "markdown",
    scores: Annotated[
        str | None,
        typer.Option(
            help="Scores, separated by commas, like NMI,R@1,MAP@R, or rank; default: rank, NMI, "
            "R@1 and accuracy, where methods have them."
        ),
    ] = None,
    figures: Annotated[
        str | None,
        typer.Option(metavar="pdf|svg", help="Write the figures into DIR/figures, too."),
    ] = None,
) -> None:
    """Print the tables of a folder for a paper, and write its figures."""
    from ssdml.experiments.analysis.export import FORMATS, export_tables
    from ssdml.experiments.report.files import FIGURE_FORMATS, save_figures
    from ssdml.experiments.runs.folder import cite_splits, read_folder
    from ssdml.experiments.runs.results import latest, summarize_left_out
    from ssdml.utils.validation import choose

    choose(FORMATS, form, "--format")
    if figures is not None:
        choose(FIGURE_FORMATS, figures, "--figures")
    rows = latest(read_folder(folder))
    citation = cite_splits(folder)
    wanted = None if scores is None else options.names(scores)
    put(export_tables(rows, form, wanted, note=citation))
    for line in summarize_left_out(rows):
        say(line)
    say(f"To cite the splits in {folder / 'splits'}: {citation}")
    for path in save_figures(folder, figures) if figures else ():
        say(f"Figure: {path}")
    if not figures:
        next_steps("--figures pdf writes the figures, too")


def _to_tables(folder: Path) -> str:
    return f"ssdml table {in_shell(folder)} prints the tables for a paper"


def _few_tests(rows: Sequence[Row]) -> list[str]:
    """One line per data set whose labels leave few samples for testing."""
    from ssdml.datasets.reading.summary import counted

    n_test = {row["dataset"]: row["n_test"] for row in rows}
    return [
        f"{name}: only {counted(n, 'labeled sample')} for testing, each worth {100 / n:.1f} points "
        "of accuracy. Pass data with more labels."
        for name, n in n_test.items()
        if 0 < n < FEW_TESTS
    ]


def _named_progress(progress: Progress, place: str, n_done: int, n_runs: int, title: str) -> None:
    """Report progress with the data set, if there are several, before the next run."""
    progress(n_done, n_runs, ": ".join(filter(None, [place, title])) if title else "")


def _run(
    loaded: Sequence[Dataset],
    methods: str | None,
    out: Path,
    networks: dict[str, Any],
    **settings: Any,
) -> None:
    """Compare on each data set, write the report, print the tables and the failures."""
    from ssdml.cli.terminal import print_scores, progress_bar
    from ssdml.experiments.compare import available_methods, compare
    from ssdml.experiments.report.report import read_sections, write_report
    from ssdml.experiments.runs.results import FAILED, OK, summarize_failures, summarize_left_out

    rows = []
    with progress_bar(out) as progress:
        for i, dataset in enumerate(loaded):
            known = list(available_methods(dataset, **networks))
            if methods is None:
                wanted = [name for name in COMPARED if name in known]
            else:
                wanted = known if methods == "all" else options.names(methods)
            settings["resume"] |= i > 0
            place = f"{dataset.name} (data set {i + 1} of {len(loaded)})" if len(loaded) > 1 else ""
            show = partial(_named_progress, progress, place)
            rows += compare(dataset, wanted, out=out, progress=show, **networks, **settings)
        sections = read_sections(out)
        report = write_report(out, sections)
    print_scores([table for section in sections for table in section.tables])
    for line in (*summarize_left_out(rows), *_few_tests(rows)):
        say(line)
    if summary := summarize_failures(rows):
        say(f"{summary}\nThe report lists them; tracebacks are in {out / 'errors'}.")
    for study in (section.study for section in sections if section.study):
        for line in (study.recommendation, *study.sufficient):
            say(line)
    say(f"The report: {report}")
    has_failed = any(row["status"] == FAILED for row in rows)
    steps = [f"open {report} in a browser", _to_tables(out)]
    if has_failed:
        steps = ["repeat the command with --resume to retry the failed runs"]
    elif settings["seeds"].stop < ENOUGH_SEEDS:
        steps.append(f"--seeds {ENOUGH_SEEDS} --resume adds seeds, for intervals and tests")
    next_steps(*steps)
    if has_failed or all(row["status"] != OK for row in rows):
        raise typer.Exit(1)
