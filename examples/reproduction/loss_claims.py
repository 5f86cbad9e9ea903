"""The claims of the loss papers on a class-disjoint set: settings searched, then scored, resumable.

Settings are chosen on classes held out of the learned ones, and the scored ones are never looked at
before they are scored.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from reproduction.loss_methods import LossEmbedding
from reproduction.losses import LOSSES

from ssdml.datasets.base import Dataset
from ssdml.experiments.compare import compare
from ssdml.experiments.methods.base import Embedder, Factory
from ssdml.experiments.methods.deep import NETWORKS
from ssdml.experiments.methods.registry import METHODS
from ssdml.experiments.preprocessing import prepared
from ssdml.experiments.runs.results import Row

RATE = 1e-3  # that a base and its terms learn at
RATES = (RATE, 1e-4)  # that are searched besides
CUTS = 3  # of one half of the classes, at most, that settings are chosen on
FEW_LABELS = 5  # a class, of the semi-supervised use
FROM_FEW, FROM_ALL = ", 5 labels", ", propagated"
ANY_RATE = ", any rate"
CHOSEN_BY = ("R@1", "MAP@R")  # the second breaks ties


class Choice(NamedTuple):
    """Setting of a loss: the number of its base, the learning rate, λ of its term."""

    base: float
    learning_rate: float
    weight: float = 0.0


class Trial(NamedTuple):
    """A setting that was tried, and its scores on the classes held out in each cut."""

    choice: Choice
    scores: list[dict[str, float]]

    def mean(self, score: str) -> float:
        """Mean over the cuts."""
        return float(np.mean([cut[score] for cut in self.scores]))


class Half(NamedTuple):
    """A half of the classes that is learned, the seeds that learn it, and what was tried on it."""

    split: Dataset
    seeds: tuple[int, ...]
    trials: dict[str, list[Trial]]

    def best(self, name: str, rates: Sequence[float] = (RATE,)) -> Trial:
        """The trial of a loss with the best mean R@1 over the cuts, among equals MAP@R."""
        tried = [trial for trial in self.trials[name] if trial.choice.learning_rate in rates]
        return max(tried, key=lambda trial: [trial.mean(score) for score in CHOSEN_BY])


class Found(NamedTuple):
    """What came out on a data set."""

    halves: list[Half]
    scored: list[Row]  # learned with all labels; "triplet, any rate" has its best rate
    few: list[Row]  # with five a class: methods are called "triplet, 5 labels", ", propagated"


def tried_and_scored(
    dataset: Dataset,
    out: Path,
    *,
    losses: Sequence[str] = tuple(LOSSES),
    seeds: Sequence[int] = range(5),
    n_steps: int | None = None,
    n_jobs: int = 1,
    any_rate: bool = True,
    few: bool = True,
) -> Found:
    """Choose the setting of every loss, then score it with all labels and, if ``few``, with five.

    Parameters
    ----------
    dataset : Dataset
        Images of 28 x 28 or 32 x 32 pixels are learned as images, others by their 64 principal
        components, which are those of the learned rows.
    out : path
        Folder: ``held-out/``, ``scored/`` and ``few/`` in it hold a ``results.jsonl`` each. What is
        there is not run again.
    losses : sequence of str
        Of :data:`reproduction.losses.LOSSES`, a base before what is added to it.
    seeds : sequence of int
        Of the first weights and the batches; of 20 classes and more, of the half that is learned.
    n_steps : int, optional
        Of each training; None: 200 of images, whose networks begin with random weights, else 100.
    n_jobs : int
        Runs at a time.
    any_rate : bool
        Whether each loss is scored once more with the better of two learning rates.
    few : bool

    Returns
    -------
    found : Found

    Raises
    ------
    RuntimeError
        If a run fails.

    Notes
    -----
    A half that several seeds learn has up to three cuts, those of its first seeds; one that a seed
    has alone has one. As in the papers a base learns at the rate of its terms. It specializes less
    at a lower one, and so whether it needs them shows where each has the rate that is best for it.
    With few labels the setting is that which was chosen with all, at the first rate.
    """
    as_images = dataset.item_shape is not None and dataset.item_shape[:2] in NETWORKS
    shape = dataset.item_shape if as_images else None
    n_steps = n_steps or (200 if as_images else 100)
    rates = RATES if any_rate else (RATE,)
    halves: list[Half] = []
    for split, own in _halves(dataset, seeds):
        split = split if as_images else prepared(split, "components")
        half = Half(split, own, {})
        for name in losses:
            settings = _settings(name, half, rates)
            methods = {_title(name, s): _method(name, s, shape, n_steps) for s in settings}
            cuts = [
                _compared(held_out_classes(split, cut), methods, out / "held-out", [cut], n_jobs)
                for cut in own[:CUTS]
            ]
            half.trials[name] = [
                Trial(setting, [row["scores"] for row in rows])
                for setting, *rows in zip(settings, *cuts, strict=True)
            ]
        halves.append(half)
    scored, rows = [], []
    for half in halves:
        methods = {"input": METHODS["input"]}
        for name in losses:
            methods[name] = _method(name, half.best(name).choice, shape, n_steps)
            if any_rate:
                choice = half.best(name, RATES).choice
                methods[name + ANY_RATE] = _method(name, choice, shape, n_steps)
        scored += _compared(half.split, methods, out / "scored", half.seeds, n_jobs)
    for half in halves if few else ():
        methods = {}
        for name in losses:
            choice = half.best(name).choice
            methods[name + FROM_FEW] = _method(name, choice, shape, n_steps)
            methods[name + FROM_ALL] = _method(name, choice, shape, n_steps, propagated=True)
        rows += _compared(half.split, methods, out / "few", half.seeds, n_jobs, FEW_LABELS)
    return Found(halves, scored, rows)


def _halves(dataset: Dataset, seeds: Sequence[int]) -> list[tuple[Dataset, tuple[int, ...]]]:
    """Splits, each with the seeds whose split it is."""
    found: dict[bytes, tuple[Dataset, list[int]]] = {}
    for seed in seeds:
        split = class_disjoint(dataset, seed)
        assert split.test is not None
        found.setdefault(split.test.tobytes(), (split, []))[1].append(seed)
    return [(split, tuple(own)) for split, own in found.values()]


def _settings(name: str, half: Half, rates: Sequence[float]) -> list[Choice]:
    """What is searched: of a base its number, of a term λ; at each rate."""
    compared = LOSSES[name]
    if compared.term is None:
        return [Choice(base, rate) for rate in rates for base in compared.values]
    bases = [half.best(compared.base, [rate]).choice for rate in rates]
    return [base._replace(weight=weight) for base in bases for weight in compared.values]


def _title(name: str, choice: Choice) -> str:
    return f"{name} [{', '.join(f'{value:g}' for value in choice)}]"


def _method(
    name: str,
    choice: Choice,
    item_shape: tuple[int, ...] | None,
    n_steps: int,
    *,
    propagated: bool = False,
) -> Factory:
    return partial(
        _new,
        loss=name,
        base=choice.base,
        weight=choice.weight,
        learning_rate=choice.learning_rate,
        propagated=propagated,
        item_shape=item_shape,
        n_steps=n_steps,
    )


def _new(random_state: int, n_jobs: int | None, **parameters: object) -> Embedder:
    return LossEmbedding(random_state=random_state, **parameters)  # type: ignore[arg-type]


def _compared(
    split: Dataset,
    methods: Mapping[str, Factory],
    out: Path,
    seeds: Sequence[int],
    n_jobs: int,
    labels: int | None = None,
) -> list[Row]:
    """Rows of a comparison with so many labels a class, or with all; a failed run is an error."""
    assert split.test is not None
    most = int(np.bincount(split.y[~split.test]).max())
    with warnings.catch_warnings():
        # With all labels a class has as many as it has rows.
        warnings.filterwarnings("ignore", message="label_scarce_split: every class")
        rows = compare(
            split,
            methods,
            out=out,
            labels_per_class=[labels or most],
            seeds=seeds,
            features="raw",
            resume=True,
            n_jobs=n_jobs,
            map_rows=0,
        )
    for row in rows:
        if row["status"] != "ok":
            raise RuntimeError(f"{row['dataset']}, {row['method']}: {row['error']}")
    return rows


# Class-disjoint splits of sets that have none of their own: half of the classes is scored.

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
