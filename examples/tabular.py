"""A table of your own: numbers and a column ``label``, most of it empty.

``python examples/tabular.py table.csv`` says whether a learned metric is worth it, by labeled
rows that it has not seen. Read ``.parquet`` in the same way.
"""

import argparse

from reproduction.tables import usage_errors
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from ssdml import SSDML
from ssdml.datasets import load_dataset
from ssdml.model_selection import SemiSupervisedSplit, labeled_scorer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("table", help="a file that ends in .csv or .parquet")
with usage_errors(parser):
    table = load_dataset(parser.parse_args().table)

print(f"{len(table.y)} rows, {(table.y != -1).sum()} of them labeled")
methods = {
    "self-training": make_pipeline(
        StandardScaler(), SelfTrainingClassifier(LogisticRegression(max_iter=1000))
    ),
    "SSDML": make_pipeline(StandardScaler(), SSDML(random_state=0)),
}
for name, method in methods.items():
    split, scorer = SemiSupervisedSplit(3, random_state=0), labeled_scorer("accuracy")
    scores = cross_val_score(method, table.X, table.y, cv=split, scoring=scorer)
    print(f"{name}: {100 * scores.mean():.1f} % of the labeled rows right")
