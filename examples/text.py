"""Texts of your own: a CSV with the columns ``text`` and ``label``, most labels empty.

``python examples/text.py texts.csv found.csv`` writes the class of every text. Sentence
embeddings where sentence-transformers is installed, else components of the words' weights.
"""

import csv
import sys

import numpy as np

from ssdml import SSDML
from ssdml.datasets import encode_partial_labels


def embedded(texts):
    """Rows of unit length, one a text."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.preprocessing import normalize

        words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts)
        components = TruncatedSVD(min(100, words.shape[1] - 1), random_state=0)
        return normalize(components.fit_transform(words))
    return SentenceTransformer("all-MiniLM-L6-v2").encode(texts, normalize_embeddings=True)


with open(sys.argv[1], newline="", encoding="utf-8") as file:
    texts, labels = zip(*[(row["text"], row["label"]) for row in csv.DictReader(file)], strict=True)
y, names = encode_partial_labels(labels)  # "" has no label
model = SSDML(random_state=0).fit(embedded(texts), y)
print(f"{len(y)} texts, {np.sum(y != -1)} of them labelled with one of {len(names)} classes")
with open(sys.argv[2], "w", newline="", encoding="utf-8") as file:
    found = zip(texts, names[model.transduction_], strict=True)
    csv.writer(file).writerows([("text", "label"), *found])
