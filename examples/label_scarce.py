"""Compare methods on few labels, paired over seeds, with intervals and a report.

``python examples/label_scarce.py [FOLDER [SEEDS]]`` resumes an interrupted comparison.
"""

import argparse

from command_line import positive
from sklearn.decomposition import KernelPCA

from ssdml.datasets import load_dataset
from ssdml.experiments import METHODS, compare
from ssdml.experiments.analysis.tables import score_tables
from ssdml.experiments.report import write_report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", nargs="?", default="comparison")
parser.add_argument("seeds", type=positive, nargs="?", default=5)
given = parser.parse_args()

# Your own method: anything with fit(X, y) and transform(X); y holds -1 for unlabeled samples.
METHODS["kernel-pca"] = lambda seed, n_jobs: KernelPCA(30, kernel="rbf", random_state=seed)

rows = compare(
    load_dataset("digits"),
    ["input", "kernel-pca", "lda", "ssdml"],
    labels_per_class=[2, 5, 10],
    seeds=range(given.seeds),
    out=given.folder,
    resume=True,
)

for table in score_tables(rows):
    print(f"\n{table.labels_per_class} labels per class: NMI, gain over the input")
    for line in table.lines:
        nmi = line.scores["NMI"]
        print(f"  {line.method:10} {nmi.estimate.mean:5.1f} {nmi.difference.mean:+6.1f}")

print(f"\nReport: {write_report(given.folder)}")
