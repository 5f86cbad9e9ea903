"""A progress bar on standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def progress(items: Iterable[T], what: str, total: int) -> Iterable[T]:
    """Yield the items, with a bar if there is a terminal."""
    console = Console(stderr=True)
    hidden = not console.is_terminal
    return track(items, what, total=total, console=console, disable=hidden)
