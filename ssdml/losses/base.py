"""What every loss is: pytorch-metric-learning's call with weights, a sum, groups of parameters."""

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
    groups,
)
from ssdml.utils.validation import UNLABELED

try:
    from pytorch_metric_learning.losses import BaseMetricLossFunction as _Base
except ImportError:
    _Base = nn.Module


class Loss(_Base):
    """A loss of the rows of a batch, to be called, added and scaled.

    With pytorch-metric-learning installed it is one of its ``BaseMetricLossFunction``; without, the
    same call is that of a plain module. The mean over pairs or rows is part of each loss: there is
    no reducer to choose.

    Notes
    -----
    *Call.* ``loss(embeddings, labels=None, indices_tuple=None, ref_emb=None, ref_labels=None,
    weights=None)`` gives a scalar, see :meth:`forward`. A row labeled -1 makes no pair and has no
    class. Where there is nothing to compare the loss is 0, with a gradient of zeros. Weights are
    constants; a pair has the product of its two rows'.

    *Tuples.* A plain tuple that touches a row labeled -1 is left out: the miners of
    pytorch-metric-learning take -1 for a class. :class:`Triplets <ssdml.graphs.Triplets>` are mined
    over unlabeled rows on purpose, and stay. A pair that is named twice counts once, with the
    largest of its weights, where pytorch-metric-learning counts it twice; a triplet that is named
    twice counts twice. Losses of rows do not look at tuples.

    *In pytorch-metric-learning.* The trainer ``MetricLossOnly``, ``MultipleLosses`` and
    ``DistributedLossWrapper`` take these losses, and they take what a miner gives.
    ``CrossBatchMemory`` and ``SelfSupervisedLoss`` refuse them, as all losses whose class they do
    not know by name; rows of a memory of one's own go into ``ref_emb`` and ``ref_labels``.

    *Precision.* float16 and bfloat16 are computed, and returned, in float32, autocast or not;
    float32 and float64 stay what they are.

    *Several processes.* A loss is one of the whole batch: ``loss(gathered(embeddings),
    gathered(labels))`` with :func:`ssdml.utils.distributed.gathered` has the value and the gradients of one
    process, once those of the network and of the loss are averaged over the ranks.

    *Compilation.* torch.compile makes one graph of a loss; of which it makes more, the loss says.
    Values are not looked at in it: labels out of range and NaN then go unnoticed.

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

    learning_rate: float | None = None  # of its own parameters; None: the optimizer's
    group_options: dict[str, Any] = {}  # noqa: RUF012  # nobody writes to it
    num_classes: int | None = None
    embedding_size: int | None = None  # columns that it must be given
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
        """Loss of a batch.

        Parameters
        ----------
        embeddings : tensor of shape (n, d), floating
        labels : tensor of shape (n,), integers, optional
            From 0; -1 where a row has none.
        indices_tuple : sequence of 3 or 4 tensors of integers, or Triplets, optional
            Rows of the batch: (anchors, positives, negatives), each of shape (n_triplets,), or
            (anchors, positives, anchors, negatives), two of shape (n_positive,) and two of shape
            (n_negative,). None: all pairs or triplets that the labels make.
        ref_emb : tensor of shape (m, d), optional
            Rows that positives and negatives are among; None: the embeddings themselves.
        ref_labels : tensor of shape (m,), integers, optional
            Theirs.
        weights : array, optional
            Finite and not negative, of shape (n,): one a row. Beside a plain ``indices_tuple``, in
            a loss of pairs, of shape (n_triplets,) or (n_positive + n_negative,).

        Returns
        -------
        loss : tensor, a scalar
            float64 for embeddings of float64, else float32.

        Raises
        ------
        TypeError
            For embeddings that are no floating tensor, and labels or tuples that are no integers.
        ValueError
            For another shape, dtype or device than these, embeddings, weights or parameters that
            are not finite, labels or tuples out of range, labels that are missing where there are
            no tuples, and ``ref_emb`` for a loss of rows.
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
        """Loss of a batch that was checked."""
        raise NotImplementedError

    def _check_own(self, rows: torch.Tensor, who: str) -> None:
        """Raise unless what the loss holds suits these rows."""
        if self.embedding_size not in (None, rows.shape[1]):
            raise ValueError(
                f"{who}: embeddings must have embedding_size = {self.embedding_size} columns; got "
                f"{rows.shape[1]}. Make the loss with embedding_size={rows.shape[1]}; in DeepSSDML "
                "that is n_components."
            )
        for name, tensor in self.named_parameters(recurse=False):
            check_home(tensor, rows, name, who, "Call loss.to(embeddings).")
            check_finite(tensor, name, who, "Lower the learning rate of the loss.")

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups for an optimizer: its parameters, with their own learning rate if they have one.

        ``Adam([{"params": network.parameters()}, *loss.parameter_groups()])``; a loss without
        parameters gives none.
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
    Every loss is called with the same arguments, but for those that are not ours: these know
    neither weights nor unlabeled rows. With ``weights`` the call is refused. They are given the
    labeled rows alone, and of plain tuples those among them, renumbered. Mined :class:`Triplets
    <ssdml.graphs.Triplets>`, which join unlabeled rows on purpose, reach a loss of pairs with all
    rows, without their weights and without labels; a loss that learns a matrix, of proxies or of a
    classifier, is one of rows, and goes without them.

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
            if isinstance(part, Loss):
                loss = part(*given, weights)
            else:
                _check_no_weights(weights, part)
                loss = call_other(part, *given)
            total = total + weight * loss
        return total

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Groups of all the losses.

        One that is not ours has those of its own ``parameter_groups``, if it has that method, or
        else one, with its ``learning_rate`` if it has that: ``softmax.learning_rate = 0.01``.
        """
        return [group for part in self.losses for group in groups_of(part)]

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


def _check_no_weights(weights: Any, loss: nn.Module) -> None:
    if weights is not None:
        raise ValueError(
            f"LossSum: weights must be None with {type(loss).__name__}, which takes none; got "
            f"{type(weights).__name__}. Draw the batches by weight (ssdml.networks.sampling), or call the "
            "losses one by one."
        )


# Losses that are not ours, as parts of a sum: what they are shown, and how they learn.


class _Labeled(NamedTuple):
    """The labeled ones of some rows; all of them where there are no labels."""

    rows: torch.Tensor
    labels: torch.Tensor | None
    places: torch.Tensor  # of every row among these, -1 if it is not one of them


def call_other(
    loss: nn.Module,
    embeddings: torch.Tensor,
    labels: torch.Tensor | None,
    indices_tuple: Any,
    ref_emb: torch.Tensor | None,
    ref_labels: torch.Tensor | None,
) -> torch.Tensor:
    """Value of a loss to which -1 would be a class: it is shown the labeled rows alone.

    Of plain tuples it has those among them, renumbered. Mined triplets join unlabeled rows on
    purpose: a loss of pairs has them with all rows and no labels, one of rows goes without.
    """
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
    """Groups for an optimizer, by the loss's own ``parameter_groups`` if it has that.

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
    """All parameters of a loss as one group, with these options; without parameters no group."""
    group: dict[str, Any] = {"params": list(loss.parameters())} | (options or {})
    if learning_rate is not None:
        group["lr"] = learning_rate
    return [group] if group["params"] else []


def _is_of_rows(loss: nn.Module) -> bool:
    """Whether it learns a matrix: proxies, or the weights of a classifier."""
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
    """Tuples among the labeled rows, by their places there."""
    sizes = len(starts.places), len(stops.places)
    tuples = as_tuples(indices_tuple, *sizes, starts.rows.device, "LossSum")
    whole = among_labeled(tuples, starts.places, stops.places)
    kept: list[torch.Tensor] = []
    for known, (anchor, *ends) in zip(whole, groups(tuples), strict=True):
        kept += [starts.places[anchor[known]], *(stops.places[end[known]] for end in ends)]
    return tuple(kept)
