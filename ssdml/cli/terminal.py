"""What a comparison shows on a terminal: how far it is, and its table at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ssdml.experiments.analysis.formats import duration, number
from ssdml.experiments.analysis.tables import HEADLINE, MethodLine, ScoreCell, ScoreTable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ssdml.experiments.runs.folder import Progress


def terminal() -> Console:
    """Where progress goes: standard error, so that output can be piped."""
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def shown_runs(out: Path) -> Iterator[Progress]:
    """A bar: how many runs of how many, how long yet, and which one it is at.

    Nothing is shown where there is no terminal. After Ctrl-C it says what is kept in ``out``.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    console = terminal()
    progress = Progress(
        BarColumn(bar_width=16, table_column=Column(min_width=16)),
        MofNCompleteColumn(table_column=Column(min_width=5)),
        TimeElapsedColumn(table_column=Column(min_width=7)),
        TextColumn("left", table_column=Column(min_width=4)),
        TimeRemainingColumn(table_column=Column(min_width=7)),
        # The last column is the one that gives way on a narrow terminal.
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        console=console,
        disable=not console.is_terminal,
        # Runs differ in length: the estimate looks back over all of them.
        speed_estimate_period=3600,
    )
    n_kept = 0
    with progress:
        task = progress.add_task("", total=None)

        def show(n_done: int, n_runs: int, title: str) -> None:
            nonlocal n_kept
            n_kept = n_done
            what = title or "writing the report"
            progress.update(task, completed=n_done, total=n_runs, description=what)

        try:
            yield show
        except KeyboardInterrupt:
            runs = "1 finished run is" if n_kept == 1 else f"{n_kept} finished runs are"
            raise KeyboardInterrupt(
                f"{runs} kept in {out}; the same command with --resume goes on."
            ) from None


@contextmanager
def shown_wait(what: str) -> Iterator[None]:
    """What is being done and since when, until it is done. Nothing where there is no terminal."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = terminal()
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, disable=hidden, transient=True) as progress:
        progress.add_task(what, total=None)
        yield


def print_columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table on standard output; long entries wrap on a terminal and nowhere else."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE)
    for name in names:
        shown.add_column(name)
    for row in rows:
        shown.add_row(*map(Text, row))
    _print(shown)


def print_scores(tables: Sequence[ScoreTable]) -> None:
    """The tables of a comparison on standard output."""
    for table in tables:
        _print(screen_table(table))


def _print(shown: Table) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(shown)
        return
    console.width = 10_000  # a file has no edge to wrap at; the table takes what it needs
    with console.capture() as printed:
        console.print(shown)
    console.file.writelines(f"{line.rstrip()}\n" for line in printed.get()[:-1].split("\n"))


def screen_table(table: ScoreTable) -> Table:
    """Scores with their intervals, the best in bold."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    n_seeds = len(table.seeds)
    shown = Table(
        title=Text(f"{table.dataset}, {table.budget}, {n_seeds} seed{'s' * (n_seeds > 1)}"),
        box=SIMPLE,
        title_justify="left",
        title_style="bold",
    )
    shown.add_column("method")
    for name in ("rank", *HEADLINE, "MAP@R", "fit"):
        shown.add_column(name, justify="right", no_wrap=True)
    for line in table.lines:
        shown.add_row(Text(line.method), *_cells(line))
    return shown


def _cells(line: MethodLine) -> list[Text]:
    from rich.text import Text

    if not line.n_ok:
        return [Text("failed", style="red")]
    scores = [_score(line.scores[name]) for name in (*HEADLINE, "MAP@R")]
    return [Text(number(line.rank)), *scores, Text(duration(line.fit.mean))]


def _score(cell: ScoreCell) -> Text:
    from rich.text import Text

    text = Text(number(cell.estimate.mean), style="bold green" if cell.is_best else "")
    if cell.estimate.n > 1:
        text.append(f" ±{number(cell.estimate.half_width)}", style="not bold dim default")
    return text
