"""Peak memory of a run and the versions of what it ran on."""

from __future__ import annotations

import platform
import threading
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Self

import psutil

from ssdml._version import __version__

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "faiss-cpu", "pymanopt")
INTERVAL = 0.02  # seconds between two samples of the memory


class PeakMemory:
    """Peak resident memory of this process within the block, in MB of 10^6 bytes.

    It counts the whole process: interpreter, libraries and data. A thread samples it every 20 ms;
    shorter peaks may be missed.

    Examples
    --------
    >>> with PeakMemory() as memory:
    ...     block = bytes(10**6)
    >>> memory.megabytes > 1
    True
    """

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Take the last sample; later allocations do not count."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._sample()

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._sample()

    def _sample(self) -> None:
        self.megabytes = max(self.megabytes, self._process.memory_info().rss / 1e6)


def versions() -> dict[str, str]:
    """Versions of ssdml, Python and the packages that decide a result, and the platform."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    found = {"ssdml": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    found["platform"] = f"{platform.system()} {platform.machine()}"
    return found
