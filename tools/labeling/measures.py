"""One row of each measurement."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.metrics import f1_score, roc_auc_score

from ssdml import SSDML, suggest_labels
from ssdml.experiments.labeling.labels import expected_accuracy
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED
from tools.labeling.problems import clutter, other_intents, problem
from tools.robust.cells import Problem

Row = dict[str, Any]
START, LABELS = 2, 5  # per class: at first, and in all
ADDED = 10  # labels of a second run
INSTALL = "pip install scikit-activeml"


def at_random(model: SSDML, n: int, rng: np.random.Generator) -> Ints:
    """Rows as they fall."""
    return rng.choice(_free(model), n, replace=False)


def suggested(model: SSDML, n: int, rng: np.random.Generator) -> Ints:
    """Ours."""
    return suggest_labels(model, n)


def by_margin(model: SSDML, n: int, rng: np.random.Generator) -> Ints:
    """Rows with the least margin between the two likeliest classes, by scikit-activeml."""
    from skactiveml.pool import uncertainty_scores

    free = _free(model)
    scores = uncertainty_scores(model.label_distributions_[free], method="margin_sampling")
    return free[np.argsort(-scores, kind="stable")[:n]]


def typiclust(model: SSDML, n: int, rng: np.random.Generator) -> Ints:
    """Typical rows of clusters without a label, by scikit-activeml, on the rows of the fit."""
    from skactiveml.pool import TypiClust

    form = model.kept_form()
    assert form is not None
    y = np.full(len(form.rows), np.nan)
    y[model.labeled_rows_] = np.searchsorted(model.classes_, model.transduction_)[
        model.labeled_rows_
    ]
    query = TypiClust(random_state=int(rng.integers(2**31)))
    return np.asarray(query.query(form.rows, y, batch_size=n))


STRATEGIES: Mapping[str, Callable[[SSDML, int, np.random.Generator], Ints]] = {
    "random": at_random,
    "suggested": suggested,
    "typiclust": typiclust,
    "margin": by_margin,
}


def _free(model: SSDML) -> Ints:
    assert model.labeled_rows_ is not None
    return np.setdiff1d(np.arange(len(model.transduction_)), model.labeled_rows_)


def suggest(name: str, seed: int) -> list[Row]:
    """Accuracy with labels that are chosen in rounds of one per class, from two per class to five.

    Every strategy starts with the same labels, and the classes are learned by ``SSDML()``.
    """
    given = problem(name, START, seed)
    first, rows = _fit(given, seed), []
    for strategy, choose in STRATEGIES.items():
        y, rng = given.y.copy(), np.random.default_rng([seed, 9])
        n_classes = len(np.unique(given.truth))
        model = copy.deepcopy(first)
        while (n := min(n_classes, LABELS * n_classes - int((y != UNLABELED).sum()))) > 0:
            chosen = choose(model, n, rng)
            y[chosen] = given.truth[chosen]
            model.relabel(y)
        rows.append({"strategy": strategy} | _accuracies(model, given, y))
    return rows


def labeled(name: str, seed: int) -> list[Row]:
    """Expected against true accuracy of a fit, and a second run with ten more labels."""
    given = problem(name, 10 if name == "mnist" else LABELS, seed)
    model, fit_seconds = _timed(_fit, given, seed)
    new = given.y == UNLABELED
    expected = expected_accuracy(model, new)
    assert expected is not None
    row = {
        "expected": _percent(expected.estimate),
        "true": _percent((model.transduction_ == given.truth)[new].mean()),
    }
    y, rng = given.y.copy(), np.random.default_rng([seed, 10])
    added = rng.choice(np.flatnonzero(new), ADDED, replace=False)
    y[added] = given.truth[added]
    twin = copy.deepcopy(model)
    _, relabel_seconds = _timed(model.relabel, y)
    fresh, again_seconds = _timed(_fit, given._replace(y=y), seed)
    _, twin_seconds = _timed(twin.relabel, y)
    row |= {
        "fit_seconds": min(fit_seconds, again_seconds),
        "relabel_seconds": min(relabel_seconds, twin_seconds),
    }
    row["relabeled"] = _accuracies(model, given, y)["accuracy"]
    row["fresh"] = _accuracies(fresh, given, y)["accuracy"]
    return [row]


def novelty(name: str, seed: int) -> list[Row]:
    """How well novelty scores tell rows of no class with a label, in percent."""
    if name == "banking77_oos":
        rows = []
        for among in (False, True):
            given, others = other_intents(LABELS, seed, among=among)
            model = _fit(given, seed)
            scores = model.novelty_score(given.X_test), model.novelty_score(others)
            row = {"strategy": "among the unlabeled" if among else "new rows"} | _novelty(*scores)
            if among:
                rows_, truth = model.novelty_score(), given.truth
                new = given.y == UNLABELED
                known = new & (truth != UNLABELED)
                row["training AUROC"] = _auroc(rows_[known], rows_[new & (truth == UNLABELED)])
            row["accuracy"] = _accuracies(model, given, given.y)["accuracy"]
            rows.append(row)
        return rows
    if name == "caltech101":
        given, others = clutter(LABELS, seed)
        model = _fit(given, seed)
        return [_novelty(model.novelty_score(given.X_test), model.novelty_score(others))]
    given = problem(name, LABELS, seed, some_missing=True)
    classes = np.unique(given.y[given.y != UNLABELED])
    model = _fit(given, seed)
    known = np.isin(given.y_test, classes)
    scores = model.novelty_score(given.X_test)
    row = _novelty(scores[known], scores[~known])
    kept = np.isin(given.truth, classes)
    alone = SSDML(random_state=seed, n_jobs=1).fit(given.X[kept], given.y[kept])
    for title, fitted in (("accuracy", model), ("accuracy without them", alone)):
        right = fitted.predict(given.X_test[known]) == given.y_test[known]
        row[title] = _percent(right.mean())
    return [row]


def _novelty(known: Array, novel: Array) -> Row:
    truth = np.repeat([0, 1], [len(known), len(novel)])
    found = np.concatenate([known, novel]) >= 0.5
    return {"AUROC": _auroc(known, novel), "F1": _percent(f1_score(truth, found))}


def _auroc(known: Array, novel: Array) -> float:
    truth = np.repeat([0, 1], [len(known), len(novel)])
    return _percent(roc_auc_score(truth, np.concatenate([known, novel])))


def _fit(given: Problem, seed: int) -> SSDML:
    return SSDML(random_state=seed, n_jobs=1).fit(given.X, given.y)


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Result, and CPU seconds: the machine may be busy."""
    start = time.process_time()
    result = function(*arguments)
    return result, round(time.process_time() - start, 3)


def _accuracies(model: SSDML, given: Problem, y: Ints) -> Row:
    """Accuracy on test rows, and on training rows that still have no label."""
    rest = (y == UNLABELED) & (given.truth != UNLABELED)
    return {
        "accuracy": _percent((model.predict(given.X_test) == given.y_test).mean()),
        "unlabeled": _percent((model.transduction_ == given.truth)[rest].mean()),
    }


def _percent(share: float) -> float:
    return round(100 * float(share), 2)
