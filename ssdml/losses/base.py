"""What every loss is: pytorch-metric-learning's call with weights, a sum, groups of parameters."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

import torch
from torch import nn

from ssdml.graphs._checks import UNLABELED
from ssdml.losses._batch import Batch, as_batch, check_home, ends_of

try:
    from pytorch_metric_learning.losses import BaseMetricLossFunction as _Base
except ImportError:
    _Base = nn.Module


class Loss(_Base):
    """A loss of the rows of a batch, to be called, added and scaled.

    With pytorch-metric-learning installed it is one of its ``BaseMetricLossFunction``, so that its
    trainers and wrappers take it; without, the same call is that of a plain module. The mean over
    pairs or rows is part of each loss: there is no reducer to choose.

    Notes
    -----
    *Call.* ``loss(embeddings, labels=None, indices_tuple=None, ref_emb=None, ref_labels=None,
    weights=None)`` gives a scalar. A row labelled -1 makes no pair and has no class. Where there
    is nothing to compare the loss is 0, with a gradient of zeros. ``weights`` are constants, one a
    row; a pair has the product of its two. For a loss of pairs that is given ``indices_tuple``,
    they are one a triplet, or one a pair with the positive ones first; :class:`Triplets
    <ssdml.graphs.Triplets>` bring their own, and ``weights`` stay those of rows. Losses of rows do
    not look at ``indices_tuple``.

    *Precision.* float16 and bfloat16 are computed, and returned, in float32, autocast or not;
    float32 and float64 stay what they are.

    *Several processes.* A loss is one of the whole batch: ``loss(gathered(embeddings),
    gathered(labels))`` with :func:`ssdml.ranks.gathered` has the value and the gradients of one
    process, once those of the network and of the loss are averaged over the ranks.

    *Compilation.* Under torch.compile values are not looked at: labels out of range and NaN then
    go unnoticed.

    Examples
    --------
    A loss of one's own says what a checked batch costs:

    >>> class Length(Loss):
    ...     def of_batch(self, batch):
    ...         return batch.embeddings.square().mean()
    >>> loss = 2.0 * Length()
    >>> loss(torch.tensor([[1.0, 3.0]]))
    tensor(10.)
    """

    learning_rate: float | None = None  # of its own parameters; None: the optimiser's
    group_options: dict[str, Any] = {}  # noqa: RUF012  # nobody writes to it
    num_classes: int | None = None
    over_tuples = False  # whether it is one of pairs or triplets
    takes_reference = True
    takes_halves = False  # whether it wants batches of two halves, aligned in class

    def __init__(self) -> None:
        super().__init__()

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor | None = None,
        indices_tuple: Any = None,
        ref_emb: torch.Tensor | None = None,
        ref_labels: torch.Tensor | None = None,
        weights: Any = None,
    ) -> torch.Tensor:
        """Loss of a batch, a scalar."""
        who = type(self).__name__
        batch = as_batch(
            who,
            embeddings,
            labels,
            indices_tuple,
            ref_emb,
            ref_labels,
            weights,
            over_tuples=self.over_tuples,
            n_classes=self.num_classes,
        )
        if batch.has_reference and not self.takes_reference:
            raise ValueError(f"{who}: ref_emb must be None; got a tensor. It compares no pairs.")
        for name, tensor in self.named_parameters(recurse=False):
            check_home(tensor, batch.embeddings, name, who, "Call loss.to(embeddings).")
        with torch.autocast(batch.embeddings.device.type, enabled=False):
            return self.of_batch(batch)

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Loss of a batch that was checked."""
        raise NotImplementedError

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for an optimiser: its parameters, with their own learning rate if they have one.

        ``Adam([{"params": network.parameters()}, *loss.parameter_groups()])``; a loss without
        parameters gives none.
        """
        group: dict[str, Any] = {"params": list(self.parameters())} | self.group_options
        if self.learning_rate is not None:
            group["lr"] = self.learning_rate
        return [group] if group["params"] else []

    def __add__(self, other: Any) -> LossSum:
        return _sum_of(self, other)

    def __radd__(self, other: Any) -> LossSum:
        return _sum_of(other, self)

    def __mul__(self, factor: Any) -> LossSum:
        if not isinstance(factor, Real):
            return NotImplemented
        return LossSum([(float(factor) * weight, part) for weight, part in _terms(self)])

    __rmul__ = __mul__

    def __repr__(self) -> str:
        names = inspect.signature(type(self).__init__).parameters
        shown = {name: getattr(self, name, ...) for name in names if name != "self"}
        plain = {n: v for n, v in shown.items() if isinstance(v, str | int | float)}
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in plain.items())})"


class LossSum(Loss):
    """Weighted sum of losses: what ``triplet + 0.001 * consistency`` makes.

    Parameters
    ----------
    terms : iterable of losses, or of pairs (weight, loss)
        Ours, pytorch-metric-learning's, or any module with its call. Sums among them are taken
        apart, and a loss that occurs twice is called once.

    Raises
    ------
    TypeError, ValueError
        For what is no module, a weight that is not finite, and no loss at all.

    Notes
    -----
    Every loss is called with the same arguments. Others than ours know neither weights nor
    unlabelled rows: with ``weights`` the call is refused, and without tuples they are given the
    labelled rows alone. Of mined :class:`Triplets <ssdml.graphs.Triplets>` they see the ends.

    Examples
    --------
    >>> from ssdml.losses import BinomialDevianceLoss, EntropyRegularizer
    >>> loss = BinomialDevianceLoss() + 0.1 * EntropyRegularizer()
    >>> z, labels = torch.eye(2), torch.tensor([0, 1])
    >>> loss(z, labels)  # two unlike rows with cosine 0 and squared distance 2
    tensor(-0.0582)
    >>> loss.parameter_groups()
    []
    """

    def __init__(self, terms: Iterable[Any]) -> None:
        super().__init__()
        flat: dict[int, tuple[float, nn.Module]] = {}
        for weight, part in (flat_term for term in terms for flat_term in _terms(term)):
            before = flat.get(id(part), (0.0, part))[0]
            flat[id(part)] = (before + weight, part)
        if not flat:
            raise ValueError("LossSum: terms must hold a loss; got none.")
        self.weights = tuple(weight for weight, _ in flat.values())
        self.losses = nn.ModuleList(part for _, part in flat.values())

    @property
    def takes_halves(self) -> bool:  # type: ignore[override]
        """Whether one of the losses wants batches of two halves, aligned in class."""
        return any(getattr(part, "takes_halves", False) for part in self.losses)

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor | None = None,
        indices_tuple: Any = None,
        ref_emb: torch.Tensor | None = None,
        ref_labels: torch.Tensor | None = None,
        weights: Any = None,
    ) -> torch.Tensor:
        """Sum of the losses of a batch, each with its weight."""
        given = (embeddings, labels, indices_tuple, ref_emb, ref_labels)
        total = embeddings.new_zeros(())
        for weight, part in zip(self.weights, self.losses, strict=True):
            loss = part(*given, weights) if isinstance(part, Loss) else _call(part, given, weights)
            total = total + weight * loss
        return total

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups of all the losses; one for each of the others that has parameters."""
        groups: list[dict[str, Any]] = []
        for part in self.losses:
            if isinstance(part, Loss):
                groups += part.parameter_groups()
            elif parameters := list(part.parameters()):
                groups.append({"params": parameters})
        return groups

    def __repr__(self) -> str:
        terms = zip(self.weights, self.losses, strict=True)
        return " + ".join(f"{weight:g} * {part!r}" for weight, part in terms)


def _sum_of(one: Any, other: Any) -> LossSum:
    """Sum of two losses, or NotImplemented; the 0 that ``sum`` begins with adds nothing."""
    terms = [term for term in (one, other) if not (isinstance(term, Real) and term == 0)]
    if not all(isinstance(term, nn.Module) for term in terms):
        return NotImplemented
    return LossSum(terms)


def _terms(term: Any) -> list[tuple[float, nn.Module]]:
    """A loss or a pair (weight, loss) as pairs, a sum taken apart."""
    weight, part = term if isinstance(term, tuple) and len(term) == 2 else (1.0, term)
    if not isinstance(part, nn.Module):
        raise TypeError(f"LossSum: terms must be modules; got {type(part).__name__}.")
    if not isinstance(weight, Real) or not math.isfinite(float(weight)):
        raise ValueError(f"LossSum: weights must be finite numbers; got {weight!r}.")
    if isinstance(part, LossSum):
        inner = zip(part.weights, part.losses, strict=True)
        return [(float(weight) * factor, loss) for factor, loss in inner]
    return [(float(weight), part)]


def _call(loss: nn.Module, given: tuple[Any, ...], weights: Any) -> torch.Tensor:
    """A loss that is not ours: without weights, and on the rows that have a label."""
    if weights is not None:
        raise ValueError(
            f"LossSum: weights must be None with {type(loss).__name__}, which takes none; got "
            f"{type(weights).__name__}. Draw the batches by weight (ssdml.sampling), or call the "
            "losses one by one."
        )
    embeddings, labels, indices_tuple, ref_emb, ref_labels = given
    if indices_tuple is not None:
        ends = ends_of(indices_tuple, embeddings.device)
        called: torch.Tensor = loss(embeddings, labels, ends, ref_emb, ref_labels)
        return called
    rows, row_labels = _labelled(embeddings, labels)
    if not len(rows):
        return embeddings.sum() * 0
    others, other_labels = (None, None) if ref_emb is None else _labelled(ref_emb, ref_labels)
    found: torch.Tensor = loss(rows, row_labels, None, others, other_labels)
    return found


def _labelled(rows: torch.Tensor, labels: torch.Tensor | None) -> tuple[Any, Any]:
    if labels is None:
        return rows, labels
    known = labels != UNLABELED
    return (rows, labels) if known.all() else (rows[known.to(rows.device)], labels[known])
