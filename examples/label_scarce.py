"""Compare methods when labels are scarce: paired over seeds, with intervals and a report.

Run it as ``python examples/label_scarce.py [FOLDER [SEEDS]]``; it goes on where it was stopped.
"""

import argparse

from reproduction.tables import positive
from sklearn.decomposition import KernelPCA

from ssdml.datasets import load_dataset
from ssdml.experiments import METHODS, compare
from ssdml.experiments.analysis.tables import score_tables
from ssdml.experiments.report import write_report

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", nargs="?", default="comparison")
parser.add_argument("seeds", type=positive, nargs="?", default=5)
given = parser.parse_args()

# A method of your own: from a seed to anything with fit(X, y), y holding -1, and transform(X).
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
    print(f"\n{table.labels_per_class} labels a class: NMI, and its gain over the input")
    for line in table.lines:
        nmi = line.scores["NMI"]
        print(f"  {line.method:10} {nmi.estimate.mean:5.1f} {nmi.difference.mean:+6.1f}")

print(f"\nThe report: {write_report(given.folder)}")
