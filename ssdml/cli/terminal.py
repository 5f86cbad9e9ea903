"""Progress and tables of a comparison on a terminal."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from ssdml.cli.options import put, say
from ssdml.experiments.analysis.formats import duration, number, visible
from ssdml.experiments.analysis.tables import HEADLINE, MethodLine, ScoreCell, ScoreTable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ssdml.experiments.runs.folder import Progress


SILENCE = 10.0  # seconds without a line, at most, where there is no terminal


def terminal() -> Console:
    """Console on standard error, so that standard output can be piped."""
    from rich.console import Console

    return Console(stderr=True)


@contextmanager
def log_lines(describe: Callable[[], str]) -> Iterator[None]:
    """Write a line to standard error every ten seconds, for pipes and log files.

    Nothing is written on a terminal, where bars and spinners show the progress.

    Parameters
    ----------
    describe : callable
        Returns what is being done, from another thread.
    """
    if terminal().is_terminal:
        yield
        return
    start, ended = time.monotonic(), threading.Event()

    def write() -> None:
        while not ended.wait(SILENCE):
            say(f"{duration(time.monotonic() - start)}: {describe()}")

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


@contextmanager
def progress_bar(out: Path) -> Iterator[Progress]:
    """Show a progress bar over runs, with the time left and the next run.

    Without a terminal a line is written every ten seconds. After Ctrl-C the error says what is kept
    in ``out``.
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
        # The last column is shortened on a narrow terminal.
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=3600,  # runs differ in length: average over all
    )
    n_kept, told = 0, "starting"
    with progress, log_lines(lambda: told):
        task = progress.add_task("", total=None)

        def show(n_done: int, n_runs: int, title: str) -> None:
            nonlocal n_kept, told
            n_kept = n_done
            what = title or "writing the report"
            told = f"{n_done} of {n_runs} runs done; {what}"
            progress.update(task, completed=n_done, total=n_runs, description=what)

        try:
            yield show
        except KeyboardInterrupt:
            runs = "1 finished run is" if n_kept == 1 else f"{n_kept} finished runs are"
            raise KeyboardInterrupt(
                f"{runs} kept in {out}; repeat the command with --resume to continue."
            ) from None


class LastLine(logging.Handler):
    """Keeps the last line of ssdml's log, such as the last stage of a fit."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line of the record."""
        self.text = f"; {record.getMessage()}"

    def __enter__(self) -> LastLine:
        self._log = logging.getLogger("ssdml")
        self._level = self._log.level
        self._log.addHandler(self)
        self._log.setLevel(logging.INFO)
        return self

    def __exit__(self, *exception: object) -> None:
        self._log.setLevel(self._level)
        self._log.removeHandler(self)


@contextmanager
def spinner(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a spinner and the time elapsed; without a terminal, a line every ten seconds.

    Yields a function that adds how many are done, and of how many.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = terminal()
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    hidden = not console.is_terminal
    shown = Progress(*columns, console=console, disable=hidden, transient=True)
    told = what
    with shown as progress, log_lines(lambda: told):
        task = progress.add_task(what, total=None)

        def count(n_done: int, n: int) -> None:
            nonlocal told
            told = f"{what}, {n_done:,} of {n:,} done"
            progress.update(task, description=told)

        yield count


def print_columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table to standard output; long entries wrap on a terminal only."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=SIMPLE)
    for name in names:
        shown.add_column(Text(name))
    for row in rows:
        shown.add_row(*(Text(visible(cell)) for cell in row))
    _print(shown)


def print_scores(tables: Sequence[ScoreTable]) -> None:
    """Print the tables of a comparison to standard output, the best scores in bold."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    for table in tables:
        n_seeds = len(table.seeds)
        shown = Table(
            title=Text(
                f"{visible(table.dataset)}, {table.budget}, {n_seeds} seed{'s' * (n_seeds > 1)}, "
                f"{table.n_test:,} test samples"
            ),
            box=SIMPLE,
            title_justify="left",
            title_style="bold",
        )
        shown.add_column("method")
        for name in ("rank", *HEADLINE, "MAP@R", "fit"):
            shown.add_column(name, justify="right", no_wrap=True)
        for line in table.lines:
            shown.add_row(Text(visible(line.method)), *_cells(line))
        _print(shown)


def _print(shown: Table) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(shown)
        return
    text = StringIO()
    Console(file=text, width=10_000, highlight=False).print(shown)  # no wrapping in a file
    put("".join(f"{line.rstrip()}\n" for line in text.getvalue()[:-1].split("\n")))


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
