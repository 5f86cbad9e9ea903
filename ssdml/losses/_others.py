"""Losses that are not ours, as parts of a sum: what they are shown, and how they learn."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from ssdml.graphs._checks import UNLABELED
from ssdml.graphs.triplets import Triplets
from ssdml.losses._batch import among_labelled, as_tuples, groups


class _Labelled(NamedTuple):
    """The labelled ones of some rows; all of them where there are no labels."""

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
    """Value of a loss to which -1 would be a class: it is shown the labelled rows alone.

    Of plain tuples it has those among them, renumbered. Mined triplets join unlabelled rows on
    purpose: a loss of pairs has them with all rows and no labels, one of rows goes without.
    """
    if isinstance(indices_tuple, Triplets):
        if _is_of_rows(loss):
            indices_tuple = None
        else:
            labels = ref_labels = None
    starts = _labelled(embeddings, labels)
    stops = starts if ref_emb is None else _labelled(ref_emb, ref_labels)
    if not len(starts.rows):
        return embeddings.sum() * 0
    tuples = None if indices_tuple is None else _renumbered(indices_tuple, starts, stops)
    reference = (None, None) if ref_emb is None else (stops.rows, stops.labels)
    value: torch.Tensor = loss(starts.rows, starts.labels, tuples, *reference)
    return value


def groups_of(loss: nn.Module) -> list[dict[str, Any]]:
    """Groups for an optimiser, by the loss's own ``parameter_groups`` if it has that.

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


def _labelled(rows: torch.Tensor, labels: torch.Tensor | None) -> _Labelled:
    everywhere = torch.arange(len(rows), device=rows.device)
    if labels is None:
        return _Labelled(rows, None, everywhere)
    known = (labels != UNLABELED).to(rows.device)
    if known.all():
        return _Labelled(rows, labels, everywhere)
    places = torch.where(known, known.cumsum(dim=0) - 1, UNLABELED)
    return _Labelled(rows[known], labels[known.to(labels.device)], places)


def _renumbered(
    indices_tuple: Any, starts: _Labelled, stops: _Labelled
) -> tuple[torch.Tensor, ...]:
    """Tuples among the labelled rows, by their places there."""
    sizes = len(starts.places), len(stops.places)
    tuples = as_tuples(indices_tuple, *sizes, starts.rows.device, "LossSum")
    whole = among_labelled(tuples, starts.places, stops.places)
    kept: list[torch.Tensor] = []
    for known, (anchor, *ends) in zip(whole, groups(tuples), strict=True):
        kept += [starts.places[anchor[known]], *(stops.places[end[known]] for end in ends)]
    return tuple(kept)
