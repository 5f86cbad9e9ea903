"""What two fits must have in common, for the one to go on from the other's checkpoints."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from ssdml.checkpoints import saved_config

UNLIKE = ("checkpoint_dir", "device", "n_jobs", "verbose", "random_state")  # they may differ


def run_seed(random_state: Any, folder: Path | None) -> int:
    """Seed of a run; where any will do, that of the run whose checkpoints are there."""
    if random_state is None and folder is not None:
        saved = saved_config(folder)
        if saved is not None:
            return int(saved["seed"])
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def run_config(
    model: Any,
    shape: tuple[int, ...],
    labels: npt.NDArray[np.int64],
    seed: int,
    standardized: Any,
) -> dict[str, Any]:
    """Settings, labels and items of a run as JSON; the items by their mean and scale."""
    params = {k: v for k, v in model.get_params(deep=False).items() if k not in UNLIKE}
    named = {name: value if _is_json(value) else _name(value) for name, value in params.items()}
    moments = [part.double().sum().item() for part in (standardized.mean, standardized.scale)]
    return named | {
        "seed": seed,
        "item_shape": list(shape),
        "labels": hashlib.sha256(np.ascontiguousarray(labels).tobytes()).hexdigest(),
        "mean and scale of the items": moments,
    }


def _name(value: Any) -> str:
    """Of a function; of anything else what it says of itself, as modules say their layers."""
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)


def _is_json(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bool))
