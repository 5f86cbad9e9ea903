"""Checkpoints of a run: atomic to write, and readable only by a run with the same configuration.

A checkpoint is one safetensors file with JSON in its header. The last two are kept, in case the
newest is damaged.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn

from ssdml.networks.data import Samples
from ssdml.utils.files import check_regular
from ssdml.utils.persistence import default_mode
from ssdml.utils.torch_tools import as_bytes
from ssdml.utils.typing import Ints
from ssdml.utils.validation import warn

SCHEMA = 2
KEPT = 2
NAME = re.compile(r"partition-(\d{4,})\.safetensors")


class Checkpoint(NamedTuple):
    """State that a run resumes from."""

    number: int  # of completed partitions
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]  # JSON

    def part(self, prefix: str) -> dict[str, torch.Tensor]:
        """Tensors named ``prefix.*``, without the prefix."""
        names = [name for name in self.tensors if name.startswith(f"{prefix}.")]
        return {name[len(prefix) + 1 :]: self.tensors[name] for name in names}


def save_checkpoint(folder: Path, checkpoint: Checkpoint, config: dict[str, Any]) -> Path:
    """Write a checkpoint of a run with this configuration; keep the last two.

    Raises OSError if the file cannot be written, and leaves earlier checkpoints untouched.

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

    tensors = {  # copies: safetensors refuses tensors that share memory, such as tied weights
        name: part.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, part in checkpoint.tensors.items()
    }
    content = {"config": config, "state": checkpoint.state}
    header = {"schema": SCHEMA, "sha256": _checksum(tensors, content), **content}
    file = folder / f"partition-{checkpoint.number:04d}.safetensors"
    unfinished = file.with_suffix(".unfinished")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with default_mode(unfinished):
            save_file(tensors, unfinished, metadata={"ssdml": json.dumps(header)})
        unfinished.replace(file)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):  # the folder may be a file
            unfinished.unlink()
        raise OSError(
            getattr(error, "errno", None) or errno.EIO,
            f"checkpoint cannot be written ({getattr(error, 'strerror', None) or error}). Free "
            "disk space or use another checkpoint_dir; the run resumes from the last checkpoint",
            str(file),
        ) from error
    # Later checkpoints are damaged: the run would have resumed from them.
    earlier_files = [other for other in _files(folder) if _number(other) <= checkpoint.number]
    for earlier in earlier_files[:-KEPT]:
        earlier.unlink()
    return file


def load_checkpoint(folder: Path, config: dict[str, Any], who: str) -> Checkpoint | None:
    """Read the last intact checkpoint of a run with this configuration; None if there is none.

    Raises ValueError if the configuration differs, and warns of damaged files, which are skipped.
    ``who`` begins the messages.
    """
    for file in reversed(_files(folder)):
        try:
            header, tensors = _read(file)
        except (ValueError, OSError) as error:
            warn(
                f"{who}: {file} is damaged ({error}); resuming from the checkpoint before it, or "
                "from the start.",
                RuntimeWarning,
            )
            continue
        _check_config(header["config"], config, file, who)
        return Checkpoint(_number(file), tensors, header["state"])
    return None


def refuse_other_run(folder: Path, config: dict[str, Any], who: str) -> None:
    """Raise if a run with another configuration has written a checkpoint meanwhile."""
    saved = saved_config(folder)
    if saved is not None:
        _check_config(saved, config, folder, who)


def saved_config(folder: Path) -> dict[str, Any] | None:
    """Read the configuration of the last intact checkpoint; None if there is none."""
    for file in reversed(_files(folder)):
        with suppress(ValueError, OSError):
            return _read(file)[0]["config"]
    return None


def digest(*states: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of named tensors, in any order.

    Examples
    --------
    >>> one, other = ({"weight": torch.tensor([value])} for value in (1.0, 2.0))
    >>> digest(one) == digest(one), digest(one) == digest(other)
    (True, False)
    """
    found = hashlib.sha256()
    for name, value in (entry for state in states for entry in sorted(state.items())):
        found.update(name.encode())
        found.update(as_bytes(value.cpu()).numpy().data)
    return found.hexdigest()


def _checksum(tensors: Mapping[str, torch.Tensor], content: dict[str, Any]) -> str:
    """SHA-256 of tensors, their shapes and dtypes, and the rest of a checkpoint as JSON."""
    kinds = {name: [str(part.dtype), list(part.shape)] for name, part in tensors.items()}
    text = json.dumps([digest(tensors), kinds, content], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, in order."""
    return sorted(filter(_number, folder.glob("partition-*")), key=_number)


def _number(file: Path) -> int:
    """Completed partitions by the file's name; 0 for other files."""
    found = NAME.fullmatch(file.name)
    return int(found[1]) if found else 0


def _read(file: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    from safetensors import SafetensorError, safe_open

    check_regular(file)
    try:
        with safe_open(file, framework="pt") as content:
            header = json.loads((content.metadata() or {})["ssdml"])
            tensors = {name: content.get_tensor(name) for name in content.keys()}
        schema = int(header["schema"])
        known = {"config": dict(header["config"]), "state": dict(header["state"])}
        is_whole = header["sha256"] == _checksum(tensors, known)
    except (SafetensorError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if schema != SCHEMA:
        raise ValueError(f"schema {schema}; this version reads schema {SCHEMA}")
    if not is_whole:
        raise ValueError("its checksum is wrong")
    return known, tensors


def _check_config(saved: dict[str, Any], config: dict[str, Any], path: Path, who: str) -> None:
    wanted = json.loads(json.dumps(config))
    names = sorted(name for name in saved | wanted if saved.get(name) != wanted.get(name))
    if names:
        differing = ", ".join(f"{name}={saved.get(name)!r}" for name in names[:4])
        raise ValueError(
            f"{who}: checkpoint_dir must hold checkpoints of the same parameters and data; got "
            f"{differing} in {path}. Use another checkpoint_dir or empty this one."
        )


UNCOMPARED = ("checkpoint_dir", "device", "n_jobs", "verbose", "random_state")


def run_seed(random_state: Any, folder: Path | None) -> int:
    """Draw the seed of a run; without ``random_state``, reuse that of existing checkpoints."""
    if random_state is None and folder is not None:
        saved = saved_config(folder)
        if saved is not None and "seed" in saved:
            return int(saved["seed"])
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def run_config(model: Any, samples: Samples, labels: Ints, seed: int) -> dict[str, Any]:
    """Describe parameters, labels and samples of a run as JSON; resuming compares them."""
    params = {k: v for k, v in model.get_params(deep=False).items() if k not in UNCOMPARED}
    return {name: describe(value) for name, value in params.items()} | {
        "seed": seed,
        "item_shape": list(samples.shape),
        "labels": hashlib.sha256(np.ascontiguousarray(labels).tobytes()).hexdigest(),
        "samples": digest({str(len(samples)): samples.compared()}),
    }


def describe(value: Any) -> Any:
    """Describe a parameter as JSON, equally in every process.

    Numbers and strings stay; functions and classes become their names, lambdas their bytecode, both
    with the values that they hold; modules their layers and plain attributes. Weights are not
    included.

    Examples
    --------
    >>> describe([0.5, partial(np.clip, a_min=0)])
    [0.5, ['functools.partial', 'numpy.clip', [], {'a_min': 0}]]
    """
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [describe(part) for part in value]
    if isinstance(value, Mapping):
        return {str(name): describe(part) for name, part in value.items()}
    if isinstance(value, partial):
        kind = ["functools.partial", describe(value.func)]
        return [*kind, describe(value.args), describe(value.keywords)]
    if hasattr(value, "__qualname__"):
        name = f"{value.__module__}.{value.__qualname__}"
        code = getattr(value, "__code__", None) if name.endswith("<lambda>") else None
        more = [*([] if code is None else [_body(code)]), *_kept(value)]
        return [name, *more] if more else name
    if isinstance(value, nn.Module):
        return [repr(value), [_plain(part) for part in value.modules()]]
    if getattr(type(value), "__repr__", None) is object.__repr__:  # names a memory address
        return [describe(type(value)), _plain(value)]
    return repr(value)


def _kept(function: Any) -> list[Any]:
    """Numbers, strings and sequences of these in the defaults and the closure of a function."""
    held = [*(getattr(function, "__defaults__", None) or ())]
    with suppress(ValueError):  # of a cell without content
        held += [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    return [describe(part) for part in held if not callable(part) and _is_plain(part)]


def _body(code: CodeType) -> str:
    """SHA-256 of bytecode, including that of inner functions."""
    constants = [
        _body(part)
        if isinstance(part, CodeType)
        else sorted(map(repr, part))  # the order of a set differs between processes
        if isinstance(part, frozenset)
        else repr(part)
        for part in code.co_consts
    ]
    whole = repr((code.co_code, constants, code.co_names, code.co_freevars))
    return hashlib.sha256(whole.encode()).hexdigest()


def _plain(value: Any) -> dict[str, Any]:
    """Public attributes that are numbers, strings, functions or sequences of these."""
    attributes = getattr(value, "__dict__", {})
    return {
        name: describe(part)
        for name, part in attributes.items()
        if not name.startswith("_") and name != "training" and _is_plain(part)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, int, float)) or hasattr(value, "__qualname__")
