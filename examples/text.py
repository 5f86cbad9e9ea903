"""Label your own texts: a CSV with columns ``text`` and ``label``, most labels empty.

``python examples/text.py texts.csv found.csv`` writes the class of every text, from TF-IDF; append
``all-MiniLM-L6-v2`` or another model of sentence-transformers to use embeddings.
"""

import argparse
import csv

import numpy as np
from command_line import usage_errors

from ssdml import SSDML
from ssdml.datasets import load_dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("table", help=".csv or .parquet file")
parser.add_argument("found", help="file to write")
parser.add_argument("text_model", nargs="?", default="words")
given = parser.parse_args()
with usage_errors(parser):
    data = load_dataset(given.table, text_model=given.text_model)

model = SSDML(random_state=0).fit(data.X, data.y)
n_labeled, n_classes = np.sum(data.y != -1), len(data.class_names)
print(f"{len(data.y)} texts, {n_labeled} labeled, {n_classes} classes")
with open(given.found, "w", newline="", encoding="utf-8") as file:
    classes = np.array(data.class_names)[model.transduction_]
    csv.writer(file).writerows([("text", "label"), *zip(data.texts, classes, strict=True)])
