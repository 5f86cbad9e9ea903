"""Losses on torch embeddings, one family a file, with pytorch-metric-learning's call.

Each is called as ``loss(embeddings, labels=None, indices_tuple=None, ref_emb=None,
ref_labels=None, weights=None)``, and ``triplet + 0.001 * consistency`` is a loss as well; what all
of them promise stands in :class:`ssdml.losses.base.Loss`. Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ssdml.losses.base import Loss, LossSum
    from ssdml.losses.binomial import BinomialDevianceLoss
    from ssdml.losses.centers import (
        DecorrelatedCentersLoss,
        GlobalCenterRankingLoss,
        NormalizeScale,
    )
    from ssdml.losses.consistency import GraphConsistency
    from ssdml.losses.density import DensityAdaptivity, class_densities
    from ssdml.losses.npair import NPairBatchLoss
    from ssdml.losses.proxies import ProxyGMLLoss
    from ssdml.losses.spread import EntropyRegularizer, GlobalOrthogonalRegularizer
    from ssdml.losses.triplets import AngularTripletLoss

__all__ = [
    "AngularTripletLoss",
    "BinomialDevianceLoss",
    "DecorrelatedCentersLoss",
    "DensityAdaptivity",
    "EntropyRegularizer",
    "GlobalCenterRankingLoss",
    "GlobalOrthogonalRegularizer",
    "GraphConsistency",
    "Loss",
    "LossSum",
    "NPairBatchLoss",
    "NormalizeScale",
    "ProxyGMLLoss",
    "class_densities",
]

_HOMES = {
    "AngularTripletLoss": "triplets",
    "BinomialDevianceLoss": "binomial",
    "DecorrelatedCentersLoss": "centers",
    "DensityAdaptivity": "density",
    "EntropyRegularizer": "spread",
    "GlobalCenterRankingLoss": "centers",
    "GlobalOrthogonalRegularizer": "spread",
    "GraphConsistency": "consistency",
    "Loss": "base",
    "LossSum": "base",
    "NPairBatchLoss": "npair",
    "NormalizeScale": "centers",
    "ProxyGMLLoss": "proxies",
    "class_densities": "density",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ssdml.losses' has no attribute {name!r}")
    return getattr(import_module(f"ssdml.losses.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
