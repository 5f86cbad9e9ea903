"""Fitted estimators on disk: arrays as safetensors, the rest as JSON. Loading runs no code.

The JSON names the file of its arrays. A folder that is saved to again gets the new arrays under
another name, and one replacement of the JSON turns the old model into the new one: whenever a save
is cut short, the folder holds the one or the other.
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
import numpy.typing as npt

SCHEMA = 1
CONFIG, ARRAYS, OTHER_ARRAYS = "config.json", "model.safetensors", "model-2.safetensors"


def save_state(
    folder: str | Path,
    name: str,
    params: dict[str, Any],
    arrays: dict[str, npt.NDArray[Any]],
    **more: Any,
) -> None:
    """Write a fitted estimator into a folder, which is made if it is not there.

    A model that the folder holds is replaced at once at the end, or not at all; a save that fails
    leaves nothing behind.

    Parameters
    ----------
    folder : path
    name : str
        Class of the estimator; :func:`load_state` asks for it again.
    params : dict
        Constructor arguments; must be JSON.
    arrays : dict of arrays
    **more
        Other JSON to keep.

    Raises
    ------
    OSError
        Where the disk is full or refuses, or a file is in the way; it names the folder and the way
        out.
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
        with suppress(OSError):  # a disk that refuses to write may refuse this as well
            (folder / config["arrays"]).unlink(missing_ok=True)
            unfinished.unlink(missing_ok=True)
            for path in made:
                path.rmdir()
        raise _cannot_save(name, folder, error) from error
    if earlier is not None:
        (folder / earlier).unlink(missing_ok=True)


def _cannot_save(name: str, folder: Path, error: Exception) -> OSError:
    """The error with the folder that was meant and what to do."""
    reason = getattr(error, "strerror", None) or str(error)
    text = f"{name}.save: cannot write the model ({reason}). Make room, or save it elsewhere."
    return OSError(getattr(error, "errno", None) or errno.EIO, text, str(folder))


def _arrays_in_use(folder: Path) -> str | None:
    """File of the arrays of the model that a folder holds; None if it holds none."""
    try:
        return _arrays_of(_config_in(folder))
    except (OSError, ValueError, TypeError):
        return None


def _config_in(folder: Path) -> Any:
    """What stands in a folder's JSON, whatever it is."""
    return json.loads((folder / CONFIG).read_text(encoding="utf-8"))


def _arrays_of(config: dict[str, Any]) -> str:
    """Which of the two names a config has for its arrays: no other file is ever read or removed."""
    file = config["arrays"] if "arrays" in config else ARRAYS
    if file not in (ARRAYS, OTHER_ARRAYS):
        raise ValueError(f"arrays must be {ARRAYS} or {OTHER_ARRAYS}; got {file!r}")
    return str(file)


def load_state(folder: str | Path, name: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Config and arrays that :func:`save_state` wrote for a class of this name.

    Raises
    ------
    FileNotFoundError
        If the folder is not one that was saved to.
    ValueError
        If it holds another class, a later schema, or a damaged file.
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
    """Name of the class that a folder holds; None where it cannot be read."""
    try:
        return str(_config_in(Path(folder))["class"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _present(file: Path, name: str) -> Path:
    """The file, if it is there."""
    if not file.is_file():
        raise FileNotFoundError(
            f"{name}.load: {file.parent} must hold a saved model; {file.name} is missing."
        )
    return file


def _plain(value: Any) -> Any:
    """JSON of a NumPy number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"save: parameters must be JSON; got {type(value).__name__} ({value!r}).")


# Files that are whole or not there.


@contextmanager
def atomic_write(path: Path, *, way_out: str = "") -> Iterator[Path]:
    """Where to write what becomes ``path`` at the end, if nothing went wrong.

    Raises
    ------
    OSError
        Where it cannot be written; it names the file and says ``way_out``.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")  # each process its own
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise cannot_write(path, error, way_out) from error
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def default_mode(path: Path) -> Iterator[None]:
    """A file that its writer makes for the owner alone, as safetensors does, is as any other here.

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
    """The error with the file that was meant and what to do."""
    reason = f"cannot be written ({error.strerror}). {way_out}".strip()
    return OSError(error.errno, reason, str(path))
