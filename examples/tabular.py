"""Your own table: numeric columns and a mostly empty column ``label``.

``python examples/tabular.py table.csv`` cross-validates a learned metric on the labeled samples.
"""

import argparse

from command_line import usage_errors
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from ssdml import SSDML
from ssdml.datasets import load_dataset
from ssdml.model_selection import SemiSupervisedSplit, labeled_scorer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("table", help=".csv or .parquet file")
with usage_errors(parser):
    table = load_dataset(parser.parse_args().table)

print(f"{len(table.y)} samples, {(table.y != -1).sum()} labeled")
methods = {
    "self-training": make_pipeline(
        StandardScaler(), SelfTrainingClassifier(LogisticRegression(max_iter=1000))
    ),
    "SSDML": make_pipeline(StandardScaler(), SSDML(random_state=0)),
}
for name, method in methods.items():
    split, scorer = SemiSupervisedSplit(3, random_state=0), labeled_scorer("accuracy")
    scores = cross_val_score(method, table.X, table.y, cv=split, scoring=scorer)
    print(f"{name}: accuracy {100 * scores.mean():.1f}%")
