"""Rows of measurements: each is attempted once, written at once, and left out when time is up."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]

GRACE = 15  # seconds that a measurement may go on when the time is up
TRACE = 3000  # last characters of a traceback that are kept


class Rows:
    """A file of rows, one per measurement and card.

    Parameters
    ----------
    path : Path
    device : str
    seconds : float
        No measurement begins after these, and one that is running is interrupted soon after.

    Attributes
    ----------
    failed : list of str
        Names of measurements that raised.
    """

    def __init__(self, path: Path, device: str, seconds: float, *, grace: float = GRACE) -> None:
        self.path, self.device = path, device
        self.failed: list[str] = []
        self.skipped: list[str] = []
        self._grace = grace
        self._end = time.monotonic() + seconds
        self._head = {"card": card_name(device), "torch": torch.__version__}
        path.parent.mkdir(parents=True, exist_ok=True)

    def done(self) -> dict[str, Row]:
        """Rows of this card that succeeded, by name."""
        if not self.path.exists():
            return {}
        rows = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        own = [row for row in rows if row["card"] == self._head["card"]]
        return {row["name"]: row for row in own if row["status"] == "ok"}

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._end - time.monotonic()

    def measure(self, name: str, work: Callable[[], Row], *, needs: float = 1.0) -> Row | None:
        """Write the row of a measurement, unless it is there or fewer seconds are left than needed.

        Returns the row if it succeeded, now or earlier.
        """
        if (earlier := self.done().get(name)) is not None:
            return earlier
        if self.left < needs:
            self.skipped.append(name)
            tell(f"{name}: left out, {max(0.0, self.left):.0f} s are left and it needs {needs:.0f}")
            return None
        row: Row = {"name": name, **self._head, "status": "ok"}
        start = time.perf_counter()
        try:
            reset_peak(self.device)
            with time_limit(self.left + self._grace):
                figures = work()
        except Exception as failure:
            row |= {"status": "failed", "error": f"{type(failure).__name__}: {failure}"[:TRACE]}
            figures = {"trace": traceback.format_exc()[-TRACE:]}
        row |= {"seconds": round(time.perf_counter() - start, 3), "peak_mb": peak_mb(self.device)}
        row |= figures
        if row["status"] != "ok":
            self.failed.append(name)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(row)}\n")
        shown = {key: value for key, value in row.items() if key not in ("card", "torch")}
        tell(json.dumps(shown)[:1500])
        return row if row["status"] == "ok" else None


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds, where the system has such alarms."""
    if not hasattr(signal, "setitimer") or threading.current_thread() != threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"interrupted after {seconds:.0f} s: the time of this part is up")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def card_name(device: str) -> str:
    """Name of the device as rows have it."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def synchronize(device: str) -> None:
    """Wait until a device has done all that it was asked."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def reset_peak(device: str) -> None:
    """Forget the peak memory of a device, and free what is cached."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_mb(device: str) -> float | None:
    """Peak memory of torch's tensors on a device in MB of 10^6 bytes; None on the CPU."""
    if not device.startswith("cuda"):
        return None
    return round(torch.cuda.max_memory_allocated() / 1e6, 1)  # asks torch, not the card
