"""Base class of the losses, and their weighted sum."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import Any, Self

import torch
from torch import nn

from ssdml.losses.batch import (
    NEEDS,
    SAMPLER,
    Batch,
    as_batch,
    can_check_values,
    check_finite,
    check_home,
    warn_of_zero,
)
from ssdml.losses.elsewhere import call_other, distinct_groups, groups_of, scalar, unwrapped
from ssdml.utils.torch_tools import check_float_matrix
from ssdml.utils.validation import UNLABELED, as_list

try:
    from pytorch_metric_learning.losses import BaseMetricLossFunction as _Base
except ImportError:
    _Base = nn.Module

_ADDED = "Add it: LossSum([loss, (weight, regularizer)])."
NOT_TAKEN = {  # options of pytorch-metric-learning's losses
    "distance": "The formula of the loss has its own; choose another loss.",
    "reducer": "The loss is a weighted mean: multiply it, or pass weights in the call.",
    "embedding_regularizer": _ADDED,
    "embedding_reg_weight": _ADDED,
    "collect_stats": "The loss collects none; read them from its embeddings.",
    "weight_regularizer": _ADDED,
    "weight_reg_weight": _ADDED,
}


class Term:
    """Arithmetic of losses: sums, differences, and products with numbers."""

    def __add__(self, other: Any) -> LossSum:
        return _sum_of(self, other)

    def __radd__(self, other: Any) -> LossSum:
        return _sum_of(other, self)

    def __sub__(self, other: Any) -> LossSum:
        return LossSum([self, (-1.0, other)]) if isinstance(other, nn.Module) else NotImplemented

    def __neg__(self) -> LossSum:
        return self * -1

    def __mul__(self, factor: Any) -> LossSum:
        factor = _number(factor)
        if not isinstance(factor, Real):
            return NotImplemented
        return LossSum([(float(factor) * weight, part) for weight, part in _terms(self)])

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> LossSum:
        if not isinstance(divisor, Real | torch.Tensor):
            return NotImplemented
        if isinstance(divisor, Real) and divisor == 0:
            raise ZeroDivisionError("losses are divided by numbers other than 0; got 0.")
        return self * (1 / divisor)


class Loss(Term, _Base):
    """Base class of losses, which can be called, added and scaled.

    A subclass implements :meth:`of_batch`. With pytorch-metric-learning installed it is a
    ``BaseMetricLossFunction``; otherwise a plain module with the same call. Each loss averages over
    its pairs or rows; there is no reducer.

    Notes
    -----
    *Call.* ``loss(embeddings, labels=None, indices_tuple=None, ref_emb=None, ref_labels=None,
    weights=None)`` returns a scalar, see :meth:`forward`. A row labeled -1 has no class and is in
    no pair. If there is nothing to compare, the loss is 0 with a gradient of zeros, and warns, but
    not if ``indices_tuple`` is given and a row is labeled. Weights are constants; the weight of a
    pair is the product of the weights of its rows.

    *Pairs.* A row is not paired with the reference of the same index if ``ref_labels`` are the
    labels themselves (the same tensor) or not given, as in pytorch-metric-learning.

    *Tuples.* Plain tuples with a row labeled -1 are ignored, because the miners of
    pytorch-metric-learning treat -1 as a class; mined :class:`Triplets <ssdml.graphs.Triplets>`
    include unlabeled rows on purpose and are kept. A repeated pair counts once, with its largest
    weight (twice in pytorch-metric-learning); a repeated triplet counts twice. Losses with proxies
    or centers treat tuples as classification losses of pytorch-metric-learning do: a row counts as
    often as plain tuples contain it. Their mean is over these counts, where that of
    pytorch-metric-learning is over the rows of the batch. ``DensityAdaptivity`` and
    ``GraphConsistency`` ignore tuples, because they need whole classes and halves.

    *In pytorch-metric-learning.* These losses accept the tuples of its miners and work in
    ``MetricLossOnly``, ``MultipleLosses`` and ``DistributedLossWrapper``; those of pairs in
    ``CrossBatchMemory`` and ``SelfSupervisedLoss`` too, which accept losses by name: importing this
    module, as the first use of ``ssdml.losses`` does, adds the names to their lists. It also lets
    the losses of pytorch-metric-learning be scaled, added and subtracted: ``0.5 *
    TripletMarginLoss() + loss / 2``. Their options ``distance``, ``reducer``,
    ``embedding_regularizer`` and ``collect_stats`` raise a TypeError here.

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
    follows_miner = False  # whether its rows weigh as often as plain tuples name them
    takes_reference = True
    takes_halves = False  # whether it needs batches of two halves with the same classes
    needs = NEEDS  # of a batch, for a loss other than 0
    sampler = SAMPLER  # of such batches

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Refuse options of pytorch-metric-learning that would have no effect."""
        for name, value in options.items():
            _refuse(cls, name, value)
        return super().__new__(cls)

    def __init__(self) -> None:
        nn.Module.__init__(self)  # pytorch-metric-learning's sets a distance and a reducer

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(type(self), name, value)
        super().__setattr__(name, value)

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
        indices_tuple : 3 or 4 tensors of integers or rows of one, or Triplets, optional
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

        Warns
        -----
        UserWarning
            If the labels leave nothing to compare, so that the loss is 0.
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
            follows_miner=self.follows_miner,
            n_classes=self.num_classes,
        )
        if batch.has_reference and not self.takes_reference:
            raise ValueError(
                f"{who}: ref_emb must be None; got shape {tuple(batch.reference.shape)}. The loss "
                "compares no pairs: call it without."
            )
        self._check_own(batch.embeddings, who)
        with torch.autocast(batch.embeddings.device.type, enabled=False):
            value = scalar(self.of_batch(batch), who).clone()  # for total += loss(...)
            if can_check_values() and value.detach().item() == 0:
                mined = indices_tuple is not None  # a miner may find nothing in a good batch
                if not mined or (batch.labels is not None and (batch.labels == UNLABELED).all()):
                    self._warn_if_unusable(batch, who)
        return value

    def of_batch(self, batch: Batch) -> torch.Tensor:
        """Compute the loss of a checked batch."""
        raise NotImplementedError

    def usable(self, batch: Batch) -> bool:
        """Whether the batch has what the loss :attr:`needs`."""
        return bool((batch.row_weights > 0).any())

    def _warn_if_unusable(self, batch: Batch, who: str) -> None:
        if self.usable(batch):
            return
        found = "no labels"
        if batch.labels is not None:
            known = batch.labels[batch.row_weights > 0]
            weighted = "" if batch.weights is None else " with a weight above 0"
            n_classes = len(set(known.tolist()))
            found = f"{len(known)} of them labeled{weighted}, in {n_classes} classes"
        n_rows = len(batch.embeddings)
        warn_of_zero(who, n_rows, found, needs=self.needs, sampler=self.sampler)

    def _check_own(self, rows: torch.Tensor, who: str) -> None:
        """Raise unless the parameters of the loss match the rows."""
        if self.embedding_size not in (None, rows.shape[1]):
            raise ValueError(
                f"{who}: embeddings must have embedding_size = {self.embedding_size} columns; got "
                f"{rows.shape[1]}. Create the loss with embedding_size={rows.shape[1]}, the "
                "n_components of DeepSSDML."
            )
        held = *self.named_parameters(recurse=False), *self.named_buffers(recurse=False)
        for name, tensor in held:
            if not tensor.is_floating_point():
                continue
            check_home(tensor, rows, name, who, "Call loss.to(embeddings).")
            check_finite(tensor, name, who, "Lower the learning rate of the loss.")

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return parameter groups for an optimizer, with their own learning rate if there is one.

        ``Adam([{"params": network.parameters()}, *loss.parameter_groups()])``. Empty without
        parameters.
        """
        group = {"params": list(self.parameters()), **self.group_options}
        return distinct_groups([group], self.learning_rate)

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
    Losses from other libraries support neither weights nor unlabeled rows. They reject ``weights``
    and get only the labeled rows, with the plain tuples among these, renumbered. Mined
    :class:`Triplets <ssdml.graphs.Triplets>` include unlabeled rows: pair losses get them with all
    rows, without weights and labels. Losses with a matrix of parameters (proxies, a classifier), or
    that need labels (``CrossBatchMemory``), do not get them.

    Compiled losses, and those in ``DistributedDataParallel``, count as the losses they wrap. Others
    are called with the arguments that their ``forward`` names, so wrappers of
    pytorch-metric-learning can be terms: ``MultipleLosses``, ``CrossBatchMemory``, and
    ``SelfSupervisedLoss``, whose second views are ``ref_emb``. Its losses without labels
    (``VICRegLoss``, ``ManifoldLoss``) and regularizers of embeddings get all rows, and no tuples.

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
        given = as_list(terms, "terms", "LossSum", "losses")
        for weight, part in (flat_term for term in given for flat_term in _terms(term)):
            before = flat.get(id(part), (0.0, part))[0]
            flat[id(part)] = (before + weight, part)
        if not flat:
            raise ValueError("LossSum: terms must hold a loss; got none.")
        self.weights = tuple(weight for weight, _ in flat.values())
        self.losses = nn.ModuleList(part for _, part in flat.values())

    @property
    def takes_halves(self) -> bool:  # type: ignore[override]
        """Whether one of the losses needs batches of two halves with the same classes."""
        every = (part for loss in self.losses for part in loss.modules())
        return any(getattr(part, "takes_halves", False) for part in every)

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
        check_float_matrix(embeddings, "embeddings", "LossSum")
        given = (embeddings, labels, indices_tuple, ref_emb, ref_labels, weights)
        total = embeddings.new_zeros(())
        for weight, part in zip(self.weights, self.losses, strict=True):
            is_ours = isinstance(unwrapped(part), Loss)
            loss = part(*given) if is_ours else call_other(part, *given)
            total = total + weight * loss
        return total

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of all losses.

        A loss from elsewhere has one group, with its ``learning_rate`` if you set one
        (``softmax.learning_rate = 0.01``), unless it has its own ``parameter_groups``; a wrapper
        has those of the losses in it. If you set that of the sum, it holds for all groups.
        """
        groups = (group for part in self.losses for group in groups_of(part))
        return distinct_groups(groups, self.learning_rate)

    def __repr__(self) -> str:
        terms = zip(self.weights, self.losses, strict=True)
        return " + ".join(f"{weight:g} * {part!r}" for weight, part in terms)


def _number(factor: Any) -> Any:
    """Return a tensor of one entry as a number; raise if it requires a gradient."""
    if not isinstance(factor, torch.Tensor) or factor.numel() != 1:
        return factor
    if factor.requires_grad:
        raise TypeError(
            "losses are scaled by constants; got a tensor that requires a gradient. Scale the "
            "value instead: factor * loss(embeddings, labels)."
        )
    return factor.item()


def _sum_of(one: Any, other: Any) -> LossSum:
    """Add two losses, or return NotImplemented; ignore the 0 that ``sum`` starts with."""
    terms = [term for term in (one, other) if not (isinstance(term, Real) and term == 0)]
    if not all(isinstance(term, nn.Module) for term in terms):
        return NotImplemented
    return LossSum(terms)


def _terms(term: Any) -> list[tuple[float, nn.Module]]:
    """Return a loss, a pair (weight, loss) or a sum as a list of pairs."""
    is_pair = isinstance(term, tuple | list) and len(term) == 2
    weight, part = map(_number, term) if is_pair else (1.0, term)
    if not isinstance(part, nn.Module):
        way_out = "Write it as a torch.nn.Module."
        if isinstance(weight, nn.Module):
            way_out = "Pass the weight first: (weight, loss)."
        raise TypeError(f"LossSum: terms must be modules; got {type(part).__name__}. {way_out}")
    if not isinstance(weight, Real) or not math.isfinite(float(weight)):
        raise ValueError(f"LossSum: weights must be finite numbers; got {weight!r}.")
    if isinstance(part, LossSum):
        inner = zip(part.weights, part.losses, strict=True)
        return [(float(weight) * factor, loss) for factor, loss in inner]
    return [(float(weight), part)]


def _refuse(kind: type[Loss], name: str, value: Any) -> None:
    """Raise on an option of pytorch-metric-learning, unless the loss has one of that name."""
    if name not in NOT_TAKEN or name in inspect.signature(kind.__init__).parameters:
        return
    found = value if value is None or isinstance(value, Real) else type(value).__name__
    raise TypeError(f"{kind.__name__}: {name} must not be given; got {found}. {NOT_TAKEN[name]}")


def _kinds(base: type[Loss]) -> Iterator[type[Loss]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def _check_terms(loss: nn.Module, wrapper: Any) -> None:
    """Raise on a sum of which a term is not among the losses that a wrapper takes."""
    for part in loss.losses if isinstance(loss, LossSum) else ():
        name = type(unwrapped(part)).__name__
        if name not in wrapper.supported_losses():
            raise ValueError(
                f"{wrapper.__name__}: the sum must hold losses of pairs only; got {name}. Add it "
                f"beside: {wrapper.__name__}(...) + {name}(...)."
            )


def _introduce() -> None:
    """Make pytorch-metric-learning's wrappers accept our losses, and its losses be added."""
    from pytorch_metric_learning import losses
    from pytorch_metric_learning.losses.base_loss_wrapper import BaseLossWrapper
    from pytorch_metric_learning.regularizers import BaseRegularizer
    from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

    def extended(theirs: Callable[[], list[str]]) -> Callable[[], list[str]]:
        def supported_losses() -> list[str]:
            ours = (kind for kind in _kinds(Loss) if kind.over_tuples or kind is LossSum)
            return [*theirs(), *(kind.__name__ for kind in ours)]

        return supported_losses

    def init(self: Any, loss: nn.Module, **options: Any) -> None:
        theirs(self, loss, **options)
        _check_terms(loss, type(self))

    theirs, BaseLossWrapper.__init__ = BaseLossWrapper.__init__, init
    wrappers = losses.CrossBatchMemory, losses.SelfSupervisedLoss
    for wrapper in wrappers:
        wrapper.supported_losses = staticmethod(extended(wrapper.supported_losses))
    scaled = _Base, BaseRegularizer, losses.MultipleLosses, DistributedLossWrapper, *wrappers
    for kind in scaled:
        for name in ("add", "radd", "sub", "neg", "mul", "rmul", "truediv"):
            name = f"__{name}__"
            setattr(kind, name, getattr(Term, name))


if _Base is not nn.Module:
    _introduce()
