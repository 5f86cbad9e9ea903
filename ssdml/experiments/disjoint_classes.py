"""Class-disjoint splits of sets that have none of their own: half of the classes is scored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ssdml.datasets import Dataset

ROWS_PER_CLASS = 1000
DRAWN_FROM = 20  # classes; of fewer the first half is always the one that is learned
HELD_OUT = 1 / 3  # of the learned classes, to choose settings on


def class_disjoint(dataset: Dataset, seed: int, *, per_class: int = ROWS_PER_CLASS) -> Dataset:
    """Rows of half of the classes to learn from, those of the others as test rows.

    Parameters
    ----------
    dataset : Dataset
        Its own test rows do not count.
    seed : int
        Draws which half is learned, where there are 20 classes or more and the seed is not 0;
        otherwise it is the first half, as in the papers.
    per_class : int
        Rows of each class, at most, always the same ones.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> split = class_disjoint(load_dataset("digits"), 0)
    >>> np.unique(split.y[~split.test]), np.unique(split.y[split.test])
    (array([0, 1, 2, 3, 4]), array([5, 6, 7, 8, 9]))
    """
    order = np.random.default_rng(0).permutation(len(dataset.y))
    grouped = order[np.argsort(dataset.y[order], kind="stable")]
    _, starts = np.unique(dataset.y[grouped], return_index=True)
    rows = np.sort(np.concatenate([part[:per_class] for part in np.split(grouped, starts[1:])]))
    rows = rows[dataset.y[rows] >= 0]
    y = dataset.y[rows]
    classes = np.unique(y)
    if seed and len(classes) >= DRAWN_FROM:
        classes = np.random.default_rng(seed).permutation(classes)
    scored = classes[len(classes) // 2 :]
    return replace(dataset.of_rows(rows), test=np.isin(y, scored), gallery=None)


def held_out_classes(split: Dataset, seed: int) -> Dataset:
    """The learned rows of a split, a third of whose classes are scored, to choose settings by.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> cut = held_out_classes(class_disjoint(load_dataset("digits"), 0), 0)
    >>> cut.name, len(np.unique(cut.y[~cut.test])), len(np.unique(cut.y[cut.test]))
    ('digits, held out', 3, 2)
    """
    assert split.test is not None
    learned = ~split.test
    y = split.y[learned]
    classes = np.random.default_rng(seed).permutation(np.unique(y))
    held = classes[: max(2, round(HELD_OUT * len(classes)))]
    name = f"{split.name}, held out"
    return replace(split.of_rows(learned), name=name, test=np.isin(y, held))
