"""Random numbers of torch from generators of a fit's own, in the thread of that fit alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_global_generator = Lock()


class SeededDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within the block, draw torch's random numbers from generators that the seed determines.

    Initial weights, dropout and other draws of any module are reproducible, whatever runs in other
    threads, and torch's global generators stay as they are. The numbers are those of
    ``torch.manual_seed(seed)``. Blocks may be entered many times, one after another.

    Parameters
    ----------
    seed : int

    Notes
    -----
    Operations that take no generator (attention with dropout in one kernel on CUDA, and all draws
    on devices without generators) seed the global one for a moment, and restore it.

    Examples
    --------
    >>> draws = SeededDraws(0)
    >>> with draws:
    ...     first, second = torch.rand(2), torch.nn.functional.dropout(torch.ones(4))
    >>> bool((first == torch.rand(2, generator=torch.Generator().manual_seed(0))).all())
    True
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed, self._forbidden = seed, False
        self._depth = 0  # of the blocks
        self._generators: dict[torch.device, torch.Generator | None] = {}

    def generator(self, device: torch.device | str = "cpu") -> torch.Generator | None:
        """Return the generator of a device; None if torch has none for it."""
        device = torch.device(device)
        if device not in self._generators:
            try:
                made = torch.Generator(device).manual_seed(self._seed)
            except (RuntimeError, NotImplementedError):
                made = None
            self._generators[device] = made
        return self._generators[device]

    def __enter__(self) -> Self:
        self._depth += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Leave the block for a while, if in one, for operations that need no other generator.

        Within the block each operation takes 6 µs longer.
        """
        if not self._depth:
            yield
            return
        self.__exit__(None, None, None)
        try:
            yield
        finally:
            self.__enter__()

    @contextmanager
    def forbidden(self) -> Iterator[None]:
        """Within the block, raise RuntimeError if a random number is drawn.

        For a backward pass: gradient checkpointing would repeat dropout with other numbers.
        """
        self._forbidden = True
        try:
            with self:
                yield
        finally:
            self._forbidden = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not _is_random(func):
            return func(*args, **kwargs)
        if any(isinstance(leaf, torch.Generator) for leaf in (*args, *kwargs.values())):
            return func(*args, **kwargs)
        if self._forbidden:
            raise RuntimeError(
                "backbone must draw no random numbers in the backward pass, as dropout under "
                f"gradient checkpointing does; got {func}. Disable one of them."
            )
        generator = self.generator(_device(args, kwargs))
        if generator is not None:
            if func is torch.ops.aten.native_dropout.default:
                return _dropout(*args, generator=generator)
            seeded = _with_generator(func)
            if seeded is not None:
                options = kwargs | {"generator": generator}
                return seeded(*args[: _place(seeded)], **options)
        return self._by_global_generator(func, args, kwargs)

    def _by_global_generator(self, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        seed = int(torch.randint(2**63 - 1, (), generator=self.generator()))
        device = _device(args, kwargs)
        devices = [device] if device.type == "cuda" else []
        with _global_generator, torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            return func(*args, **kwargs)


@cache
def _is_random(func: Any) -> bool:
    """Whether an operation draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


def _device(args: tuple[Any, ...], kwargs: Any) -> torch.device:
    """Device of an operation: that asked for, or of its first tensor."""
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    leaves = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
    first = next(leaves, None)
    return torch.device("cpu") if first is None else first.device


def _place(func: Any) -> int:
    """Position of the generator among the arguments of an operation."""
    return [argument.name for argument in func._schema.arguments].index("generator")


def _with_generator(func: Any) -> Any:
    """Return the overload of an operation that takes a generator; None if there is none."""
    if any(argument.name == "generator" for argument in func._schema.arguments):
        return func
    overload = func._schema.overload_name
    name = f"{overload}_generator" if overload else "generator"
    return getattr(func.overloadpacket, name, None)


def _dropout(
    rows: torch.Tensor, p: float, train: bool | None, *, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute what torch's fused dropout does: the scaled rows, and the mask of those kept."""
    if train is False or p == 0:
        return rows.clone(), torch.ones_like(rows, dtype=torch.bool)
    kept = torch.empty_like(rows, dtype=torch.bool).bernoulli_(1 - p, generator=generator)
    return rows * kept * (0.0 if p == 1 else 1 / (1 - p)), kept
