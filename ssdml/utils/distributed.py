"""Distributed training under torchrun.

Every rank draws the same batches and views. Our alternation embeds a slice of each batch per rank
and gathers the rest: losses see whole batches, and the gradient is that of one process, for
networks that treat samples one by one. Batch normalization sees a slice, unless it is a
torch.nn.SyncBatchNorm. The published alternation and the baselines embed whole batches on every
rank; only graphs and metrics are shared.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import distributed, nn

from ssdml.utils.torch_tools import load_whole_state, whole_state

T = TypeVar("T")
TIMEOUT = timedelta(hours=2)  # the first rank may take long to build the graphs


def world_size() -> int:
    """World size (1 if not distributed)."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def is_distributed() -> bool:
    """Whether several processes train together."""
    return world_size() > 1


def rank() -> int:
    """Rank of this process (0 if not distributed)."""
    return distributed.get_rank() if is_distributed() else 0


def init_process_group(device: str) -> str:
    """Join the process group if torchrun started this process: gloo on a CPU, NCCL on CUDA.

    "cuda" becomes the GPU of this process. Raises ValueError if the GPU belongs to another process
    of this machine, or does not exist.
    """
    started = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    if not started or not distributed.is_available():
        return device
    own = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    is_alone = os.environ.get("LOCAL_WORLD_SIZE", "1") == "1"  # on this machine
    if device.startswith("cuda:") and device != own and not is_alone:
        raise ValueError(
            "device must be 'cuda' under torchrun, where each process takes its own GPU, this one "
            f"{own}; got {device!r}, the GPU of another process."
        )
    if device == "cuda":
        device = own
    if device.startswith("cuda") and int(device[5:]) >= torch.cuda.device_count():
        raise ValueError(
            "torchrun must start at most one process per GPU; got "
            f"{device} for this one, which sees {torch.cuda.device_count()}. Lower "
            "--nproc-per-node, show all GPUs in CUDA_VISIBLE_DEVICES, or pass device='cpu'."
        )
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    if not distributed.is_initialized():
        backend = "nccl" if device.startswith("cuda") else "gloo"
        store, own, size = next(distributed.rendezvous("env://"))  # type: ignore[attr-defined]
        # After a restart torchrun may keep its store, with the addresses of dead processes.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = distributed.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
        distributed.init_process_group(
            backend, store=store, rank=own, world_size=size, timeout=TIMEOUT
        )
    return device


def rank_slice(size: int) -> slice:
    """Return the rows of a batch that this rank embeds."""
    if size % world_size():
        raise ValueError(
            f"batch_size must be a multiple of the {world_size()} processes; got {size}."
        )
    share = size // world_size()
    return slice(rank() * share, (rank() + 1) * share)


def gathered(rows: torch.Tensor) -> torch.Tensor:
    """Gather the rows of all ranks in order; gradients flow back to each rank.

    Ranks may have different numbers of rows.
    """
    if not is_distributed():
        return rows
    own = torch.tensor(len(rows), device=rows.device)
    sizes = [torch.empty_like(own) for _ in range(world_size())]
    distributed.all_gather(sizes, own)
    return _Gather.apply(rows, [*map(int, sizes)])  # type: ignore[no-untyped-call]


def from_first_rank(compute: Callable[[], T]) -> T:
    """Compute on the first rank and broadcast the result."""
    if not is_distributed():
        return compute()
    message = [compute() if rank() == 0 else None]
    distributed.broadcast_object_list(message, src=0)
    return cast(T, message[0])


def broadcast_weights(module: nn.Module) -> None:
    """Copy the state of a module from the first rank to all others."""
    if is_distributed():
        state = {name: value.cpu() for name, value in whole_state(module).items()}
        load_whole_state(module, from_first_rank(lambda: state))


def average_gradients(module: nn.Module) -> None:
    """Average the gradients over all ranks, in one message."""
    if not is_distributed():
        return
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    distributed.all_reduce(flat)
    flat /= world_size()
    start = 0
    for gradient in gradients:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()


class _Gather(torch.autograd.Function):
    """Gather rows; torch 2.13 deprecates its own all_gather with gradients.

    Each rank computes the same loss, so the gradients of a slice add up to world_size times the
    right one, until :func:`average_gradients`.
    """

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])  # contiguous, as NCCL requires
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(parts, padded)
        start = sum(sizes[: rank()])
        ctx.own = slice(start, start + len(rows))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        whole = gradients[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(whole)
        return whole[ctx.own], None
