"""Base class of the losses, and their weighted sum."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import nn

from ssdml.graphs.triplets import Triplets
from ssdml.losses.batch import (
    Batch,
    among_labeled,
    as_batch,
    as_tuples,
    check_finite,
    check_home,
    tuple_groups,
)
from ssdml.utils.validation import UNLABELED

try:
    from pytorch_metric_learning.losses import BaseMetricLossFunction as _Base
except ImportError:
    _Base = nn.Module


class Loss(_Base):
    """Base class of losses, which can be called, added and scaled.

    A subclass implements :meth:`of_batch`. With pytorch-metric-learning installed it is a
    ``BaseMetricLossFunction``; otherwise a plain module with the same call. Each loss averages over
    its pairs or rows; there is no reducer.

    Notes
    -----
    *Call.* ``loss(embeddings, labels=None, indices_tuple=None, ref_emb=None, ref_labels=None,
    weights=None)`` returns a scalar, see :meth:`forward`. A row labeled -1 forms no pair and has no
    class. If there is nothing to compare, the loss is 0 with a gradient of zeros. Weights are
    constants; the weight of a pair is the product of the weights of its rows.

    *Tuples.* Plain tuples with a row labeled -1 are ignored, as the miners of
    pytorch-metric-learning treat -1 as a class; mined :class:`Triplets <ssdml.graphs.Triplets>`
    join unlabeled rows on purpose and stay. A repeated pair counts once, with its largest weight
    (twice in pytorch-metric-learning); a repeated triplet counts twice. Losses of rows ignore
    tuples.

    *In pytorch-metric-learning.* These losses accept the tuples of its miners and work in
    ``MetricLossOnly``, ``MultipleLosses`` and ``DistributedLossWrapper``. ``CrossBatchMemory`` and
    ``SelfSupervisedLoss`` accept losses by name only and reject them; pass the rows of a memory as
    ``ref_emb`` and ``ref_labels``.

    *Precision.* float16 and bfloat16 are computed and returned in float32, with or without
    autocast; float32 and float64 are kept.

    *Distributed training.* A loss needs the whole batch: ``loss(gathered(embeddings),
    gathered(labels))`` with :func:`ssdml.utils.distributed.gathered` has the value and the gradient
    of a single process, once the gradients are averaged over the ranks.

    *Compilation.* torch.compile makes one graph of a loss, unless its notes say otherwise. Compiled
    losses do not check values: labels out of range and NaN go unnoticed.

    Examples
    --------
    A custom loss:

    >>> class Length(Loss):
    ...     def of_batch(self, batch):
    ...         return batch.embeddings.square().mean()
    >>> loss = 2.0 * Length()
    >>> loss(torch.tensor([[1.0, 3.0]]))
    tensor(10.)
    """

    learning_rate: float | None = None  # of its own parameters; None: the optimizer's
    group_options: dict[str, Any] = {}  # noqa: RUF012  # read-only
    num_classes: int | None = None
    embedding_size: int | None = None  # required number of columns
    over_tuples = False  # whether it is a loss of pairs or triplets
    takes_reference = True
    takes_halves = False  # whether it needs batches of two halves with the same classes

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
        """Compute the loss of a batch.

        Parameters
        ----------
        embeddings : tensor of shape (n, d), floating
        labels : tensor of shape (n,), integers, optional
            Classes from 0; -1 where unlabeled.
        indices_tuple : sequence of 3 or 4 tensors of integers, or Triplets, optional
            Rows of the batch: (anchors, positives, negatives), each of shape (n_triplets,), or
            (anchors, positives, anchors, negatives), two of shape (n_positive,) and two of shape
            (n_negative,). None: all pairs or triplets that the labels allow.
        ref_emb : tensor of shape (m, d), optional
            Candidates for positives and negatives; None: the embeddings.
        ref_labels : tensor of shape (m,), integers, optional
            Labels of ``ref_emb``.
        weights : array, optional
            Finite and not negative, of shape (n,): one per row. For a loss of pairs with a plain
            ``indices_tuple``, of shape (n_triplets,) or (n_positive + n_negative,).

        Returns
        -------
        loss : tensor, a scalar
            float64 for embeddings of float64, else float32.

        Raises
        ------
        TypeError
            If embeddings are not a floating tensor, or labels or tuples are not integers.
        ValueError
            If a shape, dtype or device is wrong, embeddings, weights or parameters are not finite,
            labels or tuples are out of range, labels are missing without tuples, or a loss of rows
            gets ``ref_emb``.
        """
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
        self._check_own(batch.embeddings, who)
        with torch.autocast(batch.embeddings.device.type, enabled=False):
            return self.of_batch(batch)

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the loss of a checked batch."""
        raise NotImplementedError

    def _check_own(self, rows: torch.Tensor, who: str) -> None:
        """Raise unless the parameters of the loss match the rows."""
        if self.embedding_size not in (None, rows.shape[1]):
            raise ValueError(
                f"{who}: embeddings must have embedding_size = {self.embedding_size} columns; got "
                f"{rows.shape[1]}. Create the loss with embedding_size={rows.shape[1]}, the "
                "n_components of DeepSSDML."
            )
        for name, tensor in self.named_parameters(recurse=False):
            check_home(tensor, rows, name, who, "Call loss.to(embeddings).")
            check_finite(tensor, name, who, "Lower the learning rate of the loss.")

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return parameter groups for an optimizer, with their own learning rate if there is one.

        ``Adam([{"params": network.parameters()}, *loss.parameter_groups()])``. Empty without
        parameters.
        """
        return one_group(self, self.learning_rate, self.group_options)

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
    """Weighted sum of losses, as ``triplet + 0.001 * consistency`` returns it.

    Parameters
    ----------
    terms : iterable of losses, or of pairs (weight, loss)
        Ours, those of pytorch-metric-learning, or any module with the same call. Nested sums are
        flattened, and a repeated loss is called once.

    Notes
    -----
    Losses from elsewhere support neither weights nor unlabeled rows. They reject ``weights``, and
    see the labeled rows only, with the plain tuples among them, renumbered. A loss of pairs gets
    mined :class:`Triplets <ssdml.graphs.Triplets>`, which join unlabeled rows on purpose, with all
    rows but without weights and labels; a loss with a matrix of parameters (proxies, a classifier)
    counts as a loss of rows and does not get them.

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
        """Whether one of the losses needs batches of two halves with the same classes."""
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
        """Compute the weighted sum of the losses of a batch."""
        given = (embeddings, labels, indices_tuple, ref_emb, ref_labels)
        total = embeddings.new_zeros(())
        for weight, part in zip(self.weights, self.losses, strict=True):
            if isinstance(part, Loss):
                loss = part(*given, weights)
            else:
                _check_no_weights(weights, part)
                loss = call_other(part, *given)
            total = total + weight * loss
        return total

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of all losses.

        A loss from elsewhere has one group, with its ``learning_rate`` if you set one
        (``softmax.learning_rate = 0.01``), unless it has its own ``parameter_groups``.
        """
        return [group for part in self.losses for group in groups_of(part)]

    def __repr__(self) -> str:
        terms = zip(self.weights, self.losses, strict=True)
        return " + ".join(f"{weight:g} * {part!r}" for weight, part in terms)


def _sum_of(one: Any, other: Any) -> LossSum:
    """Add two losses, or return NotImplemented; ignore the 0 that ``sum`` starts with."""
    terms = [term for term in (one, other) if not (isinstance(term, Real) and term == 0)]
    if not all(isinstance(term, nn.Module) for term in terms):
        return NotImplemented
    return LossSum(terms)


def _terms(term: Any) -> list[tuple[float, nn.Module]]:
    """Return a loss, a pair (weight, loss) or a sum as a list of pairs."""
    weight, part = term if isinstance(term, tuple) and len(term) == 2 else (1.0, term)
    if not isinstance(part, nn.Module):
        raise TypeError(f"LossSum: terms must be modules; got {type(part).__name__}.")
    if not isinstance(weight, Real) or not math.isfinite(float(weight)):
        raise ValueError(f"LossSum: weights must be finite numbers; got {weight!r}.")
    if isinstance(part, LossSum):
        inner = zip(part.weights, part.losses, strict=True)
        return [(float(weight) * factor, loss) for factor, loss in inner]
    return [(float(weight), part)]


def _check_no_weights(weights: Any, loss: nn.Module) -> None:
    if weights is not None:
        raise ValueError(
            f"LossSum: weights must be None with {type(loss).__name__}, which takes none; got "
            f"{type(weights).__name__}. Draw the batches by weight (ssdml.networks.sampling), or "
            "call the losses one by one."
        )


class _Labeled(NamedTuple):
    """Labeled rows; all rows if there are no labels."""

    rows: torch.Tensor
    labels: torch.Tensor | None
    places: torch.Tensor  # index of each original row among these, or -1


def call_other(
    loss: nn.Module,
    embeddings: torch.Tensor,
    labels: torch.Tensor | None,
    indices_tuple: Any,
    ref_emb: torch.Tensor | None,
    ref_labels: torch.Tensor | None,
) -> torch.Tensor:
    """Call a loss that treats -1 as a class, as the notes of :class:`LossSum` say."""
    if isinstance(indices_tuple, Triplets):
        if _is_of_rows(loss):
            indices_tuple = None
        else:
            labels = ref_labels = None
    starts = _labeled(embeddings, labels)
    stops = starts if ref_emb is None else _labeled(ref_emb, ref_labels)
    if not len(starts.rows):
        return embeddings.sum() * 0
    tuples = None if indices_tuple is None else _renumbered(indices_tuple, starts, stops)
    reference = (None, None) if ref_emb is None else (stops.rows, stops.labels)
    value: torch.Tensor = loss(starts.rows, starts.labels, tuples, *reference)
    return value


def groups_of(loss: nn.Module) -> list[dict[str, Any]]:
    """Return the parameter groups of any loss, by its own ``parameter_groups`` if it has one.

    Examples
    --------
    >>> loss = nn.Linear(2, 2)
    >>> loss.learning_rate = 0.3
    >>> [group["lr"] for group in groups_of(loss)]
    [0.3]
    """
    own = getattr(loss, "parameter_groups", None)
    return list(own()) if callable(own) else one_group(loss, getattr(loss, "learning_rate", None))


def one_group(
    loss: nn.Module, learning_rate: float | None, options: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Put all parameters of a loss into one group; no group without parameters."""
    group: dict[str, Any] = {"params": list(loss.parameters())} | (options or {})
    if learning_rate is not None:
        group["lr"] = learning_rate
    return [group] if group["params"] else []


def _is_of_rows(loss: nn.Module) -> bool:
    """Whether the loss has a matrix of parameters: proxies or a classifier."""
    return any(parameter.dim() > 1 for parameter in loss.parameters())


def _labeled(rows: torch.Tensor, labels: torch.Tensor | None) -> _Labeled:
    everywhere = torch.arange(len(rows), device=rows.device)
    if labels is None:
        return _Labeled(rows, None, everywhere)
    known = (labels != UNLABELED).to(rows.device)
    if known.all():
        return _Labeled(rows, labels, everywhere)
    places = torch.where(known, known.cumsum(dim=0) - 1, UNLABELED)
    return _Labeled(rows[known], labels[known.to(labels.device)], places)


def _renumbered(indices_tuple: Any, starts: _Labeled, stops: _Labeled) -> tuple[torch.Tensor, ...]:
    """Return the tuples among the labeled rows, renumbered."""
    sizes = len(starts.places), len(stops.places)
    tuples = as_tuples(indices_tuple, *sizes, starts.rows.device, "LossSum")
    whole = among_labeled(tuples, starts.places, stops.places)
    kept: list[torch.Tensor] = []
    for known, (anchor, *ends) in zip(whole, tuple_groups(tuples), strict=True):
        kept += [starts.places[anchor[known]], *(stops.places[end[known]] for end in ends)]
    return tuple(kept)
