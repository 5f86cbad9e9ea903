"""How far a folder of results is: what is done, what runs, what failed and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ssdml.experiments.claims import Claim, read_claims
from ssdml.experiments.plan import Run
from ssdml.experiments.results import RESULTS, Row, budget_of, drop_rest, latest, read_rows

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
