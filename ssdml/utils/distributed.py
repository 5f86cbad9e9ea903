"""Several processes under torchrun: all take the same step, on batches that they may share.

Every rank draws the same batches and views. Our alternation embeds its own slice of them and
gathers the rest: so losses that look at whole batches stay as they are, and the gradient is that of
one process, for networks that look at items one by one. Batch normalization sees a slice
(torch.nn.SyncBatchNorm does not). The published alternation and the baselines embed every batch
whole on every rank, and share graphs and metrics.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import distributed, nn

T = TypeVar("T")
PATIENCE = timedelta(hours=2)  # with the first process, which builds the graphs


def in_group() -> bool:
    """Whether this process is one of several."""
    return n_ranks() > 1


def n_ranks() -> int:
    """How many processes work together; 1 on one's own."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return 1


def rank() -> int:
    """Number of this process among them; 0 on one's own."""
    return distributed.get_rank() if n_ranks() > 1 else 0


def join_group(device: str) -> str:
    """Join the processes that torchrun started, if it did: gloo on a CPU, NCCL on CUDA.

    Returns the device, which of several GPUs is this process's own.

    Raises
    ------
    ValueError
        If it is the GPU of another process of this machine, or the machine has not so many.
    """
    started = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ
    if not started or not distributed.is_available():
        return device
    own = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    is_alone = os.environ.get("LOCAL_WORLD_SIZE", "1") == "1"  # on this machine
    if device.startswith("cuda:") and device != own and not is_alone:
        raise ValueError(
            "device must be 'cuda' under torchrun, where each process takes a GPU, this one "
            f"{own}; got {device!r}, which another one takes."
        )
    if device == "cuda":
        device = own
    if device.startswith("cuda") and int(device[5:]) >= torch.cuda.device_count():
        raise ValueError(
            "torchrun must start no more processes on a machine than it has GPUs; got "
            f"{device} for this one, and it sees {torch.cuda.device_count()}. Lower "
            "--nproc-per-node, let CUDA_VISIBLE_DEVICES show them all, or pass device='cpu'."
        )
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    if not distributed.is_initialized():
        backend = "nccl" if device.startswith("cuda") else "gloo"
        store, own, size = next(distributed.rendezvous("env://"))  # type: ignore[attr-defined]
        # Torchrun may keep its store when it begins anew: the addresses of the dead stay in it.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = distributed.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
        distributed.init_process_group(
            backend, store=store, rank=own, world_size=size, timeout=PATIENCE
        )
    return device


def own_share(size: int) -> slice:
    """Rows of a batch that this process embeds; its size must be a multiple of the ranks."""
    if size % n_ranks():
        raise ValueError(f"batch_size must be a multiple of the {n_ranks()} processes; got {size}.")
    share = size // n_ranks()
    return slice(rank() * share, (rank() + 1) * share)


def gathered(rows: torch.Tensor) -> torch.Tensor:
    """Rows of all ranks, in their order; gradients flow back to each rank's own."""
    if not in_group():
        return rows
    whole: torch.Tensor = _Gather.apply(rows)  # type: ignore[no-untyped-call]
    return whole


def from_first_rank(compute: Callable[[], T]) -> T:
    """What the first process computes, for all of them."""
    if not in_group():
        return compute()
    message = [compute() if rank() == 0 else None]
    distributed.broadcast_object_list(message, src=0)
    return cast(T, message[0])


def share_weights(module: nn.Module) -> None:
    """Give a module of every process what that of the first holds."""
    if in_group():
        state = {name: value.cpu() for name, value in module.state_dict().items()}
        module.load_state_dict(from_first_rank(lambda: state))


def average_gradients(module: nn.Module) -> None:
    """The mean over all ranks, in one message."""
    if not in_group():
        return
    given = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in given])
    distributed.all_reduce(flat)
    flat /= n_ranks()
    start = 0
    for gradient in given:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()


class _Gather(torch.autograd.Function):
    """The whole on every rank.

    All compute the same loss of it, so that their gradients of a slice add up to n times its own;
    the mean over the ranks, which follows, is the right one.
    """

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        rows = rows.contiguous()  # NCCL takes no others
        parts = [torch.empty_like(rows) for _ in range(n_ranks())]
        distributed.all_gather(parts, rows)
        ctx.size = len(rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        whole = gradients[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(whole)
        start = rank() * ctx.size
        return whole[start : start + ctx.size]
