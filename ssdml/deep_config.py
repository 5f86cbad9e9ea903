"""What two fits must have in common, for the one to go on from the other's checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state
from torch import nn

from ssdml.checkpoints import digest, saved_config
from ssdml.items import Items

UNLIKE = ("checkpoint_dir", "device", "n_jobs", "verbose", "random_state")  # they may differ


def run_seed(random_state: Any, folder: Path | None) -> int:
    """Seed of a run; where any will do, that of the run whose checkpoints are there."""
    if random_state is None and folder is not None:
        saved = saved_config(folder)
        if saved is not None and "seed" in saved:
            return int(saved["seed"])
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def run_config(
    model: Any, items: Items, labels: npt.NDArray[np.int64], seed: int
) -> dict[str, Any]:
    """Settings, labels and items of a run as JSON."""
    params = {k: v for k, v in model.get_params(deep=False).items() if k not in UNLIKE}
    return {name: described(value) for name, value in params.items()} | {
        "seed": seed,
        "item_shape": list(items.shape),
        "labels": hashlib.sha256(np.ascontiguousarray(labels).tobytes()).hexdigest(),
        "items": digest({str(len(items)): items.compared()}),
    }


def described(value: Any) -> Any:
    """What is the same in every process that makes a value anew, as JSON.

    Numbers and words stay what they are; functions and classes go by their names, a lambda, which
    has none, by its code too, if not by what it closes over; what is built of others by these,
    modules by their layers and the plain attributes of each. Weights are not part of it.

    Examples
    --------
    >>> described([0.5, partial(np.clip, a_min=0)])
    [0.5, ['functools.partial', 'numpy.clip', [], {'a_min': 0}]]
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [described(part) for part in value]
    if isinstance(value, Mapping):
        return {str(name): described(part) for name, part in value.items()}
    if isinstance(value, partial):
        kind = ["functools.partial", described(value.func)]
        return [*kind, described(value.args), described(value.keywords)]
    if hasattr(value, "__qualname__"):
        name = f"{value.__module__}.{value.__qualname__}"
        code = getattr(value, "__code__", None) if name.endswith("<lambda>") else None
        return name if code is None else [name, _body(code)]
    if isinstance(value, nn.Module):
        return [repr(value), [_plain(part) for part in value.modules()]]
    if getattr(type(value), "__repr__", None) is object.__repr__:  # tells where it lies in memory
        return [described(type(value)), _plain(value)]
    return repr(value)


def _body(code: CodeType) -> str:
    """SHA-256 of what a function does: of its code, and that of functions within it."""
    constants = [
        _body(part)
        if isinstance(part, CodeType)
        else sorted(map(repr, part))  # a set has another order in every process
        if isinstance(part, frozenset)
        else repr(part)
        for part in code.co_consts
    ]
    whole = repr((code.co_code, constants, code.co_names, code.co_freevars))
    return hashlib.sha256(whole.encode()).hexdigest()


def _plain(value: Any) -> dict[str, Any]:
    """Public attributes of an object that are numbers, words, names of functions, or several."""
    attributes = getattr(value, "__dict__", {})
    return {
        name: described(part)
        for name, part in attributes.items()
        if not name.startswith("_") and name != "training" and _is_plain(part)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float)) or hasattr(value, "__qualname__")
