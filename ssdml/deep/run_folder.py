"""Folder of a run: checkpoints and the history, one line per partition."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from ssdml.deep.checkpoints import (
    Checkpoint,
    load_checkpoint,
    refuse_other_run,
    run_config,
    run_seed,
    save_checkpoint,
)
from ssdml.deep.trainer import PartitionTrainer
from ssdml.networks.data import Samples
from ssdml.utils.distributed import from_first_rank, rank
from ssdml.utils.files import as_path
from ssdml.utils.persistence import atomic_write, cannot_write
from ssdml.utils.typing import Ints


class RunFolder:
    """Read and write the checkpoints of a fit; does nothing if ``checkpoint_dir`` is None.

    ``seed`` is the seed of the run, ``n_done`` the number of partitions in the last checkpoint.
    Raises ValueError if the checkpoints belong to a run with other parameters or data, and OSError
    if the folder is not writable.
    """

    def __init__(self, model: Any, samples: Samples, labels: Ints) -> None:
        if model.checkpoint_dir == "":
            raise ValueError(
                f"{type(model).__name__}: checkpoint_dir must name a folder, or be None; got ''. "
                "Omit it, or pass '.' for the current folder."
            )
        path = None if model.checkpoint_dir is None else as_path(model.checkpoint_dir)
        self.seed = from_first_rank(lambda: run_seed(model.random_state, path))
        self._path, self._config, self._who = path, dict[str, Any](), type(model).__name__
        self._found: Checkpoint | None = None
        if path is not None:
            if rank() == 0:  # the only rank that writes
                _check_writable(path)
            self._found = from_first_rank(lambda: self._last(path, model, samples, labels))
        self.n_done = 0 if self._found is None else self._found.number

    def _last(self, path: Path, model: Any, samples: Samples, labels: Ints) -> Checkpoint | None:
        self._config = run_config(model, samples, labels, self.seed)
        return load_checkpoint(path, self._config, self._who)

    def resume(self, trainer: PartitionTrainer) -> None:
        """Resume from the last checkpoint, if there is one."""
        if self._found is None or self._path is None:
            return
        trainer.resume(self._found)
        self._found = None  # frees its tensors
        if rank() == 0:
            write_history(self._path, trainer.history)  # may lack the last line

    def keep(self, trainer: PartitionTrainer) -> None:
        """Write a checkpoint and the history, on the first rank.

        Raise ValueError if a run that began at the same time keeps other checkpoints there.
        """
        if self._path is not None and rank() == 0:
            refuse_other_run(self._path, self._config, self._who)
            save_checkpoint(self._path, trainer.checkpoint(), self._config)
            write_history(self._path, trainer.history)


def _check_writable(path: Path) -> None:
    """Fail before hours of training if the folder is not writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise cannot_write(path, error, "Use another checkpoint_dir.") from error


def write_history(folder: Path, history: list[dict[str, Any]]) -> None:
    r"""Write the history to ``history.jsonl``, atomically, and the last entry to TensorBoard.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_history(Path(folder), [{"partition": 1, "loss": 0.5}])
    ...     (Path(folder) / "history.jsonl").read_text()
    '{"partition": 1, "loss": 0.5}\n'
    """
    with atomic_write(folder / "history.jsonl") as unfinished:
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
    """Replace numbers that JSON lacks by None."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _scalars(entry: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of an entry by name; nested ones as name/key."""
    for name, value in entry.items():
        if isinstance(value, dict):
            yield from ((f"{name}/{key}", number) for key, number in value.items())
        elif isinstance(value, int | float) and name != "partition":
            yield name, value
