"""A device of torch that is not there: its tensors lie in main memory and meet none that do.

What runs on it runs on the CPU, to the same numbers; but a tensor of the CPU beside one of the
device is the error that a graphics card would make of it, and NumPy cannot read it. So it shows
where a program forgets the device, on a machine that has none. What it cannot show is another
device's arithmetic, memory and random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

NAME = "pretended"
MAY_CROSS = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
INDEXED = ("aten::index", "aten::index_put", "aten::_index_put_impl")


class Pretended(torch.Tensor):
    """A tensor that says it is on the device, around one that is not."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Pretended:
        made: Pretended = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    def __repr__(self) -> str:
        return f"Pretended({self.held})"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return dispatched(func, args, kwargs or {})


class OnBoth(TorchDispatchMode):
    """While it is entered, tensors may be made on the device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return dispatched(func, args, kwargs or {})


def dispatched(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation makes, on the device if its arguments are, or if that is asked for."""
    leaves = [*_leaves((*args, *kwargs.values()))]
    devices = [leaf.type for leaf in leaves if isinstance(leaf, torch.device)]
    there = any(isinstance(leaf, Pretended) for leaf in leaves)
    if not there and NAME not in devices:
        return func(*args, **kwargs)
    if there and func not in MAY_CROSS:
        _check_company(func, args, kwargs)
    if NAME in devices and any(isinstance(leaf, torch.Generator) for leaf in leaves):
        raise RuntimeError(f"{func}: a generator of the CPU cannot draw on {NAME!r}.")
    made = func(*map(_here, args), **{name: _here(value) for name, value in kwargs.items()})
    if func is torch.ops.aten.copy_.default:
        return args[0]
    if devices[0] != NAME if devices else not there:
        return made
    made = tree_map_only(torch.Tensor, Pretended, made)
    return return_and_correct_aliasing(func, args, kwargs, made) if there else made


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Arguments of an operation, and entries of lists; faster than torch's trees."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value


def _here(value: Any) -> Any:
    """The same on the CPU."""
    if isinstance(value, Pretended):
        return value.held
    if isinstance(value, list | tuple):
        return [_here(entry) for entry in value]
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _check_company(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where a tensor of the CPU, but for a number, is beside one of the device."""
    if func._schema.name.rstrip("_") in INDEXED:  # also by numbers of rows on the CPU
        args = (args[0], *args[2:])
    for leaf in _leaves((*args, *kwargs.values())):
        if isinstance(leaf, torch.Tensor) and leaf.ndim and not isinstance(leaf, Pretended):
            raise RuntimeError(
                f"{func}: a tensor of shape {tuple(leaf.shape)} is on the CPU, others are on "
                f"{NAME!r}."
            )


class _Module(backend_registration._DummyBackendModule):
    """What torch asks of a device's module; random numbers are the CPU's."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.empty(0)

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        pass


def register() -> None:
    """Make the device known to torch, for as long as the process lives."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, _Module())
