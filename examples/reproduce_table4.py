"""Table 4 of the paper, orthogonality of L, and what each part of ours is worth.

``python examples/reproduce_table4.py mnist --seeds 5 --out table4`` runs every line over the seeds,
on the same labels, and goes on where it was stopped; ``--only`` picks lines. Hours without a GPU.
"""

import argparse
from pathlib import Path

from ssdml.datasets import load_dataset
from ssdml.experiments.printed import LABELS_PER_CLASS, TABLE_4, beside
from ssdml.experiments.run import compare
from ssdml.experiments.terminal import shown_runs

LINES = [
    "input",
    "deep-ssdml-paper",
    "deep-ssdml-paper[orthogonal=false]",
    "deep-ssdml",
    "deep-ssdml[orthogonal=false]",
    "deep-ssdml[metric_steps=0]",
    "deep-ssdml[consistency=0]",
    "deep-ssdml[triplets=0]",
    "deep-ssdml[averaging=0]",
    "deep-ssdml[augment=null]",
    "deep-ssdml[input_edges=0]",
    "deep-ssdml[input_weight=0]",
    "deep-ssdml[angle=35]",
    "deep-ssdml[angle=45]",
    "deep-ssdml[angle=55]",
]

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dataset", choices=TABLE_4)
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--out", type=Path, default=Path("table4"))
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
    print("\n".join(beside(rows, TABLE_4)))
