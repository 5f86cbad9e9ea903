"""Parameters that the deep baselines share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ssdml.deep.base import DeepEstimator


@dataclass(eq=False, repr=False, kw_only=True)
class DeepMethod(DeepEstimator):
    """Base class of the deep baselines: their common parameters.

    Parameters
    ----------
    backbone : {"mnist", "cifar", "wide-resnet"} or Module
        The networks of Dutta et al. (2021), :class:`~ssdml.networks.wide_resnet.WideResNet` for
        images of any size, or a module that returns (n, d) features of a batch; it is copied.
    n_components : int or None
        Columns of L, at most d; None: d.
    decay : float
        Decay of the label propagation on the last graph, between 0 and 1, for ``transduction_``.
    validation_fraction : float
        Share of the labels of each class to hold out (0.15 in Dutta et al., 2021): the network of
        the epoch with the highest R@1 among these samples is kept, or among ``validation`` of
        ``fit``. 0: the last network is kept.
    epochs, epochs_per_partition : int
        Passes over all partitions, and over each; the last partition takes the rest.
    batch_size : int
    weight_decay : float
        Of SGD with momentum 0.9.
    mixed_precision : bool or "auto"
        See :class:`ssdml.DeepSSDML`; off by default.
    checkpoint_dir, device, n_jobs, random_state, verbose
        See :class:`ssdml.DeepSSDML`.

    Attributes
    ----------
    network_ : Module
        Computes the embedding, of unit length.
    components_, classes_, transduction_, label_distributions_, history_, stage_seconds_
        See :class:`ssdml.DeepSSDML`.
    """

    decay: float = 0.99
    validation_fraction: float = 0.0
    epochs: int = 50
    epochs_per_partition: int = 10
    batch_size: int = 100
    weight_decay: float = 5e-4
    mixed_precision: bool | str = False
    checkpoint_dir: Any = None
    device: str | torch.device = "auto"
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
