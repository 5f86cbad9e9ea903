"""Table 1 of the paper: its method, the baselines it compares with, and ours, on three sets.

``python examples/reproduce_table1.py mnist --seeds 5 --out table1`` runs every line over the seeds,
on the same labels, and goes on where it was stopped; ``--only`` picks lines. Hours without a GPU.
"""

import argparse
from pathlib import Path

from ssdml.datasets import load_dataset
from ssdml.experiments.printed import LABELS_PER_CLASS, TABLE_1, beside
from ssdml.experiments.run import compare
from ssdml.experiments.terminal import shown_runs

LINES = ["input", *TABLE_1["mnist"], "deep-ssdml"]

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", choices=TABLE_1)
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--out", type=Path, default=Path("table1"))
parser.add_argument("--n-jobs", type=int, default=1, help="runs at a time")
parser.add_argument("--only", nargs="+", default=LINES, choices=LINES, metavar="LINE")


if __name__ == "__main__":
    given = parser.parse_args()
    with shown_runs(given.out) as progress:
        rows = compare(
            load_dataset(given.dataset),
            given.only,
            labels_per_class=[LABELS_PER_CLASS[given.dataset]],
            seeds=range(given.seeds),
            out=given.out,
            deep=True,
            resume=True,
            n_jobs=given.n_jobs,
            progress=progress,
        )
    print("\n".join(beside(rows, TABLE_1)))
