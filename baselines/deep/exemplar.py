"""Exemplar: classify augmented views by the item that they come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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


@dataclass(eq=False, repr=False)
class Exemplar(Recipe):
    """Classify strongly augmented views into surrogate classes, one per sample.

    Parameters
    ----------
    n_seeds : int
        Maximum number of samples drawn as classes.

    Notes
    -----
    Translation by 0.2 of the side, scale from 0.7 to 1.4, rotation by 20° and changes of contrast
    and color follow a third-party implementation of the paper, as far as
    :class:`~ssdml.networks.augmentation.RandomViews` supports them; images of one channel are not
    flipped. Ours: whole images instead of patches, and views drawn per batch, where the paper keeps
    100 of each.

    References
    ----------
    .. [1] Dosovitskiy et al., "Discriminative unsupervised feature learning with exemplar
       convolutional neural networks", IEEE TPAMI 38(9), 2016.
    """

    n_seeds: int = 8000

    _parameter_constraints = {"n_seeds": [Interval(Integral, 2, None, closed="left")]}  # noqa: RUF012

    def default_views(self, shape: tuple[int, ...]) -> Any:
        """Return stronger views than those of other recipes."""
        return (STRONG if shape[0] == 1 else COLORED) if len(shape) == 3 else None

    def new_head(self, n_items: int, d: int, n_components: int) -> nn.Module:
        """Return a softmax over the surrogate classes."""
        return Softmax(n_components, min(n_items, self.n_seeds))

    def batches(
        self, run: UnsupervisedTrainer, rows: Indices, counts: list[int], rng: np.random.Generator
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield items and their surrogate classes, the same in every partition."""
        seeds = np.random.default_rng(run.seed).permutation(rows)[: self.n_seeds]
        for codes in shuffled(np.arange(len(seeds)), run.estimator.batch_size, sum(counts), rng):
            yield seeds[codes], codes

    def loss(self, run: UnsupervisedTrainer, batch: tuple[Indices, Indices]) -> Tensor:
        """Compute the cross-entropy of the surrogate classes."""
        rows, codes = batch
        logits = run.head(run.layer(run.views(rows)))
        return functional.cross_entropy(logits, from_numpy(codes).to(logits.device))
