"""The folder of a run: what is there of it, and what each partition leaves."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

from ssdml.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from ssdml.deep_config import run_config, run_seed
from ssdml.files import cannot_write
from ssdml.items import Items
from ssdml.journal import write_history
from ssdml.partition_run import PartitionRun
from ssdml.ranks import from_first_rank, rank


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
