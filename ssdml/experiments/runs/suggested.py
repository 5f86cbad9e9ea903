"""Splits whose labels are those that ``suggest_labels`` asks for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ssdml.datasets.base import Dataset
from ssdml.datasets.budgets import Budget, mislabel
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.splits import LabelScarceSplit, label_scarce_split
from ssdml.metric.estimator import SSDML
from ssdml.model_selection.labeling import suggest_labels
from ssdml.utils.typing import Array, Ints
from ssdml.utils.validation import UNLABELED

SUGGESTED = "suggested"  # the draw of such a budget


def suggested_splits(
    dataset: Dataset, budgets: Iterable[Budget], seed: int
) -> dict[Budget, LabelScarceSplit]:
    """Draw the split of each budget; smaller budgets label a subset of larger ones.

    Parameters
    ----------
    dataset : Dataset
        Of features; preprocessed, as methods get it.
    budgets : iterable of Budget
        Of labels as suggested; others are ignored.
    seed : int
        Of the held-out rows, and of the models that suggest.
    """
    wanted = [budget for budget in budgets if budget.draw == SUGGESTED]
    found = {}
    for imbalance in {budget.imbalance for budget in wanted}:
        alike = [budget for budget in wanted if budget.imbalance == imbalance]
        split = label_scarce_split(dataset, Budget(None, imbalance=imbalance), seed=seed)
        if isinstance(dataset.X, ImageFiles):
            raise ValueError(
                f"compare: labels are suggested for rows of features; {dataset.name} has images in "
                "files. Draw labels in another way."
            )
        most = max(budget.n_labels or 0 for budget in alike)
        rows = suggested_rows(dataset.X[split.train], dataset.y[split.train], most, seed)
        for budget in alike:
            labeled = np.sort(split.train[rows[: budget.n_labels]])
            noise = np.random.default_rng([seed, 2])
            wrong, wrong_labels = mislabel(dataset.y, labeled, budget.noise, noise)
            found[budget] = replace(
                split,
                labeled=labeled,
                labels_per_class=int(np.bincount(dataset.y[labeled]).max(initial=0)),
                budget=budget,
                wrong=wrong,
                wrong_labels=wrong_labels,
            )
    return found


def suggested_rows(X: Array, truth: Ints, n: int, seed: int) -> Ints:
    """Choose rows to label in batches of one per class, from no label on.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    truth : array of shape (n_samples,), int
        Labels of the chosen rows are read; a row with -1 gets none, and does not count.
    n : int
        Number of labels; at most those of ``truth``.
    seed : int

    Returns
    -------
    rows : ndarray of shape (n,), int
        In the order in which they are labeled.
    """
    batch = max(2, len(np.unique(truth[truth != UNLABELED])))
    n = min(n, int((truth != UNLABELED).sum()))
    labels, asked, rows = np.full(len(X), UNLABELED), np.zeros(len(X), bool), np.empty(0, int)
    model = None
    while len(rows) < n:
        if model is not None:
            model.relabel(labels)
        elif len(np.unique(truth[rows])) > 1:
            model = SSDML(random_state=seed).fit(X, labels)
        new = _unasked(X if model is None else model, asked, batch, len(rows))
        asked[new] = True
        new = new[truth[new] != UNLABELED]
        labels[new] = truth[new]
        rows = np.concatenate([rows, new])
    return rows[:n]


def _unasked(model: SSDML | Array, asked: Ints, batch: int, n_labeled: int) -> Ints:
    """Suggested rows that were not asked for: a model may suggest rows that have no label again."""
    cold = not isinstance(model, SSDML)
    again = int(asked.sum()) - (0 if cold else n_labeled)
    most = len(asked) - (0 if cold else n_labeled)
    suggested = suggest_labels(model, min(batch + again, most))
    return suggested[~asked[suggested]][:batch]
