"""Checks of torch tensors at the public doors, messages as in ``_checks``; rows of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    import torch

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


# The device of torch that was asked for, and the precision that it multiplies in.


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


# What plain RuntimeErrors say of it: torch's on a CPU, those of cuBLAS and cuDNN,
# and of CUDA where a card is full before anything of this process is on it.
NO_ROOM = re.compile("can't allocate memory|ALLOC_FAILED|out of memory")


def is_no_room(error: Exception) -> bool:
    """Whether it says that memory ran out, in main memory or on a device.

    Examples
    --------
    >>> is_no_room(MemoryError()), is_no_room(RuntimeError("shapes cannot be multiplied"))
    (True, False)
    """
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and bool(NO_ROOM.search(str(error)))


@contextmanager
def memory_hints(settings: Any) -> Iterator[None]:
    """Where memory runs out, on a device or without one, the error says which setting to lower.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> with memory_hints(SimpleNamespace(batch_size=160)):
    ...     raise torch.cuda.OutOfMemoryError("20 GiB")
    Traceback (most recent call last):
    MemoryError: No room (20 GiB). Lower batch_size=160, or the network's size, or free the device.
    """
    try:
        yield
    except MemoryError as error:  # NumPy's: the graphs and what stands beside the embedding
        without = ", or set input_edges=0 and input_weight=0" * hasattr(settings, "input_edges")
        raise MemoryError(
            f"No room in main memory ({error}). Give fewer items{without}."
        ) from error
    except RuntimeError as error:
        if not is_no_room(error):
            raise
        elsewhere = " in another folder" * (getattr(settings, "checkpoint_dir", None) is not None)
        raise MemoryError(
            f"No room ({error}). Lower batch_size={settings.batch_size}{elsewhere}, or the "
            "network's size, or free the device."
        ) from error


@contextmanager
def seeded(seed: int, device: str) -> Iterator[None]:
    """Torch's own generators, for dropout and the like, from a seed; left as they were."""
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """A network in evaluation mode, then again in that it was in."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)


def has_bfloat16(device: str) -> bool:
    """Whether a device is a GPU that multiplies in bfloat16: NVIDIA's since Ampere do.

    Examples
    --------
    >>> has_bfloat16("cpu")  # one may, but not surely faster
    False
    """
    return device.startswith("cuda") and torch.cuda.get_device_capability(device) >= (8, 0)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread of the CPU: batches are small, and sums do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def find_device(name: str) -> str:
    """Return ``name``, or the GPU that torch finds, or the CPU, for "auto".

    Examples
    --------
    >>> find_device("cpu")
    'cpu'
    """
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(
            f"device must be one that torch finds; got {name!r}, and it finds no GPU. Pass 'auto' "
            "or 'cpu', or install a torch that is built for your GPU."
        )
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda":  # by its number: a tensor there would take room in each process
            is_there = (device.index or 0) < torch.cuda.device_count()
        else:
            torch.zeros(1, device=device)
            is_there = device.type != "meta"
    except (RuntimeError, NotImplementedError, AssertionError, ImportError):
        is_there = False
    if not is_there:
        raise ValueError(
            f"device must be one that torch finds; got {name!r}. Pass 'auto', 'cpu', or 'cuda:0' "
            "for the first GPU."
        )
    return name
