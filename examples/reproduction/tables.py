"""Tables of the paper, run as the command line asks: what is found beside what is printed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill

import numpy as np
from reproduction.printed import (
    LABELS_PER_CLASS,
    PRINTED,
    Printed,
    as_printed,
    marked,
    reconstructions,
)

from ssdml.datasets.budgets import Budget
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.analysis.statistics import PairedTest, friedman_nemenyi, mean_interval
from ssdml.experiments.analysis.tables import (
    MethodLine,
    ScoreTable,
    mean_scores,
    paired_tests,
    score_tables,
)
from ssdml.experiments.methods.protocols import DEFAULT_PROTOCOL, PROTOCOLS, RECALL_AT
from ssdml.experiments.runs.results import Row, budget_of, summarize_failures

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
    tests = {score: paired_tests(rows, OURS, score) for score in TESTED} if is_tested else {}
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
    from ssdml.cli.terminal import shown_runs
    from ssdml.datasets.loading import load_dataset
    from ssdml.experiments.compare import compare

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
        default=DEFAULT_PROTOCOL,
        choices=PROTOCOLS,
        help="of photographs, by the number of its paper; figures are printed beside those of "
        f"{DEFAULT_PROTOCOL} alone",
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
    table = beside(rows, printed if given.protocol == DEFAULT_PROTOCOL else {})
    sys.stdout.writelines(f"{line}\n" for line in table)
    if summary := summarize_failures(rows):
        parser.exit(1, f"{summary}\nThe tracebacks are in {given.out / 'errors'}.\n")


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


# What came out of a comparison with the baselines, as lines of text.

LEVEL = 0.05
FEWEST_RANKED = 3  # methods; Friedman's test wants as many
ORDER = ("NMI", "R@1")  # of the printed scores; the others are not compared


def best_of(rows: Sequence[Row], ours: Sequence[str], score: str) -> str:
    """That of our methods whose mean is highest.

    Raises
    ------
    ValueError
        If none of them finished a run.
    """
    known = {name: mean for name, mean in mean_scores(rows, score).items() if name in ours}
    finished = {name: mean for name, mean in known.items() if np.isfinite(mean)}
    if not finished:
        raise ValueError(
            f"best_of: a run of {', '.join(ours)} must have ended well for {score}; none has. The "
            "rows' errors say why."
        )
    return max(finished, key=lambda name: finished[name])


def is_ahead(test: PairedTest) -> bool:
    """Whether the test shows that what is tested against a method is better, at 5 %.

    Examples
    --------
    >>> [is_ahead(PairedTest(mean, p)) for mean, p in ((1, 0.01), (1, 0.2), (-1, 0.01))]
    [True, False, False]
    """
    return test.mean > 0 and test.p < LEVEL


def set_lines(
    rows: Sequence[Row], score: str, ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[str]:
    """Lines of one data set: a method each, the best of ours, and whom it is not shown to beat.

    Mean and half of the 95 % interval, by how much the best of ours is ahead, p of the corrected
    t-test over the seeds, and what the paper prints of networks with as many labels.

    Parameters
    ----------
    rows : sequence of dict
        Runs on one data set with one budget of labels.
    score : str
    ours, theirs : sequence of str
        Methods.
    """
    best = best_of(rows, ours, score)
    tests = paired_tests(rows, best, score)
    values = {
        name: [row["scores"].get(score, np.nan) for row in rows if row["method"] == name]
        for name in (*ours, *theirs)
    }
    first = rows[0]
    printed = printed_scores(first["dataset"], first["labels_per_class"], score)
    yield f"{first['dataset']}, {budget_of(first).amount}: {score}"
    for name in values:
        estimate, test = mean_interval(values[name]), tests[name]
        ahead = "" if name == best else f"{best} {test.mean:+5.1f}, p = {test.p:.3f}"
        told = f"  printed {printed[name]:.1f}" if name in printed else ""
        line = f"  {marked(name):21} {estimate.mean:5.1f}{estimate.margin('4.1f', ' ± ')}  {ahead}"
        yield f"{line}{told}".rstrip()
    open_ = [
        f"{name} ({'ahead, ' * (tests[name].mean < 0)}p = {tests[name].p:.3f})"
        for name in theirs
        if not is_ahead(tests[name])
    ]
    told = ", ".join(open_) if open_ else "none of theirs"
    yield _wrapped(f"  best of ours: {best}; not shown to be better than {told}")


def printed_scores(dataset: str, labels_per_class: int, score: str) -> dict[str, float]:
    """What the paper prints of each method, where it has as many labels.

    Examples
    --------
    >>> printed_scores("mnist", 10, "R@1")["deep-lrml"], printed_scores("mnist", 5, "R@1")
    (88.7, {})
    """
    if score not in ORDER or LABELS_PER_CLASS.get(dataset, 5) != labels_per_class:
        return {}
    place = ORDER.index(score)
    found = {name: scores[place] for name, scores in PRINTED.get(dataset, {}).items()}
    return {name: value for name, value in found.items() if value is not None}


def ranked(sets: Sequence[Mapping[str, float]], score: str) -> Iterator[str]:
    """Lines over data sets: mean ranks, Friedman's test and Nemenyi's critical difference.

    Parameters
    ----------
    sets : sequence of dict
        Mean of each method on each data set, two or more of them, the same methods on all.
    score : str
    """
    names = [name for name in sets[0] if all(np.isfinite(means[name]) for means in sets)]
    if failed := [name for name in sets[0] if name not in names]:
        yield _wrapped(f"  without {', '.join(failed)}: no run of theirs ended well on some set")
    if len(names) < FEWEST_RANKED:
        return
    test = friedman_nemenyi([[means[name] for means in sets] for name in names])
    order = sorted(zip(test.ranks, names, strict=True))
    told = ", ".join(f"{name} {rank:.1f}" for rank, name in order)
    yield _wrapped(f"mean ranks by {score}: {told}")
    yield f"  Friedman p = {test.p:.3f}, critical difference {test.critical_difference:.1f}"


def _wrapped(text: str) -> str:
    return fill(text, 79, subsequent_indent="    ", break_on_hyphens=False)
