"""Tables of the suite: gains over the best reference per cell, harm, and means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ssdml.experiments.analysis.formats import number, signed
from ssdml.experiments.analysis.statistics import Estimate, mean_interval, paired_difference
from ssdml.utils.typing import Array
from tools.robust.cells import SCHEMES, Cell
from tools.robust.parts import PREFIX
from tools.robust.rows import INPUT, Row, cell_of

OURS = "ssdml"
TITLES = {"logistic": "logistic, C chosen", "logistic[grid=null]": "logistic, C = 10"}
REFERENCES = (*TITLES, "label-spreading")
HARM = -0.3  # percentage points: a gain below this is harm
Lines = Iterator[Sequence[str]]
Scores = Mapping[str, Mapping[int, float]]  # by method and seed


class Gain(NamedTuple):
    """A score of a method in a cell, and its paired difference to the best reference there."""

    cell: Cell  # of seed 0
    score: str
    value: Estimate
    reference: str
    gain: Estimate

    @property
    def harms(self) -> bool:
        """Whether the method is worse than the reference by more than is allowed."""
        return self.gain.mean < HARM


def by_cell(rows: Iterable[Row], score: str) -> dict[Cell, dict[str, dict[int, float]]]:
    """A score by cell (of seed 0), method and seed; that of the input in every cell of its set."""
    found: dict[Cell, dict[str, dict[int, float]]] = {}
    inputs: dict[tuple[Any, ...], dict[int, float]] = {}
    for row in rows:
        if score in row:
            cell, value = cell_of(row), row[score]
            if row["method"] == INPUT:
                inputs.setdefault((cell.set, cell.features, cell.full), {})[cell.seed] = value
            else:
                scores = found.setdefault(cell._replace(seed=0), {})
                scores.setdefault(row["method"], {})[cell.seed] = value
    for cell, scores in found.items():
        if (own := inputs.get((cell.set, cell.features, cell.full))) is not None:
            scores[INPUT] = own
    return dict(sorted(found.items(), key=lambda item: order(item[0])))


def order(cell: Cell) -> tuple[Any, ...]:
    """Sort key: schemes as they are listed, sets by name, labels."""
    schemes = list(SCHEMES)
    return (cell.full, schemes.index(cell.scheme), cell.set, cell.features, cell.labels, cell.seed)


def gains(
    rows: Iterable[Row],
    score: str = "accuracy",
    *,
    method: str = OURS,
    references: Sequence[str] = REFERENCES,
) -> list[Gain]:
    """Gains of a method over the reference with the best mean, on the seeds that all have.

    Cells that lack a method are left out.
    """
    found = []
    for cell, scores in by_cell(rows, score).items():
        columns = common_seeds(scores, (method, *references))
        if columns is not None:
            ours, others = columns[0], columns[1:]
            best = int(others.mean(axis=1).argmax())
            gain = paired_difference(ours, others[best])
            found.append(Gain(cell, score, mean_interval(ours), references[best], gain))
    return found


def common_seeds(scores: Scores, methods: Sequence[str]) -> Array | None:
    """Scores (n_methods, n_seeds) on the seeds that all methods have; None without any."""
    if not scores.keys() >= set(methods):
        return None
    seeds = sorted(set.intersection(*(set(scores[name]) for name in methods)))
    return np.array([[scores[name][s] for s in seeds] for name in methods]) if seeds else None


def every_gain(rows: Sequence[Row], method: str = OURS) -> list[Gain]:
    """Gains in accuracy over the references, and in NMI and R@1 over the input."""
    found = gains(rows, method=method)
    for score in ("NMI", "R@1"):
        found += gains(rows, score, method=method, references=(INPUT,))
    return found


def summary(rows: Sequence[Row]) -> Lines:
    """Means over the cells of each scheme; in brackets how many of them are harmed."""
    best = gains(rows)
    columns = {f"over {title(name)}": gains(rows, references=(name,)) for name in REFERENCES}
    columns["over the best"] = best
    for score in ("NMI", "R@1"):
        columns[f"{score} over the input"] = gains(rows, score, references=(INPUT,))
    errors = by_cell(rows, "ece")
    yield "labels", "cells", "accuracy", *columns, "calibration error"
    for scheme in (*SCHEMES, "all"):
        schemes = SCHEMES if scheme == "all" else [scheme]
        found = [gain for gain in best if gain.cell.scheme in schemes]
        if found:
            yield (
                *(scheme, str(len(found)), number(average(gain.value.mean for gain in found))),
                *(mean_gain([g for g in c if g.cell.scheme in schemes]) for c in columns.values()),
                number(average(average(errors[gain.cell][OURS].values()) for gain in found)),
            )


def title(method: str) -> str:
    """Name of a method in tables."""
    return TITLES.get(method, method)


def average(values: Iterable[float]) -> float:
    """Mean, NaN without values."""
    known = list(values)
    return sum(known) / len(known) if known else float("nan")


def mean_gain(found: Sequence[Gain]) -> str:
    """Mean over cells, and how many of them are harmed."""
    return f"{signed(average(g.gain.mean for g in found))} ({sum(g.harms for g in found)})"


def grid(rows: Sequence[Row], *schemes: str) -> Lines:
    """Accuracy and gain over the best reference, by data set and labels per class."""
    found = [gain for gain in gains(rows) if not schemes or gain.cell.scheme in schemes]
    budgets = sorted({gain.cell.labels for gain in found})
    lines: dict[tuple[str, str, str], dict[int, str]] = {}
    for gain in found:
        cell = gain.cell
        head = (cell.set, cell.features, cell.scheme)
        lines.setdefault(head, {})[cell.labels] = f"{number(gain.value.mean)} {shown(gain)}"
    yield "data", "features", "labels", *map(str, budgets)
    for head, cells in lines.items():
        yield *head, *(cells.get(n, "") for n in budgets)


def cells(rows: Sequence[Row], methods: Sequence[str]) -> Lines:
    """Mean accuracies of methods, and gains over the best reference and over the input."""
    found = [gains(rows), *(gains(rows, s, references=(INPUT,)) for s in ("NMI", "R@1"))]
    columns = [{gain.cell: shown(gain).replace("*", "") for gain in part} for part in found]
    named = [name for name in methods if name != INPUT]
    yield (
        "data",
        "features",
        "labels",
        "per class",
        *map(title, named),
        "gain",
        "NMI gain",
        "R@1 gain",
    )
    for cell, scores in by_cell(rows, "accuracy").items():
        yield (
            *(cell.set, cell.features, cell.scheme, str(cell.labels)),
            *(number(average(scores.get(name, {}).values())) for name in named),
            *(column.get(cell, "") for column in columns),
        )


def shown(gain: Gain) -> str:
    """A gain with its half interval, bold if it is harm."""
    bold = "**" * gain.harms
    half = f" ± {gain.gain.half_width:.1f}" if gain.gain.n > 1 else ""
    return f"{bold}{signed(gain.gain.mean)}{bold}{half}"


def harmed(rows: Sequence[Row]) -> Lines:
    """Cells with harm, the worst first."""
    yield "data", "features", "labels", "per class", "score", "", "behind", "by"
    found = [gain for gain in every_gain(rows) if gain.harms]
    for gain in sorted(found, key=lambda gain: gain.gain.mean):
        cell = gain.cell
        head = (cell.set, cell.features, cell.scheme, str(cell.labels), gain.score)
        yield *head, number(gain.value.mean), title(gain.reference), shown(gain).replace("*", "")


def variants(rows: Sequence[Row]) -> Lines:
    """Changes from the default by variants such as ``ssdml[max_rounds=1]``, over their cells."""
    starts = f"{OURS}[", PREFIX
    names = sorted({row["method"] for row in rows if row["method"].startswith(starts)})
    yield "method", "cells", "accuracy", "worst", "best", "NMI", "R@1", "calibration error"
    for name in names:
        found = {
            score: [g.gain.mean for g in gains(rows, score, method=name, references=(OURS,))]
            for score in ("accuracy", "NMI", "R@1", "ece")
        }
        accuracy = found["accuracy"]
        if accuracy:
            values = (average(accuracy), min(accuracy), max(accuracy))
            others = (average(found[score]) for score in ("NMI", "R@1", "ece"))
            yield name, str(len(accuracy)), *map(signed, (*values, *others))


def failures(rows: Sequence[Row]) -> Lines:
    """Rows of methods that raised."""
    yield "method", "data", "features", "labels", "per class", "seed", "error"
    for row in rows:
        if "error" in row:
            place = (row[name] for name in ("set", "features", "scheme", "labels", "seed"))
            yield row["method"], *map(str, place), row["error"]
