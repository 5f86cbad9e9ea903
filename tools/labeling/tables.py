"""Tables of the measurements, for the page of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ssdml.experiments.analysis.formats import number, signed
from ssdml.experiments.analysis.statistics import mean_interval, paired_difference
from tools.labeling.measures import STRATEGIES, Row
from tools.labeling.problems import SETS
from tools.robust.tables import average

Lines = Iterator[Sequence[str]]
RANDOM = "random"


def suggest(rows: Sequence[Row]) -> Lines:
    """Accuracy with random labels, and what the other strategies add to it."""
    others = [name for name in STRATEGIES if name != RANDOM]
    yield "data", "seeds", RANDOM, *others
    for name in SETS:
        found = {strategy: _by_seed(rows, name, strategy) for strategy in STRATEGIES}
        seeds = sorted(found[RANDOM])
        if seeds:
            base = [found[RANDOM][seed] for seed in seeds]
            columns = ([found[s].get(seed, float("nan")) for seed in seeds] for s in others)
            gains = (gain(column, base) for column in columns)
            yield name, str(len(seeds)), number(average(base)), *gains


def gain(values: Sequence[float], base: Sequence[float]) -> str:
    """Mean paired difference and half its interval; bold if the interval excludes zero."""
    found = paired_difference(values, base)
    if found.n < 2:
        return signed(found.mean)
    bold = "**" * found.excludes_zero
    return f"{bold}{signed(found.mean)} ± {number(found.half_width)}{bold}"


def labeled(rows: Sequence[Row]) -> Lines:
    """Expected and true accuracy, and a second run against a new fit."""
    yield (
        *("data", "seeds", "expected", "true", "difference", "largest"),
        *("relabeled", "fitted anew", "time, share of a fit"),
    )
    for name in SETS:
        found = [row for row in rows if row["set"] == name]
        if found:
            gaps = [row["expected"] - row["true"] for row in found]
            shares = [row["relabel_seconds"] / row["fit_seconds"] for row in found]
            yield (
                *(name, str(len(found))),
                *(number(average(row[key] for row in found)) for key in ("expected", "true")),
                *(signed(average(gaps)), signed(max(gaps, key=abs))),
                *(number(average(row[key] for row in found)) for key in ("relabeled", "fresh")),
                number(average(shares), 2),
            )


NOVEL = ("AUROC", "F1", "training AUROC", "accuracy", "accuracy without them")


def novelty(rows: Sequence[Row]) -> Lines:
    """Scores of novelty, and accuracy on the known classes."""
    yield "data", "unknown samples", "seeds", *NOVEL
    titles = {
        ("banking77", ""): "a quarter of the classes, unlabeled",
        ("banking77_oos", "new rows"): "27 intents, new",
        ("banking77_oos", "among the unlabeled"): "27 intents, among the unlabeled samples",
        ("caltech101", ""): "clutter, new",
    }
    for (name, strategy), title in titles.items():
        found = [r for r in rows if (r["set"], r.get("strategy", "")) == (name, strategy)]
        if found:
            yield name, title, str(len(found)), *(_interval(found, score) for score in NOVEL)


def _interval(rows: Sequence[Row], score: str) -> str:
    values = [row[score] for row in rows if score in row]
    if not values:
        return ""
    found = mean_interval(values)
    return number(found.mean) + (f" ± {number(found.half_width)}" if found.n > 1 else "")


def _by_seed(rows: Sequence[Row], name: str, strategy: str) -> dict[int, float]:
    return {
        row["seed"]: row["accuracy"]
        for row in rows
        if row["set"] == name and row["strategy"] == strategy
    }
