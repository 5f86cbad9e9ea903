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


@contextmanager
def usual_mode(path: Path) -> Iterator[None]:
    """A file that its writer makes for the owner alone, as safetensors does, is as any other here.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     plain, own = Path(folder) / "plain", Path(folder) / "own"
    ...     plain.touch()
    ...     with usual_mode(own):
    ...         own.chmod(0o600)
    ...     plain.stat().st_mode == own.stat().st_mode
    True
    """
    path.touch()
    mode = path.stat().st_mode
    yield
    path.chmod(mode)


def cannot_write(path: Path, error: OSError, way_out: str = "") -> OSError:
    """The error with the file that was meant and what to do."""
    reason = f"cannot be written ({error.strerror}). {way_out}".strip()
    return OSError(error.errno, reason, str(path))
