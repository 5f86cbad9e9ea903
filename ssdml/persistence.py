"""Fitted estimators on disk: arrays as safetensors, the rest as JSON. Loading runs no code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SCHEMA = 1
ARRAYS, CONFIG = "model.safetensors", "config.json"


def save_state(
    folder: str | Path,
    name: str,
    params: dict[str, Any],
    arrays: dict[str, npt.NDArray[Any]],
    **more: Any,
) -> None:
    """Write a fitted estimator into a folder, which is made if it is not there.

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
    """
    from safetensors.numpy import save_file

    import ssdml

    config = {
        "schema": SCHEMA,
        "class": name,
        "ssdml": ssdml.__version__,
        "params": params,
        **more,
    }
    text = json.dumps(config, indent=2, default=_plain) + "\n"
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contiguous = {key: np.asarray(value, order="C") for key, value in arrays.items()}
    save_file(contiguous, folder / ARRAYS)
    (folder / CONFIG).write_text(text, encoding="utf-8")


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
    for file in (CONFIG, ARRAYS):
        if not (folder / file).is_file():
            raise FileNotFoundError(
                f"{name}.load: {folder} must hold a saved model; {file} is missing."
            )
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        arrays = load_file(folder / ARRAYS)
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


def _plain(value: Any) -> Any:
    """JSON of a NumPy number."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"save: parameters must be JSON; got {type(value).__name__} ({value!r}).")
