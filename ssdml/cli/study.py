"""The commands that compare methods: ``ssdml compare | study | status | report``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ssdml.cli import options as cli_values
from ssdml.cli.options import (
    COMPARED,
    DataDir,
    Features,
    Jobs,
    MapRows,
    Methods,
    OnCluster,
    Resume,
    Seeds,
    TextModel,
    in_one_line,
    numbers,
    say,
)

if TYPE_CHECKING:
    from ssdml.experiments.runs.results import Row


def compare(
    dataset: Annotated[
        str, typer.Option(help="Name (see `ssdml datasets`) or path of your own data.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for results.jsonl and the report.")],
    methods: Methods = None,
    labels_per_class: Annotated[str, typer.Option(help="Numbers with commas between.")] = "5",
    seeds: Seeds = 5,
    features: Features = "auto",
    deep: Annotated[
        bool, typer.Option("--deep", help="Learn networks of images too: deep-ssdml.")
    ] = False,
    weights: Annotated[
        Path | None, typer.Option(help="File of a network's weights, for photographs in files.")
    ] = None,
    data_dir: DataDir = None,
    text_model: TextModel = None,
    resume: Resume = False,
    map_rows: MapRows = 1500,
    n_jobs: Jobs = 1,
    cluster: OnCluster = None,
) -> None:
    """Compare methods on the same few labels, over seeds, and write a report."""
    _run(
        [dataset],
        methods,
        out,
        data_dir,
        text_model,
        labels_per_class=numbers(labels_per_class, "--labels-per-class"),
        seeds=range(seeds),
        features=features,
        deep=deep,
        weights=weights,
        resume=resume,
        map_rows=map_rows,
        n_jobs=n_jobs,
        cluster=cluster,
    )


def study(
    data: Annotated[
        list[str], typer.Argument(metavar="DATA...", help="Names, or paths of your own data.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for results.jsonl and the report.")],
    methods: Methods = None,
    budgets: Annotated[
        str, typer.Option(help="Numbers of labels with commas between; all: every training row.")
    ] = "1,2,5,10,20,50,all",
    draw: Annotated[
        str,
        typer.Option(help="What they count: class (labels a class), balanced or natural (in all)."),
    ] = "class",
    noise: Annotated[str, typer.Option(help="Shares of wrong labels, like 0,0.1,0.3.")] = "0",
    imbalance: Annotated[
        str, typer.Option(help="Largest class over the smallest in training, like 1,10.")
    ] = "1",
    seeds: Seeds = 5,
    features: Features = "auto",
    data_dir: DataDir = None,
    text_model: TextModel = None,
    resume: Resume = False,
    map_rows: MapRows = 1500,
    n_jobs: Jobs = 1,
    cluster: OnCluster = None,
) -> None:
    """Find out how few labels are enough, and which method to take then."""
    _run(
        data,
        methods,
        out,
        data_dir,
        text_model,
        labels_per_class=cli_values.budgets(budgets, draw, noise, imbalance),
        seeds=range(seeds),
        features=features,
        resume=resume,
        map_rows=map_rows,
        n_jobs=n_jobs,
        cluster=cluster,
    )


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `compare` or `study`.")],
) -> None:
    """Show what runs in a folder of results, what is done, what failed and why."""
    from ssdml.cli.terminal import print_columns
    from ssdml.experiments.analysis.formats import duration
    from ssdml.experiments.runs.folder import read_status, run_title

    found = read_status(folder)
    print_columns(
        ("runs", str(found.n_planned)),
        [
            ("done", str(len(found.done))),
            ("running", str(len(found.running))),
            ("failed", str(len(found.failed))),
            ("waiting", str(len(found.waiting))),
        ],
    )
    if found.running:
        now = time.time()
        lines = [
            (claim.title, f"{claim.host}, process {claim.pid}", duration(now - claim.since))
            for claim in found.running
        ]
        print_columns(("running", "where", "for"), lines)
    if found.failed:
        reasons = [(run_title(row), in_one_line(row["error"])) for row in found.failed]
        print_columns(("failed", f"why (tracebacks: {folder / 'errors'})"), reasons)
    if found.waiting or found.failed:
        say(
            "The command that began it, with --resume, does what waits and tries again what failed."
        )


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `compare` or `study`.")],
) -> None:
    """Write the report of what is done so far, from the folder alone."""
    from ssdml.cli.terminal import shown_wait
    from ssdml.experiments.report.report import write_report

    with shown_wait("drawing"):
        written = write_report(folder)
    say(f"The report: {written}")


def _run(
    datasets: Sequence[str],
    methods: str | None,
    out: Path,
    data_dir: Path | None,
    text_model: str | None,
    **settings: Any,
) -> None:
    """Compare on each data set, write the report, print the tables and what failed."""
    from ssdml.cli.terminal import print_scores, shown_runs
    from ssdml.datasets.loading import load_dataset
    from ssdml.experiments.compare import available, compare
    from ssdml.experiments.report.report import read_sections, write_report
    from ssdml.experiments.runs.results import told_failures

    loaded = [load_dataset(name, data_dir=data_dir, text_model=text_model) for name in datasets]
    rows: list[Row] = []
    with shown_runs(out) as progress:
        for i, dataset in enumerate(loaded):
            deep, weights = settings.get("deep", False), settings.get("weights")
            known = list(available(dataset, deep, weights))
            if methods is None:
                wanted = [name for name in COMPARED if name in known]
            else:
                wanted = known if methods == "all" else cli_values.names(methods)
            settings["resume"] |= i > 0
            rows += compare(dataset, wanted, out=out, progress=progress, **settings)
        sections = read_sections(out)
        report = write_report(out, sections)
    print_scores([table for section in sections for table in section.tables])
    if told := told_failures(rows):
        say(told)
        say(f"The report lists them; the tracebacks are in {out / 'errors'}.")
    for advice in (section.study.recommendation for section in sections if section.study):
        say(advice)
    say(f"The report: {report}")
    if all(row["status"] != "ok" for row in rows):
        raise typer.Exit(1)
