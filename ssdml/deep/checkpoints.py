"""Where training stands, on disk: whole or not there, and only ever read by the run it belongs to.

A checkpoint is one safetensors file; what is not an array stands as JSON in its header. The last
two are kept: should the newest turn out damaged, the run goes on from the one before.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import check_random_state
from torch import nn

from ssdml.networks.data import Items
from ssdml.utils.persistence import usual_mode

SCHEMA = 1
KEPT = 2
NAME = re.compile(r"partition-(\d{4,})\.safetensors")


class Checkpoint(NamedTuple):
    """What a run needs to go on."""

    number: int  # partitions that are done
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]  # JSON

    def part(self, prefix: str) -> dict[str, torch.Tensor]:
        """Tensors whose names begin with the prefix and a dot, without these."""
        names = [name for name in self.tensors if name.startswith(f"{prefix}.")]
        return {name[len(prefix) + 1 :]: self.tensors[name] for name in names}


def save_checkpoint(folder: Path, checkpoint: Checkpoint, config: dict[str, Any]) -> Path:
    """Write a checkpoint of a run with this configuration; the one before the last goes.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    checkpoint : Checkpoint
    config : dict
        JSON; :func:`load_checkpoint` wants it to be the same.

    Returns
    -------
    file : path

    Raises
    ------
    OSError
        Where it cannot be written: earlier checkpoints are still there.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> done = Checkpoint(1, {"weight": torch.ones(2)}, {"losses": [0.5]})
    >>> with TemporaryDirectory() as folder:
    ...     file = save_checkpoint(Path(folder), done, {"seed": 0})
    ...     file.name, load_checkpoint(Path(folder), {"seed": 0}, "fit").state
    ('partition-0001.safetensors', {'losses': [0.5]})
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {  # copies: safetensors refuses parts that share memory, as tied weights do
        name: part.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, part in checkpoint.tensors.items()
    }
    header = {"schema": SCHEMA, "sha256": digest(tensors), "config": config}
    header["state"] = checkpoint.state
    file = folder / f"partition-{checkpoint.number:04d}.safetensors"
    unfinished = file.with_suffix(".unfinished")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with usual_mode(unfinished):
            save_file(tensors, unfinished, metadata={"ssdml": json.dumps(header)})
        unfinished.replace(file)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):  # such as where the folder is a file
            unfinished.unlink()
        raise OSError(
            getattr(error, "errno", None) or errno.EIO,
            f"a checkpoint cannot be written ({getattr(error, 'strerror', None) or error}). Make "
            "room, or name another checkpoint_dir; the run goes on from the last one",
            str(file),
        ) from error
    # Later ones are damaged, or this run would have gone on from them; they do not count.
    those_before = [other for other in _files(folder) if _number(other) <= checkpoint.number]
    for earlier in those_before[:-KEPT]:
        earlier.unlink()
    return file


def load_checkpoint(folder: Path, config: dict[str, Any], who: str) -> Checkpoint | None:
    """The last checkpoint of a run with this configuration that is whole; None if there is none.

    Parameters
    ----------
    folder : path
    config : dict
    who : str
        Beginning of messages.

    Raises
    ------
    ValueError
        If it belongs to a run with another configuration.

    Warns
    -----
    RuntimeWarning
        For a damaged file, which is passed over.
    """
    for file in reversed(_files(folder)):
        try:
            header, tensors = _read(file)
        except (ValueError, OSError) as error:
            warnings.warn(
                f"{who}: {file} is damaged ({error}); going on from the checkpoint before it, "
                "or from the start.",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        _check_config(header["config"], config, file, who)
        return Checkpoint(_number(file), tensors, header["state"])
    return None


def saved_config(folder: Path) -> dict[str, Any] | None:
    """Configuration of the last checkpoint that is whole; None if there is none."""
    for file in reversed(_files(folder)):
        with suppress(ValueError, OSError):
            config: dict[str, Any] = _read(file)[0]["config"]
            return config
    return None


def digest(*states: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of tensors with their names, in whatever order.

    Examples
    --------
    >>> one, other = ({"weight": torch.tensor([value])} for value in (1.0, 2.0))
    >>> digest(one) == digest(one), digest(one) == digest(other)
    (True, False)
    """
    found = hashlib.sha256()
    for name, value in (entry for state in states for entry in sorted(state.items())):
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _files(folder: Path) -> list[Path]:
    """Checkpoints in a folder, the earliest first."""
    return sorted(filter(_number, folder.glob("partition-*")), key=_number)


def _number(file: Path) -> int:
    """Partitions that are done in a checkpoint, by its name; 0 of other files."""
    found = NAME.fullmatch(file.name)
    return int(found[1]) if found else 0


def _read(file: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as content:
            header = json.loads((content.metadata() or {})["ssdml"])
            tensors = {name: content.get_tensor(name) for name in content.keys()}
        is_newer = header["schema"] > SCHEMA
        known = {"config": dict(header["config"]), "state": dict(header["state"])}
        is_whole = header["sha256"] == digest(tensors)
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if is_newer:
        raise ValueError(f"schema {header['schema']}; this version reads up to {SCHEMA}")
    if not is_whole:
        raise ValueError("its tensors are not those that were written")
    return known, tensors


def _check_config(saved: dict[str, Any], config: dict[str, Any], file: Path, who: str) -> None:
    wanted = json.loads(json.dumps(config))
    names = sorted(name for name in saved | wanted if saved.get(name) != wanted.get(name))
    if names:
        changes = ", ".join(f"{name} {saved.get(name)!r} there" for name in names[:4])
        raise ValueError(
            f"{who}: {file} must come from a run with the same settings and data; got {changes}. "
            "Name another checkpoint_dir, or empty this one."
        )


# What two fits must have in common, for the one to go on from the other's checkpoints.

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
