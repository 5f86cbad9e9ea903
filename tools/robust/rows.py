"""Rows of the suite: one per cell and method, measured once and appended to a file per method."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from ssdml.evaluation.calibration import reliability
from ssdml.evaluation.scores import evaluate
from ssdml.experiments.methods.base import with_parameters
from ssdml.experiments.methods.registry import METHODS
from ssdml.utils.parallel import limited_threads
from ssdml.utils.validation import UNLABELED
from tools.robust.cells import Cell, Problem, problem
from tools.robust.parts import without

Row = dict[str, Any]

INPUT = "input"
DECIMALS = 3


def identity(cell: Cell, method: str) -> tuple[Any, ...]:
    """What tells a row from others: the scores of the input do not depend on the labels."""
    if method == INPUT:
        cell = cell._replace(scheme="", labels=0)
    return (method, *cell)


def cell_of(row: Mapping[str, Any]) -> Cell:
    """Cell of a row."""
    return Cell(*(row[name] for name in Cell._fields))


def read_rows(folder: Path) -> list[Row]:
    """The last row of each cell and method."""
    found: dict[tuple[Any, ...], Row] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                where = f"{path}, line {number}"
                raise ValueError(f"{where}: not JSON ({error}). Delete the line.") from error
            found[identity(cell_of(row), row["method"])] = row
    return list(found.values())


def append(folder: Path, row: Row) -> None:
    """Append a row to the file of its method."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.=-]+", "_", row["method"]).strip("_")
    with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(row)}\n")


def pending(
    cells: Iterable[Cell], methods: Sequence[str], rows: Iterable[Row]
) -> list[tuple[Cell, str]]:
    """What has no row, or one of a failure; the methods of a cell stand together."""
    done = {identity(cell_of(row), row["method"]) for row in rows if "error" not in row}
    left: dict[tuple[Any, ...], tuple[Cell, str]] = {}
    for cell in cells:
        for method in methods:
            left.setdefault(identity(cell, method), (cell, method))
    return [run for key, run in left.items() if key not in done]


def measured(
    runs: Sequence[tuple[Cell, str]], folder: Path, n_jobs: int
) -> Iterator[tuple[Cell, str]]:
    """Measure and append rows, on one thread each; yield each run when it ends."""
    parallel = Parallel(
        n_jobs, return_as="generator_unordered", pre_dispatch="2 * n_jobs", batch_size=1
    )
    for cell, method, row in parallel(delayed(attempt)(*run) for run in runs):
        if row is not None:
            append(folder, row)
        yield cell, method


def attempt(cell: Cell, method: str) -> tuple[Cell, str, Row | None]:
    """Measure a method on a cell; the row of a failure has an ``error`` and no scores.

    None if fewer than two classes have labels.
    """
    given = problem(cell)
    n_classes = len(np.unique(given.y[given.y != UNLABELED]))
    if n_classes < 2:
        return cell, method, None
    row = {"method": method, **cell._asdict()}
    row |= {"n": len(given.X), "d": given.X.shape[1], "classes": n_classes}
    try:
        with limited_threads(1), warnings.catch_warnings(), without(method) as name:
            warnings.simplefilter("ignore")  # of iterations that end early, of falling back
            found = scores(name, given, cell.seed)
    except Exception as failure:  # of one method on one cell: the suite goes on
        return cell, method, row | {"error": f"{type(failure).__name__}: {failure}"}
    return cell, method, row | {name: round(value, DECIMALS) for name, value in found.items()}


def scores(method: str, given: Problem, seed: int) -> dict[str, float]:
    """Seconds of the fit, and scores in percent.

    ``accuracy`` and ``ece`` are of ``predict`` and ``predict_proba`` on test rows, ``unlabeled``
    is the accuracy of the transduction on unlabeled training rows that belong to a class, ``NMI``
    and ``R@1`` are of the embedded test rows. What a method does not give has no score.
    """
    model: Any = with_parameters(method, METHODS)(seed, 1)
    start = time.perf_counter()
    model.fit(given.X, given.y)
    found = {"seconds": time.perf_counter() - start}
    if method != INPUT:
        found |= label_scores(model, given)
    if hasattr(model, "transform"):
        Z = model.transform(given.X_test)
        found |= evaluate(Z, given.y_test, random_state=seed, scores=("NMI", "R@1"))
    return found


def label_scores(model: Any, given: Problem) -> dict[str, float]:
    """Accuracies and calibration error, in percent."""
    right = model.predict(given.X_test) == given.y_test
    found = {"accuracy": percent(right)}
    if hasattr(model, "predict_proba"):
        confidence = model.predict_proba(given.X_test).max(axis=1)
        found["ece"] = reliability(confidence, right).error
    rows = (given.y == UNLABELED) & (given.truth != UNLABELED)
    if rows.any():
        transduction = getattr(model, "transduction_", None)
        classes = model.predict(given.X[rows]) if transduction is None else transduction[rows]
        found["unlabeled"] = percent(classes == given.truth[rows])
    return found


def percent(right: Any) -> float:
    """Share of what is right, in percent."""
    return 100 * float(np.mean(right))
