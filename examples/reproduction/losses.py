"""The losses that are compared: four papers' terms on their base losses, and losses of proxies.

Each has one number that is searched: a base its own, over three values and two learning rates; a
term its weight λ, over five values, on the base as it was chosen before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import nn

from ssdml.losses.base import LossSum
from ssdml.losses.centers import DecorrelatedCentersLoss, NormalizeScale
from ssdml.losses.consistency import GraphConsistency
from ssdml.losses.density import DensityAdaptivity
from ssdml.losses.pairs import BinomialDevianceLoss, NPairBatchLoss
from ssdml.losses.proxy_gml import ProxyGMLLoss
from ssdml.losses.regularizers import EntropyRegularizer, GlobalOrthogonalRegularizer
from ssdml.utils.validation import choose

LIBRARY, INSTALL = "pytorch-metric-learning", 'pip install "ssdml[losses]"'

# Of ProxyGML: proxies of a class, and how many a row is joined to on Cars-196, 5 % of 98 * 12.
N_PROXIES, VOTERS = 12, 59


class Problem(NamedTuple):
    """What a loss has to know of the rows before it is made."""

    num_classes: int
    embedding_size: int
    densities: torch.Tensor | None = None  # (num_classes,), of the features before training


class Searched(NamedTuple):
    """A loss by one number of it: what it is called, the values searched, what its paper takes."""

    make: Callable[[Problem, float], nn.Module]
    number: str
    values: tuple[float, ...]
    printed: float | None = None


class AtLength(nn.Module):
    """A loss of rows scaled to one length, whose square divides the temperature of its softmax."""

    def __init__(self, loss: nn.Module, length: float) -> None:
        super().__init__()
        self.loss, self.scaled = loss, NormalizeScale(length)

    def forward(self, embeddings: torch.Tensor, *others: Any) -> torch.Tensor:
        """The loss of the scaled rows."""
        value: torch.Tensor = self.loss(self.scaled(embeddings), *others)
        return value

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Those of the loss within."""
        return LossSum([self.loss]).parameter_groups()


def _library(module: str) -> Any:
    """A module of pytorch-metric-learning."""
    try:
        return import_module(f"pytorch_metric_learning.{module}")
    except ImportError as error:
        raise ImportError(
            f"{', '.join(OF_LIBRARY)} among the compared losses need {LIBRARY}: {INSTALL}."
        ) from error


def _triplet(problem: Problem, margin: float) -> nn.Module:
    squared = _library("distances").LpDistance(power=2)
    return _library("losses").TripletMarginLoss(margin=margin, distance=squared)


def _softmax(problem: Problem, scale: float) -> nn.Module:
    return _library("losses").NormalizedSoftmaxLoss(*problem[:2], temperature=1 / scale)


def _proxy_nca(problem: Problem, scale: float) -> nn.Module:
    return _library("losses").ProxyNCALoss(*problem[:2], softmax_scale=scale)


def _soft_triple(problem: Problem, scale: float) -> nn.Module:
    return _library("losses").SoftTripleLoss(*problem[:2], la=scale)


def _proxy_gml(problem: Problem, regularization: float) -> nn.Module:
    """With as many proxies a row as in the paper, where 5 % of few would be those of one class."""
    ratio = min(1.0, VOTERS / (problem.num_classes * N_PROXIES))
    return ProxyGMLLoss(*problem[:2], N_PROXIES, ratio, regularization, learning_rate=None)


BASES = {
    "triplet": Searched(_triplet, "margin", (0.1, 0.3, 1.0), 0.1),
    "n-pair": Searched(
        lambda problem, length: AtLength(NPairBatchLoss(), length),
        "length",
        (1.0, 2.0, 4.0),
    ),
    "binomial": Searched(
        lambda problem, cost: BinomialDevianceLoss(negative_cost=cost),
        "negative cost",
        (1.0, 5.0, 25.0),
        25.0,
    ),
    "softmax": Searched(_softmax, "scale", (4.0, 16.0, 128.0), 128.0),
    "proxy-nca": Searched(_proxy_nca, "scale", (1.0, 4.0, 16.0), 1.0),
    "soft-triple": Searched(_soft_triple, "scale", (5.0, 20.0, 80.0), 20.0),
    "proxy-gml": Searched(_proxy_gml, "λ", (0.0, 0.3, 3.0), 0.3),
}
TERMS = {
    "cgml": Searched(
        lambda problem, _: GraphConsistency(), "λ", (1e-3, 0.01, 0.03, 0.1, 0.3), 1e-3
    ),
    "da": Searched(
        lambda problem, _: DensityAdaptivity(problem.num_classes, problem.densities),
        "λ",
        (0.3, 1.0, 3.0, 10.0, 30.0),
        10.0,
    ),
    "en": Searched(lambda problem, _: EntropyRegularizer(), "λ", (0.3, 1.0, 3.0, 10.0, 30.0)),
    "gor": Searched(
        lambda problem, _: GlobalOrthogonalRegularizer(), "λ", (0.3, 1.0, 3.0, 10.0, 30.0), 1.0
    ),
}
OF_LIBRARY = ("triplet", "softmax", "proxy-nca", "soft-triple")
WITH_TERMS = ("triplet", "n-pair", "binomial")
DGCRL = (0.1, 1.0, 10.0, 30.0, 100.0)  # λ; the paper's is 0.1


class ComparedLoss(NamedTuple):
    """A base, and what is added to it, with the values of the number that is searched last."""

    base: str
    term: str | None
    values: tuple[float, ...]


LOSSES = (
    {name: ComparedLoss(name, None, base.values) for name, base in BASES.items()}
    | {
        f"{base}+{name}": ComparedLoss(base, name, term.values)
        for base in WITH_TERMS
        for name, term in TERMS.items()
    }
    | {"dgcrl": ComparedLoss("softmax", "decorrelation", DGCRL)}
)


def left_out(names: Iterable[str]) -> list[str]:
    """Those of the names that cannot be compared here: pytorch-metric-learning is not installed.

    A term is left out with its base, whose number is chosen first.

    Examples
    --------
    >>> some = ["n-pair", "triplet+da", "dgcrl"]
    >>> left_out(some) == ([] if find_spec("pytorch_metric_learning") else some[1:])
    True
    """
    if find_spec("pytorch_metric_learning"):
        return []
    return [name for name in names if choose(LOSSES, name, "loss").base in OF_LIBRARY]


def made_loss(name: str, problem: Problem, base: float, weight: float = 0.0) -> LossSum:
    """One of `LOSSES`, with the number of its base and the weight λ of its term.

    Examples
    --------
    >>> made_loss("n-pair", Problem(3, 2), 2.0)(torch.eye(3), torch.tensor([0, 1, 1])).shape
    torch.Size([])
    >>> made_loss("binomial+gor", Problem(3, 2), 25.0, 0.1).weights
    (1.0, 0.1)
    """
    compared = choose(LOSSES, name, "loss")
    if compared.term == "decorrelation":
        return LossSum([DecorrelatedCentersLoss(*problem[:2], scale=base, decorrelation=weight)])
    loss = BASES[compared.base].make(problem, base)
    if compared.term is None:
        return LossSum([loss])
    return LossSum([loss, (weight, TERMS[compared.term].make(problem, weight))])
