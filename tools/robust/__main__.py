"""Run the robust suite: ``python -m tools.robust``, or ``make robust``.

SSDML() is compared with logistic regression, label spreading and the input on 23 data sets,
with 1, 2, 5, 10 and 20 labels per class and five seeds. Rows go to ``docs/results/robust/``, one
file per method, and are not measured again while they are there: delete the file of a method that
has changed. Tables of all rows are printed in the end; ``python docs/tables.py`` writes them into
``docs/results/robust.md``. Exit status: 0, or 1 if a method raised, or 2 if an argument is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from ssdml.cli.terminal import print_columns
from ssdml.experiments.methods.base import with_parameters
from ssdml.experiments.methods.registry import METHODS
from tools.robust import tables
from tools.robust.cells import MOST_TEST, MOST_TRAIN, SCHEMES, plan
from tools.robust.parts import WITHOUT
from tools.robust.progress import progress
from tools.robust.rows import INPUT, measured, pending, read_rows
from tools.robust.sets import BUDGETS, FORMS, SOURCES, read

ROOT = Path(__file__).resolve().parents[2]
DEFAULT = (INPUT, *tables.REFERENCES, tables.OURS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for and print the tables; the exit status."""
    given = parse(arguments)
    if not given.tables:
        measure(given)
    rows = [row for row in read_rows(given.out) if row["full"] == given.full]
    printed = {
        "Means over cells, and how many are harmed": tables.summary(rows),
        "Cells: mean accuracy, and gains with half the 95% interval": tables.cells(rows, DEFAULT),
        f"Harm: gains below {tables.HARM}": tables.harmed(rows),
        "Changes by variants, means over cells": tables.variants(rows),
        "Failures": tables.failures(rows),
    }
    for title, (head, *lines) in printed.items():
        if lines:
            sys.stdout.write(f"\n{title}\n")
            print_columns(head, lines)
    return int(any("error" in row for row in rows))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.robust", description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SOURCES), choices=SOURCES, metavar="SET")
    parser.add_argument("--schemes", nargs="+", default=list(SCHEMES), choices=SCHEMES)
    parser.add_argument("--labels", nargs="+", default=BUDGETS, choices=BUDGETS, type=int)
    parser.add_argument("--seeds", default=5, type=int, help="how many")
    parser.add_argument("--features", nargs="+", default=(), choices=FORMS, help=FEATURES)
    parser.add_argument("--methods", nargs="+", default=DEFAULT, metavar="METHOD", help=VARIANTS)
    parser.add_argument("--full", action="store_true", help=FULL)
    parser.add_argument("--out", default=ROOT / "docs" / "results" / "robust", type=Path)
    parser.add_argument("--jobs", default=1, type=int, help="processes, with one thread each")
    parser.add_argument("--tables", action="store_true", help="print the tables only")
    given = parser.parse_args(arguments)
    if given.seeds < 1:
        parser.error(f"--seeds must be at least 1; got {given.seeds}. Pass 5.")
    for name in given.methods:
        try:
            if name not in WITHOUT:
                with_parameters(name, METHODS)
        except (ValueError, ImportError) as error:
            parser.error(str(error))
    return given


FEATURES = "for all schemes; default: all forms for balanced labels, the first one of a set else"
VARIANTS = (
    f"of ssdml compare, a variant such as 'ssdml[max_rounds=1]', or SSDML() without a part: "
    f"{', '.join(WITHOUT)}; default: {DEFAULT}"
)
FULL = f"all rows, not {MOST_TRAIN:,} for training and {MOST_TEST:,} for test"


def measure(given: argparse.Namespace) -> None:
    """Measure what has no row yet, with a progress bar."""
    chosen = given.sets, given.schemes, given.labels, given.seeds
    cells = plan(*chosen, features=given.features, full=given.full)
    runs = pending(cells, given.methods, read_rows(given.out))
    lacking = absent({cell.set for cell, _ in runs})
    runs = [run for run in runs if run[0].set not in lacking]
    for _ in progress(measured(runs, given.out, given.jobs), "robust suite", len(runs)):
        pass


def absent(names: Collection[str]) -> set[str]:
    """The data sets that cannot be read, with a message for each."""
    found = set()
    for name in names:
        try:
            read(name)
        except (FileNotFoundError, ImportError) as error:
            sys.stderr.write(f"tools.robust: {name} is left out: {error}\n")
            found.add(name)
    return found


if __name__ == "__main__":
    sys.exit(main())
