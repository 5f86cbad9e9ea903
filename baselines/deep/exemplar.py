"""Exemplar: every item is a class of its own, and its views are the members."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval
from torch import Tensor, from_numpy, nn
from torch.nn import functional

from ssdml.baselines.deep.recipe import Recipe, Softmax, UnsupervisedTrainer, shuffled
from ssdml.networks.augmentation import RandomViews
from ssdml.utils.typing import Indices

STRONG = RandomViews(rotation=20.0, scale=0.35, shift=0.2, contrast=0.5)
COLORED = replace(
    STRONG, flip=True, border=True, saturation=0.7, brightness=0.1, tint=0.1, contrast=0.5
)


class Exemplar(Recipe):
    """Surrogate classes: softmax over some of the items, told by strongly distorted views.

    Parameters
    ----------
    n_seeds : int
        Samples drawn as classes, if there are so many.

    Notes
    -----
    Translation by 0.2 of the side, scale from 0.7 to 1.4, rotation by 20° and changes of contrast
    and color are the published ones, as near as :class:`ssdml.networks.augmentation.RandomViews` comes to
    them; images of one channel are not flipped. Samples stand for patches: ours, as they are small.
    So are views made when a batch is drawn, where the paper keeps 100 of each.

    References
    ----------
    .. [1] Dosovitskiy et al., "Discriminative unsupervised feature learning with exemplar
       convolutional neural networks", IEEE TPAMI 38(9), 2016.
    """

    _parameter_constraints = {"n_seeds": [Interval(Integral, 2, None, closed="left")]}  # noqa: RUF012

    def __init__(self, n_seeds: int = 8000) -> None:
        self.n_seeds = n_seeds

    def default_views(self, shape: tuple[int, ...]) -> Any:
        """Stronger than those that other recipes have."""
        return (STRONG if shape[0] == 1 else COLORED) if len(shape) == 3 else None

    def new_head(self, n_items: int, d: int, n_components: int) -> nn.Module:
        """Softmax over the surrogate classes."""
        return Softmax(n_components, min(n_items, self.n_seeds))

    def batches(
        self, run: UnsupervisedTrainer, rows: Indices, counts: list[int], rng: np.random.Generator
    ) -> Iterator[tuple[Indices, Indices]]:
        """Surrogate classes and the items that they are made of, the same in every partition."""
        seeds = np.random.default_rng(run.seed).permutation(rows)[: self.n_seeds]
        for codes in shuffled(np.arange(len(seeds)), run.estimator.batch_size, sum(counts), rng):
            yield seeds[codes], codes

    def loss(self, run: UnsupervisedTrainer, batch: tuple[Indices, Indices]) -> Tensor:
        """Cross-entropy of the views with the classes of their items."""
        rows, codes = batch
        logits = run.head(run.layer(run.views(rows)))
        return functional.cross_entropy(logits, from_numpy(codes).to(logits.device))
