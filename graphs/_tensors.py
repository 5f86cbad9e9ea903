"""Checks of torch tensors at the public doors, messages as in ``_checks``; rows of tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_float_matrix(value: Any, name: str, who: str) -> None:
    """Raise unless this is a floating tensor with two dimensions and a column; no row is fine."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        raise TypeError(f"{who}: {name} must be a floating tensor; got {_kind(value)}.")
    if value.dim() != 2 or value.shape[1] == 0:
        found = tuple(value.shape)
        raise ValueError(f"{who}: {name} must have two dimensions and a column; got shape {found}.")


def check_integers(value: Any, shape: torch.Size, name: str, who: str) -> None:
    """Raise unless this is a tensor of integers of this shape."""
    if not isinstance(value, torch.Tensor) or value.dtype not in INTEGERS:
        raise TypeError(f"{who}: {name} must be a tensor of integers; got {_kind(value)}.")
    if value.shape != shape:
        expected, found = tuple(shape), tuple(value.shape)
        raise ValueError(f"{who}: {name} must have shape {expected}; got shape {found}.")


def refuse(wrong: torch.Tensor, condition: str, way_out: str) -> None:
    """Raise if there are wrong entries, naming the first."""
    if len(wrong):
        raise ValueError(f"{condition}; got {wrong[0].item()}. {way_out}")


def to_device(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Copy a tensor of the CPU to a device; a CUDA device copies while the CPU goes on.

    From memory that is not pinned, a copy to CUDA waits until the device has done all it was asked.

    Examples
    --------
    >>> to_device(torch.ones(2), "cpu")
    tensor([1., 1.])
    """
    if torch.device(device).type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def unit_rows(rows: torch.Tensor) -> torch.Tensor:
    """Rows of length 1; a row of zeros stays one, and its gradient stays finite."""
    # A product, for the slope of a quotient takes three more passes over the rows.
    return rows * inverse_lengths(rows)[:, None]


def inverse_lengths(rows: torch.Tensor) -> torch.Tensor:
    """One over the length of each row, (n,); 1 for a row of zeros."""
    lengths = torch.linalg.vector_norm(rows, dim=1)
    return lengths.masked_fill(lengths < torch.finfo(rows.dtype).tiny, 1).reciprocal()


def take_rows(rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rows at these places, as ``rows[places]``; a gradient whose bits do not vary.

    That of ``rows[places]`` is added up by several threads in any order, wherever a place comes
    more than once.
    """
    return functional.embedding(places, rows)


def _kind(value: Any) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__
