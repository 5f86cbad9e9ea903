"""What a long training leaves for those who watch it, and says when memory runs out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ssdml.files import whole_file

# What plain RuntimeErrors say of it: torch's on a CPU, those of cuBLAS and cuDNN,
# and of CUDA where a card is full before anything of this process is on it.
NO_ROOM = re.compile("can't allocate memory|ALLOC_FAILED|out of memory")


def write_history(folder: Path, history: list[dict[str, Any]]) -> None:
    r"""A line of JSON for each partition in ``history.jsonl``, written anew: whole at any time.

    Numbers of the last partition go to TensorBoard as well, where it is installed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_history(Path(folder), [{"partition": 1, "loss": 0.5}])
    ...     (Path(folder) / "history.jsonl").read_text()
    '{"partition": 1, "loss": 0.5}\n'
    """
    with whole_file(folder / "history.jsonl") as unfinished:
        lines = "".join(f"{json.dumps(_finite(entry), allow_nan=False)}\n" for entry in history)
        unfinished.write_text(lines, encoding="utf-8")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return
    with SummaryWriter(str(folder / "tensorboard")) as writer:
        for name, value in _scalars(history[-1]):
            writer.add_scalar(name, value, history[-1]["partition"])


def _finite(value: Any) -> Any:
    """The same, with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scalars(entry: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Numbers of an entry by name, those of a dictionary in it as name/key."""
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from ((f"{name}/{key}", number) for key, number in value.items())
        elif isinstance(value, int | float) and name != "partition":
            yield name, value


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
