"""Atomic files, cached arrays, and fitted estimators on disk, none of which run code.

Estimators are safetensors and JSON.

The JSON names the file of the arrays, and holds a checksum of itself and of that file. Saving into
the same folder again writes the arrays under another name and then replaces the JSON: an
interrupted save leaves the old model or the new one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ssdml._version import __version__
from ssdml.utils.files import (
    MemoryLimitError,
    as_path,
    check_memory,
    check_regular,
    open_regular,
    read_regular,
)
from ssdml.utils.typing import Array
from ssdml.utils.validation import warn

SCHEMA = 3
CHECKSUM_BYTES = 32  # of SHA-256
UNSIGNED = "0" * 64  # in place of the checksum, while it is computed
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


def keep_array(path: Path, array: Array) -> None:
    """Write an array to a cache, behind its SHA-256; the folder is created if needed.

    Raises OSError if it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as unfinished, unfinished.open("w+b") as file:
        file.write(bytes(CHECKSUM_BYTES))
        np.save(file, array, allow_pickle=False)
        file.seek(CHECKSUM_BYTES)
        checksum = hashlib.file_digest(file, "sha256").digest()
        file.seek(0)
        file.write(checksum)


def kept_array(path: Path) -> Array | None:
    """Read an array of a cache; None if it is not there.

    Warns
    -----
    RuntimeWarning
        If the file is damaged; it is as good as not there.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     keep_array(Path(folder) / "a", np.arange(3))
    ...     kept_array(Path(folder) / "a"), kept_array(Path(folder) / "b")
    (array([0, 1, 2]), None)
    """
    if not os.path.lexists(path):
        return None
    try:
        with open_regular(path) as file:
            checksum = file.read(CHECKSUM_BYTES)
            if hashlib.file_digest(file, "sha256").digest() != checksum:
                raise ValueError("its checksum is wrong")
            file.seek(CHECKSUM_BYTES)
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        warn(f"{path} is damaged ({error}) and will be computed again.", RuntimeWarning)
        return None
    return array


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
    must be serializable as JSON, without NaN and infinity.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    folder = as_path(folder)
    earlier = _arrays_in_use(folder)
    config = {
        "sha256": UNSIGNED,
        "schema": SCHEMA,
        "class": name,
        "ssdml": __version__,
        "arrays": OTHER_ARRAYS if earlier == ARRAYS else ARRAYS,
        "params": params,
        "input": None,  # see `ssdml.cli.samples.Input`
        **more,
    }
    text = _json(config)
    contiguous = {key: np.asarray(value, order="C") for key, value in arrays.items()}
    unfinished = folder / f"{CONFIG}.unfinished"
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with default_mode(folder / config["arrays"]):
            save_file(contiguous, folder / config["arrays"])
        unfinished.write_text(signed(text, folder / config["arrays"]), encoding="utf-8")
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


def _json(config: dict[str, Any]) -> str:
    try:
        return json.dumps(config, indent=2, default=_plain, allow_nan=False) + "\n"
    except ValueError as error:
        raise ValueError(f"save: parameters must be finite numbers ({error}).") from error


def signed(text: str, arrays: Path | None = None) -> str:
    """Put the SHA-256 of a config, and of the file of its arrays, in place of 64 zeros."""
    found = hashlib.sha256()
    if arrays is not None:
        with open_regular(arrays) as file:
            found = hashlib.file_digest(file, "sha256")
    found.update(text.encode())
    return text.replace(UNSIGNED, found.hexdigest(), 1)


def check_signed(text: str, checksum: str, arrays: Path | None = None) -> None:
    """Raise ValueError unless `signed` made the text, with this checksum."""
    if signed(text.replace(checksum, UNSIGNED, 1), arrays) != text:
        raise ValueError("its checksum is wrong: a file has changed since it was saved")


def _cannot_save(name: str, folder: Path, error: Exception) -> OSError:
    """Return the error with the folder and advice."""
    reason = getattr(error, "strerror", None) or str(error)
    text = f"{name}.save: cannot write the model ({reason}). Make room, or save it elsewhere."
    return OSError(getattr(error, "errno", None) or errno.EIO, text, str(folder))


def _arrays_in_use(folder: Path) -> str | None:
    """Return the file of the arrays of the model in a folder; None without a model."""
    try:
        return _arrays_of(_parsed(_config_in(folder)))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _config_in(folder: Path) -> str:
    """Read the JSON of a folder."""
    check_memory(folder / CONFIG, check_regular(folder / CONFIG), 0)
    return read_regular(folder / CONFIG).decode("utf-8")


def _parsed(text: str) -> dict[str, Any]:
    """Parse a config, whose numbers are finite."""
    try:
        config = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(f"{CONFIG} is nested too deeply") from None
    if not isinstance(config, dict):
        raise ValueError(f"{CONFIG} must hold an object")
    return config


def _refuse(constant: str) -> None:
    raise ValueError(f"{CONFIG} must hold finite numbers; got {constant}")


def _arrays_of(config: dict[str, Any]) -> str:
    """Return the file of the arrays, one of two names: no other file is read or removed."""
    file = config.get("arrays", ARRAYS)  # schema 1 may lack it
    if file not in (ARRAYS, OTHER_ARRAYS):
        raise ValueError(f"arrays must be {ARRAYS} or {OTHER_ARRAYS}; got {file!r}")
    return str(file)


def load_state(folder: str | Path, name: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read the config and the arrays that :func:`save_state` wrote for this class.

    Raises
    ------
    FileNotFoundError
        If the folder holds no saved model.
    ValueError
        If the checksum of the model is wrong, it is of another class or a later schema, or a file
        is damaged. The error names the version that wrote it.

    Warns
    -----
    UserWarning
        If the model has no checksum, as those of schema 1.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = as_path(folder)
    _present(folder / CONFIG, name)
    config: dict[str, Any] = {}
    with restoring(folder, name, config):
        text = _config_in(folder)
        config |= _parsed(text)
        schema, saved = int(config["schema"]), str(config["class"])
        if schema > SCHEMA:
            raise Refusal(
                f"{name}.load: {folder}{_writer(config)} has schema {schema}; this version reads "
                f"up to {SCHEMA}. Upgrade ssdml."
            )
        if saved != name:
            raise Refusal(
                f"{name}.load: {folder} must hold a {name}; got a {saved}{_writer(config)}."
            )
        path = _present(folder / _arrays_of(config), name)
        check_regular(path)
        if schema == 1 and "sha256" not in config:
            warn(
                f"{name}.load: {folder}{_writer(config)} has no checksum, and damage may go "
                "unnoticed. Save it again."
            )
        else:
            check_signed(text, config["sha256"], path)
        try:
            arrays = load_file(path)
        except SafetensorError as error:
            raise ValueError(f"{path.name}: {error}") from error
    return config, arrays


class Refusal(ValueError):
    """An error whose message is complete."""


@contextmanager
def restoring(folder: str | Path, name: str, config: Mapping[str, Any]) -> Iterator[None]:
    """Report errors of the block as those of a damaged model, or one of another version."""
    try:
        yield
    except (Refusal, FileNotFoundError):
        raise
    except MemoryLimitError as error:
        raise MemoryLimitError(f"{name}.load: {folder}{_writer(config)}: {error}") from error
    except (ValueError, LookupError, TypeError, ArithmeticError, RuntimeError) as error:
        problem, way_out = "is damaged", "Save it again."
        if config.get("ssdml") not in (None, __version__):
            problem = f"does not fit ssdml {__version__}, or is damaged"
            way_out = "Load it with the version that wrote it, or fit the model again."
        raise ValueError(
            f"{name}.load: {folder}{_writer(config)} {problem}: {error}. {way_out}"
        ) from error


def _writer(config: Mapping[str, Any]) -> str:
    """Version that wrote a model, for messages."""
    version = config.get("ssdml")
    return f" (written by ssdml {version})" if isinstance(version, str) else ""


def check_arrays(arrays: Mapping[str, Array], shapes: Mapping[str, str]) -> None:
    """Raise ValueError or KeyError unless floats are finite and arrays have these shapes.

    Parameters
    ----------
    arrays : dict of str to array
    shapes : dict of str to str
        Kind and axes by name: ``"f n 3"`` means floats of shape (n, 3), ``i`` integers, ``*`` any
        kind. An axis has one length in all arrays. Arrays without an entry may have any shape.

    Examples
    --------
    >>> Z, y = np.zeros((3, 2)), np.zeros(4, int)
    >>> check_arrays({"Z": Z, "y": y}, {"Z": "f n d", "y": "i n"})
    Traceback (most recent call last):
    ValueError: y must have the shape (n,) with n = 3, as Z; got (4,)
    """
    for name, array in arrays.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite; got NaN or infinity")
    lengths: dict[str, tuple[int, str]] = {}
    for name, wanted in shapes.items():
        (kind, *axes), array = wanted.split(), arrays[name]
        if kind not in ("*", array.dtype.kind):
            kinds = {"f": "floating-point numbers", "i": "integers"}
            raise ValueError(f"{name} must hold {kinds[kind]}; got dtype {array.dtype}")
        shape = f"({axes[0]},)" if len(axes) == 1 else f"({', '.join(axes)})"
        if array.ndim != len(axes):
            raise ValueError(f"{name} must have the shape {shape}; got {array.shape}")
        for axis, length in zip(axes, array.shape, strict=True):
            expected, of = lengths.setdefault(axis, (length, f" with {axis} = {length}, as {name}"))
            if axis.isdecimal():
                expected, of = int(axis), ""
            if length != expected:
                raise ValueError(f"{name} must have the shape {shape}{of}; got {array.shape}")


def saved_config(folder: str | Path) -> dict[str, Any]:
    """Return the config of the model in a folder, unchecked; empty if it cannot be read."""
    try:
        return _parsed(_config_in(as_path(folder)))
    except (OSError, ValueError, TypeError):
        return {}


def add_to_config(folder: Path, **more: Any) -> None:
    """Add entries to the config of a model that `save_state` wrote."""
    config = _parsed(_config_in(folder)) | {"sha256": UNSIGNED} | more
    with atomic_write(folder / CONFIG) as unfinished:
        unfinished.write_text(signed(_json(config), folder / _arrays_of(config)), encoding="utf-8")


def _present(file: Path, name: str) -> Path:
    """Return the file if it exists."""
    if file.parent.is_file():
        raise NotADirectoryError(
            f"{name}.load: {file.parent} must be the folder of a saved model; got a file. Commands "
            "take the model first, then the data."
        )
    if not file.exists():
        raise FileNotFoundError(
            f"{name}.load: {file.parent} must hold a saved model; {file.name} is missing."
        )
    return file


def _plain(value: Any) -> Any:
    """Convert NumPy scalars for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"save: parameters must be JSON; got {type(value).__name__} ({value!r}).")
