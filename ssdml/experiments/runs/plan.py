"""The jobs of a comparison and what identifies each: data, split, method, parameters."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ssdml.datasets.base import Dataset
from ssdml.datasets.budgets import Budget
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.splits import LabelScarceSplit, label_scarce_split
from ssdml.experiments.methods.base import Factory

NOT_IN_THE_CONFIG = ("n_jobs", "verbose")  # they do not change a result


@dataclass(frozen=True, eq=False)
class Run:
    """One job: a method on a split. ``config_hash`` identifies all that decides its result."""

    method: str
    factory: Factory
    split: LabelScarceSplit
    config: dict[str, Any]
    map_rows: int = 0  # test rows of which the report's pictures are kept

    @property
    def config_hash(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the configuration."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def title(self) -> str:
        """What the progress bar calls it."""
        return f"{self.method}, {self.split.drawn_by}, seed {self.split.seed}"

    @property
    def file_name(self) -> str:
        """What its files are called."""
        return file_name(f"{self.config['dataset']}-{self.method}-{split_name(self.split)}")


def plan_runs(
    dataset: Dataset,
    methods: Mapping[str, Factory],
    labels_per_class: Sequence[int | Budget] = (5,),
    seeds: Sequence[int] = range(5),
    *,
    features: str = "raw",
    map_rows: int = 0,
) -> list[Run]:
    """The jobs of a comparison: seed by seed, so that what is finished early is paired.

    The data set is as it was read, and `features` the form that methods get it in: computed rows
    differ in their last bits from machine to machine, and would not identify a run.
    """
    for name, given in (("methods", methods), ("labels", labels_per_class), ("seeds", seeds)):
        if not len(given):
            raise ValueError(f"compare: {name} must name at least one; got none.")
    data = _fingerprint(dataset)
    budgets = {n if isinstance(n, Budget) else Budget(n) for n in labels_per_class}
    runs = []
    for seed in dict.fromkeys(seeds):
        for budget in sorted(budgets, key=lambda budget: budget.order):
            split = label_scarce_split(dataset, budget, seed=seed)
            for name, factory in methods.items():
                config = {
                    "dataset": dataset.name,
                    "data": data,
                    "split": split.digest,
                    "labels_per_class": split.labels_per_class,
                    "seed": seed,
                    "method": name,
                    "parameters": _parameters(factory(seed, None)),
                }
                if features != "raw":
                    config["features"] = features
                if split.budget is not None:
                    config["budget"] = split.budget.to_dict()
                drawn = map_rows if seed == seeds[0] else 0
                runs.append(Run(name, factory, split, config, drawn))
    return runs


def _fingerprint(dataset: Dataset) -> str:
    """SHA-256 of the rows, the labels, the test rows and the gallery."""
    digest = hashlib.sha256()
    for part in (dataset.X, dataset.y, dataset.test, dataset.gallery):
        if isinstance(part, ImageFiles):
            digest.update(part.fingerprint())
        elif part is not None:
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _parameters(model: Any) -> dict[str, Any]:
    """Parameters that JSON can hold; of any other, its type; and what a model adds to them."""
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    more = {"fingerprint": model.fingerprint()} if hasattr(model, "fingerprint") else {}
    known = {
        name: _plain(value)
        for name, value in parameters.items()
        if name.split("__")[-1] not in NOT_IN_THE_CONFIG
    }
    return {"class": type(model).__name__} | more | known


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    return value if isinstance(value, int | float | str | None) else type(value).__name__


def split_name(split: LabelScarceSplit) -> str:
    """What the files of a split are called."""
    labels = split.budget or f"{split.labels_per_class}-labels"
    return f"{labels}-seed-{split.seed}"


def file_name(name: str) -> str:
    """The name with whatever a file name may not hold replaced.

    Examples
    --------
    >>> file_name("my data/v2, 5 labels")
    'my-data-v2-5-labels'
    """
    return re.sub(r"[^\w.-]+", "-", name)
