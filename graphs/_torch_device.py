"""The device of torch that was asked for, and the precision that it multiplies in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def torch_device(device: str, who: str, dtype: torch.dtype | None = None) -> torch.device:
    """The device called so, which must know the dtype; "auto" is CUDA where torch finds one."""
    import torch

    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found, dtype=dtype)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise ValueError(
            f"{who}: device must be one that torch has here; got {device!r}. Use 'cpu' or 'auto'."
        ) from error
    return found


def free_bytes(device: torch.device) -> float:
    """Memory that an array on the device can still take; infinite where nobody tells."""
    import psutil
    import torch

    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device.index)[0] + kept)
    return float(psutil.virtual_memory().available) if device.type == "cpu" else float("inf")


@contextmanager
def full_precision() -> Iterator[None]:
    """Have torch multiply in float32 and not in the shorter TF32; restore after."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
