"""One job of a comparison: learn, embed, score; a failure is a row like any other."""

from __future__ import annotations

import json
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ssdml.datasets.base import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.splits import LabelScarceSplit
from ssdml.evaluation.predictions import (
    Predictions,
    confusion,
    label_accuracy,
    predict_classes,
    reliability_of,
)
from ssdml.evaluation.scores import evaluate, triplet_purity
from ssdml.experiments.methods.base import Embedder
from ssdml.experiments.methods.protocols import RECALL_AT
from ssdml.experiments.runs.details import (
    Answers,
    RunDetails,
    map_neighbors,
    map_rows,
    map_sample,
    mined_sample,
    save_details,
)
from ssdml.experiments.runs.plan import Run
from ssdml.experiments.runs.resources import PeakMemory, versions
from ssdml.experiments.runs.results import Row
from ssdml.experiments.runs.thumbnails import cards_path, item_cards, load_cards, save_cards
from ssdml.utils.typing import Array

SCORES = ("NMI", "F1", "R@1", "R@2", "R@4", "R@8", "MAP@R")


@dataclass(frozen=True)
class Outcome:
    """What a job gives: its row, what the report shows beyond it, and a failure's traceback."""

    run: Run
    row: Row
    details: RunDetails
    trace: str


def run_one(
    dataset: Dataset, run: Run, *, out: Path | None = None, n_jobs: int | None = None
) -> Row:
    """Do one job; whatever the method raises ends in the row, whose status is then "failed".

    ``out``, where given, gets the details that the report shows, and a failure's traceback.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> from ssdml.experiments.runs.plan import plan_runs
    >>> from ssdml.experiments import METHODS
    >>> digits = load_dataset("digits")
    >>> (run,) = plan_runs(digits, {"pca": METHODS["pca"]}, labels_per_class=[5], seeds=[0])
    >>> row = run_one(digits, run)
    >>> row["method"], row["status"], row["n_test"]
    ('pca', 'ok', 599)
    """
    outcome = attempt(dataset, run, n_jobs=n_jobs)
    if out is not None:
        keep(outcome, out)
    return outcome.row


def attempt(dataset: Dataset, run: Run, *, n_jobs: int | None = None) -> Outcome:
    """Do one job and write nothing: workers may be on machines that share no disk."""
    row = failed_row(dataset, run)
    details = RunDetails(run.config)
    with warnings.catch_warnings(record=True) as caught, PeakMemory() as memory:
        warnings.simplefilter("always")
        try:
            model, Z, row["seconds"] = _fit_and_transform(dataset, run, n_jobs)
            memory.stop()
            few = _few(model, dataset, run)
            scores = _scores(model, Z, few, dataset, run.split)
            details = _details(model, Z, few, dataset, run)
        except Exception as failure:
            row["error"] = f"{type(failure).__name__}: {failure}"
            trace = traceback.format_exc()
        else:
            row["scores"], row["status"], trace = scores, "ok", ""
    row["peak_rss_mb"] = round(memory.megabytes, 1)
    details.warnings.extend(dict.fromkeys(str(warning.message) for warning in caught))
    return Outcome(run, row, details, trace)


def keep(outcome: Outcome, out: Path) -> None:
    """Write what the report shows beyond the row."""
    run = outcome.run
    save_details(out / "details" / f"{run.config_hash}.npz", outcome.details)
    _save_trace(out / "errors" / f"{run.file_name}.txt", outcome.trace)


def keep_cards(out: Path, dataset: Dataset, runs: Sequence[Run]) -> None:
    """Write what a reader sees of the rows on maps, beside what is there of others.

    Parameters
    ----------
    out : Path
    dataset : Dataset
        As it was read: its pictures are still pictures.
    runs : sequence of Run
        Of this data set.
    """
    drawn = {(run.split, run.map_rows) for run in runs if run.map_rows}
    if not drawn:
        return
    path = cards_path(out, runs[0].config["data"])
    kept = load_cards(path)
    rows = [part for split, n_rows in drawn for part in map_rows(split, n_rows)]
    every = np.unique(np.concatenate([*rows, [] if kept is None else kept.rows]).astype(np.int64))
    if kept is None or len(every) > len(kept.rows):
        save_cards(path, item_cards(dataset, every))


def _fit_and_transform(
    dataset: Dataset, run: Run, n_jobs: int | None
) -> tuple[Embedder, Array, dict[str, float]]:
    """Learn on the training rows, embed the test rows; seconds of both."""
    X, y = dataset.X[run.split.train], run.split.partial_labels(dataset.y)
    X_test = dataset.X[run.split.test]
    model = run.factory(run.split.seed, n_jobs)
    start = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    Z = model.transform(X_test)
    transformed = time.perf_counter()
    return model, Z, {"fit": fitted - start, "transform": transformed - fitted}


def _scores(
    model: Embedder, Z: Array, few: Array | None, dataset: Dataset, split: LabelScarceSplit
) -> dict[str, float]:
    """Scores of the test rows' embedding, in percent; ``few``: that of the labeled rows."""
    if not np.isfinite(Z).all():
        raise ValueError("the embedding of the test rows holds NaN or infinite entries")
    y = dataset.y[split.test]
    ks = sorted({1, 2, 4, 8, *RECALL_AT.get(dataset.name, ())})
    queries, gallery = np.ones(len(y), bool), None
    if dataset.gallery is not None:
        queries = ~dataset.gallery[split.test]
        gallery = (Z[~queries], y[~queries])
    scores = evaluate(Z[queries], y[queries], ks, split.seed, gallery=gallery)
    others = {name: scores[name] for name in scores if name.startswith("R@")}
    scores = {name: scores[name] for name in SCORES} | others
    if few is not None and _labels_tell(dataset, split):
        y_few = split.given_labels(dataset.y)
        scores["accuracy"] = label_accuracy(model, dataset.X[split.test], Z, y, few, y_few)
    return scores


def _few(model: Embedder, dataset: Dataset, run: Run) -> Array | None:
    """Embedding of the labeled rows that somebody asks for: all, those on the map, or none."""
    rows = run.split.labeled
    if not _labels_tell(dataset, run.split):
        if not run.map_rows:
            return None
        rows = map_rows(run.split, run.map_rows)[1]
    return model.transform(dataset.X[rows])


def _labels_tell(dataset: Dataset, split: LabelScarceSplit) -> bool:
    """Whether a test row is of a class that has a label; in some protocols none is."""
    return bool(np.isin(dataset.y[split.test], dataset.y[split.labeled]).any())


def _details(model: Any, Z: Array, few: Array | None, dataset: Dataset, run: Run) -> RunDetails:
    split, triplets = run.split, getattr(model, "triplets_", None)
    y_train = dataset.y[split.train]
    details = RunDetails(
        run.config, purity=None if triplets is None else triplet_purity(triplets, y_train)
    )
    if few is None or not run.map_rows:
        return details
    test, labeled = map_rows(split, run.map_rows)
    drawn = np.isin(split.test, test)
    stars = few[np.isin(split.labeled, labeled)] if len(few) > len(labeled) else few
    X_train, labels = dataset.X[split.train], split.partial_labels(dataset.y)
    in_files = isinstance(X_train, ImageFiles)  # so that there are no rows to be near to
    return replace(
        details,
        class_names=list(dataset.class_names),
        history=_plain_history(model),
        sample=map_sample(Z[drawn], stars, dataset.y[test], dataset.y[labeled]),
        answers=_answers(model, Z, few, np.concatenate([test, labeled]), dataset, split),
        mined=None if in_files else mined_sample(model, X_train, labels, y_train),
    )


def _plain_history(model: Any) -> list[dict[str, Any]]:
    """A method's ``history_`` as JSON holds it; of any other kind than ours, none."""
    history = getattr(model, "history_", None)
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        return []
    plain: list[dict[str, Any]] = json.loads(json.dumps(history, default=_plain))
    return plain


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _answers(
    model: Any, Z: Array, few: Array, rows: Array, dataset: Dataset, split: LabelScarceSplit
) -> Answers:
    """What the method says of the test rows, of which some are on the map: ``rows``."""
    drawn = np.isin(split.test, rows)
    neighbors = map_neighbors(Z[drawn])
    if not _labels_tell(dataset, split):
        return Answers(rows, neighbors, None, None, None)
    y = dataset.y[split.test]
    found = predict_classes(model, dataset.X[split.test], Z, few, split.given_labels(dataset.y))
    return Answers(
        rows,
        neighbors,
        Predictions(found.classes[drawn], found.confidence[drawn]),
        confusion(found.classes, y),
        reliability_of(found, y),
    )


def failed_row(dataset: Dataset, run: Run) -> Row:
    """The row of a run that has not succeeded yet."""
    row: Row = {
        "dataset": dataset.name,
        "method": run.method,
        "seed": run.split.seed,
        "labels_per_class": run.split.labels_per_class,
        "n_train": len(run.split.train),
        "n_labeled": len(run.split.labeled),
        "n_test": len(run.split.test),
        "scores": {},
        "seconds": {},
        "peak_rss_mb": 0.0,
        "config_hash": run.config_hash,
        "versions": versions(),
        "status": "failed",
        "error": None,
    }
    if run.split.budget is not None:
        row["budget"] = run.split.budget.to_dict()
    return row


def _save_trace(path: Path, trace: str) -> None:
    """Keep a traceback; where there is none, an earlier attempt's goes."""
    if trace:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(trace, encoding="utf-8")
    else:
        path.unlink(missing_ok=True)
