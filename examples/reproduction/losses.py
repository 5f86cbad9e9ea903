"""The compared losses: terms of four papers on their base losses, and losses of proxies or centers.

One number of each loss is searched: that of a base over three values and two learning rates, and
then the weight λ of a term over five values on the chosen base.

The triplet loss is that of pytorch-metric-learning: a mean over the triplets that violate the
margin, not over all. The mean squared distance and the hinge of the contrastive loss are means over
all positive and all negative pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import nn

from reproduction.published_losses import PROXY_GML_ABLATION
from ssdml.losses.base import LossSum
from ssdml.losses.centers import DecorrelatedCentersLoss, GlobalCenterRankingLoss, NormalizeScale
from ssdml.losses.consistency import GraphConsistency
from ssdml.losses.density import DensityAdaptivity
from ssdml.losses.pairs import BinomialDevianceLoss, ContrastiveLoss, NPairBatchLoss
from ssdml.losses.proxy_gml import ProxyGMLLoss
from ssdml.losses.regularizers import EntropyRegularizer, GlobalOrthogonalRegularizer
from ssdml.utils.validation import choose

LIBRARY, INSTALL = "pytorch-metric-learning", 'pip install "ssdml[losses]"'
LIBRARY_BASES = ("triplet", "softmax", "proxy-nca", "soft-triple")

# ProxyGML: proxies per class, and proxies per sample on Cars-196, 5% of 98 * 12.
N_PROXIES, N_LINKED = 12, 59
FEW_LINKED = 14  # the proxies of a class and two others


class Problem(NamedTuple):
    """What a loss needs to know of the training set."""

    num_classes: int
    embedding_size: int
    densities: torch.Tensor | None = None  # (num_classes,), of the features before training


class Searched(NamedTuple):
    """A loss by one number, and the values to search."""

    make: Callable[[Problem, float], nn.Module]
    values: tuple[float, ...]


class ComparedLoss(NamedTuple):
    """A base loss, the term added to it, and the values searched for the last number."""

    base: str
    term: str | None
    values: tuple[float, ...]


class AtLength(nn.Module):
    """A loss of embeddings scaled to one length, whose square is the inverse temperature."""

    def __init__(self, loss: nn.Module, length: float) -> None:
        super().__init__()
        self.loss, self.scaled = loss, NormalizeScale(length)

    def forward(self, embeddings: torch.Tensor, *others: Any) -> torch.Tensor:
        """Compute the loss of the scaled embeddings."""
        return self.loss(self.scaled(embeddings), *others)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Parameter groups of the inner loss."""
        return LossSum([self.loss]).parameter_groups()


def _library(module: str) -> Any:
    try:
        return import_module(f"pytorch_metric_learning.{module}")
    except ImportError as error:
        raise ImportError(f"{', '.join(LIBRARY_BASES)} need {LIBRARY}: {INSTALL}.") from error


def _triplet(problem: Problem, margin: float) -> nn.Module:
    squared = _library("distances").LpDistance(power=2)
    return _library("losses").TripletMarginLoss(margin=margin, distance=squared)


def _softmax(problem: Problem, scale: float) -> nn.Module:
    return _library("losses").NormalizedSoftmaxLoss(*problem[:2], temperature=1 / scale)


def _proxy_nca(problem: Problem, scale: float) -> nn.Module:
    return _library("losses").ProxyNCALoss(*problem[:2], softmax_scale=scale)


def _soft_triple(problem: Problem, scale: float) -> nn.Module:
    return _library("losses").SoftTripleLoss(*problem[:2], la=scale)


def _proxy_gml(
    problem: Problem, regularization: float, n_linked: int = N_LINKED, **switches: bool
) -> nn.Module:
    """ProxyGML with the paper's number of proxies per sample; 5% of few proxies is one class."""
    ratio = min(1.0, n_linked / (problem.num_classes * N_PROXIES))
    return ProxyGMLLoss(*problem[:2], N_PROXIES, ratio, regularization, None, **switches)


def _ranking(problem: Problem, margin: float, hinge: str) -> nn.Module:
    return AtLength(GlobalCenterRankingLoss(*problem[:2], margin, hinge=hinge), 1.0)


def _density(problem: Problem, _: float) -> nn.Module:
    return DensityAdaptivity(problem.num_classes, problem.densities)


def _fixed_density(problem: Problem, _: float) -> nn.Module:
    return DensityAdaptivity(problem.num_classes, problem.densities, learned=False)


BASES = {
    "triplet": Searched(_triplet, (0.1, 0.3, 1.0)),  # margin; 0.1 in the papers
    "contrastive": Searched(lambda _, margin: ContrastiveLoss(margin), (0.5, 1.0, 2.0)),  # 1
    "n-pair": Searched(lambda _, length: AtLength(NPairBatchLoss(), length), (1.0, 2.0, 4.0)),
    "binomial": Searched(  # cost of negatives; 25 in the papers
        lambda _, cost: BinomialDevianceLoss(negative_cost=cost), (1.0, 5.0, 25.0)
    ),
    "softmax": Searched(_softmax, (4.0, 16.0, 128.0)),  # scale; 128
    "proxy-nca": Searched(_proxy_nca, (1.0, 4.0, 16.0)),  # scale; 1
    "soft-triple": Searched(_soft_triple, (5.0, 20.0, 80.0)),  # scale; 20
    "proxy-gml": Searched(_proxy_gml, (0.0, 0.3, 3.0)),  # λ; 0.3
    # Margin, of embeddings of length 1; the paper has 4 at length 128.
    "gcrl": Searched(partial(_ranking, hinge="row"), (0.1, 0.3, 1.0)),
    "gcrl-batch": Searched(partial(_ranking, hinge="batch"), (0.1, 0.3, 1.0)),
}
# The rows of the ablation on the poster of ProxyGML, with S^pos, M and L^p in turn.
ABLATION = {
    f"proxy-gml-{i}": Searched(
        partial(_proxy_gml, positive_mask=positive, mask_softmax=mask), (0.3 * regularized,)
    )
    for i, (positive, mask, regularized, *_) in enumerate(PROXY_GML_ABLATION, start=1)
}
FEWER = {
    f"proxy-gml-{FEW_LINKED}-links": Searched(
        partial(_proxy_gml, n_linked=FEW_LINKED), BASES["proxy-gml"].values
    )
}
ALONE = BASES | ABLATION | FEWER  # without a term
WEIGHTS = (0.3, 1.0, 3.0, 10.0, 30.0)
TERMS = {  # by λ
    "cgml": Searched(lambda *_: GraphConsistency(), (1e-3, 0.01, 0.03, 0.1, 0.3)),  # 0.001
    "da": Searched(_density, WEIGHTS),  # 10
    "en": Searched(lambda *_: EntropyRegularizer(), WEIGHTS),
    "gor": Searched(lambda *_: GlobalOrthogonalRegularizer(), WEIGHTS),  # 1
    # DML-DA without the correlation of densities, as in its Fig. 3; and with targets not learned.
    "da-free": Searched(lambda of, _: DensityAdaptivity(of.num_classes), WEIGHTS),
    "da-fixed": Searched(_fixed_density, WEIGHTS),
}
TERMS_OF = {
    "triplet": ("cgml", "da", "en", "gor"),
    "contrastive": tuple(TERMS),
    "n-pair": ("cgml", "da", "en", "gor"),
    "binomial": ("cgml", "da", "en", "gor"),
}
LOSSES = (
    {name: ComparedLoss(name, None, base.values) for name, base in ALONE.items()}
    | {
        f"{base}+{name}": ComparedLoss(base, name, TERMS[name].values)
        for base, names in TERMS_OF.items()
        for name in names
    }
    | {"dgcrl": ComparedLoss("softmax", "decorrelation", (0.1, 1.0, 10.0, 30.0, 100.0))}  # 0.1
)
COMPARED = tuple(name for name in LOSSES if name not in ABLATION | FEWER)


def with_bases(names: Iterable[str]) -> list[str]:
    """Return the losses with their bases, each before its terms.

    Examples
    --------
    >>> with_bases(["n-pair+da", "dgcrl", "n-pair"])
    ['n-pair', 'n-pair+da', 'softmax', 'dgcrl']
    """
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys((choose(LOSSES, name, "loss").base, name))
    return list(found)


def unavailable(names: Iterable[str]) -> list[str]:
    """Return the losses that need pytorch-metric-learning, if it is not installed.

    A term needs what its base needs.

    Examples
    --------
    >>> some = ["n-pair", "triplet+da", "dgcrl"]
    >>> unavailable(some) == ([] if find_spec("pytorch_metric_learning") else some[1:])
    True
    """
    needing = [name for name in names if choose(LOSSES, name, "loss").base in LIBRARY_BASES]
    return [] if find_spec("pytorch_metric_learning") else needing


def make_loss(name: str, problem: Problem, base: float, weight: float = 0.0) -> LossSum:
    """Make one of `LOSSES` from the number of its base and the weight λ of its term.

    Examples
    --------
    >>> make_loss("n-pair", Problem(3, 2), 2.0)(torch.eye(3), torch.tensor([0, 1, 1])).shape
    torch.Size([])
    >>> make_loss("binomial+gor", Problem(3, 2), 25.0, 0.1).weights
    (1.0, 0.1)
    """
    compared = choose(LOSSES, name, "loss")
    if compared.term == "decorrelation":
        return LossSum([DecorrelatedCentersLoss(*problem[:2], scale=base, decorrelation=weight)])
    loss = ALONE[compared.base].make(problem, base)
    if compared.term is None:
        return LossSum([loss])
    return LossSum([loss, (weight, TERMS[compared.term].make(problem, weight))])
