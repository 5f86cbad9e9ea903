"""Compare losses on disjoint classes: search their settings on held-out classes, then score them.

The test classes are never used in the search. Finished runs are not repeated.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from reproduction.loss_embedding import LossEmbedding
from reproduction.losses import COMPARED, LOSSES, with_bases
from ssdml.datasets.base import Dataset
from ssdml.experiments.compare import compare
from ssdml.experiments.methods.base import Compared, Factory
from ssdml.experiments.methods.deep import NETWORKS
from ssdml.experiments.methods.registry import METHODS
from ssdml.experiments.preprocessing import preprocess
from ssdml.experiments.runs.folder import Progress
from ssdml.experiments.runs.results import Row

RATE = 1e-3  # one for base and term, as in the papers
RATES = (RATE, 1e-4)
MAX_CUTS = 3  # held-out cuts per half of the classes
FEW_LABELS = 5  # per class, in the semi-supervised runs
FROM_FEW, FROM_ALL = ", 5 labels", ", propagated"
ANY_RATE = ", any rate"
MAX_PER_CLASS = 1000
MIN_DRAWN = 20  # classes from which on the training half is drawn
HELD_OUT = 1 / 3  # of the training classes
CHOSEN_BY = ("R@1", "MAP@R")  # MAP@R breaks ties


class Choice(NamedTuple):
    """Setting of a loss: number of its base, learning rate, weight λ of its term."""

    base: float
    learning_rate: float
    weight: float = 0.0


class Trial(NamedTuple):
    """A setting and its scores on the held-out classes of each cut."""

    choice: Choice
    scores: list[dict[str, float]]

    def mean(self, score: str) -> float:
        """Mean over the cuts."""
        return float(np.mean([cut[score] for cut in self.scores]))


class Half(NamedTuple):
    """Half of the classes as training set, the seeds that use it, and the trials on it."""

    split: Dataset
    seeds: tuple[int, ...]
    trials: dict[str, list[Trial]]

    def best(self, name: str, rates: Sequence[float] = (RATE,)) -> Trial:
        """Return the trial of a loss with the best mean R@1 over the cuts."""
        tried = [trial for trial in self.trials[name] if trial.choice.learning_rate in rates]
        return max(tried, key=lambda trial: [trial.mean(score) for score in CHOSEN_BY])


class Comparison(NamedTuple):
    """Result of a comparison of losses on a data set."""

    halves: list[Half]
    scored: list[Row]  # with all labels; "triplet, any rate" has the better rate
    few: list[Row]  # with 5 labels per class: "triplet, 5 labels", "triplet, propagated"


def compare_losses(
    dataset: Dataset,
    out: Path,
    *,
    losses: Sequence[str] = COMPARED,
    seeds: Sequence[int] = range(5),
    n_steps: int | None = None,
    n_jobs: int = 1,
    any_rate: bool = True,
    few: bool = True,
    progress: Progress | None = None,
) -> Comparison:
    """Choose the setting of every loss, then score it with all labels and with five per class.

    Parameters
    ----------
    dataset : Dataset
        Images of 28 x 28 or 32 x 32 pixels stay images; other samples are reduced to 64 principal
        components of the training samples.
    out : path
        Folder with the results in ``held-out/``, ``scored/`` and ``few/``.
    losses : sequence of str
        Names in :data:`reproduction.losses.LOSSES`; the base of a term is compared too.
    seeds : sequence of int
        Of the initial weights and the batches, and of the training classes if there are 20 or more.
    n_steps : int, optional
        Training steps; None: 200 for images, whose networks are not pretrained, else 100.
    n_jobs : int
        Runs at a time.
    any_rate : bool
        Whether each loss is also scored with the better of two learning rates.
    few : bool
        Whether each loss is also scored with 5 labels per class.
    progress : callable, optional
        As :func:`ssdml.experiments.compare` takes it.

    Returns
    -------
    comparison : Comparison

    Raises
    ------
    ValueError
        If a loss is unknown.
    RuntimeError
        If a run fails.

    Notes
    -----
    Settings are chosen on up to three cuts per half of the classes, one per seed that uses it. As
    in the papers a base has the rate of its terms; ``any_rate`` shows whether a term still helps if
    both have their best rate. With few labels the setting is that chosen with all labels.
    """
    losses = with_bases(losses)
    as_images = dataset.item_shape is not None and dataset.item_shape[:2] in NETWORKS
    shape = dataset.item_shape if as_images else None
    n_steps = n_steps or (200 if as_images else 100)
    rates = RATES if any_rate else (RATE,)
    compared = partial(_compared, n_jobs=n_jobs, progress=progress)
    halves: list[Half] = []
    for split, own in _halves(dataset, seeds):
        split = split if as_images else preprocess(split, "components")
        half = Half(split, own, {})
        for name in losses:
            settings = _settings(name, half, rates)
            methods = {_title(name, s): _method(name, s, shape, n_steps) for s in settings}
            cuts = [
                compared(held_out_classes(split, cut), methods, out / "held-out", [cut])
                for cut in own[:MAX_CUTS]
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
        scored += compared(half.split, methods, out / "scored", half.seeds)
    for half in halves if few else ():
        methods = {}
        for name in losses:
            choice = half.best(name).choice
            methods[name + FROM_FEW] = _method(name, choice, shape, n_steps)
            methods[name + FROM_ALL] = _method(name, choice, shape, n_steps, propagated=True)
        rows += compared(half.split, methods, out / "few", half.seeds, FEW_LABELS)
    return Comparison(halves, scored, rows)


def _halves(dataset: Dataset, seeds: Sequence[int]) -> list[tuple[Dataset, tuple[int, ...]]]:
    """Distinct splits with their seeds."""
    found: dict[bytes, tuple[Dataset, list[int]]] = {}
    for seed in seeds:
        split = class_disjoint(dataset, seed)
        assert split.test is not None
        found.setdefault(split.test.tobytes(), (split, []))[1].append(seed)
    several = len(found) > 1  # a folder of results takes one data set of a name
    return [
        (replace(split, name=f"{split.name}, half {own[0]}") if several else split, tuple(own))
        for split, own in found.values()
    ]


def _settings(name: str, half: Half, rates: Sequence[float]) -> list[Choice]:
    """Settings to search: the number of a base, or λ of a term on the chosen base, per rate."""
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


def _new(random_state: int, n_jobs: int | None, **parameters: object) -> Compared:
    return LossEmbedding(random_state=random_state, **parameters)  # type: ignore[arg-type]


def _compared(
    split: Dataset,
    methods: Mapping[str, Factory],
    out: Path,
    seeds: Sequence[int],
    labels: int | None = None,
    *,
    n_jobs: int,
    progress: Progress | None,
) -> list[Row]:
    """Compare with some labels per class, or with all."""
    assert split.test is not None
    most = int(np.bincount(split.y[~split.test]).max())
    with warnings.catch_warnings():
        # "All labels" is the size of the largest class.
        warnings.filterwarnings("ignore", message="label_scarce_split: every class")
        labels = labels or most
        return compare_all(split, methods, out, seeds, labels, n_jobs=n_jobs, progress=progress)


def compare_all(
    split: Dataset,
    methods: Mapping[str, Factory],
    out: Path,
    seeds: Sequence[int],
    labels_per_class: int,
    *,
    n_jobs: int = 1,
    progress: Progress | None = None,
) -> list[Row]:
    """Run or resume a comparison on unchanged features; raise RuntimeError if a run failed."""
    rows = compare(
        split,
        methods,
        out=out,
        labels_per_class=[labels_per_class],
        seeds=seeds,
        features="raw",
        resume=True,
        n_jobs=n_jobs,
        map_rows=0,
        progress=progress,
    )
    for row in rows:
        if row["status"] != "ok":
            raise RuntimeError(
                f"{row['dataset']}, {row['method']}: {row['error']}. The traceback is in "
                f"{out / 'errors'}."
            )
    return rows


def class_disjoint(dataset: Dataset, seed: int, *, per_class: int = MAX_PER_CLASS) -> Dataset:
    """Split a data set by class: half of the classes for training, the others for testing.

    Parameters
    ----------
    dataset : Dataset
        Its own split is ignored.
    seed : int
        Draws the training classes if there are 20 classes or more and the seed is not 0; otherwise
        they are the first half, as in the papers.
    per_class : int
        Most samples per class, the same for every seed.

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
    if seed and len(classes) >= MIN_DRAWN:
        classes = np.random.default_rng(seed).permutation(classes)
    scored = classes[len(classes) // 2 :]
    return replace(dataset.of_rows(rows), test=np.isin(y, scored), gallery=None)


def held_out_classes(split: Dataset, seed: int) -> Dataset:
    """Split the training samples again: hold out a third of their classes.

    Examples
    --------
    >>> from ssdml.datasets import load_dataset
    >>> cut = held_out_classes(class_disjoint(load_dataset("digits"), 0), 0)
    >>> cut.name, len(np.unique(cut.y[~cut.test])), len(np.unique(cut.y[cut.test]))
    ('digits, held out 0', 3, 2)
    """
    assert split.test is not None
    learned = ~split.test
    y = split.y[learned]
    classes = np.random.default_rng(seed).permutation(np.unique(y))
    held = classes[: max(2, round(HELD_OUT * len(classes)))]
    name = f"{split.name}, held out {seed}"
    return replace(split.of_rows(learned), name=name, test=np.isin(y, held))
