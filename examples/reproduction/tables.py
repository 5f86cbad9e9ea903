"""Text tables of the papers' experiments: our scores beside the published ones, with tests."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
from command_line import existing_file, positive, usage_errors

from reproduction.published import (
    LABELS_PER_CLASS,
    Published,
    published_name,
    published_scores,
    reconstruction_notes,
    starred,
)
from reproduction.validation import chosen_methods
from ssdml.datasets.budgets import Budget
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.analysis.statistics import (
    MIN_SEEDS,
    PairedTest,
    friedman_nemenyi,
    mean_interval,
)
from ssdml.experiments.analysis.tables import (
    MethodLine,
    ScoreTable,
    mean_scores,
    paired_tests,
    score_tables,
)
from ssdml.experiments.methods.base import Factory
from ssdml.experiments.methods.protocols import DEFAULT_PROTOCOL, PROTOCOLS, RECALL_AT
from ssdml.experiments.runs.results import Row, budget_of, summarize_failures

OURS = "deep-ssdml"
TESTED = ("NMI", "R@1")
NAME_WIDTH = 17  # a longer name has its own line
LEVEL = 0.05
MIN_RANKED = 3  # methods in Friedman's test


def reproduce(
    published: Published, methods: Sequence[str], name: str, description: str | None
) -> None:
    """Run the methods of a table as the command line asks, and print the table.

    Ends the process with status 1 if a run failed.

    Parameters
    ----------
    published : dict
        Published scores by data set and method.
    methods : sequence of str
        Methods to compare, besides "input", or "initial" for photographs, unless the command line
        picks some.
    name : str
        Folder of the results, unless the command line names one.
    description : str
        Help of the script.
    """
    from ssdml.cli.terminal import progress_bar
    from ssdml.datasets.loading import load_dataset
    from ssdml.experiments.compare import available_methods, compare
    from ssdml.experiments.methods.base import with_parameters

    parser = argparse.ArgumentParser(description=description)
    known = ", ".join(published)
    parser.add_argument(
        "dataset", help=f"as in ssdml compare; there are published scores of {known}"
    )
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--out", type=Path, default=Path(name))
    parser.add_argument("--n-jobs", type=positive, default=1, help="runs at a time")
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="run only these methods")
    parser.add_argument(
        "--keep",
        choices=("last", "best", "both"),
        default="last",
        help="network of the last epoch, or the best by R@1 on 15%% of the training images of "
        "each class with their true labels, as in the paper; both: a row each, trained without "
        "these images",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="with --keep best or both, choose among six learning rates and weight decays as well, "
        "the same for the published method and its baselines",
    )
    parser.add_argument("--weights", type=existing_file, help="of the network, for photographs")
    parser.add_argument(
        "--protocol",
        default=DEFAULT_PROTOCOL,
        choices=PROTOCOLS,
        help=f"for photographs; published scores are those of {DEFAULT_PROTOCOL}",
    )
    given = parser.parse_args()
    if given.tune and given.keep == "last":
        parser.error("--tune chooses by validation: pass --keep best or both.")
    few = PROTOCOLS[given.protocol].labels_per_class
    with progress_bar(given.out) as progress, usage_errors(parser):
        dataset = load_dataset(given.dataset)
        if given.keep != "last" and isinstance(dataset.X, ImageFiles):
            parser.error("--keep must be last for photographs in files.")
        start = "initial" if isinstance(dataset.X, ImageFiles) else "input"
        names = given.only or list(dict.fromkeys([start, *methods]))
        budget = Budget(LABELS_PER_CLASS.get(dataset.name, few))
        compared: Sequence[str] | dict[str, Factory] = names
        if given.keep != "last":
            factories = available_methods(dataset, deep=True)
            compared = chosen_methods(
                names, factories, with_parameters, dataset, budget, given.keep, given.tune
            )
        rows = compare(
            dataset,
            compared,
            labels_per_class=[budget],
            seeds=range(given.seeds),
            out=given.out,
            deep=True,
            weights=given.weights,
            protocol=given.protocol,
            resume=True,
            n_jobs=given.n_jobs,
            progress=progress,
        )
    table = table_lines(rows, published if given.protocol == DEFAULT_PROTOCOL else {})
    sys.stdout.writelines(f"{line}\n" for line in table)
    if summary := summarize_failures(rows):
        parser.exit(1, f"{summary}\nThe tracebacks are in {given.out / 'errors'}.\n")


def table_lines(rows: Sequence[Row], published: Published) -> Iterator[str]:
    """Lines of text: mean and half interval of each score, and the published score below.

    With five seeds or more, p-values of the difference from ours in NMI and R@1 follow. A star
    marks our reconstructions, which notes explain.

    Examples
    --------
    >>> list(table_lines([], {}))
    []
    """
    for table in score_tables(rows):
        own = [
            row for row in rows if (row["dataset"], budget_of(row)) == (table.dataset, table.budget)
        ]
        yield from _table_lines(table, own, published.get(table.dataset, {}))
    yield from reconstruction_notes(row["method"] for row in rows)


def _table_lines(
    table: ScoreTable, rows: Sequence[Row], published: Mapping[str, tuple[float | None, ...]]
) -> Iterator[str]:
    n_seeds = len(table.seeds)
    is_tested = n_seeds >= MIN_SEEDS and any(line.method == OURS for line in table.lines)
    tests = {score: paired_tests(rows, OURS, score) for score in TESTED} if is_tested else {}
    scores = ("NMI", *(f"R@{k}" for k in RECALL_AT.get(table.dataset, (1, 2, 4, 8))))
    yield f"{table.dataset}, {table.budget.amount}, {n_seeds} seed{'s' * (n_seeds > 1)}"
    heads = "".join(f"{score:>5}{'':5}" for score in scores)
    yield f"{'':{NAME_WIDTH}}{heads}{''.join(f' p {score}' for score in tests)}".rstrip()
    for line in table.lines:
        cells = "".join(_cell(line, score) for score in scores)
        p = "".join(f"{test[line.method].p:6.3f}" for test in tests.values() if line.method != OURS)
        name = starred(line.method)
        if len(name) >= NAME_WIDTH:
            yield name
            name = ""
        yield f"{name:{NAME_WIDTH}}{cells}{p}".rstrip()
        values = published.get(published_name(line.method))
        if values is not None:
            shown = ("-" if value is None else f"{value:.1f}" for value in values)
            cells = "".join(f"{value:>5}{'':5}" for value in shown)
            yield f"{'  published':{NAME_WIDTH}}{cells}".rstrip()
    if tests:
        yield f"p: difference from {OURS}, corrected t-test over the seeds"


def _cell(line: MethodLine, score: str) -> str:
    """Mean and half interval; a dash if no run has the score."""
    if not line.n_ok or score not in line.scores:
        return f"{'-':>5}{'':5}"
    estimate = line.scores[score].estimate
    return f"{estimate.mean:5.1f}{estimate.margin('<4.1f')}"


def best_of(rows: Sequence[Row], ours: Sequence[str], score: str) -> str:
    """Return our method with the highest mean.

    Raises
    ------
    ValueError
        If none of ours finished a run.
    """
    means = mean_scores(rows, score)
    finished = [name for name in means if name in ours and np.isfinite(means[name])]
    if not finished:
        raise ValueError(
            f"best_of: one of {', '.join(ours)} must have finished a run with {score}; none has. "
            "See the errors in the rows."
        )
    return max(finished, key=lambda name: means[name])


def is_ahead(test: PairedTest) -> bool:
    """Whether a paired test shows a lead at 5%.

    Examples
    --------
    >>> [is_ahead(PairedTest(mean, p)) for mean, p in ((1, 0.01), (1, 0.2), (-1, 0.01))]
    [True, False, False]
    """
    return test.mean > 0 and test.p < LEVEL


def baseline_lines(
    rows: Sequence[Row], score: str, ours: Sequence[str], theirs: Sequence[str]
) -> Iterator[str]:
    """Lines of one data set: each method against the best of ours.

    A line has mean and half interval, the lead of the best of ours, the p-value of the corrected
    t-test, and the published score of networks with as many labels. The last line names the
    baselines that the best of ours does not beat significantly. Methods without the score, such as
    classifiers without NMI, are left out.

    Parameters
    ----------
    rows : sequence of dict
        Runs on one data set with one budget.
    score : str
    ours, theirs : sequence of str
        Methods.
    """
    best, first = best_of(rows, ours, score), rows[0]
    lacking = {row["method"] for row in rows if row["scores"] and score not in row["scores"]}
    theirs = [name for name in theirs if name not in lacking]
    tests = paired_tests(rows, best, score)
    published = published_scores(first["dataset"], first["labels_per_class"], score)
    yield f"{first['dataset']}, {budget_of(first).amount}: {score}"
    for name in (*ours, *theirs):
        values = [row["scores"].get(score, np.nan) for row in rows if row["method"] == name]
        estimate, test = mean_interval(values), tests[name]
        lead = "" if name == best else f"{best} {test.mean:+5.1f}{_p(test)}"
        beside = f"  published {published[name]:.1f}" if name in published else ""
        cell = f"{estimate.mean:5.1f}{estimate.margin('4.1f', ' ± ')}"
        yield f"  {starred(name):21} {cell}  {lead}{beside}".rstrip()
    if not any(np.isfinite(test.p) for test in tests.values()):
        yield f"  best of ours: {best}; tests need {MIN_SEEDS} seeds"
        return
    unbeaten = [
        f"{name} ({'ahead, ' * (tests[name].mean < 0)}p = {tests[name].p:.3f})"
        for name in theirs
        if not is_ahead(tests[name])
    ]
    others = ", ".join(unbeaten) or "none"
    yield _wrapped(f"  best of ours: {best}; not significantly better than: {others}")


def _p(test: PairedTest) -> str:
    return f", p = {test.p:.3f}" if np.isfinite(test.p) else ""


def rank_lines(sets: Sequence[Mapping[str, float]], score: str) -> Iterator[str]:
    """Lines over data sets: mean ranks, Friedman's test and Nemenyi's critical difference.

    Parameters
    ----------
    sets : sequence of dict
        Mean of each method on each of two or more data sets.
    score : str
    """
    names = [name for name in sets[0] if all(np.isfinite(means[name]) for means in sets)]
    if failed := [name for name in sets[0] if name not in names]:
        yield _wrapped(f"  without {', '.join(failed)}, which have no {score} on some data set")
    if len(names) < MIN_RANKED:
        return
    test = friedman_nemenyi([[means[name] for means in sets] for name in names])
    ranks = sorted(zip(test.ranks, names, strict=True))
    listed = ", ".join(f"{name} {rank:.1f}" for rank, name in ranks)
    yield _wrapped(f"mean ranks by {score}: {listed}")
    yield f"  Friedman p = {test.p:.3f}, critical difference {test.critical_difference:.1f}"


def _wrapped(text: str) -> str:
    return fill(text, 79, subsequent_indent="    ", break_on_hyphens=False)
