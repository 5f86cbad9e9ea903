"""Measure labeling: ``python -m tools.labeling suggest labeled novelty``.

``suggest``: accuracy with labels as ``suggest_labels`` chooses them, beside random ones, and
TypiClust and margins of scikit-activeml, from two to five labels per class. ``labeled``: expected
accuracy against the true one, and ``relabel`` with ten more labels against a new fit. ``novelty``:
rows of no class with a label. Rows go to ``docs/results/labeling/`` and are not measured again
while they are there; ``python docs/tables.py`` makes the tables.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ssdml.utils.parallel import limited_threads
from tools.labeling import measures
from tools.robust.progress import progress

ROOT = Path(__file__).resolve().parents[2]
SIX = ("wine", "breast_cancer", "digits", "mnist", "fashion_mnist", "caltech101", "banking77")
PARTS: Mapping[str, tuple[Callable[[str, int], list[measures.Row]], tuple[str, ...]]] = {
    "suggest": (measures.suggest, SIX),
    "labeled": (measures.labeled, ("digits", "mnist", "caltech101", "banking77")),
    "novelty": (measures.novelty, ("banking77", "banking77_oos", "caltech101")),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what has no row yet."""
    parser = argparse.ArgumentParser(prog="python -m tools.labeling", description=__doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--sets", nargs="+", default=None)
    parser.add_argument("--seeds", default=5, type=int, help="how many")
    parser.add_argument("--out", default=ROOT / "docs" / "results" / "labeling", type=Path)
    given = parser.parse_args(arguments)
    runs = list(pending(given.parts, given.sets, given.seeds, given.out))
    for part, name, seed in progress(runs, "labeling", len(runs)):
        with limited_threads(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of small classes
            rows = PARTS[part][0](name, seed)
        given.out.mkdir(parents=True, exist_ok=True)
        with (given.out / f"{part}.jsonl").open("a", encoding="utf-8") as file:
            for row in rows:
                file.write(f"{json.dumps({'set': name, 'seed': seed} | row)}\n")
    return 0


def pending(
    parts: Sequence[str], sets: Sequence[str] | None, n_seeds: int, out: Path
) -> Iterator[tuple[str, str, int]]:
    """Parts, sets and seeds without a row, seed by seed."""
    for seed in range(n_seeds):
        for part in parts:
            done = {(row["set"], row["seed"]) for row in read_rows(out, part)}
            for name in PARTS[part][1]:
                if (sets is None or name in sets) and (name, seed) not in done:
                    yield part, name, seed


def read_rows(out: Path, part: str) -> list[measures.Row]:
    """Rows of a part."""
    path = out / f"{part}.jsonl"
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
