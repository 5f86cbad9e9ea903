"""The command line: ``ssdml demo | compare | study | plan | fit | transform | evaluate | ...``.

What is heavy is imported inside the commands, so that ``ssdml --help`` answers at once.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ssdml._version import __version__
from ssdml.cli.model import evaluate, fit, transform
from ssdml.cli.options import DataDir, Force, in_one_line, say
from ssdml.cli.study import compare, report, status, study

INTERRUPTED = 130  # what a shell expects of a program that Ctrl-C ended


class PlainErrors(TyperGroup):
    """Commands whose errors are one line; ``--traceback`` shows where they come from."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; exit status 1 for an error, 130 for Ctrl-C."""
        warnings.showwarning = lambda message, *place: say(f"warning: {in_one_line(message)}")
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            say(f"Interrupted. {interrupt}".strip())
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            # A usage error formats itself, and ends with status 2.
            if ctx.params.get("traceback") or hasattr(error, "format_message"):
                _say_what_was_given(error)
                raise
            say(f"error: {in_one_line(error)}")
            raise typer.Exit(1) from None


def _say_what_was_given(error: Any) -> None:
    """Add the value to the message of a usage error, where typer keeps it to itself."""
    if hasattr(error, "format_message") and hasattr(error.__cause__, "errors"):
        error.message += f"; got {error.__cause__.errors()[0]['input']!r}."


app = typer.Typer(
    cls=PlainErrors, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


def main() -> None:
    """Run the command line."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ssdml {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="The version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where an error comes from.")
    ] = False,
) -> None:
    """Learn a metric from many items and a handful of labels."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 5,
    labels_per_class: Annotated[int, typer.Option(min=1, help="Labels a class.")] = 5,
    small: Annotated[bool, typer.Option("--small", help="400 digits, quick methods.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is there.")] = False,
    force: Force = False,
) -> None:
    """Learn a metric from scikit-learn's digits, compare it with its peers, write a report."""
    from ssdml.cli.terminal import print_scores, shown_runs
    from ssdml.experiments.demo import PICTURE, remove_results, run_demo

    if force:
        remove_results(out)
    try:
        with shown_runs(out) as progress:
            table = run_demo(
                out,
                labels_per_class=labels_per_class,
                n_seeds=seeds,
                small=small,
                resume=resume,
                progress=progress,
            )
    except FileExistsError as refusal:
        if refusal.errno:  # of the system: a file where a folder belongs
            raise
        raise FileExistsError(f"{refusal} --force replaces them.") from refusal
    print_scores([table])
    say(f"The report: {out / 'report.html'}, the picture: {out / PICTURE}")


app.command()(compare)
app.command()(study)
app.command()(status)
app.command()(report)
app.command()(fit)
app.command()(transform)
app.command()(evaluate)


@app.command()
def plan(
    n: Annotated[int | None, typer.Option(min=2, help="Rows; else as many as --like has.")] = None,
    d: Annotated[int | None, typer.Option(min=1, help="Columns; else those of --like.")] = None,
    classes: Annotated[int, typer.Option(min=1, help="Number of classes.")] = 10,
    like: Annotated[
        Path | None, typer.Option(metavar="X.npy", help="Rows like those; a sample is read.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(metavar="residual", help="Learned before the linear metric.")
    ] = None,
    n_neighbors: Annotated[int, typer.Option(min=1, help="Neighbors in the graph.")] = 10,
    n_jobs: Annotated[int, typer.Option(help="Threads; -1: all cores.")] = -1,
) -> None:
    """Tell what a fit will take on this machine, before it is run."""
    from ssdml.cli.terminal import print_columns, shown_wait
    from ssdml.datasets.tables import read_npy
    from ssdml.experiments.analysis.formats import duration, number
    from ssdml.metric.estimator import SSDML
    from ssdml.model_selection.fit_cost import plan_fit

    rows = None if like is None else read_npy(like, in_place=True)
    if rows is not None and rows.ndim != 2:
        raise ValueError(f"{like} must hold rows of numbers; got shape {rows.shape}.")
    shape = (n, d) if rows is None else (n or rows.shape[0], d or rows.shape[1])
    if None in shape:
        raise typer.BadParameter("must be given, or --like X.npy.", param_hint="--n and --d")
    estimator = SSDML(backbone=backbone, n_neighbors=n_neighbors, n_jobs=n_jobs)
    with shown_wait("fitting a few rows"):
        expected = plan_fit(estimator, *shape, n_classes=classes, rows=rows)
    total = ("all", expected.seconds, expected.megabytes)
    print_columns(
        ("stage", "time", "memory"),
        [
            (name, duration(seconds), f"{number(megabytes, 0)} MB")
            for name, seconds, megabytes in (*expected.stages, total)
        ],
    )
    _compare_with_free_memory(expected.megabytes)


@app.command()
def datasets(data_dir: DataDir = None) -> None:
    """List the data sets, where they are, or what to put where."""
    from ssdml.cli.terminal import print_columns
    from ssdml.datasets.loading import data_folders, dataset_status, described, wanted

    found = dataset_status(data_dir=data_dir)
    rows = [
        (s.name, "yes", str(s.path or s.note)) if s.available else (s.name, "no", wanted(s.name))
        for s in found
    ]
    print_columns(("data set", "found", "where"), rows)
    if not all(s.available for s in found):
        say(
            f"Looked in {described(data_folders(data_dir))}. Put what is missing into one of these "
            "folders, or name another with --data-dir or SSDML_DATA; nothing is downloaded."
        )


def _compare_with_free_memory(megabytes: float) -> None:
    import psutil

    free = psutil.virtual_memory().available / 1e6
    if megabytes > free:
        say(
            f"More than the {free:.0f} MB that are free here. Fewer classes or neighbors need "
            "less; SSDML().fit takes a dask array of rows that no memory holds."
        )
