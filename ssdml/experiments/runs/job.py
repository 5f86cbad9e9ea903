"""One run of a comparison: fit, transform, score; a failure is recorded in the row."""

from __future__ import annotations

import json
import time
import traceback
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils._param_validation import InvalidParameterError

from ssdml.datasets.base import Dataset
from ssdml.datasets.splits import LabelScarceSplit
from ssdml.evaluation.predictions import (
    confusion,
    label_accuracy,
    predict_classes,
    predicts_classes,
    reliability_of,
)
from ssdml.evaluation.scores import evaluate, triplet_purity
from ssdml.experiments.methods.base import Compared, embed
from ssdml.experiments.methods.protocols import RECALL_AT
from ssdml.experiments.runs.details import (
    DETAILS,
    Answers,
    RunDetails,
    map_neighbors,
    map_rows,
    map_sample,
    save_details,
)
from ssdml.experiments.runs.grid import Run
from ssdml.experiments.runs.resources import PeakMemory, versions
from ssdml.experiments.runs.results import FAILED, LEFT_OUT, OK, Row
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

SCORES = ("NMI", "F1", "R@1", "R@2", "R@4", "R@8", "MAP@R")
ERRORS = "errors"
# ValueErrors that are no statement about the labels or samples.
NO_REFUSAL = (np.linalg.LinAlgError, InvalidParameterError, UnicodeError)


class Refusal(Exception):
    """A method cannot learn from these labels, as its ValueError says."""


@dataclass(frozen=True)
class Outcome:
    """Row of a run, details for the report, and the traceback if it failed."""

    run: Run
    row: Row
    details: RunDetails
    trace: str


def run_one(dataset: Dataset, run: Run, *, n_jobs: int | None = None) -> Outcome:
    """Execute one run; if the method raises or exits, the row has the status "failed".

    If ``fit`` raises ValueError, the method cannot learn from these labels, and the status is
    "left out". Nothing is written: workers may have no common disk.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> from ssdml.experiments.runs.grid import make_runs
    >>> from ssdml.experiments import METHODS
    >>> digits = load_dataset("digits")
    >>> (run,) = make_runs(digits, {"pca": METHODS["pca"]}, labels_per_class=[5], seeds=[0])
    >>> row = run_one(digits, run).row
    >>> row["method"], row["status"], row["n_test"]
    ('pca', 'ok', 599)
    """
    row = failed_row(dataset, run)
    details = RunDetails(run.config)
    with warnings.catch_warnings(record=True) as caught, PeakMemory() as memory:
        warnings.simplefilter("always")
        try:
            model, Z, row["seconds"] = _fit_and_transform(dataset, run, n_jobs)
            memory.stop()
            Z_labeled = _embedded_labels(model, dataset, run)
            scores = _scores(model, Z, Z_labeled, dataset, run.split)
            details = _details(model, Z, Z_labeled, dataset, run)
        except (Exception, SystemExit) as failure:  # sys.exit() in a method ends its run only
            is_refusal = isinstance(failure, Refusal)
            cause = failure.__cause__ if is_refusal else failure
            row["error"] = f"{type(cause).__name__}: {cause}"
            row["status"] = LEFT_OUT if is_refusal else FAILED
            trace = traceback.format_exc()
        else:
            row["scores"], row["status"], trace = scores, OK, ""
            if "accuracy" in scores and predicts_classes(model):
                row["predicted"] = True
    row["peak_rss_mb"] = round(memory.megabytes, 1)
    details.warnings.extend(dict.fromkeys(str(warning.message) for warning in caught))
    return Outcome(run, row, details, trace)


def failed_row(dataset: Dataset, run: Run) -> Row:
    """Row of a run that has not succeeded yet."""
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
        "data": run.config["data"],
        "features": run.features,
        "versions": versions(),
        "status": FAILED,
        "error": None,
    }
    if run.split.budget is not None:
        row["budget"] = run.split.budget.to_dict()
    return row


def save_outcome(outcome: Outcome, out: Path) -> None:
    """Write the details; write the traceback of a failure, or remove that of an earlier one."""
    run = outcome.run
    save_details(out / DETAILS / f"{run.config_hash}.npz", outcome.details)
    path = out / ERRORS / f"{run.file_name}.txt"
    if outcome.trace:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(outcome.trace, encoding="utf-8")
    else:
        path.unlink(missing_ok=True)


def _fit_and_transform(
    dataset: Dataset, run: Run, n_jobs: int | None
) -> tuple[Compared, Array, dict[str, float]]:
    """Fit on the training samples and embed the test samples; seconds of both.

    Without ``transform`` the method is timed in ``predict``.
    """
    X, y = dataset.X[run.split.train], run.split.partial_labels(dataset.y)
    X_test = dataset.X[run.split.test]
    model: Any = run.factory(run.split.seed, n_jobs)
    start = time.perf_counter()
    try:
        model.fit(X, y)
    except ValueError as error:
        if isinstance(error, NO_REFUSAL):
            raise
        raise Refusal from error
    fitted = time.perf_counter()
    if predicts_classes(model) and np.isin(UNLABELED, getattr(model, "classes_", [])):
        raise ValueError(
            f"{type(model).__name__} takes {UNLABELED}, which marks samples without a label, for a "
            "class. Leave these samples out in fit."
        )
    Z = embed(model, X_test)
    if not hasattr(model, "transform"):
        model.predict(X_test)
    transformed = time.perf_counter()
    return model, Z, {"fit": fitted - start, "transform": transformed - fitted}


def _scores(
    model: Compared, Z: Array, Z_labeled: Array | None, dataset: Dataset, split: LabelScarceSplit
) -> dict[str, float]:
    """Scores of the embedded test samples, in percent."""
    y = dataset.y[split.test]
    scores = _embedding_scores(Z, y, dataset, split) if hasattr(model, "transform") else {}
    if Z_labeled is not None and _has_labeled_classes(dataset, split):
        labels = split.given_labels(dataset.y)
        X_test = dataset.X[split.test]
        scores["accuracy"] = label_accuracy(model, X_test, Z, y, Z_labeled, labels)
    if not scores:
        raise ValueError(
            "a method without transform has no score, since no class of the test samples is labeled"
        )
    undefined = [name for name, score in scores.items() if not np.isfinite(score)]
    if undefined:
        raise ValueError(
            f"scores must be finite; got {scores[undefined[0]]} for {', '.join(undefined)}. R@K "
            "and MAP@R need two test samples of a class."
        )
    return scores


def _embedding_scores(
    Z: Array, y: Ints, dataset: Dataset, split: LabelScarceSplit
) -> dict[str, float]:
    ks = sorted({1, 2, 4, 8, *RECALL_AT.get(dataset.name, ())})
    queries, gallery = np.ones(len(y), bool), None
    if dataset.gallery is not None:
        queries = ~dataset.gallery[split.test]
        gallery = (Z[~queries], y[~queries])
    scores = evaluate(Z[queries], y[queries], ks, split.seed, gallery=gallery)
    others = {name: scores[name] for name in scores if name.startswith("R@")}
    return {name: scores[name] for name in SCORES} | others


def _embedded_labels(model: Compared, dataset: Dataset, run: Run) -> Array | None:
    """Embed the labeled samples needed: all for the accuracy, else those on the map, or none."""
    rows = run.split.labeled
    if not _has_labeled_classes(dataset, run.split):
        if not run.map_rows:
            return None
        rows = map_rows(run.split, run.map_rows)[1]
    return embed(model, dataset.X[rows])


def _has_labeled_classes(dataset: Dataset, split: LabelScarceSplit) -> bool:
    """Whether a test sample is of a labeled class; with disjoint classes none is."""
    return bool(np.isin(dataset.y[split.test], dataset.y[split.labeled]).any())


def _details(
    model: Any, Z: Array, Z_labeled: Array | None, dataset: Dataset, run: Run
) -> RunDetails:
    split, triplets = run.split, getattr(model, "triplets_", None)
    purity = None if triplets is None else triplet_purity(triplets, dataset.y[split.train])
    details = RunDetails(run.config, purity=purity)
    if Z_labeled is None or not run.map_rows:
        return details
    test, labeled = map_rows(split, run.map_rows)
    on_map = np.isin(split.test, test)
    stars = Z_labeled
    if len(Z_labeled) > len(labeled):
        stars = Z_labeled[np.isin(split.labeled, labeled)]
    answers = Answers(np.concatenate([test, labeled]), map_neighbors(Z[on_map]), None, None, None)
    if _has_labeled_classes(dataset, split):
        y_test, labels = dataset.y[split.test], split.given_labels(dataset.y)
        found = predict_classes(model, dataset.X[split.test], Z, Z_labeled, labels)
        answers = replace(
            answers,
            predictions=found._replace(
                classes=found.classes[on_map], confidence=found.confidence[on_map]
            ),
            confusion=confusion(found.classes, y_test),
            reliability=reliability_of(found, y_test),
        )
    return replace(
        details,
        class_names=list(dataset.class_names),
        history=_plain_history(model),
        sample=map_sample(Z[on_map], stars, dataset.y[test], dataset.y[labeled]),
        answers=answers,
    )


def _plain_history(model: Any) -> list[dict[str, Any]]:
    """``history_`` of a method as JSON; empty unless it is a list of dicts, as ours are."""
    history = getattr(model, "history_", None)
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        return []
    return json.loads(json.dumps(history, default=_plain))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
