"""Label-scarce splits: training, labeled and test rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.datasets.base import Dataset
from ssdml.datasets.budgets import Budget, draw_labeled, mislabel, thin_classes
from ssdml.utils.files import as_path, parse_json, read_regular
from ssdml.utils.persistence import atomic_write
from ssdml.utils.typing import Ints
from ssdml.utils.validation import UNLABELED, as_array, check_count, warn, whole_labels

SCHEMA = 1
WAY_OUT = "Recreate the split from its seed."
INDEX_SETS: tuple[str, ...] = ("train", "test", "labeled")
WRONG = ("wrong", "wrong_labels")  # saved with a budget only, which keeps older digests valid


@dataclass(frozen=True, eq=False)
class LabelScarceSplit:
    """Training rows, the labeled ones among them, and test rows.

    Attributes
    ----------
    train, test, labeled : ndarray of int64
        Sorted row indices; ``labeled`` is a subset of ``train``.
    seed, labels_per_class : int
        With a budget that does not count labels per class: the maximum over the classes.
    budget : Budget, optional
        Label budget; None: `labels_per_class`.
    wrong, wrong_labels : ndarray of int64
        Labeled rows with a wrong label, and these labels.
    """

    train: Ints
    test: Ints
    labeled: Ints
    seed: int
    labels_per_class: int
    budget: Budget | None = None
    wrong: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    wrong_labels: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def drawn_by(self) -> Budget:
        """The budget; that of `labels_per_class` if None."""
        return self.budget or Budget(self.labels_per_class)

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        content = {"schema": SCHEMA, **self._content()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def partial_labels(self, y: npt.ArrayLike) -> Ints:
        """Return the labels of the training rows, -1 where unlabeled.

        Parameters
        ----------
        y : array-like of shape (n,)
            Integer codes of the whole data set.

        Returns
        -------
        y_train : ndarray of shape (len(train),)
        """
        labels, who = np.full(len(self.train), UNLABELED), "partial_labels"
        labels[np.searchsorted(self.train, self.labeled)] = self._given(y, who)
        return labels

    def given_labels(self, y: npt.ArrayLike) -> Ints:
        """Return the labels of the labeled rows, including the wrong ones.

        Parameters
        ----------
        y : array-like of shape (n,)
            Integer codes of the whole data set.

        Returns
        -------
        y_labeled : ndarray of shape (len(labeled),)
        """
        return self._given(y, "given_labels")

    def _given(self, y: npt.ArrayLike, who: str) -> Ints:
        found = as_array(y, who, "y")
        largest = max(int(rows.max(initial=-1)) for rows in (self.train, self.test))
        if found.ndim != 1 or len(found) <= largest:
            raise ValueError(
                f"{who}: y must hold a label for every row of the data set, more than "
                f"{largest}; got shape {found.shape}. Is this the split of another data set?"
            )
        labels = whole_labels(found, len(found), who)[self.labeled]
        labels[np.searchsorted(self.labeled, self.wrong)] = self.wrong_labels
        return labels

    def save(self, path: str | Path) -> None:
        """Write the split to a JSON file, with its digest."""
        content = {"schema": SCHEMA, "sha256": self.digest, **self._content()}
        with atomic_write(as_path(path)) as unfinished:
            unfinished.write_text(json.dumps(content) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> LabelScarceSplit:
        """Read a split that `save` wrote; reject a modified file."""
        path = as_path(path)
        try:
            content = parse_json(read_regular(path))
            schema, digest = content.pop("schema"), content.pop("sha256")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not a label-scarce split ({error!r}). {WAY_OUT}") from error
        if schema != SCHEMA:
            raise ValueError(f"{path}: schema must be {SCHEMA}; got {schema!r}.")
        split = cls._from_content(content, path)
        if split.digest != digest:
            raise ValueError(
                f"{path}: the content does not match its sha256 {digest}; the file was changed "
                f"after it was saved. {WAY_OUT}"
            )
        return split

    @classmethod
    def _from_content(cls, content: dict[str, Any], path: Path) -> LabelScarceSplit:
        try:
            names = [*INDEX_SETS, *(name for name in WRONG if name in content)]
            rows = {name: np.asarray(content[name], np.int64) for name in names}
            budget = content.pop("budget", None)
            split = cls(**{**content, **rows})
            return split if budget is None else replace(split, budget=Budget(**budget))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path}: not a label-scarce split ({error!r}). {WAY_OUT}") from error

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {"seed": self.seed, "labels_per_class": self.labels_per_class}
        names = INDEX_SETS
        if self.budget is not None:
            content["budget"] = self.budget.to_dict()
            names += WRONG
        return content | {name: getattr(self, name).tolist() for name in names}


def label_scarce_split(
    dataset: Dataset, labels_per_class: int | Budget, *, seed: int
) -> LabelScarceSplit:
    """Split a data set into training rows, few of them labeled, and test rows.

    Parameters
    ----------
    dataset : Dataset
        Its standard test rows are kept; without any, a third of every class is held out.
    labels_per_class : int or Budget
        Labels per class, or a `Budget`: labels in total, all labels, noise, imbalance.
    seed : int
        Random seed.

    Returns
    -------
    split : LabelScarceSplit

    Warns
    -----
    UserWarning
        If there are fewer training rows than labels; all are labeled.

    Notes
    -----
    For one seed, smaller budgets label a subset of larger ones, and the held-out rows do not depend
    on the budget. Rows without a label in the data set are never scored, and are training rows
    unless they are standard test rows. If the test classes differ from the training classes, only
    the latter are labeled. Rows dropped by an imbalance are in no part of the split.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> split = label_scarce_split(load_dataset("digits"), 5, seed=0)
    >>> len(split.train), len(split.test), len(split.labeled)
    (1198, 599, 50)
    >>> budget = Budget(50, "natural", noise=0.2)
    >>> noisy = label_scarce_split(load_dataset("digits"), budget, seed=0)
    >>> len(noisy.labeled), len(noisy.wrong)
    (50, 10)
    """
    who = "label_scarce_split"
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"{who}: dataset must be a Dataset; got {type(dataset).__name__}. Pass "
            "ssdml.datasets.load_dataset(name_or_path)."
        )
    check_count(seed, "seed", who, least=0)
    budget = _as_budget(labels_per_class)
    if budget.draw == "suggested":
        raise ValueError(
            "label_scarce_split: draw must be 'class', 'balanced' or 'natural'; got 'suggested'. "
            "Pass such budgets to compare, which fits models to suggest labels."
        )
    order = np.random.default_rng(seed).permutation(len(dataset.y))
    by_class = _by_class(order, dataset.y, len(dataset.class_names))
    held_out = _held_out(by_class, len(order)) if dataset.test is None else dataset.test
    _check_labeled(dataset, held_out)
    candidates = [rows[~held_out[rows]] for rows in by_class]
    expected = _expected(by_class, candidates)
    gone = np.zeros(len(order), dtype=bool)
    if budget.imbalance > 1:
        gone[np.concatenate(candidates)] = True
        candidates = thin_classes(candidates, budget.imbalance, np.random.default_rng([seed, 1]))
        gone[np.concatenate(candidates)] = False
    _warn_of_small_classes(dataset, [(c, len(candidates[c])) for c in expected], budget)
    labeled = np.sort(draw_labeled(budget, candidates, order))
    wrong = mislabel(dataset.y, labeled, budget.noise, np.random.default_rng([seed, 2]))
    largest = int(np.bincount(dataset.y[labeled]).max(initial=0))
    return LabelScarceSplit(
        train=np.flatnonzero(~held_out & ~gone),
        test=np.flatnonzero(held_out & (dataset.y != UNLABELED)),
        labeled=labeled,
        seed=int(seed),
        labels_per_class=int(budget.n_labels or 0) if budget.is_plain else largest,
        budget=None if budget.is_plain else budget,
        wrong=wrong[0],
        wrong_labels=wrong[1],
    )


def _check_labeled(dataset: Dataset, held_out: npt.NDArray[np.bool_]) -> None:
    """Raise unless there are labels to learn from and others to score."""
    labeled = dataset.y != UNLABELED
    for what, rows in (("training", ~held_out), ("test", held_out)):
        if not (rows & labeled).any():
            way_out = "Label some of them."
            if dataset.test is None:
                way_out = "Label two rows of a class."
            elif not rows.any():
                way_out = "Change its test, or leave it out: a third of each class is held out."
            raise ValueError(
                f"label_scarce_split: {dataset.name!r} must have {what} rows with labels; got "
                f"none. {way_out}"
            )


def _as_budget(labels: int | Budget) -> Budget:
    if isinstance(labels, Budget):
        return labels
    check_count(labels, "labels_per_class", "label_scarce_split")
    return Budget(labels)


def _by_class(order: Ints, y: Ints, n_classes: int) -> list[Ints]:
    """Group the rows by class, in the given order."""
    grouped = order[np.argsort(y[order], kind="stable")]
    return np.split(grouped, np.searchsorted(y[grouped], np.arange(n_classes + 1)))[1:-1]


def _held_out(by_class: list[Ints], n_rows: int) -> npt.NDArray[np.bool_]:
    """Hold out the last third of every class, but not all of its rows."""
    test = np.zeros(n_rows, dtype=bool)
    for rows in by_class:
        test[rows[len(rows) - round(len(rows) / 3) :]] = True
    return test


def _expected(by_class: list[Ints], candidates: list[Ints]) -> list[int]:
    """Return the classes that need labels: all, or the training classes if test ones differ."""
    both = (0 < len(few) < len(rows) for few, rows in zip(candidates, by_class, strict=True))
    every = range(len(candidates))
    return list(every) if any(both) else [c for c in every if len(candidates[c])]


def _warn_of_small_classes(dataset: Dataset, sizes: list[tuple[int, int]], budget: Budget) -> None:
    if budget.n_labels is None:
        return
    if budget.draw != "class":
        n_rows = sum(size for _, size in sizes)
        if n_rows < budget.n_labels:
            warn(
                f"label_scarce_split: {dataset.name!r} should have {budget.n_labels} training rows "
                f"for {budget.amount}; got {n_rows}. All are labeled."
            )
        return
    wanted = budget.n_labels
    small = [f"{dataset.class_names[c]!r} ({size})" for c, size in sizes if size < wanted]
    if small:
        shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
        warn(
            f"label_scarce_split: every class should have labels_per_class={wanted} training rows; "
            f"got fewer in {shown}. All of their rows are labeled."
        )
