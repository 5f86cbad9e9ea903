"""A folder of results that several processes may add to: what is done there, and what is left."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

from ssdml import __version__
from ssdml.datasets import LabelScarceSplit
from ssdml.experiments.claims import Claims
from ssdml.experiments.job import Outcome, keep
from ssdml.experiments.plan import Run, file_name, split_name
from ssdml.experiments.results import (
    RESULTS,
    ResultsLog,
    Row,
    append_row,
    drop_cut_line,
    latest,
    lock_of,
)
from ssdml.experiments.status import PLANNED, add_planned

SPLITS = "splits"
Progress = Callable[[int, int, str], None]


class ResultsFolder:
    """What is done in a folder, by this process and others, and what this one adds."""

    def __init__(self, out: Path, runs: list[Run], claims: Claims, progress: Progress) -> None:
        self.out, self.runs, self.claims, self.progress = out, runs, claims, progress
        self.results = _open_results(out, runs)
        self._log = ResultsLog(self.results)
        earlier = self._log.news()
        _warn_of_other_versions(self.results, earlier)
        # What failed before is tried again; what fails from now on, here or elsewhere, is not.
        self.done = {row["config_hash"]: row for row in latest(earlier) if row["status"] == "ok"}
        self._tell()

    def left(self) -> list[Run]:
        """Runs that are not done."""
        self._look()
        return [run for run in self.runs if run.config_hash not in self.done]

    def take(self, run: Run) -> bool:
        """Begin with a run, unless another process is at it or has just done it."""
        if run.config_hash in self.done or not self.claims.take(run):
            return False
        self._look()  # after the lock: whoever had it has written its row
        if run.config_hash in self.done:
            self.claims.release(run.config_hash, done=True)
            return False
        return True

    def give_back(self, run: Run) -> None:
        """Leave a run to whoever takes it next."""
        self.claims.release(run.config_hash)

    def write(self, outcome: Outcome) -> None:
        """Write the row of a run, and all that belongs to it."""
        keep(outcome, self.out)
        append_row(self.results, outcome.row)
        self._look()
        self.claims.release(outcome.run.config_hash, done=outcome.row["status"] == "ok")
        self._tell()

    def _look(self) -> None:
        self.done |= {row["config_hash"]: row for row in self._log.news()}

    def _tell(self) -> None:
        left = [run for run in self.runs if run.config_hash not in self.done]
        title = left[0].title if left else ""
        self.progress(len(self.runs) - len(left), len(self.runs), title)


def drop_plan(out: Path) -> None:
    """Forget which runs were asked for, and on which splits."""
    (out / PLANNED).unlink(missing_ok=True)
    shutil.rmtree(out / SPLITS, ignore_errors=True)


def _open_results(out: Path, runs: list[Run]) -> Path:
    """The results file, ready for the next row; what is planned and the splits stand beside it."""
    out.mkdir(parents=True, exist_ok=True)
    results = out / RESULTS
    results.touch()
    drop_cut_line(results)
    with lock_of(results):  # of two that begin at the same time
        _save_splits(out / SPLITS, runs)
        add_planned(out, runs)
    return results


def _warn_of_other_versions(results: Path, rows: list[Row]) -> None:
    others = {row["versions"].get("ssdml", "unknown") for row in rows} - {__version__}
    if others:
        warnings.warn(
            f"{results}: holds runs of ssdml {', '.join(sorted(others))}, and this is "
            f"{__version__}; they are kept as they are. Name another folder to do all anew.",
            stacklevel=4,
        )


def _save_splits(folder: Path, runs: list[Run]) -> None:
    """One file a split; a file of that name must hold the same split."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in {run.split.digest: run.split for run in runs}.values():
        name = f"{runs[0].config['dataset']}-{split_name(split)}"
        path = folder / f"{file_name(name)}.json"
        if not path.exists():
            split.save(path)
        elif LabelScarceSplit.load(path).digest != split.digest:
            raise ValueError(
                f"{path}: holds another split than the one of this data set; the data have "
                "changed since. Name another folder."
            )
