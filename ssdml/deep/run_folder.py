"""The folder of a run: what is there of it, and what each partition leaves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.deep.checkpoints import (
    Checkpoint,
    load_checkpoint,
    run_config,
    run_seed,
    save_checkpoint,
)
from ssdml.deep.trainer import PartitionRun
from ssdml.networks.data import Items
from ssdml.utils.distributed import from_first_rank, rank
from ssdml.utils.persistence import cannot_write, whole_file


class RunFolder:
    """Checkpoints and history of a run; where an estimator names no folder, there are none.

    Parameters
    ----------
    model : estimator
        With ``checkpoint_dir`` and ``random_state``.
    items : Items
    labels : array of shape (n,), int

    Attributes
    ----------
    seed : int
        Of the run.
    n_done : int
        Partitions that the last checkpoint has.

    Raises
    ------
    ValueError
        If checkpoints belong to a run with other settings or data.
    OSError
        If nothing can be written there.
    """

    def __init__(self, model: Any, items: Items, labels: npt.NDArray[np.int64]) -> None:
        path = None if model.checkpoint_dir is None else Path(model.checkpoint_dir)
        self.seed = from_first_rank(lambda: run_seed(model.random_state, path))
        self._path, self._config = path, dict[str, Any]()
        self._found: Checkpoint | None = None
        if path is not None:
            if rank() == 0:  # which alone writes there
                _check_writable(path)
            self._found = from_first_rank(lambda: self._last(path, model, items, labels))
        self.n_done = 0 if self._found is None else self._found.number

    def _last(
        self, path: Path, model: Any, items: Items, labels: npt.NDArray[np.int64]
    ) -> Checkpoint | None:
        """The last checkpoint; all items are looked at, which one process does for all."""
        self._config = run_config(model, items, labels, self.seed)
        return load_checkpoint(path, self._config, type(model).__name__)

    def resume(self, run: PartitionRun) -> None:
        """Put a run where its last checkpoint is, if there is one."""
        if self._found is None or self._path is None:
            return
        run.resume(self._found)
        self._found = None  # its tensors are the run's now
        if rank() == 0:
            write_history(self._path, run.history)  # it may lack the last line

    def keep(self, run: PartitionRun) -> None:
        """Write where a run stands; the first process does it for all."""
        if self._path is not None and rank() == 0:
            save_checkpoint(self._path, run.checkpoint(), self._config)
            write_history(self._path, run.history)


def _check_writable(path: Path) -> None:
    """Raise before hours of training where the folder cannot be made, or written to."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise cannot_write(path, error, "Name another checkpoint_dir.") from error


# What a long training leaves for those who watch it, and says when memory runs out.


def write_history(folder: Path, history: list[dict[str, Any]]) -> None:
    r"""A line of JSON for each partition in ``history.jsonl``, written anew: whole at any time.

    Numbers of the last partition go to TensorBoard as well, where it is installed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_history(Path(folder), [{"partition": 1, "loss": 0.5}])
    ...     (Path(folder) / "history.jsonl").read_text()
    '{"partition": 1, "loss": 0.5}\n'
    """
    with whole_file(folder / "history.jsonl") as unfinished:
        lines = "".join(f"{json.dumps(_finite(entry), allow_nan=False)}\n" for entry in history)
        unfinished.write_text(lines, encoding="utf-8")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return
    with SummaryWriter(str(folder / "tensorboard")) as writer:
        for name, value in _scalars(history[-1]):
            writer.add_scalar(name, value, history[-1]["partition"])


def _finite(value: Any) -> Any:
    """The same, with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scalars(entry: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Numbers of an entry by name, those of a dictionary in it as name/key."""
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from ((f"{name}/{key}", number) for key, number in value.items())
        elif isinstance(value, int | float) and name != "partition":
            yield name, value
