"""What came out of a comparison with the baselines, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill

import numpy as np

from ssdml.experiments.paired import against, means
from ssdml.experiments.printed import LABELS_PER_CLASS, PRINTED, marked
from ssdml.experiments.results import Row, budget_of
from ssdml.experiments.significance import PairedTest, friedman_nemenyi
from ssdml.experiments.statistics import mean_interval

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
    known = {name: mean for name, mean in means(rows, score).items() if name in ours}
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
    tests = against(rows, best, score)
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
