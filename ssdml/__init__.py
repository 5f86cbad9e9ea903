"""Learn a metric from many items and a handful of labels.

The names below load on first use, so that ``import ssdml`` stays light: torch and scikit-learn
come in only with the class that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ssdml import _checkout  # noqa: F401

if TYPE_CHECKING:
    from ssdml.deep import DeepSSDML
    from ssdml.estimator import SSDML

__version__ = "0.1.0"
__all__ = ["SSDML", "DeepSSDML"]

_HOMES = {"SSDML": "ssdml.estimator", "DeepSSDML": "ssdml.deep"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ssdml' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
