"""Tables of the paper, run as the command line asks: what is found beside what is printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ssdml.budgets import Budget
from ssdml.experiments.paired import against
from ssdml.experiments.printed import (
    LABELS_PER_CLASS,
    Printed,
    as_printed,
    marked,
    reconstructions,
)
from ssdml.experiments.protocols import PAPER, PROTOCOLS, RECALL_AT
from ssdml.experiments.results import Row, budget_of, told_failures
from ssdml.experiments.tables import MethodLine, ScoreTable, score_tables
from ssdml.image_files import ImageFiles

OURS = "deep-ssdml"
TESTED = ("NMI", "R@1")
NAMES = 17  # columns; a name that fills them has a line of its own


def beside(rows: Sequence[Row], printed: Printed) -> Iterator[str]:
    """Lines of text: mean and half of the interval of each score, and below what is printed.

    With two seeds or more there is the p of each method's difference from ours in NMI and R@1. A
    star marks what is our reconstruction, and notes below say of what.

    Examples
    --------
    >>> list(beside([], {}))
    []
    """
    for table in score_tables(rows):
        own = [row for row in rows if (row["dataset"], budget_of(row)) == _key(table)]
        yield from _lines(table, own, printed.get(table.dataset, {}))
    yield from reconstructions(row["method"] for row in rows)


def _lines(
    table: ScoreTable, rows: Sequence[Row], printed: Mapping[str, tuple[float | None, ...]]
) -> Iterator[str]:
    n_seeds = len(table.seeds)
    is_tested = n_seeds > 1 and any(line.method == OURS for line in table.lines)
    tests = {score: against(rows, OURS, score) for score in TESTED} if is_tested else {}
    scores = ("NMI", *(f"R@{k}" for k in RECALL_AT.get(table.dataset, (1, 2, 4, 8))))
    yield f"{table.dataset}, {table.budget.amount}, {n_seeds} seed{'s' * (n_seeds > 1)}"
    heads = "".join(f"{score:>5}{'':5}" for score in scores)
    yield f"{'':{NAMES}}{heads}{''.join(f' p {score}' for score in tests)}".rstrip()
    for line in table.lines:
        cells = "".join(_cell(line, score) for score in scores)
        p = "".join(f"{test[line.method].p:6.3f}" for test in tests.values() if line.method != OURS)
        name = marked(line.method)
        if len(name) >= NAMES:
            yield name
            name = ""
        yield f"{name:{NAMES}}{cells}{p}".rstrip()
        figures = printed.get(as_printed(line.method))
        if figures is not None:
            cells = "".join(f"{_number(value):>5}{'':5}" for value in figures)
            yield f"{'  printed':{NAMES}}{cells}".rstrip()
    if tests:
        yield f"p: of the difference from {OURS}, by the corrected t-test over the seeds"


def _key(table: ScoreTable) -> tuple[str, Budget]:
    return table.dataset, table.budget


def _cell(line: MethodLine, score: str) -> str:
    """A mean and half of its interval; a dash where no run gave the score."""
    if not line.n_ok or score not in line.scores:
        return f"{'-':>5}{'':5}"
    estimate = line.scores[score].estimate
    return f"{estimate.mean:5.1f}{estimate.margin('<4.1f')}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def reproduce(printed: Printed, lines: Sequence[str], name: str, description: str | None) -> None:
    """Run the lines of a table as the command line asks, and show them beside what is printed.

    Ends the process with status 1 and the first reason where a run failed.

    Parameters
    ----------
    printed : dict
        What the paper has, by data set and method.
    lines : sequence of str
        Methods that are compared unless the command line picks some, beside the images as they
        are: "input", or "initial" for photographs.
    name : str
        Folder of the results, unless the command line names one.
    description : str
        Of the script.
    """
    from ssdml.datasets import load_dataset
    from ssdml.experiments.run import compare
    from ssdml.experiments.terminal import shown_runs

    parser = argparse.ArgumentParser(description=description)
    known = ", ".join(printed)
    parser.add_argument("dataset", help=f"as ssdml compare takes it; there are figures of {known}")
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--out", type=Path, default=Path(name))
    parser.add_argument("--n-jobs", type=positive, default=1, help="runs at a time")
    parser.add_argument("--only", nargs="+", metavar="LINE", help="of the table; else all")
    parser.add_argument("--weights", type=_file, help="file of the network's, for photographs")
    parser.add_argument(
        "--protocol",
        default=PAPER,
        choices=PROTOCOLS,
        help="of photographs, by the number of its paper; figures are printed beside those of "
        f"{PAPER} alone",
    )
    given = parser.parse_args()
    few = PROTOCOLS[given.protocol].labels_per_class
    with shown_runs(given.out) as progress, usage_errors(parser):
        dataset = load_dataset(given.dataset)
        start = "initial" if isinstance(dataset.X, ImageFiles) else "input"
        rows = compare(
            dataset,
            given.only or list(dict.fromkeys([start, *lines])),
            labels_per_class=[Budget(LABELS_PER_CLASS.get(dataset.name, few))],
            seeds=range(given.seeds),
            out=given.out,
            deep=True,
            weights=given.weights,
            protocol=given.protocol,
            resume=True,
            n_jobs=given.n_jobs,
            progress=progress,
        )
    table = beside(rows, printed if given.protocol == PAPER else {})
    sys.stdout.writelines(f"{line}\n" for line in table)
    if told := told_failures(rows):
        parser.exit(1, f"{told}\nThe tracebacks are in {given.out / 'errors'}.\n")


@contextmanager
def usage_errors(parser: argparse.ArgumentParser) -> Iterator[None]:
    """What the command line asks and cannot have ends the process with status 2, and one line."""
    try:
        yield
    except (ValueError, OSError) as error:
        parser.error(" ".join(str(error).split()))


def positive(text: str) -> int:
    """A whole number from 1 on, of the command line."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} must be a whole number from 1 on.")
    return int(text)


def _file(path: str) -> str:
    """A path of the command line, to a file that is there."""
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{path} must be a file; there is none.")
    return path
