"""Call losses from elsewhere: the arguments they take, their values and their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from ssdml.graphs.triplets import Triplets
from ssdml.losses.batch import (
    among_labeled,
    as_tuples,
    can_check_values,
    tuple_groups,
    warn_of_zero,
)
from ssdml.utils.torch_tools import HALVES
from ssdml.utils.validation import UNLABELED

ARGUMENTS = ("labels", "indices_tuple", "ref_emb", "ref_labels")
WRAPPERS = nn.DataParallel, DistributedDataParallel, AveragedModel
WITHOUT_LABELS = {"VICRegLoss", "ManifoldLoss"}  # they raise on labels, which their names allow


def unwrapped(loss: nn.Module) -> nn.Module:
    """Return the loss in a wrapper of torch: compiled, averaged or parallel.

    Examples
    --------
    >>> loss = nn.Linear(2, 2)
    >>> unwrapped(nn.DataParallel(loss)) is loss
    True
    """
    inner = loss.module if isinstance(loss, WRAPPERS) else getattr(loss, "_orig_mod", loss)
    return loss if inner is loss else unwrapped(inner)


def call_other(
    loss: nn.Module,
    embeddings: torch.Tensor,
    labels: torch.Tensor | None,
    indices_tuple: Any,
    ref_emb: torch.Tensor | None,
    ref_labels: torch.Tensor | None,
    weights: Any,
) -> torch.Tensor:
    """Call a loss that treats -1 as a class, as the notes of :class:`LossSum` say."""
    if weights is not None:
        raise ValueError(
            f"LossSum: weights must be None with {type(loss).__name__}, which takes none; got "
            f"{type(weights).__name__}. Draw the batches by weight (ssdml.networks.sampling), or "
            "call the losses one by one."
        )
    takes = _Taken.of(loss)
    if not takes.names:
        return takes.call(loss, embeddings, (None,) * len(ARGUMENTS))
    if isinstance(indices_tuple, Triplets):
        if "labels" in takes.required or _is_of_rows(loss):
            indices_tuple = None
        else:
            labels = ref_labels = None
    if "labels" not in takes.names:
        labels = ref_labels = None
    starts = _labeled(embeddings, labels)
    stops = starts if ref_emb is None else _labeled(ref_emb, ref_labels)
    if not len(starts.rows):
        if len(embeddings) and can_check_values():
            warn_of_zero(type(loss).__name__, len(embeddings), "none of them labeled")
        return embeddings.sum() * 0
    tuples = None if indices_tuple is None else _renumbered(indices_tuple, starts, stops)
    reference = (None, None) if ref_emb is None else (stops.rows, stops.labels)
    return takes.call(loss, starts.rows, (starts.labels, tuples, *reference))


class _Labeled(NamedTuple):
    """Labeled rows; all rows if there are no labels."""

    rows: torch.Tensor
    labels: torch.Tensor | None
    places: torch.Tensor  # index of each original row among these, or -1


class _Taken(NamedTuple):
    """Arguments after the embeddings that a loss takes, of :data:`ARGUMENTS`."""

    names: tuple[str, ...]
    required: tuple[str, ...]
    by_name: bool

    @classmethod
    def of(cls, loss: nn.Module) -> _Taken:
        """Read them off the signature of ``forward``; unknown names count by position."""
        if _is_without_labels(loss):
            return cls(("ref_emb",), (), by_name=True)
        _, *others = inspect.signature(unwrapped(loss).forward).parameters.values()
        if any(one.kind is one.VAR_POSITIONAL for one in others):
            return cls(ARGUMENTS, (), by_name=False)
        required = [one.name for one in others if one.default is one.empty]
        if set(required) <= set(ARGUMENTS):
            names = tuple(one.name for one in others if one.name in ARGUMENTS)
            return cls(names, tuple(required), by_name=True)
        return cls(ARGUMENTS[: len(others)], ARGUMENTS[: len(required)], by_name=False)

    def call(self, loss: nn.Module, rows: torch.Tensor, given: Iterable[Any]) -> torch.Tensor:
        """Call the loss; raise if an argument is missing, or given to one that does not take it."""
        values, who = dict(zip(ARGUMENTS, given, strict=True)), type(unwrapped(loss)).__name__
        for name, value in values.items():
            if name in self.required and value is None:
                others = " DeepSSDML passes none: choose another loss." * (name == "ref_emb")
                raise ValueError(
                    f"LossSum: {name} must be given with {who}; got None. Pass it in the call."
                    f"{others}"
                )
            if name == "ref_emb" and name not in self.names and value is not None:
                raise ValueError(
                    f"LossSum: {name} must be None with {who}, which does not take it; got a "
                    f"tensor of shape {tuple(value.shape)}. Call the losses one by one."
                )
        taken = {name: values[name] for name in self.names}
        try:
            value = loss(rows, **taken) if self.by_name else loss(rows, *taken.values())
        except Exception as error:
            error.add_note(f"LossSum: {who} was called with {_described(loss, rows, taken, error)}")
            raise
        return scalar(value, who)


def _described(loss: nn.Module, rows: torch.Tensor, taken: dict[str, Any], error: Exception) -> str:
    """Describe the arguments of a loss that raised, and tell what may help."""
    given = [name for name, value in taken.items() if value is not None]
    if "not supported" in str(error):  # words of pytorch-metric-learning
        return f"{', '.join(given)}. Call the losses one by one."
    if rows.dtype in HALVES:
        return f"embeddings of {rows.dtype}. Pass embeddings.float()."
    labels = taken.get("labels")
    least = 0 if labels is None or not len(labels) else int(labels.max()) + 1
    shape = f"embeddings of shape {tuple(rows.shape)} and classes below {least}."
    sizes = f" Create it for {rows.shape[1]} columns and {least} classes."
    return shape + sizes * _is_of_rows(loss)


def scalar(value: Any, who: str) -> torch.Tensor:
    """Return the value of a loss; raise unless it is one number."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value
    found = type(value).__name__
    if isinstance(value, torch.Tensor):
        found = f"a tensor of shape {tuple(value.shape)}"
    raise TypeError(
        f"{who}: the loss must return a tensor of one number; got {found}. Return the mean over "
        "the batch."
    )


def groups_of(loss: nn.Module) -> list[dict[str, Any]]:
    """Return the parameter groups of any loss, by its own ``parameter_groups`` if it has one.

    Those of a wrapper are those of the losses in it.

    Examples
    --------
    >>> loss = nn.Linear(2, 2)
    >>> loss.learning_rate = 0.3
    >>> [group["lr"] for group in groups_of(loss)]
    [0.3]
    """
    loss = unwrapped(loss)
    own = getattr(loss, "parameter_groups", None)
    if callable(own):
        return list(own())
    inner = (group for part in loss.children() for group in groups_of(part))
    groups = [group for group in inner if group.keys() > {"params"}]  # with options
    every = {"params": list(loss.parameters())}
    return distinct_groups([*groups, every], getattr(loss, "learning_rate", None))


def distinct_groups(
    groups: Iterable[dict[str, Any]], learning_rate: float | None
) -> list[dict[str, Any]]:
    """Keep each parameter in its first group; set the learning rate of all groups, if any."""
    kept, taken = [], set[int]()
    for group in groups:
        left = [parameter for parameter in group["params"] if id(parameter) not in taken]
        taken.update(map(id, left))
        if left:
            rate = {} if learning_rate is None else {"lr": learning_rate}
            kept.append({**group, "params": left, **rate})
    return kept


def _is_without_labels(loss: nn.Module) -> bool:
    """Whether the loss, or that in a wrapper of it for distributed training, takes no labels."""
    inner = getattr(unwrapped(loss), "loss", unwrapped(loss))
    return any(kind.__name__ in WITHOUT_LABELS for kind in type(inner).__mro__)


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
