"""Tables 2, 3 and 5 of Dutta et al. (2021) on photographs, with a pretrained network.

Either its trunk is frozen and a residual head on the features is trained, or all of it is trained.
With a frozen trunk, learning rates are chosen on held-out training classes; the whole network has
the rate that all of its methods have chosen there. The test classes are never used for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from reproduction.loss_embedding import LossEmbedding
from reproduction.loss_search import CHOSEN_BY, FEW_LABELS, compare_all, held_out_classes
from ssdml.datasets.base import Dataset
from ssdml.datasets.image_files import ImageFiles
from ssdml.experiments.methods.base import (
    Compared,
    Factory,
    Method,
    format_method,
    parse_method,
    with_parameters,
)
from ssdml.experiments.methods.photographs import photograph_methods, resolved, with_settings
from ssdml.experiments.methods.protocols import DUTTA2021_LITE, Protocol
from ssdml.experiments.methods.registry import DEEP_METHODS, METHODS, DeepFactory
from ssdml.experiments.runs.folder import Progress
from ssdml.experiments.runs.results import Row
from ssdml.networks.backbones import ResidualHead
from ssdml.networks.randomness import SeededDraws
from ssdml.utils.linalg import covariance, top_eigenvectors
from ssdml.utils.persistence import keep_array, kept_array
from ssdml.utils.typing import Array
from ssdml.utils.validation import choose

FINE_TUNED = 1e-4  # rate of a whole network, chosen by its methods with a frozen trunk
BY_ADAMW, BY_SGD = (1e-5, 1e-4, 1e-3), (1e-4, 1e-3, 1e-2)
RATES = {  # tried with a frozen trunk
    **dict.fromkeys(("deep-lrml", "deep-seraph", "deep-isdml", "deep-apllr", "deep-apit"), BY_SGD),
    **dict.fromkeys(("deep-triplet", "deep-angular"), BY_SGD),
    "triplet": BY_ADAMW,
    "contrastive": BY_ADAMW,
    **dict.fromkeys(("deep-nce", "deep-deepcluster", "deep-suml"), (3e-4, 3e-3, 3e-2)),
    "deep-ssdml-paper": BY_SGD,
    "deep-ssdml": BY_ADAMW,
}
DENSITY = "contrastive+da"  # at the margin and rate of its base
WEIGHTS = 1, 3, 10  # of density adaptivity; a whole network takes the first
MARGINS, N_STEPS = {"triplet": 0.1, "contrastive": 1.0}, 20  # margins of the papers
# The features of the network, and its embedding before training: L is random.
STARTS = {"frozen": ("input", "untrained"), "fine-tuned": ("untrained",)}
LINES = {
    # Not Exemplar and RotNet: a frozen trunk sees one view of each image.
    "frozen": (*RATES, DENSITY),
    # Not deep-triplet: L alone separates the triplets of a batch, and no gradient is left.
    "fine-tuned": ("triplet", "contrastive", DENSITY, "deep-ssdml"),
}
N_AXES = 256  # principal components of the features of a frozen trunk, for speed
HEAD = {  # on these, which train in seconds
    "epochs": 6,
    "epochs_per_partition": 3,
    "partition_size": 2000,
    "n_triplets": 3000,
    "n_steps": 100,
}


def compare_photographs(
    dataset: Dataset,
    out: Path,
    *,
    trunk: str = "frozen",
    methods: Sequence[str] = (),
    seeds: Sequence[int] = range(5),
    protocol: Protocol = DUTTA2021_LITE,
    progress: Progress | None = None,
) -> list[Row]:
    """Choose the learning rate of each method on held-out classes, and score the test classes.

    Parameters
    ----------
    dataset : Dataset
        Photographs in files, whose test classes are not among the training classes.
    out : path
        Folder with the results in ``held-out/`` and ``scored/``, and the features of a frozen
        trunk; finished runs are not repeated.
    trunk : {"frozen", "fine-tuned"}
    methods : sequence of str
        By default all of ``LINES[trunk]``. ``STARTS[trunk]`` come first, and the contrastive loss
        before its sum.
    seeds : sequence of int
        Of the labels, the initial weights and the batches.
    protocol : Protocol
    progress : callable, optional
        As :func:`ssdml.experiments.compare` takes it.

    Returns
    -------
    rows : list of dict
        One per method and seed. Names of methods include the chosen settings, in brackets.

    Raises
    ------
    RuntimeError
        If a run fails.
    ValueError
        If a method is unknown, or the data set has no photographs in files or no test classes.
    """
    methods = _known_methods(methods or LINES[trunk])
    if not isinstance(dataset.X, ImageFiles) or dataset.test is None:
        raise ValueError(
            f"dataset must hold photographs in files, with test classes; got {dataset.name}."
        )
    if trunk == "frozen":
        dataset = replace(dataset, X=trunk_features(dataset, out / "features", protocol))
        known = head_methods(dataset, protocol)
    else:
        known = photograph_methods(dataset, protocol=protocol, methods=TRAINED)

    def compared(
        dataset: Dataset, names: Sequence[str], part: str, seeds: Sequence[int]
    ) -> list[Row]:
        made = {name: with_parameters(name, known) for name in names}
        return compare_all(dataset, made, out / part, seeds, FEW_LABELS, progress=progress)

    held_out = held_out_classes(dataset, 0)
    chosen: dict[str, str] = {}
    for name in methods:
        tried = settings(name, chosen, trunk)
        chosen[name] = tried[0]
        if len(tried) > 1:
            found = compared(held_out, tried, "held-out", [0])
            best = max(found, key=lambda row: [row["scores"][score] for score in CHOSEN_BY])
            chosen[name] = best["method"]
    names = [*STARTS[trunk], *chosen.values()]
    return compared(dataset, names, "scored", seeds)


def settings(method: str, chosen: Mapping[str, str], trunk: str) -> list[str]:
    """Names of a method with the settings to try; ``chosen`` holds that of its base.

    Examples
    --------
    >>> settings("deep-nce", {}, "frozen")[::2]
    ['deep-nce[learning_rate=0.0003]', 'deep-nce[learning_rate=0.03]']
    >>> settings("deep-ssdml[epochs=6]", {}, "fine-tuned")
    ['deep-ssdml[epochs=6;learning_rate=0.0001]']
    >>> chosen = {"contrastive": "contrastive[learning_rate=0.001]"}
    >>> settings("contrastive+da", chosen, "fine-tuned")
    ['contrastive+da[learning_rate=0.001;weight=1]']
    """
    if method == DENSITY:
        _, given = parse_method(chosen["contrastive"])
        weights = WEIGHTS if trunk == "frozen" else WEIGHTS[:1]
        return [format_method(method, given | {"weight": f"{weight}"}) for weight in weights]
    name, given = parse_method(method)
    rates = RATES[name] if trunk == "frozen" else (FINE_TUNED,)
    return [format_method(name, given | {"learning_rate": f"{rate:g}"}) for rate in rates]


def _known_methods(methods: Sequence[str]) -> list[str]:
    """Raise on an unknown method; put the base of a sum first.

    Examples
    --------
    >>> _known_methods(["deep-ssdml[epochs=6]", "contrastive+da"])
    ['deep-ssdml[epochs=6]', 'contrastive', 'contrastive+da']
    """
    for name in methods:
        choose({**RATES, DENSITY: ()}, parse_method(name)[0], "method")
    pairs = (("contrastive", name) if name == DENSITY else (name,) for name in methods)
    return list(dict.fromkeys(name for pair in pairs for name in pair))


def trunk_features(dataset: Dataset, path: Path, protocol: Protocol) -> Array:
    """Compute the features of all images by the pretrained network, once, and keep them in a file.

    They have length 1.
    """
    features = kept_array(path)
    if features is None:
        assert dataset.test is not None
        network: Any = photograph_methods(dataset, protocol=protocol)["initial"](0, None)
        features = network.fit(dataset.X[~dataset.test], None).transform(dataset.X)
        keep_array(path, features)
    return features


def head_methods(dataset: Dataset, protocol: Protocol) -> dict[str, Factory]:
    """The input, and methods that train a residual head on its components, the same for all."""
    learning = {**resolved(protocol, dataset).learning, **HEAD}
    rows = dataset.X if dataset.test is None else dataset.X[~dataset.test]
    scale = rows.std(axis=0)  # networks standardize their input
    axes = top_eigenvectors(covariance(rows / np.where(scale > 0, scale, 1)), N_AXES)
    made = {name: partial(_with_head, name, axes, learning) for name in TRAINED}
    return made | {"input": METHODS["input"]}


def _with_head(
    name: str, axes: Array, learning: Mapping[str, Any], random_state: int, n_jobs: int | None
) -> Compared:
    projection = nn.Linear(axes.shape[0], axes.shape[1], bias=False).requires_grad_(False)
    projection.weight.copy_(torch.from_numpy(axes.T))
    with SeededDraws(random_state):
        head: Any = nn.Sequential(projection, ResidualHead(axes.shape[1]))
    method = TRAINED[name](head, learning["n_components"])
    return with_settings(method(random_state, n_jobs), learning)


def _loss(name: str, backbone: Any, n_components: int | None, **training: float) -> Factory:
    """A loss of the labeled samples, alone or with density adaptivity."""
    path = f"{LossEmbedding.__module__}:{LossEmbedding.__name__}"
    margin = MARGINS[name.partition("+")[0]]
    options = {"backbone": backbone, "n_components": n_components, "n_steps": N_STEPS} | training
    return Method(path, name, margin, **options)


TRAINED: dict[str, DeepFactory] = {
    **DEEP_METHODS,
    **{name: partial(_loss, name) for name in (*MARGINS, DENSITY)},
    "untrained": partial(_loss, "contrastive", n_steps=1, learning_rate=0.0),
}
