"""Atomic files, and fitted estimators on disk: safetensors and JSON, so loading runs no code.

The JSON names the file of the arrays. Saving into the same folder again writes the arrays under
another name and then replaces the JSON: an interrupted save leaves the old model or the new one.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ssdml.utils.typing import Array

SCHEMA = 1
CONFIG, ARRAYS, OTHER_ARRAYS = "config.json", "model.safetensors", "model-2.safetensors"


@contextmanager
def atomic_write(path: Path, *, way_out: str = "") -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` on success.

    An OSError names the file and ends with ``way_out``.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")  # one per process
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise cannot_write(path, error, way_out) from error
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def default_mode(path: Path) -> Iterator[None]:
    """Give a file the default permissions; safetensors writes for the owner only.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     plain, own = Path(folder) / "plain", Path(folder) / "own"
    ...     plain.touch()
    ...     with default_mode(own):
    ...         own.chmod(0o600)
    ...     plain.stat().st_mode == own.stat().st_mode
    True
    """
    path.touch()
    mode = path.stat().st_mode
    yield
    path.chmod(mode)


def cannot_write(path: Path, error: OSError, way_out: str = "") -> OSError:
    """Return the error with the path of the file and advice."""
    reason = f"cannot be written ({error.strerror}). {way_out}".strip()
    return OSError(error.errno, reason, str(path))


def save_state(
    folder: str | Path,
    name: str,
    params: dict[str, Any],
    arrays: dict[str, Array],
    **more: Any,
) -> None:
    """Write a fitted estimator into a folder, which is created if needed.

    A model in the folder is replaced atomically; a failed save leaves nothing behind.

    ``name`` is the class, checked by `load_state`. Constructor arguments ``params`` and ``more``
    must be serializable as JSON.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    import ssdml

    folder = Path(folder)
    earlier = _arrays_in_use(folder)
    config = {
        "schema": SCHEMA,
        "class": name,
        "ssdml": ssdml.__version__,
        "arrays": OTHER_ARRAYS if earlier == ARRAYS else ARRAYS,
        "params": params,
        **more,
    }
    text = json.dumps(config, indent=2, default=_plain) + "\n"
    contiguous = {key: np.asarray(value, order="C") for key, value in arrays.items()}
    unfinished = folder / f"{CONFIG}.unfinished"
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with default_mode(folder / config["arrays"]):
            save_file(contiguous, folder / config["arrays"])
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(folder / CONFIG)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):  # cleaning up may fail too
            (folder / config["arrays"]).unlink(missing_ok=True)
            unfinished.unlink(missing_ok=True)
            for path in made:
                path.rmdir()
        raise _cannot_save(name, folder, error) from error
    if earlier is not None:
        (folder / earlier).unlink(missing_ok=True)


def _cannot_save(name: str, folder: Path, error: Exception) -> OSError:
    """Return the error with the folder and advice."""
    reason = getattr(error, "strerror", None) or str(error)
    text = f"{name}.save: cannot write the model ({reason}). Make room, or save it elsewhere."
    return OSError(getattr(error, "errno", None) or errno.EIO, text, str(folder))


def _arrays_in_use(folder: Path) -> str | None:
    """Return the file of the arrays of the model in a folder; None without a model."""
    try:
        return _arrays_of(_config_in(folder))
    except (OSError, ValueError, TypeError):
        return None


def _config_in(folder: Path) -> Any:
    """Read the JSON of a folder."""
    return json.loads((folder / CONFIG).read_text(encoding="utf-8"))


def _arrays_of(config: dict[str, Any]) -> str:
    """Return the file of the arrays, one of two names: no other file is read or removed."""
    file = config["arrays"] if "arrays" in config else ARRAYS
    if file not in (ARRAYS, OTHER_ARRAYS):
        raise ValueError(f"arrays must be {ARRAYS} or {OTHER_ARRAYS}; got {file!r}")
    return str(file)


def load_state(folder: str | Path, name: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read the config and the arrays that :func:`save_state` wrote for this class.

    Raises FileNotFoundError if the folder holds no saved model, and ValueError if it holds another
    class, a later schema, or a damaged file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    try:
        _present(folder / CONFIG, name)
        config = _config_in(folder)
        arrays = load_file(_present(folder / _arrays_of(config), name))
        saved, schema = str(config["class"]), int(config["schema"])
    except (ValueError, SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"{name}.load: {folder} is damaged: {error}. Save it again.") from error
    if saved != name:
        raise ValueError(f"{name}.load: {folder} must hold a {name}; got a {saved}.")
    if schema > SCHEMA:
        raise ValueError(
            f"{name}.load: {folder} has schema {schema}; this version reads up to {SCHEMA}. "
            "Upgrade ssdml."
        )
    return config, arrays


def saved_class(folder: str | Path) -> str | None:
    """Return the class name of the model in a folder; None if it cannot be read."""
    try:
        return str(_config_in(Path(folder))["class"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _present(file: Path, name: str) -> Path:
    """Return the file if it exists."""
    if not file.is_file():
        raise FileNotFoundError(
            f"{name}.load: {file.parent} must hold a saved model; {file.name} is missing."
        )
    return file


def _plain(value: Any) -> Any:
    """Convert NumPy scalars for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"save: parameters must be JSON; got {type(value).__name__} ({value!r}).")
