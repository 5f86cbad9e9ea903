"""Texts of your own: a CSV with the columns ``text`` and ``label``, most labels empty.

``python examples/text.py texts.csv found.csv`` writes the class of every text, by the texts' words;
with ``all-MiniLM-L6-v2`` behind it, or another model of sentence-transformers, by their meaning.
"""

import csv
import sys

import numpy as np

from ssdml import SSDML
from ssdml.datasets import load_dataset

table, found, text_model = (*sys.argv[1:], "words")[:3]
data = load_dataset(table, text_model=text_model)
model = SSDML(random_state=0).fit(data.X, data.y)
n_labeled, n_classes = np.sum(data.y != -1), len(data.class_names)
print(f"{len(data.y)} texts, {n_labeled} of them labelled with one of {n_classes} classes")
with open(found, "w", newline="", encoding="utf-8") as file:
    classes = np.array(data.class_names)[model.transduction_]
    csv.writer(file).writerows([("text", "label"), *zip(data.texts, classes, strict=True)])
