"""The runs of a comparison: methods x budgets x seeds, each with its split and configuration."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import PurePath
from typing import Any

import numpy as np

from ssdml.datasets.base import Dataset, is_unicode
from ssdml.datasets.budgets import Budget
from ssdml.datasets.image_files import ImageFiles
from ssdml.datasets.splits import LabelScarceSplit, label_scarce_split
from ssdml.experiments.methods.base import Factory
from ssdml.experiments.runs.suggested import suggested_splits

NOT_IN_THE_CONFIG = ("n_jobs", "verbose")  # they do not change a result
FILE = "weights"  # a parameter that is a path


@dataclass(frozen=True, eq=False)
class Run:
    """One method on one split; ``config`` holds all that decides the result."""

    method: str
    factory: Factory
    split: LabelScarceSplit
    config: dict[str, Any]
    map_rows: int = 0  # test samples kept for the report's map

    @cached_property
    def config_hash(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the configuration."""
        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def features(self) -> str:
        """Preprocessing of the data set."""
        return str(self.config.get("features", "raw"))

    @property
    def title(self) -> str:
        """Method, budget and seed, for the progress bar."""
        return f"{self.method}, {self.split.drawn_by}, seed {self.split.seed}"

    @property
    def file_name(self) -> str:
        """Stem of the file of its traceback."""
        return safe_name(f"{self.config['dataset']}-{self.method}-{split_label(self.split)}")


def make_runs(
    dataset: Dataset,
    methods: Mapping[str, Factory],
    labels_per_class: Sequence[int | Budget] = (5,),
    seeds: Sequence[int] = range(5),
    *,
    features: str = "raw",
    map_rows: int = 0,
    prepared: Dataset | None = None,
) -> list[Run]:
    """List the runs of a comparison, seed by seed, so that early results are paired.

    ``dataset`` is as loaded, and ``features`` names its preprocessing: preprocessed arrays differ
    in their last bits across machines and would not identify a run. ``prepared`` is preprocessed,
    for labels as suggested.
    """
    for name, given in (("methods", methods), ("labels", labels_per_class), ("seeds", seeds)):
        if not len(given):
            raise ValueError(f"compare: {name} must name at least one; got none.")
    wrong = [name for name in methods if not is_unicode(name)]
    if wrong:
        raise ValueError(f"compare: names of methods must be text in UTF-8; got {wrong[0]!a}.")
    data = _fingerprint(dataset)
    budgets = {n if isinstance(n, Budget) else Budget(n) for n in labels_per_class}
    runs = []
    for seed in dict.fromkeys(seeds):
        suggested = suggested_splits(dataset if prepared is None else prepared, budgets, seed)
        for budget in sorted(budgets, key=lambda budget: budget.order):
            split = suggested.get(budget) or label_scarce_split(dataset, budget, seed=seed)
            digest = split.digest  # of a long list: not once per method
            for name, factory in methods.items():
                config = {
                    "dataset": dataset.name,
                    "data": data,
                    "split": digest,
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
    """SHA-256 of the samples, the labels, the test mask and the gallery mask."""
    digest = hashlib.sha256()
    for part in (dataset.X, dataset.y, dataset.test, dataset.gallery):
        if isinstance(part, ImageFiles):
            digest.update(part.fingerprint())
        elif part is not None:
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _parameters(model: Any) -> dict[str, Any]:
    """Class, parameters and fingerprint of a model as JSON; other objects by their type."""
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    more = {"fingerprint": model.fingerprint()} if hasattr(model, "fingerprint") else {}
    known = {
        name: _file_name(value) if name.split("__")[-1] == FILE else _plain(value)
        for name, value in parameters.items()
        if name.split("__")[-1] not in NOT_IN_THE_CONFIG
    }
    return {"class": type(model).__name__} | more | known


def _file_name(path: Any) -> str | None:
    """Name of a file that the fingerprint identifies: its folder is of this machine."""
    return None if path is None else PurePath(path).name


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, partial) or (callable(value) and hasattr(value, "__name__")):
        from ssdml.deep.checkpoints import describe  # loads torch

        return describe(value)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    return value if isinstance(value, int | float | str | None) else type(value).__name__


def split_label(split: LabelScarceSplit) -> str:
    """Budget and seed of a split, for file names."""
    labels = split.budget or f"{split.labels_per_class}-labels"
    return f"{labels}-seed-{split.seed}"


def safe_name(name: str) -> str:
    """Replace what a file name must not contain.

    Examples
    --------
    >>> safe_name("my data/v2, 5 labels")
    'my-data-v2-5-labels'
    """
    return re.sub(r"[^\w.-]+", "-", name)
