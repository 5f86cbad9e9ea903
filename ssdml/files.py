"""Files that are whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path, *, way_out: str = "") -> Iterator[Path]:
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


def cannot_write(path: Path, error: OSError, way_out: str = "") -> OSError:
    """The error with the file that was meant and what to do."""
    reason = f"cannot be written ({error.strerror}). {way_out}".strip()
    return OSError(error.errno, reason, str(path))
