"""Table 4 of the paper, orthogonality of L, and what each part of ours is worth.

``python examples/reproduce_table4.py mnist --seeds 5 --out table4`` runs every line over the seeds,
on the same labels, and goes on where it was stopped; ``--only`` picks lines. Hours without a GPU.
"""

import argparse
from pathlib import Path

from ssdml.datasets import load_dataset
from ssdml.experiments.run import compare
from ssdml.experiments.tables import score_tables
from ssdml.experiments.terminal import shown_runs

# Dutta, Harandi, Sekhar, AAAI 2021, Table 4: NMI and R@1 without and with orthogonality.
PRINTED = {
    "mnist": {"deep-ssdml-paper[orthogonal=false]": (42.9, 91.5), "deep-ssdml-paper": (47.5, 93.9)},
    "fashion_mnist": {
        "deep-ssdml-paper[orthogonal=false]": (50.3, 73.3),
        "deep-ssdml-paper": (52.1, 77.6),
    },
    "cifar10": {
        "deep-ssdml-paper[orthogonal=false]": (19.0, 37.4),
        "deep-ssdml-paper": (25.3, 41.4),
    },
}
LABELS = {"mnist": 10, "fashion_mnist": 10, "cifar10": 100}
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
parser.add_argument("dataset", choices=PRINTED)
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
            labels_per_class=[LABELS[given.dataset]],
            seeds=range(given.seeds),
            out=given.out,
            deep=True,
            resume=True,
            n_jobs=given.n_jobs,
            progress=progress,
        )
    for table in score_tables(rows):
        print(f"{table.dataset}, {table.labels_per_class} labels a class: NMI, R@1 (printed)")
        for line in table.lines:
            nmi, recall = (line.scores[name].estimate for name in ("NMI", "R@1"))
            printed = PRINTED[given.dataset].get(line.method)
            print(
                f"{line.method:36} {nmi.mean:5.1f} ± {nmi.half_width:3.1f}  "
                f"{recall.mean:5.1f} ± {recall.half_width:3.1f}  {printed or ''}"
            )
