"""A folder of results that several processes may add to: what is done there, and what is left."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ssdml._version import __version__
from ssdml.datasets.splits import LabelScarceSplit
from ssdml.experiments.runs.job import Outcome, keep
from ssdml.experiments.runs.locks import Claim, Claims, read_claims
from ssdml.experiments.runs.plan import Run, file_name, split_name
from ssdml.experiments.runs.results import (
    RESULTS,
    ResultsLog,
    Row,
    append_row,
    budget_of,
    drop_cut_line,
    drop_rest,
    latest,
    lock_of,
    read_rows,
)

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


# How far a folder of results is: what is done, what runs, what failed and why.

PLANNED = "planned.jsonl"


@dataclass(frozen=True)
class Status:
    """Runs of a folder, by how far they are."""

    n_planned: int
    done: list[Row]
    failed: list[Row]
    running: list[Claim]
    waiting: list[str]  # titles

    @property
    def seconds(self) -> float:
        """Time of those that are done, learning and embedding."""
        return sum(sum(row["seconds"].values()) for row in self.done)


def add_planned(out: Path, runs: Sequence[Run]) -> None:
    """Note the runs that were asked for, those that are not noted yet; the caller has the lock."""
    known = _planned(out)
    new = [run for run in runs if run.config_hash not in known]
    drop_rest(out / PLANNED)
    with (out / PLANNED).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps([run.config_hash, run.title]) + "\n" for run in new)


def read_status(out: Path) -> Status:
    """What runs in a folder, what is done, what failed.

    Raises
    ------
    FileNotFoundError
        Where the folder holds no results.
    """
    claims = out / "claims"
    running = read_claims(claims) if claims.is_dir() else []
    rows = latest(read_rows(out / RESULTS))  # after the claims: none is missed between the two
    at_work = {claim.config_hash for claim in running}
    seen = {row["config_hash"] for row in rows}
    planned = _planned(out)
    return Status(
        n_planned=len(planned.keys() | seen),
        done=[row for row in rows if row["status"] == "ok"],
        failed=[row for row in rows if row["status"] != "ok" and row["config_hash"] not in at_work],
        running=[
            claim for claim in running if claim.config_hash not in seen or _failed(claim, rows)
        ],
        waiting=[title for name, title in planned.items() if name not in seen | at_work],
    )


def run_title(row: Row) -> str:
    """What a run is called, from its row."""
    return f"{row['method']}, {budget_of(row)}, seed {row['seed']}"


def _failed(claim: Claim, rows: Sequence[Row]) -> bool:
    """Whether it is a second attempt."""
    return any(row["config_hash"] == claim.config_hash and row["status"] != "ok" for row in rows)


def _planned(out: Path) -> dict[str, str]:
    """Titles by hash; a line that is being written is left out."""
    path = out / PLANNED
    if not path.is_file():
        return {}
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    return dict(json.loads(line) for line in lines)
