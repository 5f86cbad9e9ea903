"""What a run costs and what it ran on: peak memory, versions."""

from __future__ import annotations

import platform
import threading
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType

from ssdml._version import __version__

PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "faiss-cpu", "pymanopt")
INTERVAL = 0.02  # seconds between two looks at the memory


class PeakMemory:
    """Largest resident memory of this process, in MB of 10^6 bytes, while the block runs.

    The resident memory is the whole process: the interpreter, the libraries and the data are
    counted too. It is sampled every 20 ms by a thread, so a spike shorter than that may be missed.

    Examples
    --------
    >>> with PeakMemory() as memory:
    ...     block = bytes(10**6)
    >>> memory.megabytes > 1
    True
    """

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        import psutil

        self._process = psutil.Process()
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Look for the last time; what comes later is not counted."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._look()

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        self.megabytes = max(self.megabytes, self._process.memory_info().rss / 1e6)


def versions() -> dict[str, str]:
    """Versions of ssdml, Python and the packages whose code decides a result, and the platform."""
    found = {"ssdml": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    found["platform"] = f"{platform.system()} {platform.machine()}"
    return found
