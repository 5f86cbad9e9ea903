"""Texts of your own: a CSV with the columns ``text`` and ``label``, most labels empty.

``python examples/text.py texts.csv found.csv`` writes the class of every text, by the texts' words;
with ``all-MiniLM-L6-v2`` behind it, or another model of sentence-transformers, by their meaning.
"""

import argparse
import csv

import numpy as np
from reproduction.tables import usage_errors

from ssdml import SSDML
from ssdml.datasets import load_dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("table", help="a file that ends in .csv or .parquet")
parser.add_argument("found", help="file to write")
parser.add_argument("text_model", nargs="?", default="words")
given = parser.parse_args()
with usage_errors(parser):
    data = load_dataset(given.table, text_model=given.text_model)

model = SSDML(random_state=0).fit(data.X, data.y)
n_labeled, n_classes = np.sum(data.y != -1), len(data.class_names)
print(f"{len(data.y)} texts, {n_labeled} of them labeled with one of {n_classes} classes")
with open(given.found, "w", newline="", encoding="utf-8") as file:
    classes = np.array(data.class_names)[model.transduction_]
    csv.writer(file).writerows([("text", "label"), *zip(data.texts, classes, strict=True)])
