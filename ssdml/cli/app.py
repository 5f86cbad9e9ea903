"""The command line: ``ssdml demo | compare | study | plan | label | fit | predict | ...``.

Heavy imports stay inside the commands, so that ``ssdml --help`` answers at once.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ssdml._version import __version__
from ssdml.cli import label, labeling, model, samples, study
from ssdml.cli.examples import examples
from ssdml.cli.options import (
    DataDir,
    Force,
    Threads,
    in_one_line,
    naming_standard_output,
    next_steps,
    say,
)
from ssdml.cli.parsing import Command

INTERRUPTED = 130  # the exit status that shells expect after Ctrl-C
TERMINATED = 143  # and after SIGTERM


class PlainErrors(TyperGroup):
    """Commands whose errors print one line, or a traceback after ``--traceback``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what comes before the command, or print the help or version."""
        try:
            with naming_standard_output():
                return super().parse_args(ctx, args)
        except BrokenPipeError:
            raise
        except OSError as error:
            say(f"error: {in_one_line(error)}")
            raise typer.Exit(1) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; the exit status is 1 for an error, 130 for Ctrl-C, 143 for SIGTERM."""
        warnings.showwarning = lambda message, *place: say(f"warning: {in_one_line(message)}")
        try:
            with signals_as_interrupts() as received:
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise _ended(received, interrupt) from None
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if received:  # an import that was interrupted may raise another error
                raise _ended(received) from None
            usage: Any = error
            if hasattr(usage, "format_message"):  # a usage error, with status 2
                if hasattr(usage.__cause__, "errors"):  # typer keeps the value to itself
                    usage.message += f"; got {usage.__cause__.errors()[0]['input']!r}."
                raise
            if ctx.params.get("traceback"):
                raise
            say(f"error: {in_one_line(error)}")
            raise typer.Exit(1) from None


@contextmanager
def signals_as_interrupts() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt on Ctrl-C and SIGTERM, and yield the signals received.

    A scheduler or a shutdown sends SIGTERM: marks are removed and workers ended, as after Ctrl-C.
    """
    received: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        received.append(number)
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a shell ignores it
        numbers.append(signal.SIGINT)
    try:
        before = {number: signal.signal(number, interrupt) for number in numbers}
    except ValueError:  # not in the main thread
        yield received
        return
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(received: list[int], interrupt: object = "") -> typer.Exit:
    """Tell that the command was interrupted, and return its exit."""
    is_terminated = signal.SIGTERM in received
    told = f"{'Terminated' if is_terminated else 'Interrupted'}. {interrupt}".strip()
    typer.echo(told, err=True)  # say() imports what may have been cut short
    return typer.Exit(TERMINATED if is_terminated else INTERRUPTED)


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
        bool, typer.Option("--traceback", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Label a few samples; get classes and confidences for the others, plus a learned distance.

    First steps: `ssdml demo` compares methods on a small data set, `ssdml label` labels your data,
    `ssdml study` finds out how many labels are enough.
    """


@app.command(cls=Command, epilog=examples("demo"))
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = 5,
    labels_per_class: Annotated[int, typer.Option(min=1, help="Labels per class.")] = 5,
    small: Annotated[bool, typer.Option("--small", help="400 digits, fast methods.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    force: Force = False,
) -> None:
    """Compare methods on scikit-learn's digits, and write a report."""
    from ssdml.cli.terminal import print_scores, progress_bar
    from ssdml.experiments.demo import PICTURE, remove_results, run_demo

    if force:
        remove_results(out)
    try:
        with progress_bar(out) as progress:
            table = run_demo(
                out,
                labels_per_class=labels_per_class,
                n_seeds=seeds,
                small=small,
                resume=resume,
                progress=progress,
            )
    except FileExistsError as refusal:
        if refusal.errno:  # from the system: a file where a folder belongs
            raise
        raise FileExistsError(f"{refusal} --force replaces them.") from refusal
    print_scores([table])
    say(f"The report: {out / 'report.html'}, the figure: {out / PICTURE}")
    next_steps(
        "open the report in a browser",
        "ssdml label table.csv --out labeled.csv labels your own data",
    )
    if any(line.n_ok < line.n_runs for line in table.lines):
        raise typer.Exit(1)


commands: list[Any] = [study.compare, study.study, study.status, study.report, study.table]
commands += [label.label, model.fit, model.transform, model.predict, model.evaluate]
for command in commands:
    app.command(cls=Command, epilog=examples(command.__name__))(command)
app.command("next", cls=Command, epilog=examples("next"))(labeling.suggest_next)


@app.command(cls=Command, epilog=examples("plan"))
def plan(
    n: Annotated[int | None, typer.Option(min=2, help="Samples; default: those of --like.")] = None,
    d: Annotated[
        int | None, typer.Option(min=1, help="Features; default: those of --like.")
    ] = None,
    classes: Annotated[int, typer.Option(min=1, help="Number of classes.")] = 10,
    like: Annotated[
        Path | None,
        typer.Option(metavar="DATA", help="Data like yours: X.npy, a table, ..."),
    ] = None,
    n_neighbors: Annotated[int, typer.Option(min=1, help="Neighbors in the graph.")] = 10,
    n_jobs: Threads = -1,
) -> None:
    """Estimate time and memory of a fit on this machine."""
    import psutil

    from ssdml.cli.terminal import print_columns, spinner
    from ssdml.datasets.reading.formats.npy import read_npy
    from ssdml.experiments.analysis.formats import duration, number
    from ssdml.metric.estimator import SSDML
    from ssdml.model_selection.fit_cost import pilot_size, plan_fit

    rows = None
    if like is not None and like.suffix == ".npy":
        rows = read_npy(like, in_place=True)  # a part of it is read
    elif like is not None:
        rows = samples.load(str(like), samples.chosen(needs_label=False)).X
    if rows is not None and len(rows.shape) != 2:
        raise ValueError(
            f"{like} must hold one row of numbers per sample; got shape {rows.shape}. Save a "
            "matrix."
        )
    shape = (n, d) if rows is None else (n or rows.shape[0], d or rows.shape[1])
    if None in shape:
        raise typer.BadParameter("must be given, or --like DATA.", param_hint="--n and --d")
    estimator = SSDML(n_neighbors=n_neighbors, n_jobs=n_jobs)
    n_samples = int(shape[0] or 0)
    with spinner(f"fitting {pilot_size(n_samples):,} of {n_samples:,} samples to measure the time"):
        expected = plan_fit(estimator, *shape, n_classes=classes, rows=rows)
    total = ("all", expected.seconds, expected.megabytes)
    lines = [
        (name, duration(seconds), f"{number(megabytes, 0)} MB")
        for name, seconds, megabytes in (*expected.stages, total)
    ]
    print_columns(("stage", "time", "memory"), lines)
    free = psutil.virtual_memory().available / 1e6
    if expected.megabytes > free:
        say(
            f"Only {free:.0f} MB are free. Use fewer classes or neighbors, or pass SSDML().fit a "
            "dask array if the data do not fit in memory."
        )
    else:
        next_steps("ssdml fit DATA --out MODEL/ fits the model")


@app.command(cls=Command, epilog=examples("datasets"))
def datasets(data_dir: DataDir = None) -> None:
    """List the data sets: where they are, or where to put them."""
    from ssdml.cli.terminal import print_columns
    from ssdml.datasets.known.layouts import (
        data_folders,
        dataset_status,
        describe_folders,
        expected_files,
    )

    found = dataset_status(data_dir=data_dir)
    rows = [
        (s.name, "yes", str(s.path or s.note))
        if s.available
        else (s.name, "no", expected_files(s.name))
        for s in found
    ]
    print_columns(("data set", "found", "where"), rows)
    if not all(s.available for s in found):
        say(
            f"Looked in {describe_folders(data_folders(data_dir))}. Put missing data sets into one "
            "of these folders, or set --data-dir or SSDML_DATA; nothing is downloaded."
        )
    next_steps("ssdml compare --dataset NAME --out FOLDER compares methods on one of them")
