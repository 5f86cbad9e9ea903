"""Checks of the numbers that a loss is made with."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def check_number(
    value: Any, name: str, who: str, *, above: float | None = None, least: float | None = None
) -> None:
    """Raise unless this is a finite number, above ``above`` and not below ``least``."""
    if not isinstance(value, Real):
        raise TypeError(f"{who}: {name} must be a number; got {value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{who}: {name} must be finite; got {value}.")
    if above is not None and value <= above:
        raise ValueError(f"{who}: {name} must be above {above:g}; got {value}.")
    if least is not None and value < least:
        raise ValueError(f"{who}: {name} must be at least {least:g}; got {value}.")


def check_count(value: Any, name: str, who: str, *, least: int = 1) -> None:
    """Raise unless this is a whole number, and not below ``least``."""
    if not isinstance(value, Integral):
        raise TypeError(f"{who}: {name} must be a whole number; got {value!r}.")
    if value < least:
        raise ValueError(f"{who}: {name} must be at least {least}; got {value}.")


def check_rate(value: Any, who: str) -> None:
    """Raise unless this is a learning rate, or None for that of the optimiser."""
    if value is not None:
        check_number(value, "learning_rate", who, least=0)
